"""Replay: pre-encoded produce requests, so that the broker is the limit.

Four connections with five requests in flight each, as a Java producer has; a request carries one full batch for each
partition. The batches carry no producer id, so the same bytes may be sent for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench import pump
from bench.rows import Sample, Setting, TopicRow, batched, per_gb
from bench.wire import Batch, batch, produce_frame, produce_shape

if TYPE_CHECKING:
    from bench.brokers import Broker

KB = 1024


@dataclass
class Replay(TopicRow):
    size: int = field(kw_only=True)
    batch: int = field(kw_only=True)
    acks: int = field(default=1, kw_only=True)
    codec: str = field(default="none", kw_only=True)
    connections: int = field(default=4, kw_only=True)
    window: int = field(default=5, kw_only=True)

    def prepare(self, broker: Broker, setting: Setting) -> None:
        """One request before the clock starts: the first append to a partition opens its files."""
        super().prepare(broker, setting)
        with broker.connect() as connection:
            connection.call(self.frame())

    def run(self, broker: Broker, setting: Setting) -> Sample:
        frame, value_bytes = self.frame(), self.built().value_bytes * self.partitions
        shape, stretch = produce_shape(self.topic, self.partitions), setting.stretch
        frames, sizes = [frame] * self.connections, [value_bytes] * self.connections
        answer = pump.produce(broker, frames, shape, stretch, value_bytes=sizes, window=self.window)
        return per_gb(answer)

    def frame(self) -> bytes:
        return produce_frame(self.topic, dict.fromkeys(range(self.partitions), self.built().data), self.acks)

    def built(self) -> Batch:
        return batch(self.size, self.batch, self.codec)


def replay(size: int, kilobytes: int, acks: int = 1, codec: str = "none", partitions: int = 1) -> Replay:
    name = f"replay {size} B, {kilobytes} kB, acks={acks}, {codec}, {partitions} part."
    return Replay(name, batched(1.5), size=size, batch=kilobytes * KB, acks=acks, codec=codec, partitions=partitions)


def rows() -> list[Replay]:
    every = [replay(100, kilobytes, acks) for kilobytes in (16, 128) for acks in (1, -1)]
    every += [replay(100, kilobytes, 1, "lz4") for kilobytes in (16, 128)]
    every += [replay(100, kilobytes, -1, "none", 6) for kilobytes in (16, 128)]
    every += [replay(200, 16), replay(1000, 16), replay(1000, 128)]
    wide = "500 partitions, 1 kB to each in one request"
    return [*every, Replay(wide, batched(), size=100, batch=KB, partitions=500, connections=2, window=1)]
