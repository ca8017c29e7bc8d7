"""A controller may stop after any effect: its successor finishes the interrupted work. Also random cluster histories.

Invariants after every single write: the leader is in sync or there is none, leader epochs and versions only rise, the
in-sync set is a subset of the replicas, and every write checks the controller epoch (`world.py` ensures it).
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest
from cluster.control.world import Crashed, World

from ottla.cluster import znodes
from ottla.cluster.control import events
from ottla.cluster.control.memory import Assignment
from ottla.cluster.metadata_store import Create, Delete, Set

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.cluster.control.memory import Key, Lead
    from ottla.cluster.metadata_store import Op, StoreError


class Watched(World):
    """A world that checks every write."""

    def __init__(self, *brokers: int) -> None:
        super().__init__(*brokers)
        self._seen: dict[Key, tuple[bytes | None, Lead]] = {}

    def transact(self, ops: Sequence[Op]) -> StoreError | None:
        error = super().transact(ops)
        leads = self.leads()
        for key, lead in leads.items():
            topic_id = self.topic_id(key[0])
            replicas = self.assignment(*key).replicas
            assert lead.leader == -1 or lead.leader in lead.isr, (key, lead)
            assert lead.isr, key
            assert lead.controller_epoch <= self.epoch
            assert len(set(replicas)) == len(replicas)
            known, before = self._seen.get(key, (topic_id, lead))
            if known == topic_id and before != lead:
                assert lead.leader_epoch >= before.leader_epoch, (key, before, lead)
                assert lead.version > before.version, (key, before, lead)
                if lead.leader != before.leader:
                    assert lead.leader_epoch > before.leader_epoch, (key, before, lead)
                assert set(lead.isr) <= set(replicas) | set(before.isr), (key, before, lead)
            self._seen[key] = topic_id, lead
        self._seen = {key: seen for key, seen in self._seen.items() if key in leads}
        return error

    def catch_up(self) -> None:
        """Every live replica becomes in sync, so that reassignments can complete."""
        for _ in range(3):
            for key, lead in self.leads().items():
                alive = [one for one in self.assignment(*key).replicas if znodes.broker_path(one) in self.tree.nodes]
                if lead.leader >= 0 and lead.leader in alive and set(alive) != set(lead.isr):
                    self.propose(*key, alive)
            self.settle()


class Story(NamedTuple):
    begin: Callable[[Watched], events.Event]
    check: Callable[[Watched], None]


def new_topic(world: Watched) -> events.Event:
    world.write_topic("u", (0, 1), (1, 2), (9, 0), with_id=False)
    return events.TopicsChanged()


def has_new_topic(world: Watched) -> None:
    assert [world.lead("u", index).leader for index in range(3)] == [0, 1, 0]
    assert world.topic_id("u")


def deletion(world: Watched) -> events.Event:
    world.tree.do(Create(znodes.deleted_topic_path("t")))
    return events.DeletionsAsked()


def is_deleted(world: Watched) -> None:
    assert "t" not in world.tree.children(znodes.TOPICS)
    assert world.tree.children(znodes.DELETED_TOPICS) == []
    assert znodes.topic_config_path("t") not in world.tree.nodes


def death(world: Watched) -> events.Event:
    world.unregister(0)
    return events.BrokersChanged()


def is_led_by_others(world: Watched) -> None:
    assert all(lead.leader in (1, 2) and 0 not in lead.isr for key, lead in world.leads().items() if key != ("t", 2))
    assert world.lead("t", 2).leader == -1


def beginning_move(world: Watched) -> events.Event:
    data = znodes.encode_reassignment({("t", 0): (2, 3), ("t", 1): (3, 2)})
    world.tree.do(Create(znodes.REASSIGNMENT, data))
    return events.MovesAsked()


def has_moved(world: Watched) -> None:
    world.catch_up()
    assert world.assignment("t", 0) == Assignment((2, 3))
    assert world.assignment("t", 1) == Assignment((3, 2))
    assert znodes.REASSIGNMENT not in world.tree.nodes
    assert set(world.lead("t", 0).isr) == {2, 3}
    assert world.lead("t", 0).leader in (2, 3)


def ending_move(world: Watched) -> events.Event:
    world.run(beginning_move(world))
    lead = world.lead("t", 0)
    from ottla.cluster.control import nodes

    for index in (0, 1):
        lead = world.lead("t", index)
        data = nodes.lead_data(lead._replace(isr=(*lead.isr, *(one for one in (2, 3) if one not in lead.isr))))
        world.tree.do(Set(znodes.state_path("t", index), data))
    notice = znodes.encode_isr_change([("t", 0), ("t", 1)])
    world.tree.do(Create(f"{znodes.ISR_CHANGES}/isr_change_0000000000", notice))
    return events.InSyncNotified()


def growth(world: Watched) -> events.Event:
    return events.Grow("t", 3, [(1, 2), (2, 0)])


def has_grown_or_not(world: Watched) -> None:
    found = [key for key in world.leads() if key[0] == "t"]
    assert len(found) in (3, 5)
    replicas = len(znodes.decode_topic(world.tree.nodes[znodes.topic_path("t")].data).replicas)
    assert replicas == len(found)


def departure(world: Watched) -> events.Event:
    return events.Shutdown(0, -1)


def is_led(world: Watched) -> None:
    assert all(lead.leader >= 0 for lead in world.leads().values())


def preferred(world: Watched) -> events.Event:
    world.unregister(0)
    world.run(events.BrokersChanged())
    world.register(0)
    world.run(events.BrokersChanged())
    world.catch_up()
    world.tree.do(Create(znodes.PREFERRED_ELECTION, znodes.encode_preferred_election([("t", 0), ("t", 1)])))
    return events.PreferredAsked()


def is_preferred(world: Watched) -> None:
    assert (world.lead("t", 0).leader, world.lead("t", 1).leader) == (0, 1)
    assert znodes.PREFERRED_ELECTION not in world.tree.nodes


def taking_office(world: Watched) -> events.Event:
    world.unregister(0)
    new_topic(world)
    deletion(world)
    world.become_controller()
    return events.Elected()


def has_everything(world: Watched) -> None:
    world.register(0)
    world.run(events.BrokersChanged())
    world.settle()
    is_deleted(world)
    assert world.topic_id("u")
    is_led(world)


STORIES = {
    "a new topic": Story(new_topic, has_new_topic),
    "a deletion": Story(deletion, is_deleted),
    "a death": Story(death, is_led_by_others),
    "a move begins": Story(beginning_move, has_moved),
    "a move ends": Story(ending_move, has_moved),
    "growth": Story(growth, has_grown_or_not),
    "a departure": Story(departure, is_led),
    "an election asked for by znode": Story(preferred, is_preferred),
    "taking office": Story(taking_office, has_everything),
}


def begun() -> Watched:
    world = Watched(0, 1, 2, 3)
    world.write_topic("t", (0, 1), (1, 0), (0,), retention_ms="5")
    world.elect()
    world.settle()
    return world


@pytest.mark.parametrize("name", STORIES)
def test_successor_finishes_what_was_stopped_after_any_effect(name: str) -> None:
    story = STORIES[name]
    for stop_after in range(1000):
        world = begun()
        event = story.begin(world)
        try:
            world.run(event, stop_after=stop_after)
        except Crashed:
            world.elect()
        else:
            world.settle()
            story.check(world)
            return
        world.settle()
        story.check(world)
    raise AssertionError("the story does not end")


@pytest.mark.parametrize("name", STORIES)
def test_answers_that_never_come_change_nothing_in_the_end(name: str) -> None:
    """The response to every second write is lost, so that its outcome is unknown."""
    story = STORIES[name]
    world = begun()
    event = story.begin(world)
    chance = Random(name)
    world.unsure = lambda: chance.random() < 0.3
    world.run(event)
    world.settle()
    world.unsure = None
    world.elect()
    world.settle()
    story.check(world)


class Life:
    """A random history: brokers and topics come and go, partitions move, and the controller stops anywhere."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.world = Watched(0, 1, 2, 3)
        self.world.elect()
        self.count = 0

    def topics(self) -> list[str]:
        return self.world.tree.children(znodes.TOPICS)

    def brokers(self) -> list[int]:
        return [int(name) for name in self.world.tree.children(znodes.BROKERS)]

    def happen(self) -> events.Event | None:
        """Make a random change; return the event for the controller."""
        world, chance = self.world, self.chance
        kind = chance.choice(("topic", "die", "die", "return", "return", "return", "isr", "isr", "move", "cancel",
                              "delete", "elect", "leave", "grow", "old isr", "balance"))  # fmt: skip
        if kind == "topic" and len(self.topics()) < 4:
            self.count += 1
            world.write_topic(
                f"t{self.count}", *(tuple(chance.sample(range(4), chance.choice((1, 2, 3)))) for _ in "ab")
            )
            return events.TopicsChanged()
        if kind == "die" and len(self.brokers()) > 1:
            world.unregister(chance.choice(self.brokers()))
            return events.BrokersChanged()
        if kind == "return" and len(self.brokers()) < 4:
            world.register(chance.choice([one for one in range(4) if one not in self.brokers()]))
            return events.BrokersChanged()
        if not self.topics():
            return None
        return self.about(kind, chance.choice(self.topics()))

    def about(self, kind: str, topic: str) -> events.Event | None:
        world, chance = self.world, self.chance
        key = (topic, chance.choice((0, 1)))
        if kind == "move":
            return events.MovePartitions({key: tuple(chance.sample(range(4), chance.choice((1, 2, 3))))})
        if kind == "cancel":
            return events.MovePartitions({key: None})
        if kind == "delete" and znodes.deleted_topic_path(topic) not in world.tree.nodes:
            world.tree.do(Create(znodes.deleted_topic_path(topic)))
            return events.DeletionsAsked()
        if kind == "elect":
            return events.Elect(None, chance.choice((events.PREFERRED, events.UNCLEAN)))
        if kind == "leave":
            return events.Shutdown(chance.choice(self.brokers()), -1)
        if kind == "grow":
            return events.Grow(topic, 2, [(chance.choice(range(4)),)])
        if kind == "balance":
            return events.CheckBalance()
        if key in world.leads() and world.lead(*key).leader in self.brokers():
            if kind == "isr":
                self.propose(key)
            elif kind == "old isr":
                from ottla.cluster.control import nodes

                lead = world.lead(*key)
                isr = tuple(one for one in lead.isr if one == lead.leader or chance.random() < 0.5)
                world.tree.do(Set(znodes.state_path(*key), nodes.lead_data(lead._replace(isr=isr))))
        return None

    def propose(self, key: Key) -> None:
        lead = self.world.lead(*key)
        others = [one for one in self.world.assignment(*key).replicas if one != lead.leader and one in self.brokers()]
        self.world.propose(*key, (lead.leader, *self.chance.sample(others, self.chance.randint(0, len(others)))))

    def live(self, steps: int) -> None:
        from ottla.errors import BrokerError

        world, chance = self.world, self.chance
        for _ in range(steps):
            event = self.happen()
            stop_after = chance.choice((None, None, chance.randrange(20)))
            try:
                if event is not None:
                    world.run(event, stop_after=stop_after)
                if chance.random() < 0.5:
                    world.settle()
            except Crashed:
                world.elect()
            except BrokerError:
                continue
        world.unsure = None
        for broker in range(4):
            if broker not in self.brokers():
                world.register(broker)
        world.elect()
        world.settle()
        world.catch_up()

    def check(self) -> None:
        world = self.world
        assert world.tree.children(znodes.DELETED_TOPICS) == []
        for key, lead in world.leads().items():
            assignment = world.assignment(*key)
            assert not assignment.moving, (key, assignment)
            assert lead.leader >= 0, (key, lead)
            assert set(lead.isr) == set(assignment.replicas), (key, lead, assignment)
        told = world.metadata(0)
        for key, lead in world.leads().items():
            assert told[key] == lead.leader, key
        assert world.machine is not None
        memory = world.machine.memory
        assert memory.leads == world.leads()
        assert sorted(memory.topics) == self.topics()
        assert not memory.moving
        assert not memory.leaderless


@pytest.mark.parametrize("seed", range(60))
def test_life_of_a_cluster(seed: int) -> None:
    life = Life(seed)
    life.live(60)
    life.check()


def test_topic_without_its_partitions_nodes_is_repaired() -> None:
    """An older controller that creates a topic without a transaction can leave this."""
    world = Watched(0, 1)
    world.write_topic("t", (0, 1))
    world.tree.do(Create(znodes.partitions_path("t")))
    world.tree.do(Create(znodes.partition_path("t", 0)))
    world.elect()
    assert world.lead("t").leader == 0
    world.tree.do(Delete(znodes.state_path("t", 0)))
    world.elect()
    assert world.lead("t").leader == 0
