"""Entries, filters, and their bytes in the metadata store, which are those that Apache Kafka 3.9 wrote there."""

import pytest

from ottla.security.acl import (
    AclEntry,
    Filter,
    Resource,
    decode_change,
    decode_entries,
    decode_path,
    encode_change,
    encode_entries,
)
from ottla.wire.access import Operation, Pattern, Permission, ResourceType

TOPIC, ALLOW, DENY = ResourceType.TOPIC, Permission.ALLOW, Permission.DENY
STORED = (
    b'{"acls":[{"principal":"User:a","permissionType":"Allow","host":"*","operation":"Read"},'
    b'{"principal":"User:\xc3\xbc","permissionType":"Deny","host":"1.2.3.4","operation":"IdempotentWrite"}],"version":1}'
)
ENTRIES = frozenset(
    (
        AclEntry("User:a", "*", Operation.READ, ALLOW),
        AclEntry("User:ü", "1.2.3.4", Operation.IDEMPOTENT_WRITE, DENY),
    )
)


def test_entries_are_stored_as_kafka_stores_them() -> None:
    assert encode_entries(ENTRIES) == STORED
    assert decode_entries(STORED) == ENTRIES
    assert decode_entries(b"") == frozenset()


@pytest.mark.parametrize(
    ("resource", "path", "notice"),
    [
        (
            Resource(TOPIC, "orders"),
            "/kafka-acl/Topic/orders",
            ("/kafka-acl-changes/acl_changes_", b"TOPIC:orders"),
        ),
        (
            Resource(ResourceType.TRANSACTIONAL_ID, "x", Pattern.PREFIXED),
            "/kafka-acl-extended/prefixed/TransactionalId/x",
            (
                "/kafka-acl-extended-changes/acl_changes_",
                b'{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"x","patternType":"PREFIXED"}',
            ),
        ),
    ],
)
def test_paths_and_notices(resource: Resource, path: str, notice: tuple[str, bytes]) -> None:
    assert resource.path == path
    assert decode_path(path) == resource
    assert encode_change(resource) == notice
    assert decode_change(notice[1]) == resource


@pytest.mark.parametrize("path", ["/kafka-acl", "/kafka-acl/Topic", "/kafka-acl/Nothing/x", "/brokers/topics/x"])
def test_other_nodes_are_none_of_a_resource(path: str) -> None:
    assert decode_path(path) is None


def test_an_old_notice_names_its_type_in_the_other_spelling() -> None:
    assert decode_change(b"Topic:a:b") == Resource(TOPIC, "a:b")


@pytest.mark.parametrize(
    ("held", "asked", "permission", "decides"),
    [
        (Operation.READ, Operation.READ, ALLOW, True),
        (Operation.ALL, Operation.READ, DENY, True),
        (Operation.WRITE, Operation.DESCRIBE, ALLOW, True),
        (Operation.WRITE, Operation.DESCRIBE, DENY, False),
        (Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS, ALLOW, True),
        (Operation.DESCRIBE, Operation.READ, ALLOW, False),
        (Operation.CREATE, Operation.DESCRIBE, ALLOW, False),
    ],
)
def test_what_an_entry_decides(held: Operation, asked: Operation, permission: Permission, decides: bool) -> None:
    assert AclEntry("User:a", "*", held, permission).decides("User:a", "1.1.1.1", asked) is decides


def test_whom_an_entry_is_for() -> None:
    entry = AclEntry("User:*", "1.1.1.1", Operation.READ, ALLOW)
    assert entry.decides("User:anybody", "1.1.1.1", Operation.READ)
    assert not entry.decides("User:anybody", "1.1.1.2", Operation.READ)
    assert not entry._replace(principal="User:b").decides("User:a", "1.1.1.1", Operation.READ)


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        (Pattern.ANY, None, {"orders", "ord", "*"}),
        (Pattern.LITERAL, "orders", {"orders"}),
        (Pattern.PREFIXED, "ord", {"ord"}),
        (Pattern.PREFIXED, None, {"ord"}),
        (Pattern.ANY, "ord", {"ord"}),
        (Pattern.MATCH, "orders", {"orders", "ord", "*"}),
        (Pattern.MATCH, "or", {"*"}),
    ],
)
def test_what_a_filter_finds(pattern: Pattern, name: str | None, found: set[str]) -> None:
    known = [Resource(TOPIC, "orders"), Resource(TOPIC, "ord", Pattern.PREFIXED), Resource(TOPIC, "*")]
    wanted = Filter(ResourceType.ANY, name, pattern, None, None, Operation.ANY, Permission.ANY)
    assert {one.name for one in known if wanted.finds(one)} == found
    other = wanted._replace(type=ResourceType.GROUP)
    assert not any(other.finds(one) for one in known)
