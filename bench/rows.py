"""A row is a load that runs on one broker for a short time and gives numbers, with goals for those numbers.

Measures are named with their unit: mb_s (10^6 bytes of record values per second), cpu_s_gb (broker CPU seconds for 10^9
such bytes), req_s, us_req (broker CPU microseconds per request), p50_ms, p99_ms, p999_ms, seconds, idle_mb, loaded_mb;
each_us (CPU for one request, or for one record of the Java client) is kept for profiles and not shown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from bench import pages
from bench.pump import Stretch
from bench.turns import Spread

if TYPE_CHECKING:
    from bench.brokers import Broker
    from bench.client import Client

Sample = dict[str, float]
MORE_IS_BETTER = frozenset({"mb_s", "req_s"})


class Goal(NamedTuple):
    """`limit` is a multiple of Apache Kafka's number, or, when absolute, the number itself."""

    measure: str
    limit: float
    absolute: bool = False

    def margins(self, found: Spread) -> Spread:
        """How far inside the goal a ratio or number is: 1 is just met, 2 is twice as good."""
        if self.measure in MORE_IS_BETTER:
            return Spread(*(value / self.limit for value in found))
        return Spread(*(self.limit / value if value else math.inf for value in reversed(found)))

    def __str__(self) -> str:
        sign = "≥" if self.measure in MORE_IS_BETTER else "≤"
        return f"{self.measure} {sign} {self.limit:g}" + ("" if self.absolute else " Kafka")


def batched(codec: str, speed: float = 1.0) -> tuple[Goal, ...]:
    """Goals of a produce row: batches that have to be decompressed cost both brokers more."""
    if codec == "none":
        return Goal("mb_s", speed), Goal("cpu_s_gb", 0.5), Goal("p99_ms", 1.0)
    return Goal("mb_s", 1.2), Goal("cpu_s_gb", 1.0), Goal("p99_ms", 1.0)


@dataclass
class Setting:
    """How long and with what a row runs; small values for a smoke test."""

    client: Client | None
    seconds: float = 1.5
    warm_s: float = 0.3
    fill_mb: int = 256
    topics: int = 500
    idle_s: float = 2.0

    @property
    def stretch(self) -> Stretch:
        return Stretch(self.warm_s, self.seconds)


@dataclass
class Row:
    """One line of the table. `prepare` and `clean` stay outside the measured time; `run` may be called many times."""

    name: str
    goals: tuple[Goal, ...] = ()
    repeat_max: int = field(default=99, kw_only=True)  # for rows that start brokers or last long

    def prepare(self, broker: Broker, setting: Setting) -> None:
        """Create what the row needs on this broker."""

    def run(self, broker: Broker, setting: Setting) -> Sample:
        raise NotImplementedError

    def clean(self, broker: Broker, setting: Setting) -> None:
        """Delete what `prepare` created."""

    def renew(self, broker: Broker, setting: Setting) -> None:
        """Called between two turns: drop what the last one wrote, if it was much."""


@dataclass
class TopicRow(Row):
    """A row with a topic of its own, deleted afterwards so that the disk does not fill."""

    partitions: int = field(default=1, kw_only=True)

    @property
    def topic(self) -> str:
        return "".join(letter if letter.isalnum() else "-" for letter in self.name)

    def prepare(self, broker: Broker, setting: Setting) -> None:
        with broker.connect() as connection:
            connection.create_topic(self.topic, self.partitions)
            connection.wait_led(self.topic, self.partitions)

    def clean(self, broker: Broker, setting: Setting) -> None:
        with broker.connect() as connection:
            connection.delete_topic(self.topic)


@dataclass
class WritingRow(TopicRow):
    """A row that writes much, to a new topic in each turn. The memory it will use is touched before: see `pages`."""

    renews: bool = field(default=True, kw_only=True)
    written_max: int = field(default=0, init=False)  # bytes in a turn so far, of either broker

    def renew(self, broker: Broker, setting: Setting) -> None:
        if not self.renews:
            return
        logs = (broker.folder / "data").glob(f"{self.topic}-*/*.log")
        self.written_max = max(self.written_max, sum(log.stat().st_size for log in logs))
        self.clean(broker, setting)
        broker.wait_deleted()
        self.prepare(broker, setting)
        pages.touch(broker.folder, self.written_max * 5 // 4)


def per_gb(answer: Sample) -> Sample:
    """The measures of a run in which `bytes` moved in `seconds` at `cpu_s` of broker CPU."""
    measures = {"mb_s": answer["bytes"] / answer["seconds"] / 1e6, "cpu_s_gb": answer["cpu_s"] / answer["bytes"] * 1e9}
    measures["each_us"] = answer["cpu_s"] / answer["count"] * 1e6
    return measures | {key: value for key, value in answer.items() if key.endswith("_ms") and value >= 0}


def per_request(answer: Sample) -> Sample:
    """The measures of a run in which `count` requests were answered in `seconds` at `cpu_s` of broker CPU."""
    measures = {"req_s": answer["count"] / answer["seconds"], "us_req": answer["cpu_s"] / answer["count"] * 1e6}
    return measures | {key: value for key, value in answer.items() if key.endswith("_ms") and value >= 0}
