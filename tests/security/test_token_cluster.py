"""Delegation tokens in a cluster: made at one broker they hold at all, and so does every change of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from security.test_tokens import OPTIONS, WEEK_MS, Person, code
from waiting import wait_until

from ottla.errors import ErrorCode
from ottla.security.token import TOKENS
from ottla.testing.cluster import Cluster
from ottla.testing.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NUMBERS = (1, 2, 3)
HOUR_MS = 3_600_000
REFUSED = ErrorCode.SASL_AUTHENTICATION_FAILED


class Place:
    """The cluster, and the listener of each broker where one logs in."""

    def __init__(self, cluster: Cluster, ports: dict[int, int]) -> None:
        self.cluster = cluster
        self._ports = ports

    def come_in(self, number: int, name: str = "bob") -> Person:
        return Person(self._ports[number]).by_password(name)

    def try_token(self, number: int, token_id: str, password: bytes) -> tuple[int, int]:
        """The code, and how long the login holds."""
        with Person(self._ports[number]) as token:
            return token.by_token(token_id, password)

    def expiry(self, number: int, token_id: str) -> int:
        """When the token expires as this broker knows it; 0 if it knows none."""
        with self.come_in(number) as bob:
            found = [one.expiry_timestamp for one in bob.describe(everybody=True).tokens if one.token_id == token_id]
        return found[0] if found else 0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder: Path = tmp_path_factory.mktemp("tokens")
    ports, doors = free_ports(3), dict(zip(NUMBERS, free_ports(3), strict=True))
    own = {
        number: {"listeners": f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{doors[number]}"}
        for number, port in zip(NUMBERS, ports, strict=True)
    }
    options = {**OPTIONS, "delegation.token.expiry.check.interval.ms": "500"}
    with Cluster(3, folder=folder, options=options, own_options=own, ports=ports) as cluster:
        yield Place(cluster, doors)


def test_a_token_holds_at_every_broker(place: Place) -> None:
    with place.come_in(1) as bob:
        token = bob.create(renewers=("User:dora",))
    for number in NUMBERS:
        wait_until(lambda number=number: place.try_token(number, token.token_id, token.hmac)[0] == 0)
        assert place.try_token(number, token.token_id, b"x" * 64)[0] == REFUSED


def test_every_broker_renews_and_ends_it_for_all(place: Place) -> None:
    with place.come_in(1) as bob:
        token = bob.create(2 * WEEK_MS, renewers=("User:dora",))
    wait_until(lambda: place.expiry(2, token.token_id) and place.expiry(3, token.token_id))
    with place.come_in(2, "dora") as dora, place.come_in(2, "carl") as carl:
        assert code(carl.renew(token.hmac)) == "DELEGATION_TOKEN_OWNER_MISMATCH"
        renewed = dora.renew(token.hmac, HOUR_MS)
    assert code(renewed) == "NONE"
    assert renewed.expiry_timestamp_ms != token.expiry_timestamp_ms
    for number in NUMBERS:
        wait_until(lambda number=number: place.expiry(number, token.token_id) == renewed.expiry_timestamp_ms)
        refusal, lifetime_ms = place.try_token(number, token.token_id, token.hmac)
        assert refusal == 0
        assert 0 < lifetime_ms <= HOUR_MS, "the login ends with the token"
    with place.come_in(3) as bob:
        assert code(bob.expire(token.hmac)) == "NONE"
    for number in NUMBERS:
        wait_until(lambda number=number: place.try_token(number, token.token_id, token.hmac)[0] == REFUSED)
        with place.come_in(number) as bob:
            assert code(bob.renew(token.hmac)) == "DELEGATION_TOKEN_NOT_FOUND"


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_broker_that_was_away_knows_what_has_happened(place: Place, how: str) -> None:
    with place.come_in(1) as bob:
        kept, ended = bob.create(), bob.create()
    wait_until(lambda: place.expiry(3, kept.token_id) and place.expiry(3, ended.token_id))
    getattr(place.cluster, how)(3)
    with place.come_in(2) as bob:
        new = bob.create()
        wait_until(lambda: code(bob.expire(ended.hmac)) == "NONE")
        renewed = bob.renew(kept.hmac, HOUR_MS).expiry_timestamp_ms
    place.cluster.start(3)
    assert place.try_token(3, new.token_id, new.hmac)[0] == 0, "from the start"
    assert place.try_token(3, ended.token_id, ended.hmac)[0] == REFUSED
    assert place.expiry(3, kept.token_id) == renewed
    with place.come_in(3) as bob:
        assert code(bob.expire(kept.hmac)) == "NONE"
    wait_until(lambda: place.try_token(1, kept.token_id, kept.hmac)[0] == REFUSED)


def test_one_broker_removes_what_is_over_for_all(place: Place) -> None:
    with place.come_in(2) as bob:
        short, long = bob.create(1), bob.create()

    def is_removed() -> bool:
        with place.cluster.store() as store:
            kept = store.get_children(TOKENS)
        return short.token_id not in kept and long.token_id in kept

    wait_until(is_removed)
    for number in NUMBERS:
        wait_until(lambda number=number: not place.expiry(number, short.token_id))
        assert place.expiry(number, long.token_id)
