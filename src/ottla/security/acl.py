"""Access control lists: the entries, the requests they apply to, and their form in the metadata store.

    /kafka-acl/Topic/orders                     entries for one resource, by its name ("*" stands for every name)
    /kafka-acl-extended/prefixed/Topic/order    entries for every resource whose name has this prefix
    /kafka-acl-changes/acl_changes_N            "TOPIC:orders": the first kind has changed
    /kafka-acl-extended-changes/acl_changes_N   the same as JSON, of the second kind

The paths and the JSON are those of Apache Kafka 3.9 in ZooKeeper mode, so that brokers of both kinds share them.
"""

from __future__ import annotations

import json
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.wire.access import Operation, Pattern, Permission, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import IntEnum

WILDCARD: Final = "*"
EVERYBODY: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"
LITERAL_ROOT: Final = "/kafka-acl"
PREFIXED_ROOT: Final = "/kafka-acl-extended/prefixed"
LITERAL_CHANGES: Final = "/kafka-acl-changes"
PREFIXED_CHANGES: Final = "/kafka-acl-extended-changes"
CHANGE_PREFIX: Final = "acl_changes_"


# The operations of each resource type; an entry with another operation is refused.
OPERATIONS: Final = {
    ResourceType.TOPIC: frozenset(
        (
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        )
    ),
    ResourceType.GROUP: frozenset(
        (
            Operation.READ,
            Operation.DELETE,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        )
    ),
    ResourceType.CLUSTER: frozenset(
        (
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        )
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset((Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT)),
    ResourceType.DELEGATION_TOKEN: frozenset((Operation.DESCRIBE,)),
    ResourceType.USER: frozenset((Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS)),
}
# Operations that imply another one: an entry that allows any of these allows that one, too.
IMPLIED_BY: Final = {
    Operation.DESCRIBE: frozenset((Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)),
    Operation.DESCRIBE_CONFIGS: frozenset((Operation.ALTER_CONFIGS,)),
}


class Resource(NamedTuple):
    """The resources that entries apply to: those of a type with this name, or with this prefix."""

    type: ResourceType
    name: str
    pattern: Pattern = Pattern.LITERAL

    @property
    def path(self) -> str:
        """The node with its entries."""
        root = LITERAL_ROOT if self.pattern is Pattern.LITERAL else PREFIXED_ROOT
        return f"{root}/{label(self.type)}/{self.name}"

    def covers(self, name: str) -> bool:
        if self.pattern is Pattern.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


class AclEntry(NamedTuple):
    """One rule of a resource: principal, host, operation, and whether it allows or denies."""

    principal: str
    host: str
    operation: Operation
    permission: Permission

    def decides(self, principal: str, host: str, operation: Operation) -> bool:
        """Whether this entry applies to such a request."""
        if self.principal != principal and self.principal != EVERYBODY:
            return False
        if self.host != host and self.host != WILDCARD and not (":" in self.host and same_address(self.host, host)):
            return False
        if self.operation is operation or self.operation is Operation.ALL:
            return True
        return self.permission is Permission.ALLOW and self.operation in IMPLIED_BY.get(operation, ())


def same_address(one: str, other: str) -> bool:
    """An IPv6 address has many spellings: Java writes all zeros, so rules made for Kafka have them."""
    try:
        return parse_address(one) == parse_address(other)
    except ValueError:
        return False


@lru_cache(maxsize=4096)
def parse_address(text: str) -> IPv4Address | IPv6Address:
    found = ip_address(text)
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found


class Filter(NamedTuple):
    """The filter of DescribeAcls and DeleteAcls; None and ANY match everything."""

    type: ResourceType
    name: str | None
    pattern: Pattern
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def finds(self, resource: Resource) -> bool:
        if self.type not in (ResourceType.ANY, resource.type):
            return False
        if self.pattern in (Pattern.LITERAL, Pattern.PREFIXED) and self.pattern is not resource.pattern:
            return False
        if self.name is None:
            return True
        return resource.covers(self.name) if self.pattern is Pattern.MATCH else resource.name == self.name

    def accepts(self, entry: AclEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )


def label(value: IntEnum) -> str:
    """The spelling in the store: `TransactionalId` for TRANSACTIONAL_ID."""
    return "".join(word.capitalize() for word in value.name.split("_"))


TYPES: Final = {label(kind): kind for kind in ResourceType}
OPERATION_LABELS: Final = {label(one): one for one in Operation}
PERMISSION_LABELS: Final = {label(one): one for one in Permission}


def encode_entries(entries: Iterable[AclEntry]) -> bytes:
    acls = [
        {
            "principal": entry.principal,
            "permissionType": label(entry.permission),
            "host": entry.host,
            "operation": label(entry.operation),
        }
        for entry in sorted(entries)
    ]
    return json.dumps({"acls": acls, "version": 1}, separators=(",", ":"), ensure_ascii=False).encode()


def decode_entries(data: bytes) -> frozenset[AclEntry]:
    """ValueError, KeyError or TypeError if the data is malformed."""
    if not data:
        return frozenset()
    return frozenset(
        AclEntry(
            acl["principal"],
            acl["host"],
            OPERATION_LABELS[acl["operation"]],
            PERMISSION_LABELS[acl["permissionType"]],
        )
        for acl in json.loads(data)["acls"]
    )


def encode_change(resource: Resource) -> tuple[str, bytes]:
    """The notification that a resource's entries have changed: the start of its path, and its data."""
    if resource.pattern is Pattern.LITERAL:
        return f"{LITERAL_CHANGES}/{CHANGE_PREFIX}", f"{resource.type.name}:{resource.name}".encode()
    change = {
        "version": 1,
        "resourceType": resource.type.name,
        "name": resource.name,
        "patternType": resource.pattern.name,
    }
    return f"{PREFIXED_CHANGES}/{CHANGE_PREFIX}", json.dumps(change, separators=(",", ":"), ensure_ascii=False).encode()


def decode_change(data: bytes) -> Resource:
    """The resource named in a notification; ValueError, KeyError or TypeError if it is malformed."""
    text = data.decode()
    if not text.startswith("{"):
        kind, _, name = text.partition(":")
        return Resource(resource_type(kind), name)
    change = json.loads(text)
    return Resource(resource_type(change["resourceType"]), change["name"], Pattern[change["patternType"].upper()])


def resource_type(text: str) -> ResourceType:
    """Accepts both spellings."""
    return TYPES[text] if text in TYPES else ResourceType[text]


def decode_path(path: str) -> Resource | None:
    """The resource of a node; None for other nodes."""
    for root, pattern in ((PREFIXED_ROOT, Pattern.PREFIXED), (LITERAL_ROOT, Pattern.LITERAL)):
        if path.startswith(f"{root}/"):
            kind, _, name = path[len(root) + 1 :].partition("/")
            return Resource(TYPES[kind], name, pattern) if name and kind in TYPES else None
    return None
