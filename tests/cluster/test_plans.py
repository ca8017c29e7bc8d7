"""The controller's decisions: the plan for a request, and Kafka's error codes and messages for invalid requests."""

import pytest

from ottla.cluster import plans
from ottla.cluster.image import EMPTY, Broker, Image, Topic
from ottla.cluster.plans import FoundLog, Legacy, NewTopic
from ottla.config import BrokerConfig, load
from ottla.errors import BrokerError, ErrorCode

CONFIG = load({})
ID = bytes(range(16))


def cluster(*brokers: int) -> Image:
    image = EMPTY
    for broker in brokers:
        image = image.with_broker(Broker(broker, {"PLAINTEXT": ("h", broker)}, None, 0))
    return image


def made(image: Image, wish: NewTopic, config: BrokerConfig = CONFIG) -> Topic:
    return plans.new_topic(image, config, wish, ID, 0)


def test_defaults_are_the_brokers() -> None:
    config = load({"num.partitions": "3", "default.replication.factor": "2"})
    topic = made(cluster(1, 2), NewTopic("t"), config)
    assert [partition.replicas for partition in topic.partitions] == [(1, 2), (2, 1), (1, 2)]
    assert all(one.isr == one.replicas and one.leader == one.replicas[0] for one in topic.partitions)
    assert {one.leader_epoch for one in topic.partitions} == {0}


def test_an_assignment_is_taken_as_given() -> None:
    topic = made(cluster(1, 2, 3), NewTopic("t", assignments={1: [3, 1], 0: [2, 3]}))
    assert [partition.replicas for partition in topic.partitions] == [(2, 3), (3, 1)]


def test_options_are_kept_as_written() -> None:
    assert made(cluster(1), NewTopic("t", configs={"retention.ms": " 5"})).configs == {"retention.ms": " 5"}


