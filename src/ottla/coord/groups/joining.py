"""Who may join a classic group, and what a join does.

    no id         a dynamic member gets an id and must join again with it (since version 4); a static member is added,
                  or replaces the former member of its instance
    invited id    an id that was handed out: the member is added
    known id      the member wants a rebalance, has changed its protocols, or has missed our response

A new member triggers a rebalance. A static member that returns to a stable group does not, unless the protocol would
change: it takes over the assignment of the former member under a new id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coord.groups.classic import GroupState, refuse_join, refuse_sync
from ottla.coord.groups.member import ClassicMember, Waiting, protocols_of, size_of
from ottla.coord.machine import Decision
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.coord.groups.classic import ClassicGroup
    from ottla.coord.groups.outcome import Outcome
    from ottla.coord.machine import Caller, Token
    from ottla.wire.messages.groups import JoinGroupRequest

PROTOCOLS_MAX = 1000  # per member; two or three are usual
METADATA_FACTOR_MAX = 8  # group metadata limit, in record sizes: members send similar metadata for every protocol
ORIGIN_SIZE_MAX = 0x7FFF - len("-") - 36  # of a member id, to fit into a string together with a UUID
ID_REQUIRED = 4  # the first version whose clients understand MEMBER_ID_REQUIRED
SKIPS = 9  # the first version with skip_assignment


class Join:
    """One join in progress."""

    def __init__(
        self, group: ClassicGroup, request: JoinGroupRequest, caller: Caller, token: Token, now_ms: int, out: Outcome
    ) -> None:
        self.group = group
        self.request = request
        self.caller = caller
        self.waiting = Waiting(token, caller.version)
        self.now_ms = now_ms
        self.out = out
        self.protocols = protocols_of(request.protocols)
        self.rebalance_ms = request.session_timeout_ms if caller.version == 0 else request.rebalance_timeout_ms

    def run(self, new_id: Callable[[], str]) -> None:
        group, request = self.group, self.request
        if not self._has_room():
            group.remove(request.member_id)
            self._refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        elif not self._fits():
            self._refuse(ErrorCode.UNKNOWN_SERVER_ERROR, request.member_id)
        elif not self._is_compatible():
            self._refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        elif request.member_id in group.invited:
            if request.group_instance_id is None:
                self._add(request.member_id)
            else:
                self._refuse(ErrorCode.UNKNOWN_SERVER_ERROR, "")  # static members are not invited
        elif request.member_id:
            self._return()
        elif request.group_instance_id is not None:
            self._join_static(f"{self._origin}-{new_id()}")
        elif self.caller.version >= ID_REQUIRED:
            self._invite(f"{self._origin}-{new_id()}")
        else:
            self._add(f"{self._origin}-{new_id()}")

    @property
    def _origin(self) -> str:
        """What the id of a new member begins with."""
        instance = self.request.group_instance_id
        return self.caller.client_id if instance is None else instance

    def _has_room(self) -> bool:
        group, roster, member_id = self.group, self.group.roster, self.request.member_id
        if group.state is GroupState.EMPTY:
            return True
        member = roster.members.get(member_id)
        if group.state is GroupState.PREPARING:
            # Count joins, not members: if the group is too large, the last members to join are refused.
            return (member is not None and member.join is not None) or roster.joined < group.rules.size_max
        return member is not None or len(roster.members) < group.rules.size_max

    def _fits(self) -> bool:
        """Whether the group's record with this member can be written. Apache Kafka only fails at the write.

        A group is one record, with each member's metadata for one of its protocols, and ids of at most 32767 bytes.
        """
        roster, size_max = self.group.roster, self.group.rules.record_size_max
        if not self.request.member_id and len(self._origin.encode()) > ORIGIN_SIZE_MAX:
            return False
        sizes = [len(metadata) for _, metadata in self.protocols]
        if len(sizes) > PROTOCOLS_MAX or max(sizes, default=0) > size_max or sum(sizes) > 4 * size_max:
            return False
        known = self.request.member_id or roster.static.get(self.request.group_instance_id or "", "")
        former = size_of(roster.members[known].protocols) if known in roster.members else 0
        return roster.metadata_size - former + sum(sizes) <= METADATA_FACTOR_MAX * size_max

    def _is_compatible(self) -> bool:
        group, wanted = self.group, self.request.protocol_type
        if group.state is GroupState.EMPTY:
            return wanted != "" and self.protocols != ()
        return group.protocol_type == wanted and group.roster.speaks(self.protocols)

    def _invite(self, member_id: str) -> None:
        deadline_ms = self.now_ms + self.request.session_timeout_ms
        self.group.invited[member_id] = deadline_ms
        self.group.arm(deadline_ms, self.out)
        self._refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)

    def _add(self, member_id: str) -> None:
        group, request = self.group, self.request
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            self.caller.client_id,
            self.caller.host,
            session_ms=request.session_timeout_ms,
            rebalance_ms=self.rebalance_ms,
            protocols=self.protocols,
        )
        member.fresh = True
        group.grown = group.grown or group.first
        if not group.roster.members:
            group.protocol_type = request.protocol_type
        group.invited.pop(member_id, None)
        group.roster.add(member)
        group.roster.wait(member, self.waiting)
        group.expect(member, self.now_ms + group.rules.first_join_ms, self.out)
        group.rebalance(self.now_ms, self.out)

    def _join_static(self, member_id: str) -> None:
        former = self.group.static.get(self.request.group_instance_id or "")
        if former is None:
            self._add(member_id)
        else:
            self._replace(self.group.roster.members[former], member_id)

    def _return(self) -> None:
        """A member joins with an id that the group knows, or should know."""
        group, request = self.group, self.request
        try:
            member = group.roster.check(request.member_id, request.group_instance_id)
        except BrokerError as error:
            self._refuse(error.code, request.member_id)
            return
        leads = member.id == group.roster.leader
        if (
            group.state is GroupState.PREPARING
            or member.protocols != self.protocols
            or (leads and group.state is GroupState.STABLE)
        ):
            # A leader that rejoins has seen a change, such as new partitions, that other members may not know.
            self._wait(member)
            group.rebalance(self.now_ms, self.out)
        else:
            self.out.reply(self.waiting.token, group.generation_for(member))  # it has missed our response

    def _wait(self, member: ClassicMember) -> None:
        group, request = self.group, self.request
        group.roster.update(member, self.protocols, request.session_timeout_ms, self.rebalance_ms)
        before = group.roster.wait(member, self.waiting)
        if before is not None:
            self.out.reply(before.token, refuse_join(before.version, member.id, ErrorCode.REBALANCE_IN_PROGRESS))

    def _replace(self, member: ClassicMember, member_id: str) -> None:
        """A static member rejoins under a new id. Requests with the former id are fenced from now on."""
        group, roster, former = self.group, self.group.roster, member.id
        leader = roster.leader
        before = (member.protocols, member.session_ms, member.rebalance_ms)
        fenced = roster.wait(member, None)
        if fenced is not None:
            self.out.reply(fenced.token, refuse_join(fenced.version, former, ErrorCode.FENCED_INSTANCE_ID))
        if member.sync is not None:
            self.out.reply(member.sync, refuse_sync(ErrorCode.FENCED_INSTANCE_ID))
            member.sync = None
        roster.rename(member, member_id)
        member.fresh = False
        group.unsynced.discard(former)
        self._wait(member)
        group.expect(member, self.now_ms + member.session_ms, self.out)
        if group.state is not GroupState.STABLE or roster.choose() != group.protocol:
            # During a rebalance the leader knows only the former id: start the rebalance again.
            group.rebalance(self.now_ms, self.out)
            return
        self.out.records.append(group.record({one.id: one.assignment for one in roster.members.values()}))
        skips = self.caller.version >= SKIPS
        if skips:
            group.answer_join(member, self.out, skip_assignment=member.id == roster.leader)
        else:
            self._answer_as_follower(member, leader)

        def undo(code: ErrorCode) -> Decision:
            roster.update(member, *before)
            roster.rename(member, former)
            others = [reply for reply in self.out.replies if reply[0] != self.waiting.token]
            refusal = refuse_join(self.waiting.version, "", code)
            return Decision(replies=[*others, (self.waiting.token, refusal)], timers=self.out.timers)

        self.out.on_failure = undo

    def _answer_as_follower(self, member: ClassicMember, leader: str | None) -> None:
        """Answer with the former id as the leader, so that a returning leader does not assign again."""
        answer = self.group.generation_for(member)
        answer.leader, answer.members = leader or "", []
        self.group.roster.wait(member, None)
        self.out.reply(self.waiting.token, answer)

    def _refuse(self, code: ErrorCode, member_id: str) -> None:
        self.out.reply(self.waiting.token, refuse_join(self.waiting.version, member_id, code))
