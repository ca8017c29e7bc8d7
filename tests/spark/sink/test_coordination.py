"""The exactly-once protocol on real clusters: a driver that stops before any of its steps, and its successor."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from judge import Kafka
from process import Ottla
from spark.copies import content
from waiting import wait_until

from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.failure import Failed, Refused
from ottla.client.transaction import end, enlist, identify, ongoing
from ottla.spark.sink import coordination, exactly_once
from ottla.spark.sink.coordination import ClusterPort, place
from ottla.spark.sink.decisions import Prepared, SinkDecision, TaskPart, Ticket, attempts, decide, decode, driver
from ottla.spark.sink.options import SinkOptions
from ottla.spark.sink.producers import Producer
from ottla.spark.sink.tally import Tally
from ottla.spark.sink.writing import Writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ottla.client.transaction import ProducerIdentity

    Broker = Ottla | Kafka

pytestmark = pytest.mark.xdist_group("coordination")

QUICK: Final = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
OLDER: Final = "3.9.2"
WAIT_S: Final = 60.0
_numbers = itertools.count()


@pytest.fixture(scope="module", params=["ottla", "kafka", "kafka-3.9"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("broker")
    made: Broker
    if request.param == "ottla":
        made = Ottla(folder, settings=QUICK)
    else:
        made = Kafka(folder, settings=QUICK, **({"version": OLDER} if request.param.endswith("3.9") else {}))
    with made as running:
        yield running


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap) as connected:
        yield connected


def table(rows: Sequence[str]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(rows)], ["value"])


class Query:
    """A query that writes to a topic of its own, and the model of its tasks."""

    def __init__(self, broker: Broker, cluster: Cluster) -> None:
        self.broker = broker
        self.name = f"query{next(_numbers)}"
        self.cluster = cluster
        cluster.create(self.name, 2)

    def attempt(
        self, epoch: int, task: int, rows: Sequence[str], *, timeout_ms: int = 60_000, two_phase: bool = False
    ) -> Prepared:
        """Everything that a task does."""
        part = exactly_once.begin(ClusterPort(self.cluster), self.name, epoch, task)
        if part is not None:
            identity = identify(self.cluster, part.name, timeout_ms=timeout_ms, two_phase=two_phase)
            self.write(identity, rows)
            part = part._replace(producer_id=identity.producer_id, epoch=identity.epoch)
        tally = Tally(self.options, frozenset({"value"}))
        assert list(tally.over([table(rows)]))
        return Prepared(self.name, epoch, tally.rows, tally.digest, tally.topics, decided=part is None, part=part)

    @property
    def options(self) -> SinkOptions:
        given = {"kafka.bootstrap.servers": "unused:1", "topic": self.name, "kafka.delivery.timeout.ms": "1000"}
        return SinkOptions.load({**given, "exactly.once": "true"})

    def write(self, identity: ProducerIdentity, rows: Sequence[str]) -> None:
        writer = Writer(Producer(self.cluster), self.options, frozenset({"value"}), identity)
        writer.write([table(rows)])

    def epoch(self, epoch: int, *shares: Sequence[str]) -> list[Prepared]:
        return [self.attempt(epoch, task, rows) for task, rows in enumerate(shares)]

    def commit(self, epoch: int, messages: Sequence[Prepared], port: ClusterPort | None = None) -> None:
        exactly_once.commit(port or ClusterPort(self.cluster), epoch, messages)

    def decide(self, epoch: int, messages: Sequence[Prepared]) -> SinkDecision:
        """A commit up to its decision, which asks not whether there is time to finish it."""
        port = ClusterPort(self.cluster)
        fence = port.identify(driver(self.name))
        decision = decide(port.last(self.name), self.name, epoch, messages)
        port.open(fence, self.name)
        port.record(fence, self.name, decision)
        return decision

    def rows(self) -> list[str]:
        """What a read_committed reader sees. It reaches the end, so no transaction is open."""
        assert ongoing(self.cluster, attempts(self.name)) == []
        found = [value for records in content(self.broker, self.name).values() for _, _, value, _ in records]
        return sorted((value or b"").decode() for value in found)


@pytest.fixture
def query(broker: Broker, cluster: Cluster) -> Query:
    return Query(broker, cluster)


class StopError(Exception):
    """The driver's process died."""


