"""What clients learn about other brokers: addresses for the listener they use, leaders, offline replicas."""

from __future__ import annotations

import asyncio
import inspect
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.cluster.image import EMPTY, NO_LEADER, Broker, Image, Partition, Topic
from ottla.config import load
from ottla.coord.coordinator import Coordinator, TopicShape
from ottla.coord.runtime import slot
from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Call
from ottla.handlers.cluster import describe_cluster
from ottla.handlers.coordinators import find_coordinator
from ottla.handlers.metadata import describe_topic_partitions, metadata
from ottla.wire.messages.groups import FindCoordinatorRequest
from ottla.wire.messages.metadata import (
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)

if TYPE_CHECKING:
    from pathlib import Path

ME, BOTH, INSIDE, DEAD = 1, 2, 3, 4
GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
NONE, LISTENER, LEADER, REPLICA = (
    ErrorCode.NONE,
    ErrorCode.LISTENER_NOT_FOUND,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
)


def a_topic(name: str, *partitions: tuple[int, tuple[int, ...]]) -> Topic:
    states = [Partition(at, replicas, replicas, leader, 5 + at) for at, (leader, replicas) in enumerate(partitions)]
    return Topic(name, name.encode()[:16].ljust(16, b"\0"), tuple(states), {})


def the_image() -> Image:
    brokers = {
        ME: Broker(ME, {"OUT": ("me", 1), "IN": ("me", 2)}, None, 1),
        BOTH: Broker(BOTH, {"OUT": ("two.out", 21), "IN": ("two.in", 22)}, "r2", 2),
        INSIDE: Broker(INSIDE, {"IN": ("three.in", 32)}, "r3", 3),
    }
    topics = [
        a_topic("t", (ME, (1, 2)), (BOTH, (2, 4)), (INSIDE, (3, 1)), (NO_LEADER, (4,)), (DEAD, (4, 1))),
        a_topic(GROUPS, (ME, (1,)), (BOTH, (2,)), (INSIDE, (3,)), (NO_LEADER, (4,))),
    ]
    return EMPTY._replace(cluster_id="c", controller_id=BOTH, brokers=brokers).with_topics(*topics)


@pytest.fixture
def parts(tmp_path: Path) -> Any:
    image = the_image()
    known = SimpleNamespace(image=image, node_id=ME)
    made: list[str] = []

    async def auto_create(name: str, wish: Any = None) -> None:
        made.append(name)
        if name == "refused":
            raise BrokerError(ErrorCode.POLICY_VIOLATION)

    controller = SimpleNamespace(auto_create=auto_create)
    machines: Any = [
        Coordinator(TopicShape(name, 4, 3, {}), lambda _: None, known, controller, None, None)  # type: ignore[arg-type,return-value,type-var]
        for name in (GROUPS, TRANSACTIONS)
    ]
    return SimpleNamespace(
        node_id=ME,
        metadata=known,
        config=load({"log.dirs": str(tmp_path)}),
        replicas=SimpleNamespace(offline=frozenset),
        controller=controller,
        groups=machines[0],
        transactions=machines[1],
        made=made,
        quotas=None,
        membership=None,
    )


def call(key: int, version: int, listener: str = "OUT") -> Call:
    return Call(key, version, "test", "127.0.0.1", listener, ("dialled", 99))


def walked(answer: Any) -> Any:
    """The final response of a handler, after running its steps."""

    async def scene() -> Any:
        steps = answer() if callable(answer) else answer
        if inspect.isgenerator(steps):
            try:
                while True:
                    awaited = next(steps)
                    if awaited is not None:
                        await awaited
            except StopIteration as end:
                steps = end.value
        return await steps if inspect.iscoroutine(steps) else steps

    return asyncio.run(scene())


def told_of(parts: Any, version: int, listener: str = "OUT") -> Any:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
    return walked(metadata(parts, call(3, version, listener), request))


