"""Whom a quota holds for: Kafka's order of entities, names that are hostile, and what is stored where."""

from __future__ import annotations

import math

import pytest

from ottla.errors import BrokerError
from ottla.quota.entity import (
    CONNECTION,
    DEFAULT,
    FETCH,
    PRODUCE,
    REQUEST,
    Entity,
    decode_values,
    encode_value,
    entity_at,
    entity_of,
)
from ottla.quota.limits import Limits

ORDER = [
    Entity("u", "c"),
    Entity("u", DEFAULT),
    Entity("u"),
    Entity(DEFAULT, "c"),
    Entity(DEFAULT, DEFAULT),
    Entity(DEFAULT),
    Entity(client_id="c"),
    Entity(client_id=DEFAULT),
]
OWNERS = [("u", "c"), ("u", "c"), ("u", None), ("u", "c"), ("u", "c"), ("u", None), (None, "c"), (None, "c")]
NAMES = ["a", "x/y", "a b+c*~%2F", "<default>", "clients", "ü☃\U0001f600", "\0\n", "..", "k" * 10_000]


def limits(*entities: Entity, key: str = PRODUCE) -> Limits:
    """Each with its number from 1 on as its quota."""
    users: dict[str, dict[str, str]] = {}
    others: dict[str, dict[str, str]] = {}
    for number, entity in enumerate(entities, 1):
        if entity.user and entity.client_id is None:
            users[entity.user] = {key: str(number)}
        else:
            others[entity.node] = {key: str(number)}
    return Limits(users, others)


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_most_specific_entity_wins(first: int) -> None:
    found = limits(*ORDER[first:]).find(PRODUCE, "u", "c")
    assert found == (1, OWNERS[first])


def test_a_default_is_for_each_and_not_for_all_together() -> None:
    table = limits(Entity(DEFAULT), Entity(client_id=DEFAULT))
    assert {table.find(PRODUCE, user, "c") for user in "ab"} == {(1, ("a", None)), (1, ("b", None))}


def test_others_have_none() -> None:
    table = limits(Entity("u", "c"), Entity("u"))
    assert table.find(PRODUCE, "v", "c") is None
    assert table.find(FETCH, "u", "c") is None
    assert Limits({}, {}).find(PRODUCE, "u", "c") is None


def test_a_client_without_an_id_has_the_default() -> None:
    assert limits(Entity("u", DEFAULT), Entity("u")).find(PRODUCE, "u", "") == (1, ("u", ""))


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_stored_below_its_parent_and_read_again(name: str) -> None:
    for entity in (Entity(name), Entity(client_id=name), Entity(name, name), Entity(DEFAULT, name), Entity(ip=name)):
        steps = entity.node.split("/")
        assert len(steps) == (2 if entity.user is None or entity.client_id is None else 4)
        assert entity_at(entity.node) == entity
    table = limits(Entity(name, name), Entity(DEFAULT))
    assert table.find(PRODUCE, name, name) == (1, (name, name))


@pytest.mark.parametrize("node", ["users", "users/", "brokers/1", "users/a/b/c", "users//clients/x", "clients/a/b", ""])
def test_other_nodes_are_nobodys(node: str) -> None:
    assert entity_at(node) is None


@pytest.mark.parametrize("text", ["0", "-1", "NaN", "-Infinity", "much", "", "1e"])
def test_what_was_stored_and_is_no_quota_counts_as_none(text: str) -> None:
    assert decode_values({PRODUCE: text, "SCRAM-SHA-256": "salt=x"}) == {}


@pytest.mark.parametrize("value", [0, -1, math.nan, -math.inf])
def test_what_is_no_quota_is_refused(value: float) -> None:
    for key in (PRODUCE, REQUEST):
        with pytest.raises(BrokerError):
            encode_value(Entity("u"), key, value)


def test_values_are_stored_as_kafka_does() -> None:
    assert encode_value(Entity("u"), PRODUCE, 1024.0) == "1024"
    assert encode_value(Entity("u"), REQUEST, 50.0) == "50.0"
    assert encode_value(Entity("u"), REQUEST, math.inf) == "Infinity"
    assert decode_values({REQUEST: "Infinity"}) == {REQUEST: math.inf}
    with pytest.raises(BrokerError, match="too large"):
        encode_value(Entity("u"), PRODUCE, math.inf)


def test_addresses_are_known_in_any_spelling() -> None:
    table = Limits({}, {f"ips/{ip}": {CONNECTION: "7"} for ip in ("10.0.0.1", "%3A%3A1", "0%3A%3A2", "a.host")})
    assert table.find_address("10.0.0.1") == 7
    assert table.find_address("::1") == 7
    assert table.find_address("::2") == 7
    assert table.find_address("10.0.0.2") is None
    assert table.hosts == {"a.host": 7}
    assert limits(Entity(ip=DEFAULT), key=CONNECTION).find_address("10.9.9.9") == 1


@pytest.mark.parametrize(
    "names", [{}, {"user": ""}, {"host": "a"}, {"ip": "1.2.3.4", "user": "u"}, {"ip": None, "client-id": None}]
)
def test_what_is_no_entity_is_refused(names: dict[str, str | None]) -> None:
    with pytest.raises(BrokerError):
        entity_of(names)