class Stopping(ClusterPort):
    """Stops before one of its calls. A decision is two calls: it can be written and not committed."""

    def __init__(self, cluster: Cluster, calls: int) -> None:
        super().__init__(cluster)
        self.left = calls
        self.done: list[str] = []

    def count(self, what: str) -> None:
        if not self.left:
            raise StopError(f"before {what}, after {self.done}")
        self.left -= 1
        self.done.append(what)

    def identify(self, name: str) -> ProducerIdentity:
        self.count("identify")
        return super().identify(name)

    def last(self, query: str, *, surely: bool = True) -> SinkDecision | None:
        self.count("last")
        return super().last(query, surely=surely)

    def states(self, names: Sequence[str]) -> dict[str, exactly_once.IdState]:
        self.count("states")
        return super().states(names)

    def open(self, fence: ProducerIdentity, query: str) -> None:
        self.count("open")
        super().open(fence, query)

    def append(self, fence: ProducerIdentity, query: str, decision: SinkDecision | None) -> None:
        self.count("append")
        super().append(fence, query, decision)

    def end(self, identity: ProducerIdentity) -> None:
        self.count("end")
        super().end(identity)

    def ongoing(self, prefix: str) -> list[str]:
        self.count("ongoing")
        return super().ongoing(prefix)


def test_a_driver_may_stop_before_any_step(broker: Broker, cluster: Cluster) -> None:
    """The next driver gets the same rows, spread over tasks in another way, and one speculative attempt."""
    stopped: list[str] = []
    for calls in itertools.count():
        query = Query(broker, cluster)
        query.commit(0, query.epoch(0, ["a", "b"], ["c"]))
        twin = query.attempt(1, 0, ["d", "e"])  # speculation: it lost, and left its transaction open
        messages = query.epoch(1, ["d", "e"], ["f"])
        assert twin.part is not None
        try:
            query.commit(1, messages, Stopping(cluster, calls))
        except StopError as stop:
            stopped.append(str(stop))
            query.commit(1, query.epoch(1, ["f"], ["e"], ["d"]))
        assert query.rows() == ["a", "b", "c", "d", "e", "f"], stopped
        if len(stopped) == calls:
            break
    assert len(stopped) == 10, stopped  # identify, last, open, states, append, end, end, end, ongoing, identify


def test_the_broker_may_be_killed_before_any_step(tmp_path: Path) -> None:
    """The commit continues where it was."""
    with Ottla(tmp_path) as broker, Cluster(broker.bootstrap) as cluster:

        class Restarting(Stopping):
            def count(self, what: str) -> None:
                self.done.append(what)
                broker.kill()
                broker.start()

        query = Query(broker, cluster)
        for epoch, rows in enumerate(("ab", "cd")):
            query.attempt(epoch, 0, rows)  # left open
            port = Restarting(cluster, 0)
            query.commit(epoch, query.epoch(epoch, *rows), port)
            decided = ["identify", "last", "open", "states", "append", "end"]
            assert port.done == [*decided, "end", "end", "ongoing", "identify"]
        assert query.rows() == ["a", "b", "c", "d"]


def test_an_abort_after_the_decision_takes_nothing_back(cluster: Cluster, query: Query) -> None:
    """Spark aborts after a failed commit, and cannot know how far it got."""
    messages = query.epoch(0, ["a"], ["b"])
    with pytest.raises(StopError, match="'end', 'end'"):
        query.commit(0, messages, Stopping(cluster, 7))
    exactly_once.abort(ClusterPort(cluster), 0, messages)
    assert query.rows() == ["a", "b"], "and leaves nothing to do"
    replay = query.epoch(0, ["a", "b"])
    assert [message.decided for message in replay] == [True]
    query.commit(0, replay)
    assert query.rows() == ["a", "b"]