@pytest.mark.parametrize(
    ("wish", "code", "words"),
    [
        (NewTopic("t", 0), ErrorCode.INVALID_PARTITIONS, "an invalid non-positive value"),
        (NewTopic("t", -2), ErrorCode.INVALID_PARTITIONS, "an invalid non-positive value"),
        (NewTopic("t", 10_001), ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions"),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "larger than 0, or -1"),
        (NewTopic("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR, r"only 1 broker\(s\) are registered"),
        (NewTopic("there"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'there' already exists"),
        (NewTopic("d.e"), ErrorCode.INVALID_TOPIC_EXCEPTION, "collides with existing topic: d_e"),
        (NewTopic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "contains one or more characters"),
        (NewTopic("__cluster_metadata"), ErrorCode.INVALID_REQUEST, "is prohibited"),
        (NewTopic("t", 1, assignments={0: [1]}), ErrorCode.INVALID_REQUEST, "numPartitions was not set to -1"),
        (NewTopic("t", -1, 1, {0: [1]}), ErrorCode.INVALID_REQUEST, "replication factor was not set to -1"),
        (NewTopic("t", assignments={0: [5]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 5, but no such broker"),
        (NewTopic("t", assignments={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "an empty replica list"),
        (NewTopic("t", assignments={0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 1 more than once"),
        (NewTopic("t", assignments={1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "consecutive 0-based"),
        (NewTopic("t", configs={"x": "1"}), ErrorCode.INVALID_CONFIG, "Unknown topic config name: x"),
        (NewTopic("t", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG, "Null value not supported for topic"),
        (NewTopic("t", configs={"retention.ms": "x"}), ErrorCode.INVALID_CONFIG, "Not a number of type LONG"),
    ],
)
def test_wishes_that_cannot_be(wish: NewTopic, code: ErrorCode, words: str) -> None:
    image = cluster(1).with_topics(Topic("there", ID, (), {}), Topic("d_e", b"x" * 16, (), {}))
    with pytest.raises(BrokerError, match=words) as raised:
        made(image, wish)
    assert raised.value.code is code


def test_replicas_of_partitions_are_of_one_number() -> None:
    with pytest.raises(BrokerError, match="not consistent with previous partitions"):
        made(cluster(1, 2), NewTopic("t", assignments={0: [1], 1: [1, 2]}))


def test_more_partitions_continue_where_the_others_end() -> None:
    image = cluster(1, 2, 3)
    topic = made(image, NewTopic("t", 2, 2))
    grown = plans.more_partitions(image.with_topics(topic), "t", 4, None)
    assert grown.partitions[:2] == topic.partitions
    assert [(one.index, one.replicas) for one in grown.partitions[2:]] == [(2, (3, 1)), (3, (1, 3))]
    given = plans.more_partitions(image.with_topics(topic), "t", 3, [[3, 2]])
    assert given.partitions[2].replicas == (3, 2)


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code", "words"),
    [
        ("no", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "UNKNOWN_TOPIC"),
        ("t", 2, None, ErrorCode.INVALID_PARTITIONS, r"Topic already has 2 partition\(s\)"),
        ("t", 1, None, ErrorCode.INVALID_PARTITIONS, "1 would not be an increase"),
        ("t", 4, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, r"add 2 additional partition\(s\), but only 1 assign"),
        ("t", 3, [[9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no such broker"),
        ("t", 3, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "an empty replica list"),
        ("t", 20_000, None, ErrorCode.POLICY_VIOLATION, "Excessively"),
    ],
)
def test_partitions_that_cannot_be(
    name: str, count: int, assignments: list[list[int]] | None, code: ErrorCode, words: str
) -> None:
    image = cluster(1)
    image = image.with_topics(made(image, NewTopic("t", 2)))
    with pytest.raises(BrokerError, match=words) as raised:
        plans.more_partitions(image, name, count, assignments)
    assert raised.value.code is code


def test_logs_without_metadata_become_topics() -> None:
    logs = [FoundLog("t", 2, b"i" * 16, 4), FoundLog("t", 0, None, -1), FoundLog("__consumer_offsets", 0, None, 0)]
    (offsets, topic), dropped = plans.adopt_topics(CONFIG, Legacy(logs), 7, iter([b"n" * 16]))
    assert (topic.name, topic.id) == ("t", b"i" * 16)
    assert [(one.index, one.leader, one.leader_epoch) for one in topic.partitions] == [(0, 7, 0), (1, 7, 0), (2, 7, 5)]
    assert (offsets.id, offsets.configs["cleanup.policy"]) == (b"n" * 16, "compact")
    assert dropped == []


def test_options_that_have_no_meaning_here_are_named_when_a_folder_is_adopted() -> None:
    legacy = Legacy(
        [FoundLog("t", 0, None, 0)],
        topics={"t": {"retention.ms": "-1", "x": "y"}, "gone": {"x": "y"}},
        brokers={"1": {"log.segment.bytes": "5000", "num.partitions": "3"}},
    )
    (topic,), dropped = plans.adopt_topics(CONFIG, legacy, 1, iter([b"n" * 16]))
    assert (topic.configs, dropped) == ({"retention.ms": "-1"}, ["topic t: Unknown topic config name: x"])
    brokers, dropped = plans.adopt_broker_configs(CONFIG, legacy)
    assert brokers == {"1": {"log.segment.bytes": "5000"}}
    assert dropped == ["broker 1: Cannot update these configs dynamically: [num.partitions]"]


@pytest.mark.parametrize(
    ("legacy", "first"),
    [
        (Legacy(), 0),
        (Legacy(producer_id=2000), 2000),
        (Legacy([FoundLog("t", 0, None, 0, 5), FoundLog("t", 1, None, 0)], producer_id=3), 6),
    ],
)
def test_producer_ids_begin_above_those_in_use(legacy: Legacy, first: int) -> None:
    assert plans.next_producer_id(legacy) == first
