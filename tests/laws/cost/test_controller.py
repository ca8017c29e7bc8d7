"""What the controller reads, writes, sends and computes for an event grows with what the event affects.

Becoming controller affects all partitions, and a broker that joins or leaves all partitions of that broker: twice as
many cost twice as much, not four times. A created or deleted topic, a changed in-sync set and a reassignment cost the
same at any size. Counted, not timed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from cluster.control.world import World

from ottla.cluster import znodes
from ottla.cluster.control import events
from ottla.cluster.control.effects import List, Read, Send, Write
from ottla.cluster.metadata_store import Create

if TYPE_CHECKING:
    from collections.abc import Callable

    Event = Callable[["Counted"], None]

FEW, MANY = 250, 500
LINEAR = 2.2  # for twice as many
CONSTANT = 1.2
PER_TOPIC = 10  # partitions
ROTATION = ((0, 1, 2), (1, 2, 0), (2, 0, 1))


class Counted(World):
    """A cluster that counts its controller's requests to the store and the brokers, and the functions it calls."""

    def __init__(self, partitions: int) -> None:
        super().__init__(0, 1, 2)
        self.counts: dict[str, int] = {}
        for number in range(partitions // PER_TOPIC):
            self.write_topic(f"topic-{number}", *(ROTATION[index % 3] for index in range(PER_TOPIC)))
        self.elect()
        self.settle()

    def count(self, event: Event) -> dict[str, int]:
        """The cost of an event until every broker has answered."""
        self.counts = {"read": 0, "written": 0, "requests": 0, "states sent": 0, "calls": 0}
        event(self)
        self.settle()
        return self.counts

    def run(self, event: events.Event, *, stop_after: int | None = None) -> Any:
        def note(frame: object, kind: str, argument: object) -> None:
            if kind in ("call", "c_call"):
                self.counts["calls"] += 1

        assert self.machine is not None
        task = self.machine.handle(event)
        result: Any = None
        try:
            while True:
                sys.setprofile(note if self.counts else None)
                try:
                    effect = task.send(result)
                finally:
                    sys.setprofile(None)
                self._note(effect)
                result = self.carry_out(effect)
        except StopIteration as stop:
            return stop.value

    def _note(self, effect: object) -> None:
        if not self.counts:
            return
        if isinstance(effect, Read):
            self.counts["read"] += len(effect.paths)
        elif isinstance(effect, List):
            self.counts["read"] += 1
        elif isinstance(effect, Write):
            self.counts["written"] += sum(len(ops) for ops in effect.transactions)
        elif isinstance(effect, Send):
            self.counts["requests"] += 1
            topics = getattr(effect.request, "topic_states", ())
            self.counts["states sent"] += sum(len(one.partition_states) for one in topics)


def take_office(world: Counted) -> None:
    world.elect()


def lose_broker(world: Counted) -> None:
    world.unregister(2)
    world.run(events.BrokersChanged())


def return_broker(world: Counted) -> None:
    world.register(2)
    world.run(events.BrokersChanged())


def stop_broker(world: Counted) -> None:
    world.run(events.Shutdown(1, world.broker_epoch(1)))


def create_topic(world: Counted) -> None:
    world.write_topic("one-more", *ROTATION)
    world.run(events.TopicsChanged())


def change_in_sync(world: Counted) -> None:
    world.propose("one-more", 0, (0, 1))


def move_partition(world: Counted) -> None:
    world.run(events.MovePartitions({("one-more", 0): (0, 1)}))


def delete_topic(world: Counted) -> None:
    world.tree.do(Create(f"{znodes.DELETED_TOPICS}/one-more"))
    world.run(events.DeletionsAsked())


EVENTS: dict[Event, float] = {
    create_topic: CONSTANT,
    change_in_sync: CONSTANT,
    move_partition: CONSTANT,
    delete_topic: CONSTANT,
    take_office: LINEAR,
    lose_broker: LINEAR,
    return_broker: LINEAR,
    stop_broker: LINEAR,
}


@pytest.fixture(scope="module")
def costs() -> dict[int, dict[str, dict[str, int]]]:
    """The cost of each kind of event, by the number of partitions."""
    found: dict[int, dict[str, dict[str, int]]] = {}
    for partitions in (FEW, MANY):
        world = Counted(partitions)
        found[partitions] = {event.__name__: world.count(event) for event in EVENTS}
    return found


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_an_event_costs_what_it_is_about(costs: dict[int, dict[str, dict[str, int]]], event: Event) -> None:
    few, many = costs[FEW][event.__name__], costs[MANY][event.__name__]
    assert few["requests"], "it had something to say"
    for what, count in many.items():
        assert count <= EVENTS[event] * few[what] + 5, (what, few, many)
