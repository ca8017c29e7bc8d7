"""Each check finds its kind of violation, and none finds any in a correctly replicated partition."""

from __future__ import annotations

import base64
import json
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cluster.metadata_store import Create, Delete, Set
from ottla.records import batch
from ottla.sim.checks import Checks
from ottla.sim.loop import Process, make_loop
from ottla.sim.net import Network
from ottla.sim.zookeeper import SimMetadataStore, SimZooKeeper

KEY = ("t", 0)
TOPIC_ID, NEXT_ID = b"i" * 16, b"n" * 16
BELOW = ["/brokers/topics/t/partitions", "/brokers/topics/t/partitions/0"]
STATE = "/brokers/topics/t/partitions/0/state"


def one_record(offset: int, value: bytes = b"v", epoch: int = 0) -> bytes:
    return batch.build([batch.Record(offset, 0, None, value)], base_offset=offset, leader_epoch=epoch)


def topic_node(topic_id: bytes, replicas: list[int]) -> bytes:
    text = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
    return json.dumps({"partitions": {"0": replicas}, "topic_id": text, "version": 3}).encode()


class FakeLog:
    """Batches of one record each, from offset 0 on."""

    def __init__(self, topic_id: bytes = TOPIC_ID) -> None:
        self.start = 0
        self.fault = None
        self.topic_id = topic_id
        self.batches: list[bytes] = []

    @property
    def end(self) -> int:
        return len(self.batches)

    def read(self, at: int, size: int, *, offset_max: int) -> Any:
        data = b"".join(self.batches[at:offset_max])
        return SimpleNamespace(read=lambda: data) if data else None


class Scene:
    """Two brokers with a replica each of one partition, and the store."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        loop = make_loop(Random(1))
        network = Network(loop, Random(1))
        self.store = SimZooKeeper(loop, network)
        self.checks = Checks(self.store, self.wrong.append)
        self.nodes = [self._node(number) for number in (1, 2)]
        _, context = loop.process("b1")
        self.session = self.store.begin(context.run(SimMetadataStore, self.store, "b1")).number
        parents = ["/brokers", "/brokers/topics"]
        self.store.multi([Create(path) for path in parents])
        self.store.multi([Create("/controller_epoch", b"1")])
        self.make(TOPIC_ID)

    def make(self, topic_id: bytes) -> None:
        creations = [Create("/brokers/topics/t", topic_node(topic_id, [1, 2])), *(Create(path) for path in BELOW)]
        self.store.multi(creations)
        self.store.multi([Create(STATE, self.state())], self.session)

    def delete(self) -> None:
        paths = [STATE, *reversed(BELOW), "/brokers/topics/t"]
        self.store.multi([Delete(path) for path in paths], self.session)

    def _node(self, number: int) -> Any:
        partition = SimpleNamespace(
            topic="t", index=0, topic_id=TOPIC_ID, high=0, log=FakeLog(), epoch=0, led=number == 1
        )
        parts = SimpleNamespace(replicas=[partition])
        broker = SimpleNamespace(_dispatch=SimpleNamespace(_parts=parts))
        node = SimpleNamespace(number=number, name=f"b{number}", process=Process(f"b{number}"), broker=broker)
        self.checks.begin(node)  # type: ignore[arg-type]
        node.partition = partition
        return node

    def state(self, leader: int = 1, epoch: int = 0, isr: tuple[int, ...] = (1, 2), controller_epoch: int = 1) -> bytes:
        said = {"leader": leader, "leader_epoch": epoch, "isr": isr, "controller_epoch": controller_epoch, "version": 1}
        return json.dumps(said).encode()

    def write(self, **state: Any) -> None:
        self.store.multi([Set(STATE, self.state(**state))], self.session)

    def look(self) -> None:
        for node in reversed(self.nodes):
            self.checks.after(node.process)

    def replicate(self, count: int, high: int) -> None:
        """Both have `count` records; the leader's high watermark is `high`."""
        for node in self.nodes:
            log = node.partition.log
            log.batches += [one_record(offset) for offset in range(log.end, count)]
        self.look()
        self.nodes[0].partition.high = high
        self.look()

    @property
    def kinds(self) -> set[str]:
        return {one.split()[0] for one in self.wrong}


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_nothing_is_wrong_when_all_is_well(scene: Scene) -> None:
    scene.replicate(3, 2)
    scene.nodes[1].partition.high = 2
    scene.replicate(5, 5)
    scene.write(epoch=1, leader=2, isr=(2,))
    one, two = (node.partition for node in scene.nodes)
    two.led, two.epoch = True, 1
    one.led, one.epoch = False, 1
    scene.look()
    two.log.batches.append(one_record(5, b"x", 1))
    two.high = 6
    scene.look()
    one.log.batches.append(one_record(5, b"x", 1))
    scene.look()
    scene.write(epoch=1, leader=2, isr=(2, 1))
    one.high = 6
    scene.look()
    assert scene.wrong == []


