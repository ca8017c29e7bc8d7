"""Many consumers of one group, with faults: lost answers, crashes, restarts of the coordinator, a full log.

Invariants, checked from outside after every step:

- all members of a generation get the same leader
- within a generation no partition is assigned to two members
- a member of an older generation cannot commit
- an acknowledged commit is returned until the next one, also after restarts
- a machine that is loaded from the journal is equal to the one that wrote it

When the faults stop, the group settles: every partition has an owner.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from coord.groups.stage import RULES, Stage

from ottla.coord.groups.classic import GroupState
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTITIONS = 7
SESSION_MS = 6000
AGAIN = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.NOT_COORDINATOR)


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.stage = Stage(RULES._replace(session_ms_min=1000, initial_delay_ms=1000, retention_ms=10**9))
        self.life = 0  # of the coordinator: a generation that was never written may be numbered again in the next one
        self.newest = 0  # the newest generation that anybody has been given a part of
        self.leaders: dict[tuple[int, int], str] = {}
        self.owners: dict[tuple[int, int], str] = {}
        self.committed: dict[int, int] = {}
        self.readers: list[Reader] = []

    def told_leader(self, generation: int, leader: str) -> None:
        name = leader.partition("-")[0] if leader.startswith("i") else leader  # a static one may return under a new id
        assert self.leaders.setdefault((self.life, generation), name) == name, "a generation has one leader"

    def given(self, generation: int, member: str, part: bytes) -> None:
        self.newest = max(self.newest, generation)
        for partition in part:
            owner = self.owners.setdefault((generation, partition), member)
            assert owner == member, f"partition {partition} has two owners in generation {generation}"

    def commit(self, reader: Reader) -> None:
        partition, offset = self.random.choice(list(reader.part)), self.random.randrange(1000)
        code = self.stage.commit(offset, reader.member, reader.generation, index=partition, instance=reader.instance)
        if code is ErrorCode.NONE:
            assert reader.generation >= self.newest, "somebody of a former generation has committed"
            self.committed[partition] = offset
        else:
            reader.react(code)

    def check(self) -> None:
        for partition, offset in self.committed.items():
            assert self.stage.fetched(index=partition) == (offset, ErrorCode.NONE)

    def restart(self) -> None:
        assert self.stage.machine.durable() == self.stage.replayed().durable()
        self.stage.restart()
        self.life += 1
        for reader in self.readers:
            reader.lose_connection()

    def step(self) -> None:
        random, stage = self.random, self.stage
        chance = random.random()
        if chance < 0.02:
            self.restart()
        elif chance < 0.05:
            stage.full = random.random() < 0.3
        elif chance < 0.10 and len(self.readers) < 6:
            instance = random.choice([None, None, f"i{len(self.readers)}"])
            self.readers.append(Reader(self, instance))
        elif chance < 0.35:
            stage.advance(random.choice((10, 100, 500, 2000)))
        elif self.readers:
            random.choice(self.readers).act(lossy=True)


class Reader:
    """A consumer like a real one: it joins, syncs, sends heartbeats, commits, and gives up partitions when told to."""

    def __init__(self, world: World, instance: str | None) -> None:
        self.world = world
        self.instance = instance
        self.alive = True
        self.reset()

    def reset(self) -> None:
        self.member = ""
        self.rejoin()

    def rejoin(self) -> None:
        self.generation, self.part = -1, b""
        self.joining: int | None = None
        self.syncing: int | None = None

    def lose_connection(self) -> None:
        """Pending answers are lost."""
        if self.syncing is not None:
            self.generation = -1
        self.joining = self.syncing = None

    def react(self, code: ErrorCode) -> None:
        if code in AGAIN:
            self.rejoin()
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED):
            self.reset()
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self.alive = False
        else:
            raise AssertionError(f"no consumer expects {code.name}")

    def act(self, *, lossy: bool) -> None:
        stage, random = self.world.stage, self.world.random
        if not self.alive:
            if random.random() < 0.2:
                self.alive = True  # started again, under the same instance if it has one
                self.reset()
            return
        if lossy and random.random() < 0.03:
            self.alive = False
            if random.random() < 0.3 and self.member:
                stage.leave(self.member)
            return
        if self.joining is not None:
            self.hear_join(lossy)
        elif self.syncing is not None:
            self.hear_sync(lossy)
        elif self.generation < 0:
            self.joining = stage.join(
                self.member, instance=self.instance, session_ms=SESSION_MS, rebalance_ms=4000, protocols={"range": b""}
            )
        elif random.random() < 0.5 and self.part:
            self.world.commit(self)
        else:
            code = stage.heartbeat(self.member, self.generation, instance=self.instance)
            if code is not ErrorCode.NONE:
                self.react(code)

    def hear_join(self, lossy: bool) -> None:
        stage, random = self.world.stage, self.world.random
        assert self.joining is not None
        if lossy and random.random() < 0.05:
            self.lose_connection()
            return
        if stage.waits(self.joining):
            return
        answer = stage.answer(self.joining)
        self.joining = None
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member = answer.member_id
        elif answer.error_code:
            self.react(ErrorCode(answer.error_code))
        else:
            self.member, self.generation = answer.member_id, answer.generation_id
            self.world.told_leader(self.generation, answer.leader)
            parts: dict[str, bytes] = {}
            if answer.leader == self.member and not answer.skip_assignment:
                members = [one.member_id for one in answer.members]
                parts = {name: bytes(range(at, PARTITIONS, len(members))) for at, name in enumerate(members)}
            self.syncing = stage.sync(self.member, self.generation, parts, instance=self.instance)

    def hear_sync(self, lossy: bool) -> None:
        stage, random = self.world.stage, self.world.random
        assert self.syncing is not None
        if lossy and random.random() < 0.05:
            self.lose_connection()
            return
        if stage.waits(self.syncing):
            return
        answer = stage.answer(self.syncing)
        self.syncing = None
        if answer.error_code:
            self.react(ErrorCode(answer.error_code))
        else:
            self.part = answer.assignment
            self.world.given(self.generation, self.instance or self.member, self.part)


def settled(world: World) -> bool:
    parts = [reader.part for reader in world.readers]
    return all(reader.alive for reader in world.readers) and sorted(b"".join(parts)) == list(range(PARTITIONS))


def good_days(world: World) -> Iterator[None]:
    """No more faults; every consumer is running."""
    world.stage.full = False
    for _ in range(400):
        for reader in world.readers:
            reader.alive = reader.alive or bool(reader.reset() is None)
            reader.act(lossy=False)
        world.stage.advance(200)
        yield


@pytest.mark.parametrize("seed", range(200))
def test_a_group_keeps_its_promises_in_a_bad_world_and_settles_in_a_good_one(seed: int) -> None:
    world = World(seed)
    world.readers.append(Reader(world, None))
    for _ in range(300):
        world.step()
        world.check()
    for _ in good_days(world):
        world.check()
        if settled(world) and world.stage.machine.groups["g"].state is GroupState.STABLE:
            break
    else:
        raise AssertionError(f"not settled: {[reader.part for reader in world.readers]}")
    assert world.stage.machine.durable() == world.stage.replayed().durable()
