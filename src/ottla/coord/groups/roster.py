"""The members of a classic group: which are static, which one is the leader, which protocols all of them offer."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.coord.groups.member import size_of
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from ottla.coord.groups.member import ClassicMember, Protocols, Waiting


class Roster:
    def __init__(self) -> None:
        self.members: dict[str, ClassicMember] = {}
        self.static: dict[str, str] = {}  # group.instance.id → member id
        self.leader: str | None = None
        self.joined = 0  # members with a pending join
        self.metadata_size = 0  # bytes of metadata of all members and protocols
        self._supporters: Counter[str] = Counter()  # protocol → members that offer it

    def add(self, member: ClassicMember) -> None:
        assert member.id not in self.members, "a member joins once"
        self.members[member.id] = member
        self._supporters.update(name for name, _ in member.protocols)
        self.metadata_size += size_of(member.protocols)
        if member.instance is not None:
            assert member.instance not in self.static, "an instance is one member"
            self.static[member.instance] = member.id
        if self.leader is None:
            self.leader = member.id

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            assert member.join is None, "requests that wait are answered before a member is removed"
            assert member.sync is None, "requests that wait are answered before a member is removed"
            self._supporters.subtract(name for name, _ in member.protocols)
            self.metadata_size -= size_of(member.protocols)
            if member.instance is not None:
                del self.static[member.instance]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, member: ClassicMember, member_id: str) -> None:
        """Give a returning static member its new id."""
        del self.members[member.id]
        if self.leader == member.id:
            self.leader = member_id
        member.id = member_id
        self.members[member_id] = member
        assert member.instance is not None, "only static members come back"
        self.static[member.instance] = member_id

    def update(self, member: ClassicMember, protocols: Protocols, session_ms: int, rebalance_ms: int) -> None:
        self._supporters.subtract(name for name, _ in member.protocols)
        self._supporters.update(name for name, _ in protocols)
        self.metadata_size += size_of(protocols) - size_of(member.protocols)
        member.protocols, member.session_ms, member.rebalance_ms = protocols, session_ms, rebalance_ms

    def wait(self, member: ClassicMember, join: Waiting | None) -> Waiting | None:
        """Set or clear the pending join of a member. Returns the previous one."""
        before, member.join = member.join, join
        self.joined += (join is not None) - (before is not None)
        return before

    def check(self, member_id: str, instance: str | None) -> ClassicMember:
        """The member that sent a request. BrokerError if it is unknown, or its instance id belongs to another."""
        if instance is not None and self.static.get(instance, member_id) != member_id:
            raise BrokerError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None or (instance is not None and instance not in self.static):
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    @property
    def rebalance_ms(self) -> int:
        """How long a rebalance may take: the longest rebalance timeout of all members."""
        return max((member.rebalance_ms for member in self.members.values()), default=0)

    def elect(self) -> bool:
        """If the leader has not joined, choose another one. Returns False if no member has joined."""
        if self.leader is None:
            return False
        if self.members[self.leader].join is None:
            found = next((member.id for member in self.members.values() if member.join is not None), None)
            if found is None:
                return False
            self.leader = found
        return True

    def speaks(self, protocols: Protocols) -> bool:
        """Whether every member offers one of these protocols."""
        return any(self._supporters[name] == len(self.members) for name, _ in protocols)

    def choose(self) -> str:
        """The protocol for the next generation: each member votes for the first of its protocols that all offer."""
        candidates = {name for name, count in self._supporters.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]
