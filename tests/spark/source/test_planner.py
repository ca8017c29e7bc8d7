"""The planner of a streaming query against real brokers, without Spark: offsets, limits, losses, progress."""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import judge
import pytest
from confluent_kafka import Consumer, Producer
from process import Ottla
from spark.topics import Topics, numbers
from waiting import wait_until

from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.failure import Failed
from ottla.client.groups import Committed, commit, delete_group, read_offsets
from ottla.client.offsets import latest
from ottla.spark.source import checkpoint, reading
from ottla.spark.source.options import SourceOptions
from ottla.spark.source.progress import announce
from ottla.spark.source.stream import First, Planner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.spark.source.checkpoint import Position


class Query:
    """What Spark does with a planner, and what its tasks do: offsets go through JSON, batches are read to their end."""

    def __init__(self, topics: Topics, **options: str) -> None:
        given = {"kafka.bootstrap.servers": topics.bootstrap, "startingOffsets": "earliest", **options}
        given.setdefault("fetchOffset.retryIntervalMs", "10")
        self.options = SourceOptions.load({name.lower(): value for name, value in given.items()}).for_stream()
        self.log: list[str] = []
        self.values: list[str] = []
        self.name: str | None = "visitors"
        self.begin()

    def begin(self) -> None:
        """A run; the checkpoint stays."""
        self.planner = Planner(self.options)

    def restart(self) -> None:
        self.planner.stop()
        self.begin()

    @property
    def start(self) -> Position:
        return checkpoint.load(json.loads(self.log[-1])) if self.log else self.planner.initial()

    def batch(self, *, limited: bool = True) -> bool:
        """One micro-batch, if there is anything to do."""
        start = self.start
        end = self.planner.next(start, limited=limited)
        if end.same_place(start):
            return False
        self.run(start, end)
        return True

    def run(self, start: Position, end: Position) -> None:
        splits = self.planner.splits(start, checkpoint.load(json.loads(json.dumps(end.dump()))))
        for split in splits:
            if isinstance(split, First) and split.announcement is not None:
                with Cluster(self.options.bootstrap) as cluster, suppress(Failed):
                    announce(cluster, split.where, split.start, split.announcement, self)
            for rows in reading.batches(split, self.options):
                self.values += [value.decode() for value in rows.column("value").to_pylist()]
        self.log.append(json.dumps(end.dump()))

    def getLocalProperty(self, key: str) -> str | None:
        ids = f"id = 1-2\nrunId = 3-4\nbatch = {len(self.log)}"
        return {
            "spark.job.description": f"{self.name}\n{ids}" if self.name else ids,
            "sql.streaming.queryId": "00000000-1111-2222-3333-444444444444",
            "spark.jobGroup.id": "55555555-6666-7777-8888-999999999999",
            "streaming.sql.batchId": str(len(self.log)),
        }.get(key)

    def drain(self) -> list[str]:
        while self.batch():
            pass
        return sorted(self.values, key=int)


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def topics(request: pytest.FixtureRequest) -> Topics:
    return Topics(request.getfixturevalue(request.param).bootstrap)


@pytest.fixture(scope="module")
def ours(ottla: Ottla) -> Topics:
    return Topics(ottla.bootstrap)


def test_batches_follow_each_other(topics: Topics) -> None:
    name = topics.make("follow-", 3)
    query = Query(topics, subscribe=name)
    assert not query.batch(), "an empty topic"
    topics.fill(name, numbers(0, 100))
    assert query.drain() == numbers(0, 100)
    query.restart()
    topics.fill(name, numbers(100, 150))
    assert query.drain() == numbers(0, 150)
    assert len(query.log) == 2
    query.planner.stop()


def test_a_limit_is_shared_out(ours: Topics) -> None:
    name = ours.make("limit-", 2)
    ours.fill(name, numbers(0, 90), 0)
    ours.fill(name, numbers(90, 100), 1)
    query = Query(ours, subscribe=name, maxOffsetsPerTrigger="20")
    assert query.batch()
    assert query.start.offsets == {(name, 0): 18, (name, 1): 2}
    assert query.drain() == numbers(0, 100)
    assert query.batch(limited=False) is False
    query.planner.stop()


