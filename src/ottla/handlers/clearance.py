"""For the fast path of Produce: decides whether a request may bypass the authorizer's gate and the quotas.

It may not if the client may not write to one of its topics, if it has records of a transaction, or if a quota limits
the client's bytes or time. Otherwise both would pass it unchanged: clients without a quota are not measured.

Results are cached: permissions until an ACL changes, quotas as long as this object lives, since a change of quotas
makes a new one.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.handlers.produce import ATTRIBUTES, TRANSACTIONAL
from ottla.quota.entity import PRODUCE, REQUEST
from ottla.wire.access import Operation, ResourceType
from ottla.wire.frame import parse_header

if TYPE_CHECKING:
    from ottla.handlers.call import Parts, Peer
    from ottla.quota.quotas import Quotas
    from ottla.records.native import ProduceEntry
    from ottla.security.authorizer import Authorizer
    from ottla.security.principal import Principal

REMEMBERED_MAX: Final = 1 << 12
CLIENT_ID: Final = 8  # position of its length in a frame
NAME_SIZE_MAX: Final = 256  # of a cached client id: clients choose it, so limit the memory
SHORT: Final = Struct(">h").unpack_from


class Clearance:
    __slots__ = ("_allowed", "_authorizer", "_changes", "_parts", "_quotas", "_unlimited")

    def __init__(self, parts: Parts, authorizer: Authorizer | None, quotas: Quotas | None) -> None:
        self._parts = parts
        self._authorizer = authorizer
        self._quotas = quotas
        self._allowed: set[tuple[Principal, str, str | bytes]] = set()  # principal, host and topic
        self._changes = 0  # the number of ACL changes when they were cached
        self._unlimited: dict[tuple[str, bytes], bool] = {}

    def lets_pass(self, peer: Peer, frame: memoryview, entries: list[ProduceEntry]) -> bool:
        if self._quotas is not None and not self._is_unlimited(self._quotas, peer, frame):
            return False
        return self._authorizer is None or self._is_allowed(self._authorizer, peer, frame, entries)

    def _is_unlimited(self, quotas: Quotas, peer: Peer, frame: memoryview) -> bool:
        size = SHORT(frame, CLIENT_ID)[0]
        key = peer.principal.name, bytes(frame[CLIENT_ID + 2 : CLIENT_ID + 2 + size])
        known = self._unlimited.get(key)
        if known is not None:
            return known
        who = key[0], parse_header(frame)[3] or ""
        unlimited = quotas.limits.find(PRODUCE, *who) is None and quotas.limits.find(REQUEST, *who) is None
        if size <= NAME_SIZE_MAX:
            if len(self._unlimited) >= REMEMBERED_MAX:
                self._unlimited.clear()
            self._unlimited[key] = unlimited
        return unlimited

    def _is_allowed(self, authorizer: Authorizer, peer: Peer, frame: memoryview, entries: list[ProduceEntry]) -> bool:
        if self._changes != authorizer.changes:
            self._changes = authorizer.changes
            self._allowed.clear()
        principal, host = peer.principal, peer.host
        for topic, _, start, end, _ in entries:
            if end - start > ATTRIBUTES and frame[start + ATTRIBUTES] & TRANSACTIONAL:
                return False
            key = principal, host, topic
            if key in self._allowed:
                continue
            name = topic if isinstance(topic, str) else self._parts.metadata.image.names_by_id.get(topic)
            if name is None or len(name) > NAME_SIZE_MAX:
                return False
            if not authorizer.allows(str(principal), host, Operation.WRITE, ResourceType.TOPIC, name):
                return False
            if len(self._allowed) >= REMEMBERED_MAX:
                self._allowed.clear()
            self._allowed.add(key)
        return True
