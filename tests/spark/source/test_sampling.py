"""Where the bytes are: samples of generated logs of any shape, and of real ones on Ottla and Apache Kafka."""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st
from spark import filling

from ottla.client import offsets
from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.failure import Unreachable
from ottla.spark.source.planning import Range, Split, splits
from ottla.spark.source.sampling import SHARE, Sample, Sampler, Survey, sample_bytes, understood
from ottla.wire.messages.fetch import PartitionData

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judge import Kafka
    from process import Ottla

MIB: Final = 1 << 20
WAIT_S: Final = 60.0


class Log:
    """Batches as (offsets they span, bytes, gap before them)."""

    def __init__(self, batches: Sequence[tuple[int, int, int]]) -> None:
        self.bases: list[int] = []
        self.afters: list[int] = []
        self.sizes: list[int] = []
        position = 0
        for span, size, gap in batches:
            self.bases.append(position + gap)
            position += gap + span
            self.afters.append(position)
            self.sizes.append(size)
        self.end = position
        self.size = sum(self.sizes)
        self.sample_bytes = 1

    def sample(self, offset: int) -> Sample:
        first = last = bisect_right(self.afters, offset)
        size = self.sizes[first]
        while last + 1 < len(self.sizes) and size + self.sizes[last + 1] <= self.sample_bytes:
            last += 1
            size += self.sizes[last]
        return Sample(self.bases[first], self.afters[last], size, offset)

    def bytes_of(self, split: Split) -> float:
        return sum(
            size * max(min(after, split.stop) - max(base, split.start), 0) / (after - base)
            for base, after, size in zip(self.bases, self.afters, self.sizes, strict=True)
        )

    def survey(self, split_bytes: int, *, total: bool = False) -> Survey:
        made = Survey(0, self.end, split_bytes)
        made.total = self.size if total else None
        self.sample_bytes = sample_bytes(split_bytes)
        self.rounds = self.samples = 0
        while made.next:
            self.rounds += 1
            self.samples += len(made.next)
            made.add([self.sample(offset) for offset in made.next])
        return made


SMALL, HUGE = (100, 2000, 0), (100, 200_000, 0)  # batches of tiny and of large records


@pytest.mark.parametrize(
    ("batches", "samples_max"),
    [
        ([SMALL] * 20_000, 80),
        ([SMALL] * 10_000 + [HUGE] * 300, 150),
        ([SMALL] * 20_000 + [HUGE] * 200, 150),
        ([HUGE] * 200 + [SMALL] * 20_000, 150),
        ([(100, 2000, 5000)] * 10_000 + [SMALL] * 10_000, 150),  # compaction has passed over the first half
        ([(100, 1000 + 3000 * (n * 7919 % 13 > 9), 0) for n in range(20_000)], 200),
    ],
    ids=["even", "half", "end", "beginning", "gaps", "noise"],
)
def test_splits_of_a_log_of_any_shape_are_about_equal(batches: list[tuple[int, int, int]], samples_max: int) -> None:
    log = Log(batches)
    profile = log.survey(MIB).profile()
    where = TopicPartition("t", 0)
    made = splits([Range(where, 0, log.end)], {where: profile}, split_bytes=MIB)
    sizes = [log.bytes_of(split) for split in made]
    assert sum(sizes) == pytest.approx(log.size)
    assert max(sizes) < 1.5 * MIB, "no task has much more to do than the others"
    assert len(made) < 1.5 * log.size / MIB
    assert log.samples <= samples_max
    assert log.rounds <= 24


def test_a_hump_between_samples_is_found_when_the_size_of_the_log_is_known() -> None:
    log = Log([SMALL] * 10_000 + [(100, 20_000, 0)] * 3000 + [SMALL] * 10_000)
    profile = log.survey(MIB, total=True).profile()
    assert profile.size == pytest.approx(log.size, rel=0.1)


@given(
    st.lists(st.tuples(st.integers(1, 500), st.integers(61, 10**6), st.integers(0, 10_000)), min_size=1, max_size=60),
    st.integers(1000, 10**7),
    st.booleans(),
)
def test_a_survey_of_anything_ends_and_covers_the_range(
    batches: list[tuple[int, int, int]], split_bytes: int, total: bool
) -> None:
    log = Log(batches)
    profile = log.survey(split_bytes, total=total).profile()
    assert (profile.offsets[0], profile.offsets[-1]) == (0, log.end)
    assert sorted(set(profile.offsets)) == profile.offsets
    assert sorted(profile.bytes_before) == profile.bytes_before