def test_few_records_wait_for_more_or_for_the_delay(ours: Topics) -> None:
    name = ours.make("few-")
    query = Query(ours, subscribe=name, minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    ours.fill(name, numbers(0, 1))
    assert query.batch(), "the first batch waits for nothing"
    ours.fill(name, numbers(1, 10))
    assert not query.batch()
    assert query.batch(limited=False), "Spark may ask for all there is"
    ours.fill(name, numbers(10, 20))
    assert query.drain() == numbers(0, 20)
    ours.fill(name, numbers(20, 21))
    assert not query.batch()
    object.__setattr__(query.options, "max_trigger_delay_ms", 0)
    assert query.drain() == numbers(0, 21)
    query.planner.stop()


def test_many_records_do_not_wait_however_few_a_batch_takes(ours: Topics) -> None:
    """Shares of a limit are rounded down, so a full batch may have fewer than the least."""
    name = ours.make("many-", 3)
    limits = {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "10", "maxTriggerDelay": "1h"}
    query = Query(ours, subscribe=name, **limits)
    ours.fill(name, numbers(0, 60))
    assert [query.batch() for _ in range(5)] == [True] * 5
    query.planner.stop()


def test_new_partitions_are_read_from_their_start(topics: Topics) -> None:
    name = topics.make("grow-")
    topics.fill(name, numbers(0, 5))
    query = Query(topics, subscribe=name, startingOffsets="latest")
    assert query.drain() == []
    topics.grow(name, 3)
    topics.fill(name, numbers(5, 35))
    assert query.drain() == numbers(5, 35)
    query.planner.stop()


def test_new_topics_of_a_pattern_are_read_from_their_start(ours: Topics) -> None:
    first = ours.make("pattern-")
    query = Query(ours, subscribePattern="pattern-.*")
    ours.fill(first, numbers(0, 5))
    assert query.drain() == numbers(0, 5)
    second = ours.make("pattern-")
    ours.fill(second, numbers(5, 9))
    query.restart()
    assert query.drain() == numbers(0, 9)
    query.planner.stop()


def test_a_topic_made_anew_is_noticed(topics: Topics, caplog: pytest.LogCaptureFixture) -> None:
    name = topics.make("anew-")
    topics.fill(name, numbers(0, 5))
    query = Query(topics, subscribe=name)
    assert query.drain() == numbers(0, 5)
    before = query.start.ids[name]
    topics.delete(name)
    topics.make(name)
    topics.fill(name, numbers(5, 15))
    with pytest.raises(Failed, match=f"topic {name} was deleted and recreated .*{before} and is .*failOnDataLoss"):
        query.drain()
    query.options = SourceOptions.load(
        {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": name, "failondataloss": "false"}
    ).for_stream()
    query.restart()
    assert query.drain() == numbers(0, 15)
    assert f"topic {name} was deleted and recreated" in caplog.text
    assert not query.batch()
    query.planner.stop()


def test_lost_offsets_are_noticed(topics: Topics, caplog: pytest.LogCaptureFixture) -> None:
    name = topics.make("lost-")
    query = Query(topics, subscribe=name)
    topics.fill(name, numbers(0, 5))
    query.drain()
    topics.fill(name, numbers(5, 20))
    topics.cut(name, 0, 12)
    with pytest.raises(
        Failed, match=f"{name} partition 0 starts at offset 12 now, and offsets 5 to 11 are gone unread"
    ):
        query.drain()
    object.__setattr__(query.options, "fail_on_data_loss", False)
    assert query.drain() == [*numbers(0, 5), *numbers(12, 20)]
    assert caplog.text.count("gone unread") == 1
    query.planner.stop()


def test_a_topic_that_vanishes(ours: Topics) -> None:
    kept, gone = ours.make("kept-"), ours.make("gone-")
    ours.fill(kept, numbers(0, 5))
    ours.fill(gone, numbers(5, 10))
    query = Query(ours, subscribe=f"{kept},{gone}")
    assert query.drain() == numbers(0, 10)
    ours.delete(gone)
    ours.fill(kept, numbers(10, 12))
    with pytest.raises(Failed, match=f"topic {gone} is gone"):
        query.drain()
    object.__setattr__(query.options, "fail_on_data_loss", False)
    assert query.drain() == numbers(0, 12)
    assert set(query.start.ids) == {kept}
    query.planner.stop()


def test_a_subscription_may_shrink(ours: Topics) -> None:
    kept, left = ours.make("kept-"), ours.make("left-")
    query = Query(ours, subscribe=f"{kept},{left}")
    ours.fill(kept, numbers(0, 5))
    assert query.drain() == numbers(0, 5)
    query.options = Query(ours, subscribe=kept).options
    query.restart()
    query.drain()
    assert set(query.start.ids) == {kept}
    query.planner.stop()


def test_available_now_ends(ours: Topics) -> None:
    name = ours.make("now-")
    ours.fill(name, numbers(0, 20))
    query = Query(ours, subscribe=name, maxOffsetsPerTrigger="7", minOffsetsPerTrigger="5")
    query.planner.fix_target()
    assert query.batch()
    ours.fill(name, numbers(20, 30))
    ours.grow(name, 2)
    ours.fill(name, numbers(30, 40), 1)
    assert query.drain() == numbers(0, 20)
    query.restart()
    query.planner.fix_target()
    assert query.drain() == numbers(0, 40)
    query.planner.stop()


def test_available_now_ends_behind_control_records_and_open_transactions(topics: Topics) -> None:
    name = topics.make("control-")
    topics.fill(name, numbers(0, 3))
    producer = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(30)
    for values, end in ((numbers(3, 6), "commit"), (numbers(90, 95), "abort"), (numbers(6, 9), "open")):
        producer.begin_transaction()
        for value in values:
            producer.produce(name, value.encode(), partition=0)
        producer.flush(30)
        if end == "commit":
            producer.commit_transaction(30)
        elif end == "abort":
            producer.abort_transaction(30)
    query = Query(topics, subscribe=name, maxOffsetsPerTrigger="4", **{"kafka.isolation.level": "read_committed"})
    query.planner.fix_target()
    assert query.drain() == numbers(0, 6)
    assert query.start.offsets == {(name, 0): 13}, "3 + 3 + 1 + 5 + 1: the open transaction begins there"
    uncommitted = Query(topics, subscribe=name)
    uncommitted.drain()
    changed = Query(topics, subscribe=name, **{"kafka.isolation.level": "read_committed"})
    changed.log = uncommitted.log
    assert changed.drain() == [], "ahead of the last stable offset is no loss"
    producer.commit_transaction(30)
    # Apache Kafka acknowledges a commit before its marker is in the partition.
    with Cluster(topics.bootstrap) as cluster:
        where = TopicPartition(name, 0)
        wait_until(lambda: latest(cluster, [where], committed=True)[where] == 17, "the commit marker")
    query.restart()
    assert query.drain() == numbers(0, 9)
    for one in (query, uncommitted, changed):
        one.planner.stop()


def test_the_first_batch_is_the_same_when_it_is_repeated(ours: Topics) -> None:
    name = ours.make("first-")
    ours.fill(name, numbers(0, 5))
    query = Query(ours, subscribe=name, startingOffsets="latest")
    start = query.planner.initial()
    ours.fill(name, numbers(5, 10))
    end = query.planner.next(start, limited=False)
    ours.fill(name, numbers(10, 15))
    query.restart()
    assert query.planner.initial().offsets == {(name, 0): 15}
    query.run(query.planner.initial(), end)
    assert query.drain() == numbers(5, 15)
    query.planner.stop()


def test_a_checkpoint_of_sparks_own_source_goes_on(ours: Topics) -> None:
    name = ours.make("moved-", 2)
    ours.fill(name, numbers(0, 10))
    query = Query(ours, subscribe=name)
    query.log = [json.dumps({name: {"0": 3, "1": 5}})]
    assert query.drain() == ["6", "8"]
    assert query.start.token
    ours.fill(name, numbers(10, 14))
    assert query.drain() == ["6", "8", *numbers(10, 14)]
    query.planner.stop()


# --- groups --------------------------------------------------------------------------------------------------------


def lags(topics: Topics, group: str) -> dict[tuple[str, int], tuple[int, int]]:
    """Offset and lag of each partition, as Apache Kafka's tool shows them."""
    text = judge.tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        "--bootstrap-server", topics.bootstrap, "--describe", "--offsets", "--group", group,
    ).out  # fmt: skip
    rows = re.findall(rf"^{re.escape(group)}\s+(\S+)\s+(\d+)\s+(\d+)\s+\d+\s+(\d+)", text, re.MULTILINE)
    return {(topic, int(partition)): (int(offset), int(lag)) for topic, partition, offset, lag in rows}


def groups(topics: Topics) -> set[str]:
    found = judge.tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", topics.bootstrap, "--list"
    )
    return set(found.out.split())