def test_v3_a_high_watermark_that_goes_back(scene: Scene) -> None:
    scene.replicate(3, 3)
    scene.nodes[0].partition.high = 2
    scene.look()
    assert scene.kinds == {"V3"}


def test_a_new_process_may_know_less(scene: Scene) -> None:
    scene.replicate(3, 3)
    scene.checks.begin(scene.nodes[0])
    scene.nodes[0].partition.high = 0
    scene.look()
    assert scene.wrong == []


def test_v4_what_a_replica_in_sync_does_not_have(scene: Scene) -> None:
    scene.replicate(3, 3)
    leader = scene.nodes[0].partition
    leader.log.batches.append(one_record(3))
    leader.high = 4
    scene.look()
    assert scene.kinds == {"V4"}


def test_v4_above_the_end(scene: Scene) -> None:
    scene.nodes[1].partition.high = 1
    scene.look()
    assert "V4" in scene.kinds


def test_v5_other_bytes(scene: Scene) -> None:
    scene.replicate(3, 3)
    follower = scene.nodes[1].partition
    follower.log.batches[1] = one_record(1, b"w")
    follower.high = 3
    scene.look()
    assert scene.kinds == {"V5"}


def test_v5_a_cut_below_what_is_committed(scene: Scene) -> None:
    scene.replicate(3, 3)
    scene.nodes[1].partition.high = 3
    scene.look()
    del scene.nodes[1].partition.log.batches[2:]
    scene.look()
    assert "V5" in scene.kinds


@pytest.mark.parametrize("moved", [True, False])
def test_a_log_begins_anew_only_after_its_replica_was_moved_away(scene: Scene, *, moved: bool) -> None:
    scene.replicate(3, 3)
    follower = scene.nodes[1].partition
    follower.high = 3
    scene.look()
    for replicas in ([1], [1, 2]):
        scene.write(isr=(1,))
        topic = topic_node(TOPIC_ID, replicas if moved else [1, 2])
        scene.store.multi([Set("/brokers/topics/t", topic)], scene.session)
    follower.log, follower.high = FakeLog(), 0
    scene.look()
    assert scene.kinds == (set() if moved else {"V3", "V5"})


def test_v6_two_leaders(scene: Scene) -> None:
    scene.replicate(3, 3)
    scene.nodes[1].partition.led = True
    scene.look()
    assert scene.kinds == {"V6"}


def test_v6_an_epoch_that_goes_back(scene: Scene) -> None:
    follower = scene.nodes[1].partition
    follower.epoch = 3
    scene.look()
    follower.epoch = 2
    scene.look()
    assert scene.kinds == {"V6"}


