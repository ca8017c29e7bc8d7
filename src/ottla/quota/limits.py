"""All quotas of a broker, and which of them applies to a client."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.quota.entity import CLIENT_KEYS, CONNECTION, DEFAULT, Entity, decode_values, entity_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Stored = Mapping[str, Mapping[str, str]]

Key = tuple[str | None, str | None]  # user and client id
Name = TypeVar("Name")


class Limit(NamedTuple):
    value: float
    owner: Key  # who shares it: a concrete user, client id, or both


class Limits:
    def __init__(self, users: Stored | None = None, others: Stored | None = None) -> None:
        self._tables: dict[str, dict[Key, float]] = {key: {} for key in CLIENT_KEYS}
        self._addresses: dict[str, float] = {}  # connections per second, by address
        self.hosts: dict[str, float] = {}  # by host name, to be resolved
        self.resolved: dict[str, str] = {}  # hosts by resolved address
        self.change(users or {}, others or {})

    @property
    def of_clients(self) -> bool:
        """Whether there are quotas of users or client ids."""
        return any(self._tables.values())

    @property
    def of_addresses(self) -> bool:
        return bool(self._addresses or self.hosts)

    def change(self, users: Stored, others: Stored) -> bool:
        """Take over the stored values: of users by name, of others by path below /config. Returns whether a quota
        changed."""
        changes = [self._set(Entity(user), pairs) for user, pairs in users.items()]
        for node, pairs in others.items():
            entity = entity_at(node)
            if entity is not None:
                changes.append(self._set(entity, pairs))
        return any(changes)

    def _set(self, entity: Entity, pairs: Mapping[str, str]) -> bool:
        values = decode_values(pairs, entity.keys)
        if entity.ip is not None:
            address = find_address(entity.ip) if entity.ip else DEFAULT
            if address is None:
                return put(self.hosts, entity.ip, values.get(CONNECTION))
            return put(self._addresses, address, values.get(CONNECTION))
        owner = entity.user, entity.client_id
        changes = [put(self._tables[key], owner, values.get(key)) for key in CLIENT_KEYS]
        return any(changes)

    def find(self, key: str, user: str, client_id: str) -> Limit | None:
        """The quota that applies to a client, in Kafka's order: the most specific first."""
        table = self._tables[key]
        if not table:
            return None
        for entity, owner in candidates(user, client_id):
            value = table.get(entity)
            if value is not None:
                return Limit(value, owner)
        return None

    def find_address(self, address: str) -> float | None:
        value = self._addresses.get(address)
        if value is None and address in self.resolved:
            value = self.hosts.get(self.resolved[address])
        return self._addresses.get(DEFAULT) if value is None else value


def put(table: dict[Name, float], name: Name, value: float | None) -> bool:
    """Set or remove a value. Returns whether it changed."""
    before = table.get(name)
    if value is None:
        table.pop(name, None)
    else:
        table[name] = value
    return before != value


def candidates(user: str, client_id: str) -> Iterator[tuple[Key, Key]]:
    """Entities whose quota may apply to a client, each with the owner that shares it."""
    both, only = (user, client_id), (user, None)
    yield both, both
    yield (user, DEFAULT), both
    yield only, only
    yield (DEFAULT, client_id), both
    yield (DEFAULT, DEFAULT), both
    yield (DEFAULT, None), only
    yield (None, client_id), (None, client_id)
    yield (None, DEFAULT), (None, client_id)


def find_address(name: str) -> str | None:
    """An address in the form that sockets use; None for a host name."""
    try:
        return str(ip_address(name))
    except ValueError:
        return None