def metadata(topics: Topics, group: str, where: TopicPartition) -> dict[str, Any]:
    with Cluster(topics.bootstrap) as cluster:
        text = read_offsets(cluster, group, [where])[where].metadata
    assert len(text) < 200
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_named_query_shows_its_lag(topics: Topics) -> None:
    name = topics.make("named-", 2)
    topics.fill(name, numbers(0, 10))
    query = Query(topics, subscribe=name, maxOffsetsPerTrigger="4")
    query.name = f"q-{name}"
    assert query.batch()
    assert query.batch()
    assert lags(topics, f"ottla-spark-{query.name}") == {(name, 0): (2, 3), (name, 1): (2, 3)}
    query.drain()
    assert lags(topics, f"ottla-spark-{query.name}") == {(name, 0): (5, 0), (name, 1): (5, 0)}
    assert metadata(topics, f"ottla-spark-{query.name}", TopicPartition(name, 0)) == {
        "query": "00000000-1111-2222-3333-444444444444",
        "run": "55555555-6666-7777-8888-999999999999",
        "batch": len(query.log) - 1,
    }
    assert f"ottla-spark-{query.start.token}" not in groups(topics), "it only served to find the name"
    query.planner.stop()


def test_a_run_of_one_batch_shows_what_was_done_before_it(ours: Topics) -> None:
    name = ours.make("single-")
    query = Query(ours, subscribe=name)
    query.name = name
    for batch in range(2):
        ours.fill(name, numbers(10 * batch, 10 * batch + 10))
        assert query.batch()
        query.restart()
        assert lags(ours, f"ottla-spark-{name}") == {(name, 0): (10 * batch, 10)}
        assert f"ottla-spark-{query.start.token}" not in groups(ours)


