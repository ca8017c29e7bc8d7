"""Produce with Apache Kafka's Java client: every combination a user is likely to run.

The client may well be the limit here; then the broker's CPU seconds per GB tell the brokers apart. acks=-1 is the
client's default and makes the producer idempotent; acks=1 is not. Record values are log lines.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

from bench.rows import Sample, Setting, TopicRow, batched, per_gb

if TYPE_CHECKING:
    from bench.brokers import Broker


@dataclass
class Produce(TopicRow):
    size: int = field(kw_only=True)
    batch: int = field(kw_only=True)
    acks: int = field(kw_only=True)
    codec: str = field(kw_only=True)

    def run(self, broker: Broker, setting: Setting) -> Sample:
        assert setting.client is not None
        options = {"topic": self.topic, "size": self.size, "batch": self.batch, "acks": self.acks, "codec": self.codec}
        return per_gb(setting.client.run("produce", broker, seconds=setting.seconds, **options))


def name(size: int, batch: int, acks: int, codec: str, partitions: int) -> str:
    return f"produce {size} B, {batch // 1024} kB, acks={acks}, {codec}, {partitions} part."


def rows() -> list[Produce]:
    settings = product((100, 200, 1000), (16384, 131072), (1, -1), ("none", "lz4"), (1, 6))
    return [
        Produce(name(*each), batched(), partitions=each[4], size=each[0], batch=each[1], acks=each[2], codec=each[3])
        for each in settings
    ]
