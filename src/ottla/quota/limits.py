"""All quotas of a broker, and which of them holds for a client."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from ottla.quota.entity import CLIENT_KEYS, CONNECTION, DEFAULT, decode_values, entity_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ottla.quota.entity import Entity

Key = tuple[str | None, str | None]  # user and client id


class Limit(NamedTuple):
    value: float
    owner: Key  # who shares it: an actual user, client id, or both


class Limits:
    """`users` and `others` are what is stored: of users by name, of the others by their paths below /config."""

    def __init__(self, users: Mapping[str, Mapping[str, str]], others: Mapping[str, Mapping[str, str]]) -> None:
        self._tables: dict[str, dict[Key, float]] = {key: {} for key in CLIENT_KEYS}
        self.addresses: dict[str, float] = {}  # connections a second, by address
        self.hosts: dict[str, float] = {}  # by names of hosts, whose addresses are to be found
        for user, pairs in users.items():
            for key, value in decode_values(pairs, CLIENT_KEYS).items():
                self._tables[key][user, None] = value
        for node, pairs in others.items():
            entity = entity_at(node)
            if entity is not None:
                self._add(entity, pairs)
        self.of_clients = any(self._tables.values())
        self.of_addresses = bool(self.addresses or self.hosts)

    def _add(self, entity: Entity, pairs: Mapping[str, str]) -> None:
        values = decode_values(pairs, entity.keys)
        if entity.ip is not None:
            if CONNECTION in values:
                address = entity.ip and find_address(entity.ip)
                if address is None:
                    self.hosts[entity.ip] = values[CONNECTION]
                else:
                    self.addresses[address] = values[CONNECTION]
            return
        for key, value in values.items():
            self._tables[key][entity.user, entity.client_id] = value

    def find(self, key: str, user: str, client_id: str) -> Limit | None:
        """What holds for a client: Kafka's order, the most specific first."""
        table = self._tables[key]
        if not table:
            return None
        for entity, owner in candidates(user, client_id):
            value = table.get(entity)
            if value is not None:
                return Limit(value, owner)
        return None

    def find_address(self, address: str) -> float | None:
        return self.addresses.get(address, self.addresses.get(DEFAULT))


def candidates(user: str, client_id: str) -> Iterator[tuple[Key, Key]]:
    """Entities whose quota may hold for a client, and who shares it then."""
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
    """An address as sockets show it; None for the name of a host."""
    try:
        return str(ip_address(name))
    except ValueError:
        return None