def test_a_query_without_a_name_has_a_group_too(ours: Topics) -> None:
    name = ours.make("unnamed-")
    ours.fill(name, numbers(0, 10))
    query = Query(ours, subscribe=name, groupIdPrefix="team")
    query.name = None
    query.drain()
    assert lags(ours, f"team-{query.start.token}") == {(name, 0): (10, 0)}
    query.planner.stop()
    assert lags(ours, f"team-{query.start.token}") == {(name, 0): (10, 0)}


@pytest.mark.parametrize("option", ["ottla.group", "kafka.group.id"])
def test_a_group_may_be_named(ours: Topics, option: str) -> None:
    name = ours.make("explicit-")
    ours.fill(name, numbers(0, 10))
    before = groups(ours)
    query = Query(ours, subscribe=name, **{option: f"g-{name}"})
    query.drain()
    assert lags(ours, f"g-{name}") == {(name, 0): (10, 0)}
    assert metadata(ours, f"g-{name}", TopicPartition(name, 0))["batch"] == 0
    assert groups(ours) == before | {f"g-{name}"}, "no other group is touched: rights may be given for this one only"
    query.planner.stop()


def test_a_prefix_stands_before_the_name(ours: Topics) -> None:
    name = ours.make("prefix-")
    ours.fill(name, numbers(0, 1))
    query = Query(ours, subscribe=name, groupIdPrefix="team")
    query.name = name
    query.drain()
    assert lags(ours, f"team-{name}") == {(name, 0): (1, 0)}
    query.planner.stop()