def test_an_abort_before_the_decision_drops_the_rows(cluster: Cluster, query: Query) -> None:
    exactly_once.abort(ClusterPort(cluster), 0, query.epoch(0, ["a"], ["b"]))
    assert query.rows() == []
    query.commit(0, query.epoch(0, ["a", "b"]))
    assert query.rows() == ["a", "b"]


def test_a_late_attempt_cannot_write_once_its_epoch_stands(cluster: Cluster, query: Query) -> None:
    part = exactly_once.begin(ClusterPort(cluster), query.name, 0, 0)  # and then its executor stops for a while
    assert part is not None
    late = identify(cluster, part.name, timeout_ms=60_000)
    query.write(late, ["a"])
    query.commit(0, query.epoch(0, ["a"]))
    with pytest.raises(Refused):
        query.write(late, ["again"])
    assert query.attempt(0, 0, ["a"]).decided
    assert query.rows() == ["a"]


def test_an_attempt_that_begins_late_is_swept_with_the_next_epoch(cluster: Cluster, query: Query) -> None:
    part = exactly_once.begin(ClusterPort(cluster), query.name, 0, 0)
    assert part is not None
    query.commit(0, query.epoch(0, ["a"]))
    query.write(identify(cluster, part.name, timeout_ms=60_000), ["too late"])
    query.commit(1, query.epoch(1, ["b"]))
    assert query.rows() == ["a", "b"]


@pytest.mark.parametrize("moment", ["open", "append"])
def test_of_two_drivers_one_decides(cluster: Cluster, query: Query, moment: str) -> None:
    """The first has read the log when the second comes; its decision is refused, and its rows are dropped."""
    first, second = query.epoch(0, ["a"], ["b"]), query.epoch(0, ["a", "b"])

    class Overtaken(ClusterPort):
        """Another driver commits before this call of the first one."""

        def open(self, fence: ProducerIdentity, name: str) -> None:
            self._before("open")
            super().open(fence, name)

        def append(self, fence: ProducerIdentity, name: str, decision: SinkDecision | None) -> None:
            self._before("append")
            super().append(fence, name, decision)

        def _before(self, call: str) -> None:
            if call == moment:
                query.commit(0, second)

    with pytest.raises(Failed, match="another driver took over"):
        query.commit(0, first, Overtaken(cluster))
    exactly_once.abort(ClusterPort(cluster), 0, first)
    assert query.rows() == ["a", "b"]
    query.commit(0, first)  # it is done
    query.commit(1, query.epoch(1, ["c"]))
    with pytest.raises(Failed, match="is older than batch 1"):
        query.commit(0, first)
    assert query.rows() == ["a", "b", "c"]


def test_a_write_without_an_id_leaves_no_decision(cluster: Cluster, query: Query) -> None:
    messages = []
    for task, row in enumerate("ab"):
        part = exactly_once.begin_alone(query.name, 0, task, 40 + task)
        identity = identify(cluster, part.name, timeout_ms=60_000)
        query.write(identity, [row])
        part = part._replace(producer_id=identity.producer_id, epoch=identity.epoch)
        messages.append(Prepared(query.name, 0, 1, part=part))
    exactly_once.commit(ClusterPort(cluster), 0, messages, alone=True)
    assert query.rows() == ["a", "b"]
    assert ClusterPort(cluster).last(query.name) is None


def test_another_querys_open_transaction_hides_nothing(cluster: Cluster, query: Query) -> None:
    """It holds back the last stable offset of the decision log. Reading only up to there would decide twice."""
    port = ClusterPort(cluster)
    query.commit(0, query.epoch(0, ["a"]))
    count = cluster.topics([coordination.TOPIC])[coordination.TOPIC].partitions
    other = next(
        name for number in itertools.count() if place(name := f"other{number}", count) == place(query.name, count)
    )
    fence = port.identify(driver(other))
    port.open(fence, other)
    port.append(fence, other, SinkDecision(7, ()))
    query.commit(1, messages := query.epoch(1, ["b"]))
    query.commit(1, messages)
    last = port.last(query.name)
    assert last is not None
    assert last.epoch == 1
    assert port.last(other) is None
    end(cluster, fence, commit=False)
    assert port.last(other) is None
    assert query.rows() == ["a", "b"]


