"""Consumers of both protocols in one group, with faults: lost answers, crashes, restarts of the coordinator, a full
log, topics that are created, grow and are deleted, members that change subscriptions, groups that change their type.

Invariants, checked from outside after every step:

- no partition is owned by two members: a partition assigned to a member belongs to nobody else until the member
  confirms that it was revoked, as long as the coordinator counts it as a member
- a member's epoch is never higher than the group's, and never decreases while it is a member
- nobody owns a partition of a topic that it was not subscribed to
- a machine that is loaded from the journal is equal to the one that wrote it

When the faults stop, the group settles: every partition of every subscribed topic has an owner, and all members have
the same epoch.
"""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest
from coord.groups.consumer_stage import ConsumerStage
from coord.groups.stage import RULES

from ottla.coord.groups.classic import ClassicGroup
from ottla.coord.groups.consumer import ConsumerGroup
from ottla.coord.groups.consumer_protocol import read_assignment, read_subscription
from ottla.errors import ErrorCode
from ottla.wire import codec
from ottla.wire.messages.groups import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    SubscriptionTopicPartition,
)

Partition = tuple[bytes, int]
NAMES = ("a", "b", "ab")
PATTERNS = ("a.*", ".*b", "x")
AGAIN = (ErrorCode.NOT_COORDINATOR, ErrorCode.GROUP_ID_NOT_FOUND)


class World:
    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        rules = RULES._replace(session_ms_min=1000, initial_delay_ms=500)
        interval_ms = random.choice((0, 1000))
        self.stage = ConsumerStage(
            rules, topics={"a": 3, "b": 2}, assignment_interval_ms=interval_ms, pattern_refresh_ms=20_000
        )
        self.clients: list[Client] = []
        self.count = 0
        self.epochs: dict[str, int] = {}
        self.wanted: dict[str, set[bytes]] = {}  # member id → topics that it has ever been subscribed to
        self.both = random.random() < 0.6  # whether members of both protocols take part

    @property
    def group(self) -> ConsumerGroup | None:
        found = self.stage.machine.groups.get("g")
        return found if isinstance(found, ConsumerGroup) else None

    def step(self) -> None:
        random, stage = self.random, self.stage
        chance = random.random()
        if chance < 0.01:
            self.check_replay()
            stage.restart()
            for client in self.clients:
                client.disconnected()
        elif chance < 0.03:
            stage.full = random.random() < 0.3
        elif chance < 0.06:
            self.change_topics()
        elif chance < 0.14 and len(self.clients) < 5:
            self.add()
        elif chance < 0.15 and self.clients:
            self.clients.remove(random.choice(self.clients))  # a crash
        elif chance < 0.17 and self.clients:
            leaving = random.choice(self.clients)
            leaving.leave()
            self.clients.remove(leaving)
        elif self.clients:
            random.choice(self.clients).step()
        stage.advance(random.choice((0, 0, 100, 500, 1500)))
        self.check()

    def add(self) -> None:
        self.count += 1
        kind = ClassicClient if self.both and self.random.random() < 0.5 else NewClient
        instance = f"i{self.random.randrange(2)}" if self.random.random() < 0.3 else None
        if instance is None or instance not in {client.instance for client in self.clients}:
            self.clients.append(kind(self, f"m{self.count}", instance))

    def change_topics(self) -> None:
        name = self.random.choice(NAMES)
        known = self.stage.image.topics.get(name)
        if known is None:
            self.stage.topic(name, self.random.randrange(1, 4))
        elif self.random.random() < 0.5:
            self.stage.topic(name, len(known.partitions) + 1)
        else:
            self.stage.delete_topic(name)

    def check(self) -> None:
        group = self.group
        if group is None:
            self.epochs.clear()
            return
        owners: dict[Partition, str] = {}
        for client in self.clients:
            if client.member in group.members and client.counts(group):
                for partition in client.owned:
                    owner = owners.setdefault(partition, client.member)
                    assert owner == client.member, f"{partition} is owned by {owner} and {client.member}"
        for name, member in group.members.items():
            assert member.epoch <= group.epoch
            if member.epoch >= 0:
                assert member.epoch >= self.epochs.get(name, 0), "an epoch goes back"
                self.epochs[name] = member.epoch
            names = member.names(group.names_by_pattern())
            ids = {self.stage.image.topics[topic].id for topic in names if topic in self.stage.image.topics}
            seen = self.wanted.setdefault(name, set())
            seen |= ids
            assert member.holding.assigned.keys() <= seen, "a topic that it never asked for"
        for name in self.epochs.keys() - group.members.keys():
            del self.epochs[name]

    def check_replay(self) -> None:
        assert self.stage.machine.durable() == self.stage.replayed().durable()

    def settle(self) -> None:
        self.stage.full = False
        while len(self.clients) < 2:
            self.add()
        if not any(isinstance(client, NewClient) for client in self.clients):
            self.clients.append(NewClient(self, "last", None))
        for client in self.clients:
            client.restless = False
        for _ in range(60):
            for client in self.clients:
                client.step()
            self.stage.advance(500)
            self.check()
        self.check_replay()
        self.check_settled()

    def check_settled(self) -> None:
        group = self.stage.machine.groups.get("g")
        if not self.clients:
            return
        image = self.stage.image
        wanted = {
            (image.topics[name].id, index)
            for client in self.clients
            for name in client.names(image.topics)
            if name in image.topics
            for index in range(len(image.topics[name].partitions))
        }
        owned = sorted(partition for client in self.clients for partition in client.owned)
        assert owned == sorted(wanted), f"{type(group).__name__} {group.phase if group else ''}"
        if isinstance(group, ConsumerGroup):
            assert group.phase == "Stable"
            assert {member.epoch for member in group.members.values()} == {group.epoch}