def test_an_announcement_that_comes_late_is_put_right(ours: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    name = ours.make("late-")
    ours.fill(name, numbers(0, 10))
    query = Query(ours, subscribe=name)
    query.name = name
    query.drain()
    with Cluster(ours.bootstrap) as cluster:
        commit(cluster, f"ottla-spark-{name}", {TopicPartition(name, 0): Committed(0, "late")})
    assert not query.batch()
    monkeypatch.setattr("ottla.spark.source.progress.REFRESH_S", 0.0)
    assert not query.batch()
    assert lags(ours, f"ottla-spark-{name}") == {(name, 0): (10, 0)}
    query.planner.stop()


def test_a_group_that_refuses_is_a_warning(ours: Topics, caplog: pytest.LogCaptureFixture) -> None:
    name = ours.make("refused-")
    ours.fill(name, numbers(0, 10))
    consumer = Consumer({"bootstrap.servers": ours.bootstrap, "group.id": name, "log_level": 0})
    consumer.subscribe([name])
    wait_until(lambda: consumer.poll(0.1) is None and consumer.assignment())
    query = Query(ours, subscribe=name, maxOffsetsPerTrigger="5", **{"ottla.group": name})
    assert query.drain() == numbers(0, 10)
    assert caplog.text.count("the lag of this query cannot be shown for now, its records are safe: ") == 1
    assert f"1 consumers use this group, {name}: give another name for the group" in caplog.text
    consumer.close()
    query.planner.stop()


def test_a_query_leaves_the_group_of_its_name_alone(topics: Topics) -> None:
    """The offsets of a stopped consumer group of the same name do not change."""
    name = topics.make("billing-")
    topics.fill(name, numbers(0, 100))
    where = TopicPartition(name, 0)
    with Cluster(topics.bootstrap) as cluster:
        commit(cluster, name, {where: Committed(10)})
        query = Query(topics, subscribe=name, maxOffsetsPerTrigger="40")
        query.name = name
        assert query.drain() == numbers(0, 100)
        query.planner.stop()
        assert read_offsets(cluster, name) == {where: Committed(10)}
    assert lags(topics, f"ottla-spark-{name}") == {(name, 0): (100, 0)}


@pytest.mark.parametrize("option", ["ottla.group", "kafka.group.id"])
def test_a_group_whose_offsets_are_not_ours_is_refused(
    topics: Topics, option: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = topics.make("foreign-")
    topics.fill(name, numbers(0, 10))
    elsewhere = TopicPartition(topics.make("other-"), 0)  # of a topic that the query does not read
    with Cluster(topics.bootstrap) as cluster:
        for metadata in ("", "mine", '{"owner":"me"}', "[1]"):
            commit(cluster, name, {elsewhere: Committed(0, metadata)})
            query = Query(topics, subscribe=name, maxOffsetsPerTrigger="4", **{option: name})
            assert query.drain() == numbers(0, 10)
            query.planner.stop()
            found = {at: one[:2] for at, one in read_offsets(cluster, name).items()}
            assert found == {elsewhere: (0, metadata)}
    assert f"group {name} belongs to somebody else: it is at offset 0 of {elsewhere.topic} partition 0" in caplog.text


def test_a_group_of_consumers_that_are_away_and_never_committed_is_refused(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    """A commit in their name would decide where they begin."""
    name = topics.make("away-")
    topics.fill(name, numbers(0, 10))
    for protocol in ("classic", "consumer"):
        group = f"{name}-{protocol}"
        settings = {"bootstrap.servers": topics.bootstrap, "group.id": group, "enable.auto.commit": False}
        consumer = Consumer({**settings, "group.protocol": protocol, "log_level": 0})
        consumer.subscribe([name])
        wait_until(lambda here=consumer: here.poll(0.1) is None and here.assignment())
        consumer.close()
        query = Query(topics, subscribe=name, **{"ottla.group": group})
        assert query.drain() == numbers(0, 10)
        query.planner.stop()
        with Cluster(topics.bootstrap) as cluster:
            assert read_offsets(cluster, group) == {}
        assert f"group {group} belongs to consumers (consumer) that are not running" in caplog.text


# --- clusters that are away ----------------------------------------------------------------------------------------


@pytest.fixture
def restless(tmp_path: Path) -> Iterator[Ottla]:
    with Ottla(tmp_path / "restless") as broker:
        yield broker


def test_a_broker_that_is_away_for_a_moment(restless: Ottla) -> None:
    topics = Topics(restless.bootstrap)
    name = topics.make("away")
    topics.fill(name, numbers(0, 10))
    query = Query(topics, subscribe=name, maxOffsetsPerTrigger="4")
    assert query.batch()
    restless.kill()
    restless.start()
    assert query.batch()
    restless.stop()
    restless.start()
    assert query.drain() == numbers(0, 10)
    query.planner.stop()


def test_a_broker_that_stays_away_is_one_sentence(restless: Ottla) -> None:
    topics = Topics(restless.bootstrap)
    name = topics.make("away")
    query = Query(topics, subscribe=name, **{"kafka.request.timeout.ms": "500", "fetchOffset.numRetries": "0"})
    query.drain()
    restless.kill()
    started = time.monotonic()
    with pytest.raises(Failed, match=rf"nothing answers at {restless.bootstrap} .*: is a broker running there\?$"):
        query.drain()
    assert time.monotonic() - started < 30
    with pytest.raises(Failed, match=rf"nothing answers at {restless.bootstrap} "):
        Query(topics, subscribe=name, **{"kafka.request.timeout.ms": "500", "fetchOffset.numRetries": "0"}).drain()


def test_a_topic_that_is_not_there_is_one_sentence(ours: Topics) -> None:
    with pytest.raises(Failed, match=r"^topic nowhere does not exist at .*: create .*, or correct the name$"):
        Query(ours, subscribe="nowhere").drain()


def test_groups_can_be_deleted_twice(ours: Topics) -> None:
    with Cluster(ours.bootstrap) as cluster:
        delete_group(cluster, "nobody")
