"""The real controller among puppets, in a simulation: whatever happens to it, its successors finish the work."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from sim.puppets import Puppet

from ottla.cluster.plans import NewTopic
from ottla.errors import BrokerError
from ottla.sim.world import World

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CALM_S = 60.0
KINDS = ("kill", "kill two", "pause", "cut brokers", "cut store", "cut one way", "isolate", "reset", "slow")
STORE_KINDS = ("store away", "store slow", "expire", "resign")


class Government(World):
    """A world with puppets in place of brokers."""

    def __init__(self, seed: int, folder: Path, **options: Any) -> None:
        super().__init__(seed, folder, brokers=4, rounds=8, **options)
        self.nodes = [
            Puppet(node.number, node.folder, self.network, self.store, self.chance, node._options)
            for node in self.nodes
        ]
        self.trouble.kinds = {name: self.trouble.kinds[name] for name in (*KINDS, *STORE_KINDS)}
        self.wanted: dict[str, int | None] = {}  # topics and the partitions they have at least; None: to be deleted
        self.moved: dict[str, Sequence[int]] = {}
        self._stopping = False
        Puppet.calm = False

    async def _story(self) -> None:
        for node in self.nodes:
            self.start(node)
        await asyncio.sleep(2)
        work = self.in_process("admin", self._demand())
        await self.trouble.run()
        self._stopping = True
        await self.trouble.heal()
        Puppet.calm = True
        await work
        until = self.loop.time() + CALM_S
        while (missing := self._missing()) and self.loop.time() < until:
            await asyncio.sleep(0.5)
        if missing:
            self.fail(f"V17 {missing}")

    async def _demand(self) -> None:
        """Ask the current controller to create, extend, reassign and delete topics."""
        count = 0
        while not self._stopping:
            await asyncio.sleep(self.chance.expovariate(1))
            office = [one for one in self.nodes if one.running and isinstance(one, Puppet) and one.control.in_office]
            if not office:
                continue
            control = self.chance.choice(office).control
            with suppress(BrokerError, TimeoutError):
                async with asyncio.timeout(10):
                    names = [name for name, number in self.wanted.items() if number]
                    kind = self.chance.choice(("create", "create", "grow", "move", "delete", "elect"))
                    if kind == "create" or not names:
                        count += 1
                        self.loop.note(f"create t{count}")
                        wish = NewTopic(f"t{count}", 2, 3, (), {})
                        for one in await control.create_topics([wish]):
                            if not isinstance(one, BrokerError):
                                self.wanted[f"t{count}"] = 2
                        continue
                    name = self.chance.choice(names)
                    self.loop.note(f"{kind} {name}")
                    if kind == "delete":
                        self.checks.deletable.add(name)
                        self.wanted[name] = 0
                        for one in await control.delete_topics([name]):
                            if not isinstance(one, BrokerError):
                                self.wanted[name] = None
                    elif kind == "grow":
                        await control.create_partitions(name, self.wanted[name] + 1)  # type: ignore[operator]
                        self.wanted[name] += 1  # type: ignore[operator]
                    elif kind == "move":
                        target = self.chance.sample(range(4), 3)
                        answers = await control.move_partitions({(name, 0): target})
                        if answers[name, 0] is None:
                            self.moved[name] = target
                    else:
                        await control.elect_leaders(None, 0)

    def _missing(self) -> str:
        """What is still wrong after all faults have ended."""
        topics = self.store.children("/brokers/topics")
        for name, number in self.wanted.items():
            if number is None and name in topics:
                return f"{name} was deleted and is there"
            if number and name not in topics:
                return f"{name} is gone"
        if self.store.children("/admin/delete_topics"):
            return f"deletions are not finished: {self.store.children('/admin/delete_topics')}"
        for name in topics:
            said = json.loads(self.store.get(f"/brokers/topics/{name}").data)
            if said["adding_replicas"] or said["removing_replicas"]:
                return f"{name} still moves: {said}"
            if len(said["partitions"]) < (self.wanted.get(name) or 0):
                return f"{name} has only {len(said['partitions'])} partitions"
            for index, replicas in said["partitions"].items():
                key = (name, int(index))
                state = self.checks.states.get(key)
                if state is None or state.leader < 0:
                    return f"nobody leads {key}"
                if sorted(state.isr) != sorted(replicas):
                    return f"{key}: in sync are {state.isr} of {replicas}"
                for node in self.nodes:
                    assert isinstance(node, Puppet)
                    role = node.roles.get(key)
                    if node.number not in replicas and role is not None and role.epoch < state.epoch:
                        continue  # it was down when StopReplica was due; as in Kafka, it is not told again
                    if (node.number in replicas) != (role is not None):
                        return f"{node.name} hosts {key}: {role}, replicas {replicas}"
                    if role is not None and (role.leader, role.epoch) != (state.leader, state.epoch):
                        return f"{node.name} believes {role} of {key}, and it is {state}"
                    topic = node.metadata.image.topics.get(name)
                    if topic is None or len(topic.partitions) <= key[1]:
                        return f"{node.name} does not know {key}"
                    known = topic.partitions[key[1]]
                    if (known.leader, known.leader_epoch) != (state.leader, state.epoch):
                        return f"{node.name} knows {known}, and it is {state}"
        for node in self.nodes:
            assert isinstance(node, Puppet)
            # A broker that was down when a topic was deleted is not told again, as in Kafka.
            if not set(node.metadata.image.topics) >= set(topics):
                return f"{node.name} knows {sorted(node.metadata.image.topics)}, there are {topics}"
            if sorted(node.metadata.image.brokers) != [0, 1, 2, 3]:
                return f"{node.name} knows brokers {sorted(node.metadata.image.brokers)}"
        return ""


@pytest.mark.parametrize("seed", range(10))
def test_successors_finish_what_was_begun(seed: int, tmp_path: Path) -> None:
    Government(seed, tmp_path).run()