class Client:
    """What both kinds of clients have in common: their subscription, and the partitions that they believe they own."""

    def __init__(self, world: World, name: str, instance: str | None) -> None:
        self.world = world
        self.member = name
        self.instance = instance
        self.epoch = 0
        self.owned: set[Partition] = set()
        self.restless = True  # it loses answers and changes its mind
        self.topics = self.some_topics()
        self.pattern = ""

    def some_topics(self) -> list[str]:
        random = self.world.random
        return random.sample(NAMES, random.randrange(0, 3))

    def lost(self) -> bool:
        return self.restless and self.world.random.random() < 0.15

    def names(self, present: Any) -> set[str]:
        found = {name for name in present if self.pattern and re.fullmatch(self.pattern, name)}
        return found | set(self.topics)

    def step(self) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    def disconnected(self) -> None:
        raise NotImplementedError

    def counts(self, group: ConsumerGroup) -> bool:
        """Whether it believes what the coordinator last told it, and the coordinator still counts it as a member."""
        raise NotImplementedError


class NewClient(Client):
    def __init__(self, world: World, name: str, instance: str | None) -> None:
        super().__init__(world, name, instance)
        self.full = True  # the next request tells all
        self.let_go = False  # it has something to tell about what it owns
        self.late: list[tuple[str, int, dict[str, Any]]] = []
        if world.random.random() < 0.3:
            self.pattern = world.random.choice(PATTERNS)

    def step(self) -> None:
        random, stage = self.world.random, self.world.stage
        changed = self.epoch > 0 and self.restless and random.random() < 0.05
        if changed:
            self.topics = self.some_topics()
        options: dict[str, Any] = {}
        joining = self.epoch == 0
        if joining:
            self.owned = set()
        if joining or self.full:
            options = {"topics": self.topics, "pattern": self.pattern, "rebalance_ms": 4000}
        elif changed:
            options = {"topics": self.topics}
        if joining or self.full or self.let_go:
            options["owned"] = self.by_name()
        answer = stage.beat(self.member, self.epoch, instance=self.instance, client=self.member, **options)
        self.let_go = False
        if self.restless and random.random() < 0.03:
            self.late.append((self.member, self.epoch, options))
        if self.late and self.restless and random.random() < 0.1:
            member, epoch, before = self.late.pop()  # a request that was long on its way: nobody waits for its answer
            stage.beat(member, epoch, instance=self.instance, client=self.member, **before)
        if self.lost():
            self.full = True
            return
        self.full = False
        code = ErrorCode(answer.error_code)
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch, self.owned = 0, set()
        elif code is ErrorCode.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                told = {(one.topic_id, index) for one in answer.assignment.topic_partitions for index in one.partitions}
                self.let_go = told != self.owned
                self.owned = told
        elif code in AGAIN:
            self.full = True
            if code is ErrorCode.GROUP_ID_NOT_FOUND:
                self.epoch, self.owned = 0, set()
        else:
            assert code in (
                ErrorCode.UNRELEASED_INSTANCE_ID,
                ErrorCode.FENCED_INSTANCE_ID,
            ), (code, answer.error_message)
            self.epoch, self.owned = 0, set()

    def by_name(self) -> dict[str, set[int]]:
        names = self.world.stage.image.names_by_id
        owned: dict[str, set[int]] = {}
        for topic, index in self.owned:
            if topic in names:
                owned.setdefault(names[topic], set()).add(index)
        return owned

    def leave(self) -> None:
        if self.epoch > 0:
            away = self.instance is not None and self.world.random.random() < 0.7
            self.world.stage.beat(self.member, -2 if away else -1, instance=self.instance, client=self.member)

    def disconnected(self) -> None:
        self.full = True

    def counts(self, group: ConsumerGroup) -> bool:
        member = group.members[self.member]
        return self.epoch in (member.epoch, member.holding.previous_epoch) and member.subscription.classic is None


