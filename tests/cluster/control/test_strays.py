"""Replicas that were reassigned while their broker was down: they are deleted, and do not block a new topic."""

from __future__ import annotations

import pytest
from cluster.control.world import World

from ottla.cluster import znodes
from ottla.cluster.control import events
from ottla.cluster.metadata_store import Create
from ottla.errors import ErrorCode
from ottla.wire.messages.peers import LeaderAndIsrRequest, StopReplicaRequest

KEY = ("t", 0)
ANY_EPOCH = -2


def moved_while_gone() -> World:
    """t-0 has moved from brokers 0 and 1 to 1 and 2, and broker 0, which was down, does not know."""
    world = World(0, 1, 2)
    world.write_topic("t", (0, 1))
    world.elect()
    world.settle()
    world.unregister(0)
    world.run(events.BrokersChanged())
    assert world.run(events.MovePartitions({KEY: (1, 2)})) == {KEY: None}
    assert world.propose("t", 0, (1, 2)) == ErrorCode.NONE
    world.settle()
    world.former_logs[0] = {KEY}
    world.sent.clear()
    return world


def make_again(world: World, *replicas: int) -> None:
    world.tree.do(Create(znodes.deleted_topic_path("t")))
    world.run(events.DeletionsAsked())
    world.settle()
    world.write_topic("t", replicas)
    world.run(events.TopicsChanged())
    world.settle()


def back(world: World) -> None:
    world.register(0)
    world.run(events.BrokersChanged())
    world.settle()


def told(world: World) -> list[str | tuple[bool, int]]:
    """The requests about the partition that broker 0 got, in order."""
    heard: list[str | tuple[bool, int]] = []
    for broker, request in world.sent:
        if broker == 0 and isinstance(request, LeaderAndIsrRequest):
            heard.append("lead")
        elif broker == 0 and isinstance(request, StopReplicaRequest):
            states = [state for topic in request.topic_states for state in topic.partition_states]
            heard += [(state.delete_partition, state.leader_epoch) for state in states]
    return heard


@pytest.mark.parametrize("again", [None, (1, 2)])
def test_it_is_deleted_when_its_broker_is_back(again: tuple[int, ...] | None) -> None:
    """Whatever the epoch of its replica: a recreated topic begins at the first epoch again."""
    world = moved_while_gone()
    if again is not None:
        make_again(world, *again)
    back(world)
    assert told(world) == [(True, ANY_EPOCH)]
    world.sent.clear()
    world.unregister(0)
    world.run(events.BrokersChanged())
    back(world)
    assert told(world) == [], "it was said once, and done"


def test_it_makes_way_for_a_new_topic_of_the_same_name() -> None:
    world = moved_while_gone()
    make_again(world, 0, 1)
    back(world)
    assert told(world) == ["lead", (True, ANY_EPOCH), "lead"]
    assert world.former_logs[0] == set()


def test_what_was_begun_after_it_is_not_deleted() -> None:
    """Two requests are refused because of it: the second response says nothing about the current replica."""
    world = moved_while_gone()
    make_again(world, 0, 1)
    world.register(0)
    world.run(events.BrokersChanged())
    refused = next(one for one in world.answers if isinstance(getattr(one, "request", None), LeaderAndIsrRequest))
    world.run(refused)
    assert told(world) == ["lead", (True, ANY_EPOCH)]
    world.run(refused)
    assert told(world) == ["lead", (True, ANY_EPOCH)]


def test_it_may_be_wanted_back() -> None:
    world = moved_while_gone()
    world.former_logs.clear()
    world.register(0)
    world.unregister(1)
    world.run(events.BrokersChanged())
    world.answers.clear()  # broker 0 goes down before it can answer
    assert world.run(events.MovePartitions({KEY: (2, 0)})) == {KEY: None}
    world.unregister(0)
    world.run(events.BrokersChanged())
    world.sent.clear()
    back(world)
    assert told(world) == ["lead"]


def test_a_log_that_nobody_took_away_stays_though_its_topic_id_is_another() -> None:
    """The id in the store may be wrong: an old tool may drop it, and a controller then generates another."""
    world = World(0, 1, 2)
    world.former_logs[0] = {KEY}
    world.write_topic("t", (0, 1))
    world.elect()
    world.settle()
    assert told(world) == ["lead"]
    assert world.former_logs[0] == {KEY}


def refused_in_sync() -> World:
    """Broker 0 is in sync, and has refused its replica: its log belongs to another topic of that name."""
    world = World(0, 1, 2)
    world.former_logs[0] = {KEY}
    world.write_topic("t", (1, 0))
    world.elect()
    world.settle()
    assert told(world) == ["lead"]
    world.sent.clear()
    return world


def test_who_is_out_of_sync_is_told_again() -> None:
    """It may set its log aside then. Found by the simulation: otherwise a follower never copied anything."""
    world = refused_in_sync()
    world.former_logs.clear()  # it sets its log aside when it gets the request
    assert world.propose("t", 0, (1,)) == ErrorCode.NONE
    world.settle()
    assert told(world) == ["lead"]
    assert world.propose("t", 0, (1, 0)) == ErrorCode.NONE
    assert world.propose("t", 0, (1,)) == ErrorCode.NONE
    world.settle()
    assert told(world) == ["lead"], "it has begun, and needs to hear no more"


def test_who_refuses_again_is_told_once_for_each_state() -> None:
    """Apache Kafka never sets such a log aside, so the controller must stop asking."""
    world = refused_in_sync()
    assert world.propose("t", 0, (1,)) == ErrorCode.NONE
    for _ in range(5):
        world.settle()
    assert told(world) == ["lead"]
    assert world.former_logs[0] == {KEY}