def test_v6_a_leader_without_what_is_committed(scene: Scene) -> None:
    scene.replicate(3, 3)
    scene.write(epoch=1, leader=2)
    follower = scene.nodes[1].partition
    del follower.log.batches[2:]
    follower.led, follower.epoch = True, 1
    scene.look()
    assert scene.kinds == {"V6"}


def test_v6_a_leader_with_something_else_than_what_is_committed(scene: Scene) -> None:
    scene.replicate(3, 3)
    scene.write(epoch=1, leader=2)
    follower = scene.nodes[1].partition
    follower.log.batches[2] = one_record(2, b"other")
    follower.led, follower.epoch = True, 1
    scene.look()
    assert scene.kinds == {"V5"}


def test_v7_in_sync_without_what_is_committed(scene: Scene) -> None:
    scene.write(isr=(1,))
    leader = scene.nodes[0].partition
    leader.log.batches += [one_record(0), one_record(1)]
    leader.high = 2
    scene.look()
    scene.write(isr=(1, 2))
    assert scene.kinds == {"V7"}


@pytest.mark.parametrize(
    "state",
    [
        {"isr": (1, 3)},
        {"leader": 1, "isr": (2,)},
        {"leader": 2, "epoch": 5, "isr": ()},
        {"leader": 2},
        {"controller_epoch": 0},
    ],
)
def test_v15_states_that_must_not_be(scene: Scene, state: dict[str, Any]) -> None:
    scene.write(**state)
    assert scene.kinds == {"V15"}


def test_v15_an_epoch_that_goes_back_in_the_store(scene: Scene) -> None:
    scene.write(epoch=3)
    scene.write(epoch=2)
    assert scene.kinds == {"V15"}


def test_v15_a_leader_that_was_not_in_sync(scene: Scene) -> None:
    scene.write(isr=(1,))
    scene.write(epoch=1, leader=2, isr=(2,))
    assert scene.kinds == {"V15"}


def test_v15_a_state_that_a_former_controller_wrote(scene: Scene) -> None:
    scene.store.multi([Set("/controller_epoch", b"2")])
    scene.write(epoch=1)
    assert scene.kinds == {"V15"}


def test_v15_a_topic_that_nobody_asked_to_delete(scene: Scene) -> None:
    scene.delete()
    assert scene.kinds == {"V15"}


def made_again(scene: Scene) -> tuple[Any, Any]:
    """The topic is recreated; the first broker knows that, the second still has the former topic's log."""
    scene.checks.deletable.add("t")
    scene.replicate(3, 3)
    scene.delete()
    scene.make(NEXT_ID)
    one, two = (node.partition for node in scene.nodes)
    one.log, one.high, one.topic_id = FakeLog(NEXT_ID), 0, NEXT_ID
    return one, two


def test_what_a_broker_has_of_a_former_topic_is_not_compared(scene: Scene) -> None:
    one, two = made_again(scene)
    two.high = 3  # it learns of it only now
    scene.look()
    scene.write(isr=(1,))
    one.log.batches.append(one_record(0, b"new"))
    one.high = 1
    scene.look()
    assert scene.wrong == []
    two.log, two.high, two.topic_id = FakeLog(NEXT_ID), 0, NEXT_ID
    two.log.batches.append(one_record(0, b"new"))
    scene.look()
    two.high = 1
    scene.look()
    assert scene.wrong == []


def test_v5_what_is_called_the_new_topic_and_has_the_bytes_of_the_former(scene: Scene) -> None:
    one, two = made_again(scene)
    scene.write(isr=(1,))
    one.log.batches.append(one_record(0, b"new"))
    one.high = 1
    scene.look()
    two.topic_id = two.log.topic_id = NEXT_ID
    two.high = 1
    scene.look()
    assert scene.kinds == {"V5"}


def test_v15_a_new_topic_with_a_log_of_the_former(scene: Scene) -> None:
    _, two = made_again(scene)
    two.topic_id, two.high = NEXT_ID, 0
    scene.look()
    assert scene.kinds == {"V15"}