def test_ids_do_not_grow_with_epochs(cluster: Cluster, query: Query) -> None:
    """A task takes over the id of its predecessor, also past an epoch in which it had nothing to write."""
    port, used = ClusterPort(cluster), set()

    def seen(name: str, epoch: int) -> bool:
        last = port.last(name, surely=False)
        return last is not None and last.epoch == epoch

    for epoch in range(9):
        shares = [[f"{epoch} {task}"] for task in range(2 if epoch % 3 else 1)]
        messages = query.epoch(epoch, *shares)
        used |= {message.part.name for message in messages if message.part is not None}
        query.commit(epoch, messages)
        # Its marker is there, as when Spark has planned the next.
        wait_until(lambda epoch=epoch: seen(query.name, epoch))
    assert len(used) == 2
    assert len(query.rows()) == 15


def test_a_commit_asks_for_its_coordinators_at_once(
    broker: Broker, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one after the other, and not those of earlier epochs."""
    for epoch in range(2):
        messages = query.epoch(epoch, *([f"{epoch} {task}"] for task in range(6)))
        asked: list[list[str]] = []
        with Cluster(broker.bootstrap) as fresh:
            find = fresh._find

            def note(names: list[str], kind: int, find: Any = find, asked: list[list[str]] = asked) -> Any:
                asked.append(names)
                return find(names, kind)

            monkeypatch.setattr(fresh, "_find", note)
            exactly_once.commit(ClusterPort(fresh), epoch, messages)
        assert max(map(len, asked)) == 6, asked
        assert len({name for some in asked for name in some}) == 7, "the driver's own, and one for each task"


def test_a_decision_far_back_is_found(cluster: Cluster, query: Query) -> None:
    """Also one in another partition, if partitions were added to the topic."""
    port = ClusterPort(cluster)
    query.commit(0, query.epoch(0, ["a"]))
    count = cluster.topics([coordination.TOPIC])[coordination.TOPIC].partitions
    where = place(query.name, count)
    others = (name for number in itertools.count() if place(name := f"many{number}", count) == where)
    for name in itertools.islice(others, 3):
        for epoch in range(coordination.STEP // 5):
            record(port, name, SinkDecision(epoch, ()))
    last = port.last(query.name)
    assert last is not None
    assert (last.epoch, len(last.transactions)) == (0, 1)


def record(port: ClusterPort, query: str, decision: SinkDecision) -> None:
    fence = port.identify(driver(query))
    port.open(fence, query)
    port.record(fence, query, decision)


def test_more_partitions_hide_no_decision(broker: Broker, cluster: Cluster) -> None:
    port = ClusterPort(cluster)
    count = 2 * cluster.topics([coordination.TOPIC])[coordination.TOPIC].partitions
    moved = next(n for number in itertools.count() if place(n := f"moved{number}", count) != place(n, count // 2))
    record(port, moved, SinkDecision(3, ()))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_partitions([NewPartitions(coordination.TOPIC, count)])[coordination.TOPIC].result(WAIT_S)
    wait_until(lambda: cluster.topics([coordination.TOPIC])[coordination.TOPIC].partitions == count)
    last = port.last(moved)
    assert last is not None
    assert last.epoch == 3


def test_what_timed_out_is_not_decided(cluster: Cluster, query: Query) -> None:
    messages = [query.attempt(0, 0, ["a"], timeout_ms=200)]
    wait_until(lambda: not ongoing(cluster, attempts(query.name)))
    with pytest.raises(Failed, match=r"nothing of it is in the topic; set kafka\.transaction\.timeout\.ms higher"):
        query.commit(0, messages)
    query.commit(0, query.epoch(0, ["a"]))
    assert query.rows() == ["a"]


def test_what_is_about_to_time_out_is_not_decided(cluster: Cluster, query: Query) -> None:
    """By the brokers' clock: the driver's clock may be wrong."""
    messages = [query.attempt(0, 0, ["a"])]

    class Later(ClusterPort):
        def states(self, names: Sequence[str]) -> dict[str, exactly_once.IdState]:
            found, fence = super().states(names), driver(query.name)
            return {**found, fence: found[fence]._replace(started_ms=found[fence].started_ms + 50_000)}

    with pytest.raises(Failed, match=r"took 5\d s of the 60 s.*leaves too little to commit it"):
        query.commit(0, messages, Later(cluster))
    query.commit(0, query.epoch(0, ["a"]))
    assert query.rows() == ["a"]


def test_an_epoch_that_timed_out_whole_after_its_decision_is_open_again(cluster: Cluster, query: Query) -> None:
    messages = [query.attempt(0, task, [row], timeout_ms=300) for task, row in enumerate("ab")]
    query.decide(0, messages)  # and then its driver stays away for too long
    wait_until(lambda: not ongoing(cluster, attempts(query.name)))
    with pytest.raises(Failed, match="nothing of it is in the topic, and the batch is open again"):
        query.commit(0, query.epoch(0, ["a", "b"]))
    assert query.rows() == []
    query.commit(0, query.epoch(0, ["a", "b"]))
    assert query.rows() == ["a", "b"]


def test_rows_that_were_lost_after_the_decision_are_missed_aloud(cluster: Cluster, query: Query) -> None:
    messages = [query.attempt(0, 0, ["a"]), query.attempt(0, 1, ["b"], timeout_ms=300)]
    decision = query.decide(0, messages)
    end(cluster, decision.transactions[0], commit=True)
    wait_until(lambda: not ongoing(cluster, attempts(query.name)))
    for _ in range(2):
        with pytest.raises(Failed, match=r"only partly in the topic.*1 of 2 were aborted"):
            query.commit(0, query.epoch(0, ["a", "b"]))
    exactly_once.commit(ClusterPort(cluster), 0, query.epoch(0, ["a", "b"]), lost_epoch=0)
    query.commit(1, query.epoch(1, ["c"]))
    assert query.rows() == ["a", "c"]


def test_transactions_of_two_phases_wait_for_their_driver(tmp_path: Path) -> None:
    """However long it stays away after its decision."""
    settings = {**QUICK, "transaction.two.phase.commit.enable": "true"}
    with Ottla(tmp_path, settings=settings) as broker, Cluster(broker.bootstrap) as cluster:
        query = Query(broker, cluster)
        messages = [query.attempt(0, task, [row], timeout_ms=200, two_phase=True) for task, row in enumerate("ab")]
        query.decide(0, messages)
        other = identify(cluster, "other", timeout_ms=200)  # one that began later, and times out
        enlist(cluster, other, [TopicPartition(query.name, 0)])
        wait_until(lambda: ongoing(cluster, "other") == [])
        query.commit(0, query.epoch(0, ["a", "b"]))
        assert query.rows() == ["a", "b"]


def test_an_enlisted_partition_without_rows_is_no_matter(cluster: Cluster, query: Query) -> None:
    """An attempt that stopped between enlisting and writing leaves a transaction with nothing in it."""
    part = exactly_once.begin(ClusterPort(cluster), query.name, 0, 0)
    assert part is not None
    enlist(cluster, identify(cluster, part.name, timeout_ms=60_000), [TopicPartition(query.name, 0)])
    query.commit(0, query.epoch(0, ["a"]))
    assert query.rows() == ["a"]


def test_decisions_are_written_as_they_are_read() -> None:
    part = TaskPart(3, Ticket(5, 7), "ottla-sink/q/1/3.5.7", 9, 2)
    for decision in (
        SinkDecision(1, (part, part._replace(task=4, producer_id=-1, epoch=-1))),
        SinkDecision(2, (), void=True),
    ):
        assert decode(decision.encode()) == decision
    with pytest.raises(Failed, match="format 2"):
        decode(b'{"format": 2}')
