"""The entities of quotas, the quota keys, and where they are stored.

An entity is a user, a client id, both, or an address; each by name, or the default for all without a quota of their
own. Stored below /config as in Kafka, with URL-encoded names:

    users/U    users/<default>    clients/C    users/U/clients/C    ips/A

/config/users/U also holds the SCRAM credentials of U: keys that are not quota keys are left alone.
"""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, unquote

from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PRODUCE: Final = "producer_byte_rate"
FETCH: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
MUTATION: Final = "controller_mutation_rate"
CONNECTION: Final = "connection_creation_rate"

USER, CLIENT_ID, IP = "user", "client-id", "ip"
TYPES: Final = (USER, CLIENT_ID, IP)
DEFAULT: Final = ""  # as a name; no entity has an empty name
STORED_DEFAULT: Final = "<default>"
LARGEST: Final = {"LONG": 2**63 - 1, "INT": 2**31 - 1}
# Each key and the type of its values.
CLIENT_KEYS: Final = {PRODUCE: "LONG", FETCH: "LONG", REQUEST: "DOUBLE", MUTATION: "DOUBLE"}
IP_KEYS: Final = {CONNECTION: "INT"}
KEYS: Final = {**CLIENT_KEYS, **IP_KEYS}


class Entity(NamedTuple):
    """None: not part of the entity. DEFAULT: all without a quota of their own."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def parts(self) -> dict[str, str]:
        """Names by entity type."""
        return {kind: name for kind, name in zip(TYPES, self, strict=True) if name is not None}

    @property
    def keys(self) -> Mapping[str, str]:
        return CLIENT_KEYS if self.ip is None else IP_KEYS

    @property
    def node(self) -> str:
        """The path of the entity, below /config."""
        if self.ip is not None:
            return f"ips/{store_name(self.ip)}"
        client = "" if self.client_id is None else f"clients/{store_name(self.client_id)}"
        if self.user is None:
            return client
        return f"users/{store_name(self.user)}" + (f"/{client}" if client else "")


def store_name(name: str) -> str:
    return STORED_DEFAULT if name == DEFAULT else quote(name, safe="")


def read_name(stored: str) -> str:
    return DEFAULT if stored == STORED_DEFAULT else unquote(stored)


def entity_at(node: str) -> Entity | None:
    """The entity at a path below /config; None if the path is not that of an entity."""
    match node.split("/"):
        case ["users", user] if user:
            return Entity(user=read_name(user))
        case ["clients", client] if client:
            return Entity(client_id=read_name(client))
        case ["ips", ip] if ip:
            return Entity(ip=read_name(ip))
        case ["users", user, "clients", client] if user and client:
            return Entity(read_name(user), read_name(client))
    return None


def entity_of(parts: Mapping[str, str | None]) -> Entity:
    """The entity in a request; None as a name is the default. BrokerError, with Kafka's words, if it is invalid."""
    if not parts:
        raise invalid("Invalid empty client quota entity")
    for kind, name in parts.items():
        if kind not in TYPES:
            raise invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise invalid(f"Empty {kind} not supported")
    if IP in parts and len(parts) > 1:
        raise invalid("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    return Entity(*(None if kind not in parts else parts[kind] or DEFAULT for kind in TYPES))


def encode_value(entity: Entity, key: str, value: float) -> str:
    """A value in its stored form. BrokerError, with Kafka's words, if it is invalid for this key.

    Kafka accepts NaN and then throttles everything; here it is refused.
    """
    kind = entity.keys.get(key)
    if kind is None:
        raise invalid(f"Invalid configuration key {key}")
    if isnan(value) or value <= 0:
        raise invalid(f"Quota {key} must be greater than 0")
    if kind == "DOUBLE":
        return repr(value) if value < float("inf") else "Infinity"
    if value > LARGEST[kind]:
        raise invalid(f"Proposed value for {key} is too large for {'an' if kind == 'INT' else 'a'} {kind}.")
    whole = int(value + 1e-6)
    if abs(whole - value) > 1e-6:
        raise invalid(f"{key} cannot be a fractional value.")
    return str(min(whole, LARGEST[kind]))


def decode_values(pairs: Mapping[str, str], keys: Iterable[str] = KEYS) -> dict[str, float]:
    """The quotas among the stored values. Other values than positive numbers are ignored."""
    values = {}
    for key in keys:
        if key in pairs:
            try:
                value = float(pairs[key])
            except ValueError:
                continue
            if value > 0:
                values[key] = value
    return values


def invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, message)