class ClassicClient(Client):
    def __init__(self, world: World, name: str, instance: str | None) -> None:
        super().__init__(world, "", instance)
        self.name = name
        self.eager = world.random.random() < 0.5
        self.token: int | None = None
        self.asked = ""  # join or sync, while the token waits
        self.joining = True
        self.held_epoch = 0  # in which it was told what it owns

    def step(self) -> None:
        stage = self.world.stage
        if self.token is not None:
            if not stage.waits(self.token):
                token, self.token = self.token, None
                answer = stage.answers.pop(token)
                if isinstance(answer, ErrorCode) or self.lost():
                    self.joining = True
                elif self.asked == "join":
                    self.joined(answer)
                else:
                    self.synced(answer)
            elif self.restless and self.world.random.random() < 0.05:
                self.token, self.joining = None, True  # it gives up and asks again
            return
        if self.restless and self.world.random.random() < 0.03:
            self.topics, self.joining = self.some_topics(), True
        if self.joining:
            self.join()
        else:
            self.react(stage.heartbeat(self.member, self.epoch, instance=self.instance))

    def join(self) -> None:
        stage, names = self.world.stage, self.world.stage.image.names_by_id
        if self.eager:
            self.owned = set()
        owned: dict[str, list[int]] = {}
        for topic, index in sorted(self.owned):
            if topic in names:
                owned.setdefault(names[topic], []).append(index)
        told = ConsumerProtocolSubscription(
            topics=self.topics,
            owned_partitions=[SubscriptionTopicPartition(topic=name, partitions=own) for name, own in owned.items()],
            generation_id=self.epoch,
        )
        data = b"\0\1" + codec.encode(told, 1)
        self.asked = "join"
        self.token = stage.join(
            self.member,
            instance=self.instance,
            protocols={"range": data},
            session_ms=6000,
            rebalance_ms=4000,
            client=self.name,
        )

    def joined(self, answer: Any) -> None:
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member = answer.member_id
        elif code is ErrorCode.NONE:
            self.member, self.epoch, self.joining = answer.member_id, answer.generation_id, False
            parts = self.shared_out(answer) if answer.leader == self.member and answer.members else None
            self.asked = "sync"
            self.token = self.world.stage.sync(self.member, self.epoch, parts, instance=self.instance)
        else:
            self.react(code)

    def shared_out(self, answer: Any) -> dict[str, bytes]:
        """The assignment by the leader of a classic group: each partition goes to one of its subscribers, in turn. In a
        cooperative round, partitions that another member says it owns are left out."""
        topics = self.world.stage.image.topics
        told = {one.member_id: read_subscription(one.metadata) for one in answer.members}
        holders = {
            (one.topic, index): member
            for member, said in told.items()
            for one in said.owned_partitions
            for index in one.partitions
        }
        parts: dict[str, dict[str, list[int]]] = {member: {} for member in told}
        for name in sorted({name for said in told.values() for name in said.topics if name in topics}):
            takers = sorted(member for member, said in told.items() if name in said.topics)
            for index in range(len(topics[name].partitions)):
                taker, holder = takers[index % len(takers)], holders.get((name, index))
                if holder in (None, taker):
                    parts[taker].setdefault(name, []).append(index)
        return {
            member: b"\0\0"
            + codec.encode(
                ConsumerProtocolAssignment(
                    assigned_partitions=[
                        AssignmentTopicPartition(topic=name, partitions=own) for name, own in part.items()
                    ]
                ),
                0,
            )
            for member, part in parts.items()
        }

    def synced(self, answer: Any) -> None:
        code = ErrorCode(answer.error_code)
        if code is not ErrorCode.NONE:
            self.react(code)
            return
        topics = self.world.stage.image.topics
        told = {
            (topics[one.topic].id, index)
            for one in (read_assignment(answer.assignment).assigned_partitions if answer.assignment else ())
            if one.topic in topics
            for index in one.partitions
        }
        self.joining = bool(self.owned - told)  # a cooperative member that has let go of something joins again
        self.owned, self.held_epoch = told, self.epoch
        if isinstance(self.world.stage.machine.groups.get("g"), ClassicGroup) and not self.complete():
            self.joining = True  # as a leader sees that partitions have come, or were held back in the last round

    def complete(self) -> bool:
        stage = self.world.stage
        owned = {partition for client in self.world.clients for partition in client.owned}
        return all(
            (topic.id, index) in owned
            for name in self.topics
            if (topic := stage.image.topics.get(name))
            for index in range(len(topic.partitions))
        )

    def react(self, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            if isinstance(self.world.stage.machine.groups.get("g"), ClassicGroup) and not self.complete():
                self.joining = True
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.joining = True
        else:
            assert code in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.ILLEGAL_GENERATION,
                ErrorCode.FENCED_INSTANCE_ID,
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                *AGAIN,
            ), code
            self.joining, self.owned = True, set()
            if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                self.member = ""

    def leave(self) -> None:
        if self.instance is None and self.member:
            self.world.stage.leave(self.member)

    def disconnected(self) -> None:
        self.token, self.joining = None, True

    def counts(self, group: ConsumerGroup) -> bool:
        member = group.members[self.member]
        return self.held_epoch in (member.epoch, member.holding.previous_epoch)


@pytest.mark.parametrize("seed", range(200))
def test_no_partition_has_two_owners_and_all_settles_when_it_is_quiet(seed: int) -> None:
    world = World(seed)
    for _ in range(200):
        world.step()
    world.settle()
