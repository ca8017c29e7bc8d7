"""Produce with real clients: the Java client in the combinations a user is likely to run, franz-go and librdkafka.

The client may well be the limit here; then the broker's CPU seconds per GB tell the brokers apart. acks=-1 is the
clients' default and makes the producer idempotent; acks=1 is not. Record values are log lines.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

from bench.rows import Sample, Setting, WritingRow, batched, per_gb

if TYPE_CHECKING:
    from bench.brokers import Broker


@dataclass
class Produce(WritingRow):
    size: int = field(kw_only=True)
    batch: int = field(kw_only=True)
    acks: int = field(kw_only=True)
    codec: str = field(kw_only=True)
    client: str = field(default="java", kw_only=True)

    def run(self, broker: Broker, setting: Setting) -> Sample:
        assert setting.client is not None
        options = {"topic": self.topic, "size": self.size, "batch": self.batch, "acks": self.acks, "codec": self.codec}
        return per_gb(setting.client.run("produce", broker, client=self.client, seconds=setting.seconds, **options))


def produce(size: int, batch: int, codec: str, partitions: int, *, acks: int = -1, client: str = "java") -> Produce:
    name = f"produce {size} B, {batch // 1024} kB, acks={acks}, {codec}, {partitions} part."
    return Produce(
        name if client == "java" else f"{name}, {client}",
        batched(codec),
        partitions=partitions,
        size=size,
        batch=batch,
        acks=acks,
        codec=codec,
        client=client,
    )


def rows() -> list[Produce]:
    every = [produce(*each) for each in product((100, 1000), (16384, 131072), ("none", "lz4"), (1, 6))]
    every += [produce(1000, 16384, codec, 6, acks=1) for codec in ("none", "lz4")]
    others = product(("none", "lz4", "zstd"), ("franz-go", "librdkafka"))
    return every + [produce(1000, 131072, codec, 6, client=client) for codec, client in others]
