"""One member of a classic group: what it sent, its assignment, and its pending requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.coord.formats import MemberMetadata
    from ottla.coord.machine import Token
    from ottla.wire.messages.groups import JoinGroupRequestProtocol

NEVER = 1 << 62  # the deadline of a member that need not send heartbeats now
Protocols = tuple[tuple[str, bytes], ...]  # name and metadata, in order of preference


class Waiting(NamedTuple):
    """A pending request; the response depends on the API `version`."""

    token: Token
    version: int


class ClassicMember:
    __slots__ = (
        "assignment",
        "client_id",
        "deadline_ms",
        "fresh",
        "host",
        "id",
        "instance",
        "join",
        "protocols",
        "rebalance_ms",
        "session_ms",
        "sync",
    )

    def __init__(
        self,
        member_id: str,
        instance: str | None,
        client_id: str,
        host: str,
        *,
        session_ms: int,
        rebalance_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.id = member_id
        self.instance = instance  # group.instance.id of a static member
        self.client_id = client_id
        self.host = host
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.protocols = protocols
        self.assignment = assignment
        self.join: Waiting | None = None
        self.sync: Token | None = None
        self.fresh = False  # has not finished a rebalance yet, so its client cannot send heartbeats
        self.deadline_ms = NEVER

    @classmethod
    def from_record(cls, protocol: str | None, one: MemberMetadata) -> ClassicMember:
        """The member as it was recorded. Only the chosen protocol is in the record."""
        return cls(
            one.member_id,
            one.group_instance_id,
            one.client_id,
            one.client_host,
            session_ms=one.session_timeout,
            rebalance_ms=one.session_timeout if one.rebalance_timeout == -1 else one.rebalance_timeout,
            protocols=((protocol or "", one.subscription),),
            assignment=one.assignment,
        )

    def metadata(self, protocol: str | None) -> bytes:
        """Its metadata for a protocol; if it no longer offers that one, for its first protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), self.protocols[0][1])

    def vote(self, candidates: set[str]) -> str:
        return next(name for name, _ in self.protocols if name in candidates)

    @property
    def excused(self) -> bool:
        """Whether its session cannot expire, because it waits for our response. A fresh member's can: its client may
        be gone."""
        return not self.fresh and (self.join is not None or self.sync is not None)


def protocols_of(wanted: Iterable[JoinGroupRequestProtocol]) -> Protocols:
    """The offered protocols. If a name occurs twice, the first one counts."""
    offered: dict[str, bytes] = {}
    for one in wanted:
        offered.setdefault(one.name, one.metadata)
    return tuple(offered.items())


def size_of(protocols: Protocols) -> int:
    """Bytes of metadata of these protocols."""
    return sum(len(metadata) for _, metadata in protocols)
