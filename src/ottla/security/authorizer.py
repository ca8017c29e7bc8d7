"""Decides whether a principal may do something, by access control lists and with Apache Kafka's rules.

    super users may do everything; then an entry that denies wins; then one that allows is needed; a resource without
    any entries is closed, or open to everybody with allow.everyone.if.no.acl.found

Decisions are cached until an entry changes. The authorizer reads no store: `acl_store.py` passes the entries to it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ottla.security.acl import OPERATIONS, WILDCARD, Resource
from ottla.wire.access import Operation, Pattern, Permission, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ottla.security.acl import AclEntry, Filter

    # Principal, host, operation, resource type and name.
    Question = tuple[str, str, Operation, ResourceType, str | None]

REMEMBERED_MAX: Final = 1 << 14
NAME_SIZE_MAX: Final = 256  # of a cached name: clients choose names, so limit the memory
SOME: Final = None  # cached in place of a name: whether any resource is allowed


class Authorizer:
    def __init__(self, super_users: Iterable[str] = (), *, open_by_default: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._open_by_default = open_by_default
        self._entries: dict[Resource, frozenset[AclEntry]] = {}
        self._prefix_lengths: dict[ResourceType, Counter[int]] = {}  # number of prefixes by length
        self._remembered: dict[Question, bool] = {}
        self._listeners: list[Callable[[], None]] = []
        self.changes = 0  # the number of changes, for callers with a cache of their own

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change of entries."""
        self._listeners.append(listener)

    def put(self, changes: Mapping[Resource, frozenset[AclEntry]]) -> None:
        """Set the entries of these resources; a resource without entries is removed."""
        for resource, entries in changes.items():
            before = self._entries.pop(resource, None)
            if entries:
                self._entries[resource] = entries
            self._count_prefix(resource, bool(entries) - (before is not None))
        self._tell()

    def replace(self, entries: Mapping[Resource, frozenset[AclEntry]]) -> None:
        """Replace all entries."""
        self._entries = {resource: some for resource, some in entries.items() if some}
        self._prefix_lengths.clear()
        for resource in self._entries:
            self._count_prefix(resource, 1)
        self._tell()

    def _count_prefix(self, resource: Resource, change: int) -> None:
        if resource.pattern is Pattern.PREFIXED and change:
            lengths = self._prefix_lengths.setdefault(resource.type, Counter())
            lengths[len(resource.name)] += change
            if not lengths[len(resource.name)]:
                del lengths[len(resource.name)]

    def _tell(self) -> None:
        self._remembered.clear()
        self.changes += 1
        for listener in self._listeners:
            listener()

    def entries(self, resource: Resource) -> frozenset[AclEntry]:
        return self._entries.get(resource, frozenset())

    def find(self, wanted: Filter) -> Iterator[tuple[Resource, AclEntry]]:
        for resource, entries in list(self._entries.items()):  # they may change while the caller iterates
            if wanted.finds(resource):
                for entry in sorted(entries):
                    if wanted.accepts(entry):
                        yield resource, entry

    def allows(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        key = principal, host, operation, kind, name
        known = self._remembered.get(key)
        return self._remember(key, self._decide(*key)) if known is None else known

    def _remember(self, key: Question, answer: bool) -> bool:
        if len(self._remembered) >= REMEMBERED_MAX:
            self._remembered.clear()
        if key[-1] is None or len(key[-1]) <= NAME_SIZE_MAX:
            self._remembered[key] = answer
        return answer

    def _decide(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        if principal in self._super_users:
            return True
        found = allowed = False
        for entries in self._covering(kind, name):
            found = True
            for entry in entries:
                if entry.decides(principal, host, operation):
                    if entry.permission is Permission.DENY:
                        return False
                    allowed = True
        return allowed or (not found and self._open_by_default)

    def _covering(self, kind: ResourceType, name: str) -> Iterator[frozenset[AclEntry]]:
        """The entries of every resource that covers this name."""
        known = self._entries
        for literal in (name, WILDCARD):
            entries = known.get(Resource(kind, literal))
            if entries is not None:
                yield entries
        for length in self._prefix_lengths.get(kind, ()):
            if length > len(name):
                continue
            entries = known.get(Resource(kind, name[:length], Pattern.PREFIXED))
            if entries is not None:
                yield entries

    def allows_some(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Whether it is allowed on any resource of this type, existing or not."""
        key = (principal, host, operation, kind, SOME)
        known = self._remembered.get(key)
        return self._remember(key, self._decide_some(*key[:-1])) if known is None else known

    def _decide_some(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        if principal in self._super_users:
            return True
        denied: set[Resource] = set()
        allowed: set[Resource] = set()
        for resource, entries in self._entries.items():
            if resource.type is kind:
                for entry in entries:
                    if entry.decides(principal, host, operation):
                        (denied if entry.permission is Permission.DENY else allowed).add(resource)
        if Resource(kind, WILDCARD) in denied:
            return False
        if self._open_by_default or Resource(kind, WILDCARD) in allowed:
            return True
        prefixes = tuple(one.name for one in denied if one.pattern is Pattern.PREFIXED)
        return any(one not in denied and not one.name.startswith(prefixes) for one in allowed)

    def operations(self, principal: str, host: str, kind: ResourceType, name: str) -> int:
        """The allowed operations on a resource, as the bit field used in responses."""
        return sum(1 << one for one in OPERATIONS[kind] if self.allows(principal, host, one, kind, name))
