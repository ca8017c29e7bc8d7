"""Who may do what, as the lists say it."""

from __future__ import annotations

import random

import pytest

from ottla.security.acl import AclEntry, Filter, Resource
from ottla.security.authorizer import Authorizer
from ottla.wire.access import Operation, Pattern, Permission, ResourceType

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
HERE = "127.0.0.1"


def entry(who: str, operation: Operation, *, deny: bool = False, host: str = "*") -> AclEntry:
    return AclEntry(f"User:{who}", host, operation, Permission.DENY if deny else Permission.ALLOW)


def authorizer(rules: dict[Resource, list[AclEntry]], *, open_by_default: bool = False) -> Authorizer:
    made = Authorizer(["User:root"], open_by_default=open_by_default)
    made.replace({resource: frozenset(entries) for resource, entries in rules.items()})
    return made


def test_what_nobody_allows_is_forbidden() -> None:
    judge = authorizer({Resource(TOPIC, "a"): [entry("ann", READ)]})
    assert judge.allows("User:ann", HERE, READ, TOPIC, "a")
    assert judge.allows("User:ann", HERE, DESCRIBE, TOPIC, "a")
    assert not judge.allows("User:ann", HERE, WRITE, TOPIC, "a")
    assert not judge.allows("User:ann", HERE, READ, TOPIC, "b")
    assert not judge.allows("User:ann", HERE, READ, GROUP, "a")
    assert not judge.allows("User:bob", HERE, READ, TOPIC, "a")
    assert judge.allows("User:root", HERE, WRITE, TOPIC, "b")


def test_whoever_denies_wins() -> None:
    judge = authorizer(
        {
            Resource(TOPIC, "*"): [entry("*", ALL)],
            Resource(TOPIC, "secret.", Pattern.PREFIXED): [entry("bob", READ, deny=True)],
            Resource(TOPIC, "secret.plan"): [entry("bob", READ)],
        }
    )
    assert judge.allows("User:bob", HERE, READ, TOPIC, "open")
    assert not judge.allows("User:bob", HERE, READ, TOPIC, "secret.plan")
    assert judge.allows("User:bob", HERE, WRITE, TOPIC, "secret.plan")
    assert judge.allows("User:ann", HERE, READ, TOPIC, "secret.plan")


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("2001:db8:0:0:0:0:0:1", "2001:db8::1"),  # as Java writes it, and so the rules made for Kafka
        ("2001:DB8::0001", "2001:db8::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("fe80:0:0:0:0:0:0:1%eth0", "fe80::1%eth0"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
    ],
)
def test_an_address_is_the_same_however_it_is_written(written: str, address: str) -> None:
    rules = [entry("*", ALL), entry("bob", READ, deny=True, host=written), entry("ann", WRITE, host=written)]
    judge = authorizer({Resource(TOPIC, "a"): rules, Resource(TOPIC, "b"): rules[2:]})
    assert not judge.allows("User:bob", address, READ, TOPIC, "a")
    assert judge.allows("User:bob", HERE, READ, TOPIC, "a")
    assert judge.allows("User:ann", address, WRITE, TOPIC, "b")
    assert judge.allows_some("User:ann", address, WRITE, TOPIC)
    assert not judge.allows("User:ann", "2001:db8::2", WRITE, TOPIC, "b")


def test_what_has_no_list_is_open_where_that_is_wanted() -> None:
    judge = authorizer({Resource(TOPIC, "a"): [entry("ann", READ)]}, open_by_default=True)
    assert judge.allows("User:bob", HERE, WRITE, TOPIC, "b")
    assert not judge.allows("User:bob", HERE, READ, TOPIC, "a")


def test_a_change_counts_at_once_and_is_told() -> None:
    judge = authorizer({})
    told: list[None] = []
    judge.subscribe(lambda: told.append(None))
    assert not judge.allows("User:ann", HERE, READ, TOPIC, "a")
    judge.put({Resource(TOPIC, "a"): frozenset([entry("ann", READ)])})
    assert judge.allows("User:ann", HERE, READ, TOPIC, "a")
    judge.put({Resource(TOPIC, "a"): frozenset()})
    assert not judge.allows("User:ann", HERE, READ, TOPIC, "a")
    assert len(told) == 2


def test_what_is_remembered_is_bounded() -> None:
    judge = authorizer({Resource(TOPIC, "*"): [entry("*", READ)]})
    for number in range(40_000):
        judge.allows("User:ann", HERE, READ, TOPIC, str(number))
    assert len(judge._remembered) <= 1 << 14


@pytest.mark.parametrize("seed", range(30))
def test_some_resource_can_be_written_exactly_if_one_can(seed: int) -> None:
    """Against a search through every name that the rules tell apart."""
    chance = random.Random(seed)
    names = ["a", "ab", "abc", "b", "ba"]
    rules: dict[Resource, list[AclEntry]] = {}
    for _ in range(chance.randint(1, 6)):
        pattern = chance.choice((Pattern.LITERAL, Pattern.PREFIXED))
        resource = Resource(TOPIC, chance.choice([*names, "*"] if pattern is Pattern.LITERAL else names), pattern)
        one = entry(chance.choice(("ann", "*")), chance.choice((WRITE, READ, ALL)), deny=chance.random() < 0.4)
        rules.setdefault(resource, []).append(one)
    judge = authorizer(rules)
    # A name that begins so and is no other rule's: the name behind a prefix that nobody spells out.
    wanted = any(
        judge.allows("User:ann", HERE, WRITE, TOPIC, name)
        for name in (*names, *(f"{name}zzz" for name in names), "zzz")
    )
    assert judge.allows_some("User:ann", HERE, WRITE, TOPIC) is wanted


def test_names_of_any_size_are_judged_and_only_short_ones_remembered() -> None:
    judge = authorizer({Resource(TOPIC, "a", Pattern.PREFIXED): [entry("ann", READ)]})
    for number in range(10):
        assert judge.allows("User:ann", HERE, READ, TOPIC, "a" * 30_000 + str(number))
        assert not judge.allows("User:ann", HERE, READ, TOPIC, "b" * 30_000 + str(number))
    assert not judge._remembered
    assert judge.allows("User:ann", HERE, READ, TOPIC, "abc")
    assert len(judge._remembered) == 1


def test_entries_that_change_while_they_are_listed_do_no_harm() -> None:
    resources = [Resource(TOPIC, name) for name in "abc"]
    judge = authorizer({resource: [entry("ann", READ)] for resource in resources})
    everything = Filter(ResourceType.ANY, None, Pattern.ANY, None, None, Operation.ANY, Permission.ANY)
    found = judge.find(everything)
    first = next(found)
    judge.put({resources[2]: frozenset(), Resource(TOPIC, "d"): frozenset([entry("bob", READ)])})
    assert [first, *found] == [(resource, entry("ann", READ)) for resource in resources]
    assert {resource.name for resource, _ in judge.find(everything)} == {"a", "b", "d"}
