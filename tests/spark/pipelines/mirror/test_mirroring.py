"""One partition copied exactly once, step by step and without Spark: what a kill at any step leaves behind."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from compat.clients import Record
from compat.confluent import Confluent
from process import Ottla
from spark import copies, filling
from waiting import wait_until

from ottla.client import offsets
from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.fetching import fetch
from ottla.client.groups import Committed, commit, read_offsets
from ottla.client.transaction import end, enlist, identify
from ottla.spark.pipelines.mirror import mirroring
from ottla.spark.pipelines.mirror.copying import Copier
from ottla.spark.pipelines.mirror.endpoint import Endpoint
from ottla.spark.pipelines.mirror.mirroring import CopiedTransaction, CopyOutcome, Job, PartitionTask, copy
from ottla.spark.pipelines.mirror.pushing import Pusher
from ottla.spark.pipelines.mirror.translation import MirrorPosition, OffsetMap, OffsetRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def east(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ottla]:
    with Ottla(tmp_path_factory.mktemp("east")) as running:
        yield running


class Bench:
    """A topic of one partition at both clusters, and a job between them."""

    def __init__(self, source: Ottla, target: Ottla, name: str) -> None:
        self.source, self.target, self.name = source, target, name
        self.where = TopicPartition(name, 0)
        self.client = Confluent(source.bootstrap)
        for broker in (source, target):
            filling.create(broker, name, 1)
        with Cluster(source.bootstrap) as cluster:
            self.topic_id = str(cluster.topics([name])[name].id)
            self.job = Job(name, Endpoint(source.bootstrap), Endpoint(target.bootstrap), cluster.id or "", seconds=30)

    def produce(self, *values: str) -> None:
        for value in values:
            self.client.produce(self.name, [Record(filling.NOW_MS, None, value.encode())])

    def part(self) -> PartitionTask:
        with Cluster(self.source.bootstrap) as cluster:
            first = offsets.earliest(cluster, [self.where])[self.where]
            stop = offsets.latest(cluster, [self.where], committed=True)[self.where]
        return PartitionTask(self.where, self.where, self.topic_id, first, stop)

    def copy(self, job: Job | None = None) -> CopyOutcome:
        (outcome,) = copy(job or self.job, [self.part()])
        return outcome

    def values(self) -> list[bytes | None]:
        return [value for _, _, value, _ in copies.content(self.target, self.name)[0]]


@pytest.fixture
def bench(ottla: Ottla, east: Ottla, fresh: Callable[[str], str]) -> Bench:
    return Bench(ottla, east, fresh("bench"))


def test_the_position_goes_where_the_records_go(bench: Bench) -> None:
    bench.produce("a", "b", "c")
    outcome = bench.copy()
    assert (outcome.error, outcome.records) == ("", 3)
    with Cluster(bench.target.bootstrap) as cluster:
        found = read_offsets(cluster, bench.job.group)[bench.where]
    position = MirrorPosition.parse(found.offset, found.metadata)
    assert position == outcome.position
    assert position is not None
    assert (position.offset, position.cluster, position.topic_id) == (3, bench.job.cluster, bench.topic_id)
    bench.produce("d")
    assert bench.copy().records == 1
    assert bench.copy().records == 0
    assert bench.values() == [b"a", b"b", b"c", b"d"]


def test_the_position_of_an_idle_partition_is_committed_anew(bench: Bench) -> None:
    """A position that is not renewed expires, and then copied records cannot be told from those of others."""
    bench.produce("a", "b")
    copied = bench.copy()
    before = commits(bench.target)
    assert bench.copy().position == copied.position
    assert commits(bench.target) == before, "the position was only read"
    (renewed,) = copy(bench.job, [replace(bench.part(), refresh=True)])
    assert (renewed.error, renewed.position) == ("", copied.position)
    assert commits(bench.target) > before
    assert bench.values() == [b"a", b"b"]


def test_a_new_position_is_committed_once(bench: Bench) -> None:
    before = commits(bench.target)
    (outcome,) = copy(bench.job, [replace(bench.part(), refresh=True)])
    assert (outcome.error, outcome.records) == ("", 0)
    assert commits(bench.target) == before + 2, "the offset and the marker behind it"


def commits(broker: Ottla) -> int:
    """How many commits there were, of any group."""
    topic = "__consumer_offsets"
    with Cluster(broker.bootstrap) as cluster:
        there = cluster.topics([topic])
        wheres = [TopicPartition(topic, index) for index in range(there[topic].partitions)] if topic in there else []
        return sum(offsets.latest(cluster, wheres).values())


def test_what_was_sent_and_not_committed_is_sent_again(bench: Bench) -> None:
    """As if the task had been killed after its batches had arrived, and before the commit."""
    bench.produce("a", "b", "c")
    with Cluster(bench.source.bootstrap) as source, Cluster(bench.target.bootstrap) as target:
        identity = identify(target, bench.job.transactional_id(bench.where), timeout_ms=60_000)
        passage = mirroring.Passage(bench.job, bench.part(), source, target, mirroring._Progress())
        identity, position = passage._position(identity)
        copier = Copier(identity.producer_id, identity.epoch)
        pusher = Pusher(target, bench.where, bench.job.transactional_id(bench.where))
        transaction = CopiedTransaction(bench.job, bench.part(), target, identity, position, copier, pusher)
        for piece in fetch(source, bench.where, start=0, stop=3, committed=True):
            transaction.add(piece)
        pusher.flush()
        assert bench.values() == []
        # The next task fences the one above; both its records and its offsets are void.
        assert bench.copy().records == 3
        assert bench.values() == [b"a", b"b", b"c"]
        with pytest.raises(mirroring.Refused) as refused:
            transaction.commit(finished=True)
        assert refused.value.code in mirroring.FENCED
        pusher.close()
    assert bench.values() == [b"a", b"b", b"c"]
    assert bench.copy().records == 0


def test_no_two_partitions_of_mirrors_have_one_transactional_id(bench: Bench) -> None:
    """As `west-orders` of mirror `eu` and `orders` of mirror `eu-west` had: they fenced each other for ever."""
    pairs = [("eu", "west-orders"), ("eu-west", "orders"), ("eu-west-orders", "1"), ("eu/west", "orders")]
    ids = [replace(bench.job, name=name).transactional_id(TopicPartition(topic, 0)) for name, topic in pairs]
    assert len(set(ids)) == len(pairs)


def test_a_task_of_the_version_before_is_fenced_by_its_own_id(bench: Bench) -> None:
    """Its position does not say how ids are made; once it does, nobody uses the older id."""
    bench.produce("a")
    assert bench.copy().records == 1
    older, metadata = bench.job.older_id(bench.where), ""
    with Cluster(bench.target.bootstrap) as target:
        found = read_offsets(target, bench.job.group)[bench.where]
        metadata = found.metadata.replace('"ids":2,', "")
        commit(target, bench.job.group, {bench.where: Committed(found.offset, metadata)})
        before = identify(target, older, timeout_ms=60_000)
        bench.produce("b")
        assert bench.copy().records == 1
        with pytest.raises(mirroring.Refused) as refused:
            enlist(target, before, [bench.where])
        assert refused.value.code in mirroring.FENCED
        again = identify(target, older, timeout_ms=60_000)
        bench.produce("c")
        assert bench.copy().records == 1
        enlist(target, again, [bench.where])
        end(target, again, commit=False)
    assert bench.values() == [b"a", b"b", b"c"]


def test_transactions_are_as_large_as_is_said(bench: Bench) -> None:
    for _ in range(6):
        bench.client.produce(bench.name, [Record(filling.NOW_MS, None, bytes(50_000))] * 3, codec="none")
    job = Job(bench.name, bench.job.source, bench.job.target, bench.job.cluster, transaction_bytes=200_000,
              fetch_bytes=100_000, seconds=30)  # fmt: skip
    outcome = bench.copy(job)
    assert (outcome.error, outcome.records) == ("", 18)
    assert outcome.position is not None
    assert len(outcome.position.offsets.runs) > 2, "a marker lies between the runs of two transactions"
    held = copies.placed(bench.target, bench.name)[0]
    for index, (offset, _) in enumerate(held):
        assert outcome.position.offsets.translate(index) == offset
    # Out of time after its first transaction, a task leaves the rest to the next one.
    later = Bench(bench.source, bench.target, f"{bench.name}-later")
    for number in range(4):
        later.client.produce(later.name, [Record(filling.NOW_MS, None, b"%d" % number * 50_000)])
    hasty = Job(later.name, job.source, job.target, job.cluster, transaction_bytes=1, fetch_bytes=1000, seconds=0)
    counts = [later.copy(hasty).records for _ in range(5)]
    assert counts == [1, 1, 1, 1, 0]
    assert len(later.values()) == 4


def test_retention_that_overtakes_is_told(bench: Bench) -> None:
    bench.produce("a", "b")
    bench.copy()
    bench.produce("c", "d", "e")
    bench.client.trim(bench.name, 4)
    outcome = bench.copy()
    assert not outcome.passing
    assert outcome.error == (
        f"{bench.name} partition 0 now begins at offset 4 at the source, but was copied only up to 2: retention has "
        "deleted 2 offsets; to continue at offset 4, set failOnDataLoss=false (`ottla mirror --skip-lost`)"
    )
    lenient = Job(bench.name, bench.job.source, bench.job.target, bench.job.cluster, fail_on_data_loss=False)
    outcome = bench.copy(lenient)
    assert outcome.error == ""
    assert "retention has deleted 2 offsets" in outcome.notes[0]
    assert bench.values() == [b"a", b"b", b"e"]


def test_a_topic_made_anew_at_the_source_is_told(bench: Bench) -> None:
    bench.produce("a", "b", "c")
    bench.copy()
    bench.client.delete(bench.name)
    wait_until(lambda: bench.name not in names(bench.source), "the topic to be gone")
    filling.create(bench.source, bench.name, 1)
    with Cluster(bench.source.bootstrap) as cluster:
        bench.topic_id = str(cluster.topics([bench.name])[bench.name].id)
    Confluent(bench.source.bootstrap).produce(bench.name, [Record(filling.NOW_MS, None, b"new")])
    assert "was deleted and recreated" in bench.copy().error
    lenient = Job(bench.name, bench.job.source, bench.job.target, bench.job.cluster, fail_on_data_loss=False)
    assert bench.copy(lenient).error == ""
    assert bench.values() == [b"a", b"b", b"c", b"new"]


def test_records_that_are_not_its_own_are_not_overwritten(bench: Bench) -> None:
    Confluent(bench.target.bootstrap).produce(bench.name, [Record(filling.NOW_MS, None, b"somebody's")])
    bench.produce("a")
    outcome = bench.copy()
    assert "has records, but no position of mirror" in outcome.error
    assert not outcome.passing
    assert bench.values() == [b"somebody's"]


def test_a_target_that_was_made_anew_is_told(bench: Bench) -> None:
    bench.produce("a", "b", "c")
    outcome = bench.copy()
    assert outcome.position is not None
    Confluent(bench.target.bootstrap).delete(bench.name)
    wait_until(lambda: bench.name not in names(bench.target), "the topic to be gone")
    filling.create(bench.target, bench.name, 1)
    bench.produce("d")
    assert bench.copy().error == ""  # its offsets went with it, so that the copy began again
    assert bench.values() == [b"a", b"b", b"c", b"d"]


def test_a_target_that_has_lost_records_is_told(bench: Bench) -> None:
    """The position exists but the records do not, as after an unclean election."""
    bench.produce("a")
    with Cluster(bench.source.bootstrap) as source, Cluster(bench.target.bootstrap) as target:
        identity = identify(target, bench.job.transactional_id(bench.where), timeout_ms=60_000)
        passage = mirroring.Passage(bench.job, bench.part(), source, target, mirroring._Progress())
        passage._move_to(
            identity, MirrorPosition(0, bench.job.cluster, bench.topic_id, OffsetMap([OffsetRun(0, 0, 100)]))
        )
    assert "ends at offset 0, but was filled up to 100: it was deleted or has lost records" in bench.copy().error


def test_damage_at_the_source_stops_there(tmp_path: Path, east: Ottla, fresh: Callable[[str], str]) -> None:
    with Ottla(tmp_path / "west") as west:
        bench = Bench(west, east, fresh("bench"))
        bench.produce("good", "bad!", "after")
        west.stop()
        segment = west.log_dir / f"{bench.name}-0" / f"{0:020}.log"
        data = bytearray(segment.read_bytes())
        data[data.index(b"bad!")] ^= 0x20
        segment.write_bytes(data)
        (west.log_dir / ".kafka_cleanshutdown").touch()  # so that the broker does not look, and cut it off
        west.start()
        outcome = bench.copy()
        assert outcome.error.startswith(f"{bench.name} partition 0 at the source: the batch at offset 1 does not match")
        assert not outcome.passing
        assert bench.values() == []


def test_both_brokers_are_killed_on_the_way(tmp_path: Path, fresh: Callable[[str], str]) -> None:
    """A task survives it if they come back in time."""
    import threading

    with Ottla(tmp_path / "west") as west, Ottla(tmp_path / "east") as other:
        bench = Bench(west, other, fresh("bench"))
        filling.large(west, f"{bench.name}-large", 60_000, partitions=1, chunk=2_000)
        filling.create(other, f"{bench.name}-large", 1)
        bench.name = f"{bench.name}-large"
        bench.where = TopicPartition(bench.name, 0)
        with Cluster(west.bootstrap) as cluster:
            bench.topic_id = str(cluster.topics([bench.name])[bench.name].id)
        job = Job(bench.name, bench.job.source, bench.job.target, bench.job.cluster, seconds=60,
                  transaction_bytes=500_000, fetch_bytes=100_000)  # fmt: skip
        ended = threading.Event()

        def kill() -> None:
            for broker in (west, other, west, other):
                ended.wait(0.15)
                broker.kill()
                broker.start()

        killer = threading.Thread(target=kill)
        killer.start()
        deadline = time.monotonic() + 60
        while (outcome := bench.copy(job)).error or outcome.position is None:
            assert outcome.passing, outcome.error
            assert time.monotonic() < deadline, outcome.error
        ended.set()
        killer.join()
        while (outcome := bench.copy(job)).error or outcome.records:
            assert not outcome.error or outcome.passing, outcome.error
            assert time.monotonic() < deadline
        assert copies.content(other, bench.name) == copies.content(west, bench.name)


def names(broker: Ottla) -> set[str]:
    with Cluster(broker.bootstrap) as cluster:
        return set(cluster.topics())
