"""Reassignments: the nodes step by step, as Apache Kafka 3.9 writes them, and what can interrupt them."""

from __future__ import annotations

import pytest
from cluster.control.world import World

from ottla.cluster import znodes
from ottla.cluster.control import events
from ottla.cluster.control.memory import Assignment
from ottla.cluster.metadata_store import Create
from ottla.errors import BrokerError, ErrorCode
from ottla.wire.messages.peers import LeaderAndIsrRequest, StopReplicaRequest


def world_with(*replicas: tuple[int, ...]) -> World:
    world = World(0, 1, 2, 3)
    world.write_topic("t", *replicas)
    world.elect()
    world.settle()
    world.sent.clear()
    return world


def move(world: World, *target: int) -> None:
    assert world.run(events.MovePartitions({("t", 0): target})) == {("t", 0): None}


def test_move_goes_through_the_nodes_that_kafka_writes() -> None:
    world = world_with((0, 1))
    before = world.lead("t")
    move(world, 2, 0)
    assert world.assignment("t") == Assignment((2, 0, 1), (2,), (1,))
    started = world.lead("t")
    assert (started.leader_epoch, started.isr) == (before.leader_epoch + 1, (0, 1))
    new = [
        (broker, state.is_new, state.adding_replicas, state.removing_replicas)
        for broker, request in world.take_sent(LeaderAndIsrRequest)
        for state in request.topic_states[0].partition_states
    ]
    assert new == [(0, False, [2], [1]), (1, False, [2], [1]), (2, True, [2], [1])]
    assert world.propose("t", 0, (0, 1, 2)) == ErrorCode.NONE
    done = world.lead("t")
    assert (done.leader, done.isr, done.leader_epoch) == (0, (0, 2), started.leader_epoch + 2)
    assert world.assignment("t") == Assignment((2, 0))
    stops = [
        (broker, [(one.delete_partition, one.leader_epoch) for one in request.topic_states[0].partition_states])
        for broker, request in world.take_sent(StopReplicaRequest)
    ]
    assert stops == [(1, [(True, done.leader_epoch)])]
    assert world.machine is not None
    assert not world.machine.memory.moving


def test_leader_moves_with_the_partition() -> None:
    world = world_with((0, 1))
    move(world, 2, 3)
    assert world.propose("t", 0, (0, 1, 2)) == ErrorCode.NONE
    assert world.lead("t").leader == 0, "not before every new replica is in sync"
    assert world.propose("t", 0, (0, 1, 2, 3)) == ErrorCode.NONE
    assert (world.lead("t").leader, world.lead("t").isr) == (2, (2, 3))
    told = {broker for broker, request in world.sent if isinstance(request, LeaderAndIsrRequest)}
    assert {2, 3} <= told
    assert world.metadata(1)["t", 0] == 2


def test_order_alone_is_changed_at_once() -> None:
    world = world_with((0, 1))
    move(world, 1, 0)
    assert world.assignment("t") == Assignment((1, 0))
    assert world.lead("t").leader == 0
    assert world.run(events.Elect([("t", 0)], events.PREFERRED)) == {("t", 0): None}
    assert world.lead("t").leader == 1


def test_move_can_be_taken_back() -> None:
    world = world_with((0, 1))
    move(world, 2, 0)
    assert world.propose("t", 0, (0, 1)) == ErrorCode.NONE
    world.sent.clear()
    assert world.run(events.MovePartitions({("t", 0): None})) == {("t", 0): None}
    assert world.assignment("t") == Assignment((0, 1))
    assert world.lead("t").isr == (0, 1)
    assert [broker for broker, _ in world.take_sent(StopReplicaRequest)] == [2]
    error = world.run(events.MovePartitions({("t", 0): None}))["t", 0]
    assert error is not None
    assert error.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_move_can_be_given_another_target() -> None:
    world = world_with((0, 1))
    move(world, 2, 0)
    world.sent.clear()
    move(world, 3, 0)
    assert world.assignment("t") == Assignment((3, 0, 1), (3,), (1,))
    assert [broker for broker, _ in world.take_sent(StopReplicaRequest)] == [2]
    assert world.propose("t", 0, (0, 1, 3)) == ErrorCode.NONE
    assert world.assignment("t") == Assignment((3, 0))


def test_last_replica_in_sync_is_not_taken_away() -> None:
    """The new replica has caught up, and then the old ones go down: cancelling would lose everything."""
    world = world_with((0, 1))
    move(world, 2, 3)
    assert world.propose("t", 0, (0, 2)) == ErrorCode.NONE
    world.unregister(0)
    world.run(events.BrokersChanged())
    assert (world.lead("t").leader, world.lead("t").isr) == (2, (2,))
    for target in (None, (1, 3)):
        error = world.run(events.MovePartitions({("t", 0): target}))["t", 0]
        assert error.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert (world.lead("t").leader, world.lead("t").isr) == (2, (2,))


