"""Consume from the page cache: with Apache Kafka's Java consumer by assignment, and by raw fetches.

The raw rows drop the bytes inside the kernel, so the broker is the limit; their bytes are those on the wire.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench import pump
from bench.rows import Goal, Sample, Setting, TopicRow, per_gb, per_request
from bench.wire import Batch, batch, produce_frame

if TYPE_CHECKING:
    from bench.brokers import Broker

KB, MB = 1024, 1 << 20


@dataclass
class Consume(TopicRow):
    """A topic filled before the clock starts, every partition with the same batches."""

    size: int = field(kw_only=True)
    batch: int = field(kw_only=True)
    codec: str = field(default="none", kw_only=True)

    def built(self) -> Batch:
        return batch(self.size, self.batch, self.codec)

    def prepare(self, broker: Broker, setting: Setting) -> None:
        super().prepare(broker, setting)
        data = self.built().data
        frame = produce_frame(self.topic, dict.fromkeys(range(self.partitions), data), 1)
        with broker.connect() as connection:
            for _ in range(self.count(setting)):
                connection.call(frame)

    def count(self, setting: Setting) -> int:
        """How many batches each partition holds."""
        return max(2, setting.fill_mb * MB // (len(self.built().data) * self.partitions))

    def run(self, broker: Broker, setting: Setting) -> Sample:
        assert setting.client is not None
        options = {"topic": self.topic, "partitions": self.partitions}
        return per_gb(setting.client.run("consume", broker, seconds=setting.seconds, **options))


@dataclass
class Fetch(Consume):
    partition_max: int = field(kw_only=True)
    connections: int = field(kw_only=True)

    def run(self, broker: Broker, setting: Setting) -> Sample:
        built = self.built()
        step = max(1, self.partition_max // len(built.data))
        offsets = range(0, (self.count(setting) - step + 1) * built.records, step * built.records)
        wanted = {"partition_max": self.partition_max, "connections": self.connections}
        answer = pump.fetch(broker, self.topic, offsets, setting.stretch, **wanted)
        return per_gb(answer) if self.partition_max >= MB else per_request(answer)


def rows() -> list[Consume]:
    level = (Goal("mb_s", 1.0), Goal("cpu_s_gb", 1.0))
    tail = Goal("p99_ms", 1.0)
    small = (Goal("req_s", 1.0), Goal("us_req", 1.0), tail)
    return [
        Consume("consume 100 B, 16 kB, 1 part.", level, size=100, batch=16 * KB),
        Consume("consume 1000 B, 128 kB, 6 part.", level, size=1000, batch=128 * KB, partitions=6),
        Consume("consume 1000 B, 128 kB, lz4, 1 part.", level, size=1000, batch=128 * KB, codec="lz4"),
        Fetch("fetch 1 MB, 1 conn.", (*level, tail), size=100, batch=16 * KB, partition_max=MB, connections=1),
        Fetch("fetch 1 MB, 4 conn.", (*level, tail), size=100, batch=16 * KB, partition_max=MB, connections=4),
        Fetch("fetch 16 kB, 20 conn.", small, size=100, batch=16 * KB, partition_max=16 * KB, connections=20),
    ]
