"""Anybody may write to ZooKeeper. A malformed node affects only itself, not the cluster."""

from __future__ import annotations

from typing import Any

import pytest
from cluster.control.world import World

from ottla.cluster import znodes
from ottla.cluster.control import events
from ottla.cluster.control.context import Deposed
from ottla.cluster.metadata_store import Create, Set, Stat, Znode
from ottla.errors import BrokerError
from ottla.wire import codec
from ottla.wire.messages.peers import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest

VERSIONS: dict[type[Any], int] = {LeaderAndIsrRequest: 7, UpdateMetadataRequest: 8, StopReplicaRequest: 4}
TOPICS = [
    b"",
    b"null",
    b"[]",
    b"\xff\xfe",
    b'{"partitions":{"0":[0,"a"]}}',
    b'{"partitions":{"0":[0,99999999999]}}',
    b'{"partitions":{"0":[0,-7]}}',
    b'{"partitions":{"0":[[0]]}}',
    b'{"partitions":{"0":[0,0]}}',
    b'{"partitions":{"0":[true]}}',
    b'{"partitions":{"0":[0.5]}}',
    b'{"partitions":{"0":"01"}}',
    b'{"partitions":{"0":{"0":1}}}',
    b'{"partitions":{"-1":[0]}}',
    b'{"partitions":[[0]]}',
    b'{"partitions":{"5":[0]}}',
    b'{"partitions":{"0":[]}}',
    b'{"partitions":{"0":[0]},"topic_id":5}',
    b'{"partitions":{"0":[0]},"adding_replicas":{"0":["x"]}}',
    b'{"partitions":' * 20_000,
]
STATES = [
    b"",
    b"{}",
    b'{"controller_epoch":1,"leader":"x","leader_epoch":0,"isr":[0]}',
    b'{"controller_epoch":1,"leader":0,"leader_epoch":"0","isr":[0]}',
    b'{"controller_epoch":1,"leader":0,"leader_epoch":-5,"isr":[0]}',
    b'{"controller_epoch":1,"leader":0,"leader_epoch":0,"isr":"01"}',
    b'{"controller_epoch":"1","leader":0,"leader_epoch":0,"isr":[0]}',
    b'{"controller_epoch":1,"leader":0,"leader_epoch":0,"isr":[[0]]}',
    b'{"controller_epoch":1,"leader":0,"leader_epoch":9999999999,"isr":[0]}',
]
BROKERS = [
    b"",
    b"7",
    b'{"endpoints":["PLAINTEXT://h:99999999999999"]}',
    b'{"endpoints":[5]}',
    b'{"host":"h","port":"x","endpoints":[]}',
    b'{"endpoints":["PLAINTEXT://h:1"],"listener_security_protocol_map":7}',
]


def shown(data: bytes) -> str:
    return repr(data[:60])


def send_all(world: World) -> None:
    """Encode each request, as a channel does."""
    for _, request in world.sent:
        codec.encode(request, VERSIONS[type(request)])


def works(world: World) -> None:
    """Check that the controller creates a topic and that all its requests can be sent."""
    world.write_topic("good", (0, 1))
    world.run(events.TopicsChanged())
    world.settle()
    assert world.lead("good").leader == 0
    assert world.metadata(1)["good", 0] == 0
    send_all(world)


@pytest.mark.parametrize("data", TOPICS, ids=shown)
def test_the_controller_works_beside_a_malformed_topic(data: bytes) -> None:
    world = World(0, 1)
    world.tree.do(Create("/brokers/topics/bad", data))
    world.elect()
    world.settle()
    works(world)


@pytest.mark.parametrize("data", TOPICS, ids=shown)
def test_a_topic_that_becomes_malformed_stays_as_it_was_known(data: bytes) -> None:
    world = World(0, 1)
    world.write_topic("t", (0, 1))
    world.elect()
    world.tree.do(Set("/brokers/topics/t", data))
    world.run(events.TopicsWritten(["t"]))
    world.settle()
    assert world.metadata(1)["t", 0] == 0
    works(world)


@pytest.mark.parametrize("data", STATES, ids=shown)
def test_the_controller_works_beside_a_malformed_state(data: bytes) -> None:
    world = World(0, 1)
    world.write_topic("t", (0, 1), (0, 1), (1, 0))
    for path in ("", "/1", "/1/state"):
        world.tree.do(Create(f"/brokers/topics/t/partitions{path}", data if path.endswith("state") else b""))
    world.elect()
    world.settle()
    assert world.lead("t").leader == 0  # its neighbours in the transaction
    assert world.lead("t", 2).leader == 1
    assert world.tree.nodes["/brokers/topics/t/partitions/1/state"].data == data  # kept for an operator to read
    assert world.effects < 100
    works(world)


@pytest.mark.parametrize("data", BROKERS, ids=shown)
def test_the_controller_works_beside_a_malformed_broker(data: bytes) -> None:
    world = World(0, 1)
    world.tree.do(Create("/brokers/ids/7", data), Create("/brokers/ids/99999999999", data or b"{}"))
    world.elect()
    world.settle()
    works(world)


def test_a_state_of_a_later_controller_deposes_only_who_is_deposed() -> None:
    """The controller epoch may have been set back by hand. The current controller continues with what it finds."""
    world = World(0, 1)
    world.write_topic("t", (0, 1))
    world.elect()
    path = znodes.state_path("t", 0)
    state = b'{"controller_epoch":99,"leader":1,"version":1,"leader_epoch":5,"isr":[1,0]}'
    world.tree.do(Set(path, state))
    world.elect()
    world.settle()
    assert world.metadata(0)["t", 0] == 1
    works(world)

    world.tree.do(Set(znodes.CONTROLLER_EPOCH, b"100"), Set(path, state.replace(b"99", b"100")))
    with pytest.raises(Deposed):
        world.run(events.Elected())


def test_malformed_producer_ids_are_refused_and_not_begun_again() -> None:
    world = World(0)
    world.elect()
    world.tree.do(Create(znodes.PRODUCER_IDS, b'{"block_end":"x"}'))
    with pytest.raises(BrokerError):
        world.run(events.TakeProducerIds(0, world.broker_epoch(0)))
    assert world.tree.nodes[znodes.PRODUCER_IDS].data == b'{"block_end":"x"}'


def test_a_notice_that_is_nested_too_deep_is_no_notice() -> None:
    with pytest.raises(ValueError, match="deep"):
        znodes.decode_config_change(b"[" * 100_000)


@pytest.mark.parametrize("data", TOPICS, ids=shown)
def test_a_starting_broker_is_told_which_topics_are_malformed(data: bytes) -> None:
    good = b'{"partitions":{"0":[0]},"version":3}'
    nodes = {
        f"/brokers/topics/{name}": Znode(content, Stat(0, 0, False))
        for name, content in (("bad", data), ("good", good))
    }
    malformed: set[str] = set()
    assert list(znodes.image_of(nodes, malformed=malformed).topics) == ["good"]
    assert malformed == {"/brokers/topics/bad"}