def test_sampling_reads_a_small_part_of_the_log() -> None:
    log = Log([(10, 50_000 + 1000 * (n % 97), 0) for n in range(5000)])
    survey = Survey(0, log.end, 10_000)  # far smaller than a batch: more samples would never be enough
    read = 0
    while survey.next:
        read += sum(log.sample(offset).size for offset in survey.next)
        survey.add([log.sample(offset) for offset in survey.next])
    assert read < 3 * log.size / SHARE


@pytest.mark.parametrize("magic", [0, 2])
@pytest.mark.parametrize("length", [-(2**31), -30, -12, -1, 0, 13])
def test_damaged_lengths_are_no_samples(length: int, magic: int) -> None:
    data = struct.pack(">qiib", 0, length, 0, magic) + bytes(200)
    assert (
        understood(PartitionData(partition_index=0, error_code=0, high_watermark=0, records=memoryview(data)), 0)
        is None
    )


def test_without_any_sample_all_offsets_count_the_same() -> None:
    assert Survey(10, 20, 5).profile() == ([10, 20], [0.0, 10.0])


@pytest.fixture(params=["ottla", "kafka"])
def broker(request: pytest.FixtureRequest) -> Ottla | Kafka:
    found: Ottla | Kafka = request.getfixturevalue(request.param)
    return found


def fill(broker: Ottla | Kafka, topic: str, sizes: Sequence[int]) -> None:
    filling.create(broker, topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "batch.size": 16384, "log_level": 2,
                         "queue.buffering.max.messages": len(sizes)})  # fmt: skip
    for size in sizes:
        producer.produce(topic, os.urandom(size), partition=0)
    assert producer.flush(WAIT_S) == 0


def test_a_real_log_is_cut_where_its_bytes_are(broker: Ottla | Kafka) -> None:
    sizes = [10] * 20_000 + [5000] * 600
    fill(broker, "sampled", sizes)
    where = TopicPartition("sampled", 0)
    with Cluster(broker.bootstrap) as cluster:
        one = Range(where, 0, offsets.latest(cluster, [where])[where], cluster.topic("sampled").id)
        sampler = Sampler(cluster)
        profiles = sampler.profiles([one], split_bytes=400_000)
        made = splits([one], profiles, split_bytes=400_000)
        weights = [sum(sizes[split.start : split.stop]) for split in made]
        assert len(made) > 6
        assert max(weights) < 600_000
        # A few more records of a log that is known need no sample, and many do.
        assert sampler.profiles([one._replace(start=20_590)], split_bytes=400_000)[where].offsets == [20_590, 20_600]
        least = sampler.profiles([one], split_bytes=1 << 30, least=8)
        parts = splits([one], least, split_bytes=1 << 30, least=8)
        assert len(parts) == 8
        assert max(sum(sizes[split.start : split.stop]) for split in parts) < 800_000


def test_a_partition_that_fits_into_one_split_is_not_sampled(ottla: Ottla) -> None:
    fill(ottla, "small", [100] * 500)
    where = TopicPartition("small", 0)
    with Cluster(ottla.bootstrap) as cluster:
        profile = Sampler(cluster).profiles([Range(where, 0, 500)], split_bytes=MIB)[where]
        assert profile.offsets == [0, 500]
        assert 50_000 < profile.size < 100_000


def test_a_partition_that_is_gone_is_cut_by_its_offsets(ottla: Ottla) -> None:
    where = TopicPartition("never-there", 0)
    with Cluster(ottla.bootstrap, timeout_s=1) as cluster:
        profile = Sampler(cluster).profiles([Range(where, 0, 500)], split_bytes=100)[where]
    assert profile == ([0, 500], [0.0, 500.0])


def test_a_broker_that_is_gone_is_said_by_who_reads_not_by_who_samples(ottla: Ottla) -> None:
    fill(ottla, "closed", [100] * 500)
    where = TopicPartition("closed", 0)
    with Cluster(ottla.bootstrap, timeout_s=5) as cluster:
        cluster.leader(where).close()
        cluster.bootstrap = "127.0.0.1:1"
        cluster._brokers = dict.fromkeys(cluster._brokers, ("127.0.0.1", 1))
        profile = Sampler(cluster).profiles([Range(where, 0, 500)], split_bytes=100)[where]
        with pytest.raises(Unreachable):
            cluster.leader(where)
    assert profile == ([0, 500], [0.0, 500.0])