def test_leader_that_a_new_target_leaves_out_hands_over() -> None:
    world = world_with((0, 1))
    move(world, 2, 3)
    assert world.propose("t", 0, (0, 1, 2)) == ErrorCode.NONE
    world.unregister(0)
    world.unregister(1)
    world.run(events.BrokersChanged())
    world.register(1)
    world.run(events.BrokersChanged())
    assert world.propose("t", 0, (2, 1)) == ErrorCode.NONE
    assert world.lead("t").leader == 2
    assert world.run(events.MovePartitions({("t", 0): None})) == {("t", 0): None}
    assert (world.lead("t").leader, world.lead("t").isr) == (1, (1,))
    assert world.assignment("t") == Assignment((0, 1))


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((-1,), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((7, 0), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_impossible_targets_are_refused(target: tuple[int, ...], code: ErrorCode) -> None:
    world = world_with((0, 1))
    error = world.run(events.MovePartitions({("t", 0): target}))["t", 0]
    assert error.code == code
    assert world.assignment("t") == Assignment((0, 1))


def test_unknown_partitions_and_other_sizes_are_refused() -> None:
    world = world_with((0, 1))
    assert world.run(events.MovePartitions({("t", 9): (0,)}))["t", 9].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused = world.run(events.MovePartitions({("t", 0): (0, 1, 2)}, resize=False))["t", 0]
    assert refused.code == ErrorCode.INVALID_REPLICATION_FACTOR
    move(world, 0, 1, 2)
    with pytest.raises(BrokerError) as caught:
        world.run(events.Grow("t", 1, [(0,)]))
    assert caught.value.code == ErrorCode.REASSIGNMENT_IN_PROGRESS


def test_old_tool_asks_by_a_list_that_goes_when_all_is_done() -> None:
    world = world_with((0, 1), (0, 1))
    data = znodes.encode_reassignment({("t", 0): (2, 0), ("t", 1): (3, 0), ("none", 0): (1,), ("t", 7): (1,)})
    world.tree.do(Create(znodes.REASSIGNMENT, data))
    world.run(events.MovesAsked())
    left = znodes.decode_reassignment(world.tree.nodes[znodes.REASSIGNMENT].data)
    assert set(left) == {("t", 0), ("t", 1)}
    world.run(events.MovesAsked())
    assert world.propose("t", 0, (0, 1, 2)) == ErrorCode.NONE
    left = znodes.decode_reassignment(world.tree.nodes[znodes.REASSIGNMENT].data)
    assert set(left) == {("t", 1)}
    assert world.propose("t", 1, (0, 1, 3)) == ErrorCode.NONE
    assert znodes.REASSIGNMENT not in world.tree.nodes


def test_list_that_means_nothing_is_removed() -> None:
    world = world_with((0, 1))
    world.tree.do(Create(znodes.REASSIGNMENT, b"nonsense"))
    world.run(events.MovesAsked())
    assert znodes.REASSIGNMENT not in world.tree.nodes


def test_leader_of_an_older_version_finishes_a_move_by_writing_the_state() -> None:
    world = world_with((0, 1))
    move(world, 2, 0)
    lead = world.lead("t")._replace(isr=(0, 1, 2))
    from ottla.cluster.control import nodes
    from ottla.cluster.metadata_store import Set

    world.tree.do(Set(znodes.state_path("t", 0), nodes.lead_data(lead)))
    notice = znodes.encode_isr_change([("t", 0)])
    world.tree.do(Create(f"{znodes.ISR_CHANGES}/isr_change_0000000000", notice))
    world.run(events.InSyncNotified())
    assert world.assignment("t") == Assignment((2, 0))


def test_new_replica_dies_and_the_move_waits_for_it() -> None:
    world = world_with((0, 1))
    move(world, 2, 0)
    world.unregister(2)
    world.run(events.BrokersChanged())
    assert world.assignment("t").moving
    world.register(2)
    world.sent.clear()
    world.run(events.BrokersChanged())
    assert 2 in {broker for broker, _ in world.take_sent(LeaderAndIsrRequest)}
    assert world.propose("t", 0, (0, 1, 2)) == ErrorCode.NONE
    assert world.assignment("t") == Assignment((2, 0))


def test_topic_that_moves_is_deleted_when_it_has_moved() -> None:
    world = world_with((0, 1))
    move(world, 2, 0)
    world.tree.do(Create(znodes.deleted_topic_path("t")))
    world.run(events.DeletionsAsked())
    world.settle()
    assert world.lead("t").leader == 0
    assert world.run(events.MovePartitions({("t", 0): (1,)}))["t", 0].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.unregister(1)
    world.run(events.BrokersChanged())
    world.register(1)
    world.run(events.BrokersChanged())
    assert world.propose("t", 0, (0, 1, 2)) == ErrorCode.NONE
    world.settle()
    assert world.tree.children(znodes.TOPICS) == []


def test_many_partitions_of_a_topic_move_with_few_writes_of_its_node() -> None:
    world = world_with(*[(0, 1)] * 50)
    before = world.tree.nodes[znodes.topic_path("t")].stat.version
    assert set(world.run(events.MovePartitions({("t", index): (2, 3) for index in range(50)})).values()) == {None}
    assert world.tree.nodes[znodes.topic_path("t")].stat.version == before + 1
