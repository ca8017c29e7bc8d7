"""End to end: from just before `send` in a Java producer to the moment a Java consumer has the record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.rows import Goal, Sample, Setting, TopicRow, per_request

if TYPE_CHECKING:
    from bench.brokers import Broker


@dataclass
class Latency(TopicRow):
    acks: int = field(kw_only=True)
    rate: int = field(kw_only=True)

    def run(self, broker: Broker, setting: Setting) -> Sample:
        assert setting.client is not None
        options = {"topic": self.topic, "acks": self.acks, "rate": self.rate, "seconds": 2 * setting.seconds}
        return per_request(setting.client.run("latency", broker, size=100, batch=16384, codec="none", **options))


def rows() -> list[Latency]:
    goals = (Goal("p50_ms", 1.0), Goal("p99_ms", 1.0))
    return [Latency(f"end to end, 500/s, acks={acks}", goals, acks=acks, rate=500) for acks in (-1, 1)]
