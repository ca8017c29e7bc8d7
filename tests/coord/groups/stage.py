"""Runs the group machine without a broker: carries out its effects, keeps its timers, and controls the time."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ottla.coord.groups.group import GroupRules
from ottla.coord.groups.machine import GroupMachine
from ottla.coord.machine import NOBODY, Caller, Decision
from ottla.errors import ErrorCode
from ottla.wire import codec
from ottla.wire.messages.commits import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.groups import (
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

T = TypeVar("T")

RULES = GroupRules(
    session_ms_min=1000,
    session_ms_max=60_000,
    initial_delay_ms=3000,
    size_max=1000,
    metadata_size_max=100,
    retention_ms=1_000_000,
    retention_check_ms=100_000,
    first_join_ms=20_000,
)
NEWEST = 9  # of JoinGroup


def subscription(*topics: str) -> bytes:
    return b"\0\0" + codec.encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


class Written(NamedTuple):
    key: bytes
    value: bytes | None
    offset: int
    timestamp: int
    producer_id: int


class Ended(NamedTuple):
    producer_id: int
    committed: bool


class Stage:
    def __init__(self, rules: GroupRules = RULES) -> None:
        self.rules = rules
        self.now_ms = 1_000_000
        self.journal: list[Written | Ended] = []
        self.answers: dict[int, Any] = {}
        self.timers: dict[Any, int] = {}
        self.full = False  # the log takes no more
        self._tokens = itertools.count(1)
        self._ids = itertools.count(1)
        self.machine = self._new_machine()
        self.carry_out(self.machine.finish_load(self.now_ms))

    def _new_machine(self) -> GroupMachine:
        return GroupMachine(self.rules, lambda: str(next(self._ids)))

    # Time and the log.

    def carry_out(self, decision: Decision) -> None:
        while decision.records:
            if not self.full:
                producer = NOBODY if decision.producer is None else decision.producer[0]
                for record in decision.records:
                    written = Written(record.key, record.value, len(self.journal), self.now_ms, producer)
                    self.journal.append(written)
                    self._apply(self.machine, written)
                break
            code = ErrorCode.NOT_COORDINATOR
            if decision.on_failure is None:
                decision = Decision(replies=[(token, code) for token, _ in decision.replies])
            else:
                decision = decision.on_failure(code)
        for timer, due_ms in decision.timers:
            if due_ms is None:
                self.timers.pop(timer, None)
            else:
                self.timers[timer] = due_ms
        for token, reply in decision.replies:
            assert token not in self.answers, "a request is answered once"
            self.answers[token] = reply

    def _apply(self, machine: GroupMachine, entry: Written | Ended) -> None:
        if isinstance(entry, Ended):
            machine.end_transaction(entry.producer_id, committed=entry.committed)
        else:
            machine.apply(
                entry.key, entry.value, offset=entry.offset, timestamp=entry.timestamp, producer_id=entry.producer_id
            )

    def advance(self, duration_ms: int) -> None:
        """Move the time forward, and fire each timer when it is due."""
        end_ms = self.now_ms + duration_ms
        while self.timers:
            timer, due_ms = min(self.timers.items(), key=lambda item: item[1])
            if due_ms > end_ms:
                break
            del self.timers[timer]
            self.now_ms = max(self.now_ms, due_ms)
            self.carry_out(self.machine.expire(timer, self.now_ms))
        self.now_ms = end_ms

    def replayed(self) -> GroupMachine:
        machine = self._new_machine()
        for entry in self.journal:
            self._apply(machine, entry)
        return machine

    def restart(self) -> None:
        """Continue with a new machine that is loaded from the journal."""
        for token, reply in self.machine.unload():
            self.answers.setdefault(token, reply)
        self.machine = self.replayed()
        self.timers.clear()
        self.carry_out(self.machine.finish_load(self.now_ms))

    def end(self, producer_id: int, *, committed: bool) -> None:
        self.journal.append(Ended(producer_id, committed))
        self.machine.end_transaction(producer_id, committed=committed)

    # Requests. Each returns the token of its answer.

    def ask(self, operation: Callable[[int], Decision]) -> int:
        token = next(self._tokens)
        self.carry_out(operation(token))
        return token

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        version: int = NEWEST,
        instance: str | None = None,
        protocols: Mapping[str, bytes] | None = None,
        kind: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 30_000,
        client: str = "c",
    ) -> int:
        offered = {"range": subscription("t")} if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=kind,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in offered.items()],
        )
        caller = Caller(client, "/127.0.0.1", version)
        return self.ask(lambda token: self.machine.join(request, caller, token, self.now_ms))

    def sync(
        self,
        member_id: str,
        generation: int,
        parts: Mapping[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        protocol: str | None = None,
    ) -> int:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=data) for name, data in (parts or {}).items()
            ],
        )
        return self.ask(lambda token: self.machine.sync(request, token, self.now_ms))

    def heartbeat(self, member_id: str, generation: int, *, group: str = "g", instance: str | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        return self.code(self.ask(lambda token: self.machine.heartbeat(request, token, self.now_ms)))

    def leave(self, *members: str, group: str = "g", instances: tuple[str, ...] = ()) -> list[ErrorCode]:
        identities = [
            *(MemberIdentity(member_id=name) for name in members),
            *(MemberIdentity(member_id="", group_instance_id=name) for name in instances),
        ]
        token = self.ask(lambda token: self.machine.leave(group, identities, False, token, self.now_ms))
        return [ErrorCode(one.error_code) for one in self.answers[token].members]

    def commit(
        self,
        offset: int = 1,
        member_id: str = "",
        generation: int = -1,
        *,
        group: str = "g",
        topic: str = "t",
        index: int = 0,
        instance: str | None = None,
        metadata: str | None = "",
        version: int = 8,
        retention_ms: int = -1,
    ) -> ErrorCode:
        part = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])],
        )
        caller = Caller("c", "/127.0.0.1", version)
        answer = self.answers[self.ask(lambda token: self.machine.commit(request, caller, token, self.now_ms))]
        return ErrorCode(answer if isinstance(answer, ErrorCode) else answer.topics[0].partitions[0].error_code)

    def commit_in_transaction(
        self, producer_id: int, offset: int, *, group: str = "g", member_id: str = "", generation: int = -1
    ) -> ErrorCode:
        part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=group,
            producer_id=producer_id,
            producer_epoch=0,
            generation_id=generation,
            member_id=member_id,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[part])],
        )
        caller = Caller("c", "/127.0.0.1", 3)
        token = self.ask(lambda token: self.machine.commit_in_transaction(request, caller, token, self.now_ms))
        return ErrorCode(self.answers[token].topics[0].partitions[0].error_code)

    def fetched(
        self, *, group: str = "g", topic: str = "t", index: int = 0, stable: bool = False
    ) -> tuple[int, ErrorCode]:
        wanted = OffsetFetchRequestGroup(
            group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[index])]
        )
        found = done(self.machine.fetch(wanted, stable=stable)).topics[0].partitions[0]
        return found.committed_offset, ErrorCode(found.error_code)

    # Answers.

    def answer(self, token: int) -> Any:
        return self.answers[token]

    def waits(self, token: int) -> bool:
        return token not in self.answers

    def code(self, token: int) -> ErrorCode:
        return ErrorCode(self.answers[token].error_code)

    # Common beginnings.

    def admitted(self, **options: Any) -> tuple[str, int]:
        """A new dynamic member whose join is pending: its id, and the token of the join."""
        invitation = self.answer(self.join(**options))
        assert invitation.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return invitation.member_id, self.join(invitation.member_id, **options)

    def stable(self, count: int = 1, **options: Any) -> list[str]:
        """A stable group in its first generation. The leader comes first; each member's assignment is its own id."""
        joins = [self.admitted(**options) for _ in range(count)]
        self.advance(self.rules.initial_delay_ms * (1 + (count > 1)))
        members = [member for member, _ in joins]
        assert [self.code(token) for _, token in joins] == [ErrorCode.NONE] * count
        generation = self.answer(joins[0][1]).generation_id
        group, parts = options.get("group", "g"), {member: member.encode() for member in members}
        waiting = [self.sync(member, generation, group=group) for member in members[1:]]
        waiting.append(self.sync(members[0], generation, parts, group=group))
        assert [self.code(token) for token in waiting] == [ErrorCode.NONE] * count
        return members


def done(steps: Generator[None, None, T]) -> T:
    """Run the steps to their end and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
