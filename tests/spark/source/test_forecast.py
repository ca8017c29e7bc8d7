"""When retention deletes faster than a query reads: simulated logs, and a real topic with old records."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING
from unittest.mock import MagicMock

import pytest
from confluent_kafka import Producer
from spark.topics import Topics, numbers

from ottla.client.cluster import Cluster, TopicPartition
from ottla.records.compress import CorruptError
from ottla.spark.source.forecast import PartitionSample, Retention, alarming, recent, retention, time_left_s
from ottla.spark.source.watch import WARN_S, RetentionWatch, peek

if TYPE_CHECKING:
    from collections.abc import Mapping

    from process import Ottla

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("configs", "kept"),
    [
        ({"cleanup.policy": "delete", "retention.ms": "1000", "retention.bytes": "-1"}, Retention(1000, None)),
        ({"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "5"}, Retention(None, 5)),
        ({"cleanup.policy": "compact", "retention.ms": "1000", "retention.bytes": "5"}, Retention(None, None)),
        ({}, Retention(None, None)),
    ],
)
def test_how_long_records_are_kept(configs: dict[str, str], kept: Retention) -> None:
    assert retention(configs) == kept


def test_a_query_that_stands_still_loses_the_record_it_stands_at() -> None:
    stands = [PartitionSample(at, 10, 0, 100, record_s=0.0) for at in (50.0, 60.0)]
    assert time_left_s(stands, Retention(100_000, None)) == 40.0
    assert time_left_s(stands, Retention(30_000, None)) == 0.0
    assert time_left_s(stands, Retention(None, None)) is None


def test_a_query_that_falls_behind_slowly_has_longer() -> None:
    falls = [PartitionSample(50.0, 10, 0, 100, record_s=0.0), PartitionSample(60.0, 15, 0, 110, record_s=5.0)]
    assert time_left_s(falls, Retention(100_000, None)) == 45.0 / 0.5


def test_a_query_that_catches_up_loses_nothing() -> None:
    catches = [PartitionSample(50.0, 10, 0, 100, 0.0, 10.0), PartitionSample(60.0, 60, 0, 110, 50.0, 10.0)]
    assert time_left_s(catches, Retention(100_000, 1500)) is None


def test_bytes_that_are_written_push_out_those_that_are_not_read() -> None:
    falls = [PartitionSample(50.0, 10, 0, 100, offset_bytes=10.0), PartitionSample(60.0, 10, 0, 110, offset_bytes=10.0)]
    assert time_left_s(falls, Retention(None, 1500)) == 50.0, "5 offsets more would be 1050 bytes, one a second"


def test_a_log_that_moves_shows_what_it_keeps() -> None:
    falls = [PartitionSample(50.0, 90, 0, 100), PartitionSample(60.0, 90, 50, 120), PartitionSample(70.0, 90, 50, 140)]
    assert time_left_s(falls, Retention(None, None)) == (70 - 50) / 2


def test_samples_from_before_the_query_was_at_the_end_do_not_count() -> None:
    samples = [
        PartitionSample(1.0, 0, 0, 9),
        PartitionSample(2.0, 9, 0, 9),
        PartitionSample(3.0, 9, 0, 12),
        PartitionSample(9.0, 9, 0, 15),
    ]
    assert recent(samples) == samples[2:]
    assert recent([]) == []
    assert time_left_s(samples[:1], Retention(1, 1)) is None


@pytest.mark.parametrize(
    ("left", "kept_ms", "alarm"),
    [
        (None, 1000, False),
        (3599.0, 7 * DAY_MS, True),
        (3601.0, 7 * DAY_MS, False),
        (3599.0, None, True),
        (14.0, 60_000, True),
        (16.0, 60_000, False),
    ],
)
def test_when_to_warn(left: float | None, kept_ms: int | None, alarm: bool) -> None:
    assert alarming(left, Retention(kept_ms, None), 3_600_000) is alarm


# --- simulated logs ------------------------------------------------------------------------------------------------


@dataclass
class Log:
    """A partition with segments of `roll` records of `size` bytes, and a query on it."""

    kept: Retention
    roll: int
    size: int
    times: list[float] = field(default_factory=list)  # of each record
    earliest: int = 0
    position: float = 0.0

    def write(self, now: float, records: int) -> None:
        self.times += [now] * records
        while self.earliest + self.roll < len(self.times) and self._over(now):
            self.earliest += self.roll

    def _over(self, now: float) -> bool:
        old = self.kept.ms is not None and self.times[self.earliest + self.roll - 1] + self.kept.ms / 1000 < now
        left = (len(self.times) - self.earliest - self.roll) * self.size
        return old or (self.kept.bytes is not None and left >= self.kept.bytes)

    def sample(self, now: float) -> PartitionSample:
        at = int(self.position)
        time_s = self.times[at] if at < len(self.times) else None
        return PartitionSample(now, at, self.earliest, len(self.times), time_s, float(self.size))


@pytest.mark.parametrize("kind", ["age", "size"])
@pytest.mark.parametrize("seed", range(50))
def test_the_loss_comes_after_the_warning_and_not_long_after_its_time(seed: int, kind: str) -> None:
    random = Random(seed)
    rate, speed = random.randint(5, 20), random.uniform(0.0, 0.9)
    log = Log(
        Retention(600_000, None) if kind == "age" else Retention(None, 600 * rate * 100), random.randint(50, 500), 100
    )
    samples: list[PartitionSample] = []
    told: list[tuple[float, float]] = []
    for second in range(20_000):
        log.write(float(second), rate)
        if log.earliest > log.position:
            break
        log.position = min(log.position + rate * speed, len(log.times))
        if second % 10 == 0:
            samples.append(log.sample(float(second)))
            left = time_left_s(samples, log.kept)
            if left is not None:
                told.append((second, second + left))
    else:
        pytest.fail("nothing was lost")
    roll_s = log.roll / rate / (1 - speed)
    for at, lost in told[-20:]:
        assert lost <= second + 15, "no later than it happens, but for the pace of looking"
        assert lost >= second - roll_s - 0.1 * (second - at) - 15, "and no earlier than its segment"


@pytest.mark.parametrize("seed", range(50))
def test_a_query_that_keeps_up_is_left_alone(seed: int) -> None:
    random = Random(seed)
    rate, batch_s = random.randint(5, 20), random.choice([1, 7, 30])
    log = Log(Retention(600_000, 400 * rate * 100), random.randint(50, 500), 100)
    samples: list[PartitionSample] = []
    for second in range(3000):
        log.write(float(second), rate)
        if second % batch_s == 0:
            log.position = len(log.times) - rate
        if second % 10 == 3:
            samples.append(log.sample(float(second)))
            assert not alarming(time_left_s(samples, log.kept), log.kept, 3_600_000)


# --- a real topic --------------------------------------------------------------------------------------------------


def test_old_records_that_nobody_reads(ottla: Ottla, caplog: pytest.LogCaptureFixture) -> None:
    topics = Topics(ottla.bootstrap)
    name = topics.make("old-", 2, {"retention.ms": "3600000"})
    old_ms = int(time.time() * 1000) - 3_000_000
    producer = Producer({"bootstrap.servers": topics.bootstrap, "log_level": 0})
    for number in numbers(0, 10):
        producer.produce(name, number.encode(), partition=0, timestamp=old_ms)
    assert producer.flush(30) == 0
    told: list[Mapping[str, int]] = []
    clock = [time.time()]
    with Cluster(ottla.bootstrap) as cluster:
        where = TopicPartition(name, 0)
        record_s, size = peek(cluster, where, 3)
        assert record_s == old_ms / 1000
        assert size is not None
        assert 5 < size < 100
        watch = RetentionWatch(lambda: cluster, 3_600_000, told.append, now=lambda: clock[0])
        watch.stands({where: 3, TopicPartition(name, 1): 0})
        watch.look(cluster)
        assert told == [{}], "one look does not tell where it goes"
        clock[0] += 5
        watch.look(cluster)
        (left,) = told[-1].values()
        assert 560 <= left <= 600
        said = f"retention may delete records of {name} partition 0 that this query has not read, in about {left} s"
        assert said in caplog.text.replace(f"{left - 1} s", f"{left} s")
        assert "it is at offset 3, 7 before the end; raise retention.ms" in caplog.text
        clock[0] += 5
        watch.look(cluster)
        assert caplog.text.count("retention may delete") == 1, "not again so soon"
        clock[0] += WARN_S
        watch.look(cluster)
        assert caplog.text.count("retention may delete") == 2
        watch.stands({where: 10})
        watch.look(cluster)
        assert told[-1] == {}, "it has read everything"


def test_a_look_that_fails_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged batch raises another error than an unreachable cluster."""
    monkeypatch.setattr("ottla.spark.source.watch.LOOK_S_MIN", 0.01)
    looks: list[int] = []
    seen = threading.Event()

    def look(cluster: object) -> None:
        looks.append(1)
        if len(looks) == 1:
            raise CorruptError("damaged")
        seen.set()

    watch = RetentionWatch(MagicMock(), 3_600_000, lambda more: None)
    monkeypatch.setattr(watch, "look", look)
    watch.start()
    try:
        assert seen.wait(30)
    finally:
        watch.stop()