def test_brokers_are_named_by_the_listener_that_was_dialled_and_left_out_without_one(parts: Any) -> None:
    assert [(one.node_id, one.host, one.port, one.rack) for one in told_of(parts, 9).brokers] == [
        (ME, "dialled", 99, None),
        (BOTH, "two.out", 21, "r2"),
    ]
    assert [one.host for one in told_of(parts, 9, "IN").brokers] == ["dialled", "two.in", "three.in"]
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    cluster = describe_cluster(parts, call(60, 0), request)
    assert [(one.broker_id, one.host) for one in cluster.brokers] == [(ME, "dialled"), (BOTH, "two.out")]
    assert cluster.controller_id == BOTH


@pytest.mark.parametrize(
    ("version", "listener", "codes"),
    [
        (9, "OUT", [NONE, NONE, LISTENER, LEADER, LEADER]),
        (5, "OUT", [NONE, NONE, LEADER, LEADER, LEADER]),
        (0, "OUT", [NONE, REPLICA, LEADER, LEADER, LEADER]),
        (9, "IN", [NONE, NONE, NONE, LEADER, LEADER]),
    ],
)
def test_a_leader_that_cannot_be_reached_is_none(
    parts: Any, version: int, listener: str, codes: list[ErrorCode]
) -> None:
    partitions = told_of(parts, version, listener).topics[0].partitions
    assert [ErrorCode(one.error_code) for one in partitions] == codes
    led = [leader if code in (NONE, REPLICA) else -1 for leader, code in zip((1, 2, 3, -1, 4), codes, strict=True)]
    assert [one.leader_id for one in partitions] == led
    if version >= 7:
        assert [one.leader_epoch for one in partitions] == [5, 6, 7, 8, 9]


def test_replicas_of_brokers_that_are_away_are_offline(parts: Any) -> None:
    partitions = told_of(parts, 9).topics[0].partitions
    assert [one.offline_replicas for one in partitions] == [[], [4], [], [4], [4]]
    assert partitions[1].replica_nodes == partitions[1].isr_nodes == [2, 4]
    assert told_of(parts, 0).topics[0].partitions[1].replica_nodes == [2]
    parts.replicas = SimpleNamespace(offline=lambda: frozenset({("t", 0), ("t", 2)}))
    partitions = told_of(parts, 9, "IN").topics[0].partitions
    assert [one.offline_replicas for one in partitions] == [[1], [4], [1], [4], [4]]
    assert [one.leader_id for one in partitions] == [-1, 2, 3, -1, -1], "who leads elsewhere goes on"
    pages = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")], response_partition_limit=10)
    page = walked(describe_topic_partitions(parts, call(75, 0), pages)).topics[0].partitions
    assert [one.offline_replicas for one in page] == [[1], [4], [1], [4], [4]]
    assert [ErrorCode(one.error_code) for one in page] == [LEADER, NONE, LISTENER, LEADER, LEADER]


def test_coordinators_are_other_brokers_too(parts: Any) -> None:
    keys = {index: next(key for key in map(str, range(1000)) if slot(key, 4) == index) for index in range(4)}
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=list(keys.values()))
    found = walked(find_coordinator(parts, call(10, 4), request)).coordinators
    away = (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "")
    assert [(ErrorCode(one.error_code), one.node_id, one.host) for one in found] == [
        (NONE, ME, "dialled"),
        (NONE, BOTH, "two.out"),
        away,
        away,
    ]
    found = walked(find_coordinator(parts, call(10, 4, "IN"), request)).coordinators
    assert [one.node_id for one in found] == [ME, BOTH, INSIDE, -1]
    assert parts.made == []
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["x"])
    found = walked(lambda: find_coordinator(parts, call(10, 4), request)).coordinators
    assert found[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE, "it is being made"
    assert parts.made == [TRANSACTIONS]


def test_a_topic_that_was_made_and_is_not_known_yet_has_no_leader_yet(parts: Any) -> None:
    topics = [MetadataRequestTopic(name=name) for name in ("new", "refused")]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
    found = walked(metadata(parts, call(3, 9), request)).topics
    assert [ErrorCode(one.error_code) for one in found] == [LEADER, ErrorCode.POLICY_VIOLATION]
    assert parts.made == ["new", "refused"]
