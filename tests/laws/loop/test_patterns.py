"""Clients' regular expressions: whatever they are, and however many topics exist, no other client waits for them."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest
from handlers.conftest import port_of
from handlers.wired import Wired
from laws.loop.gaps import HELD_MAX, held

from ottla.embed import BrokerThread
from ottla.errors import ErrorCode
from ottla.wire.messages.consumers import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.groups import FindCoordinatorRequest
from ottla.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.transactions import InitProducerIdRequest, ListTransactionsRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

EVIL = ["(a|aa)+b", "(a+)+b", "(.?){1000}x", "([ab]{500}){2}", r"(\pL|\pN){1,20}"]
NUMBERS = count()  # makes each pattern new, so that none is cached
TOO_LARGE = ["([ab]{1000}){3}", "((a{100}){100}){100}", r"(\pL|\pN){1,1000}"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread(data=tmp_path_factory.mktemp("broker")) as broker, Wired(port_of(broker)) as wired:
        topics = [
            CreatableTopic(name="a" * 200 + str(at), num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for at in range(20)
        ]
        wired.ask(CreateTopicsRequest(topics=topics, timeout_ms=9000, validate_only=False), 5)
        wired.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        init = InitProducerIdRequest(transactional_id="a" * 200, transaction_timeout_ms=1000)
        wired.ask(init, 3)
        yield broker


def heartbeat(group: str, pattern: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=f"{group}-member",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_regex=pattern,
        topic_partitions=[],
    )


def listing(pattern: str | None) -> ListTransactionsRequest:
    return ListTransactionsRequest(
        state_filters=[], producer_id_filters=[], duration_filter=-1, transactional_id_pattern=pattern
    )


@pytest.mark.parametrize("pattern", EVIL)
def test_an_evil_pattern_costs_little(broker: BrokerThread, pattern: str) -> None:
    def ask() -> None:
        with Wired(port_of(broker)) as wired:
            fresh = f"{pattern}|{next(NUMBERS)}"
            assert wired.ask(heartbeat(f"evil{EVIL.index(pattern)}", fresh), 1).error_code == ErrorCode.NONE
            assert wired.ask(listing(fresh), 2).error_code == ErrorCode.NONE

    assert held(broker, ask) < HELD_MAX


@pytest.mark.parametrize("pattern", TOO_LARGE)
def test_one_that_is_too_large_is_refused(broker: BrokerThread, pattern: str) -> None:
    def ask() -> None:
        with Wired(port_of(broker)) as wired:
            code = wired.ask(heartbeat("large", pattern), 1).error_code
            assert code == ErrorCode.INVALID_REGULAR_EXPRESSION
            assert wired.ask(listing(pattern), 2).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION

    assert held(broker, ask) < HELD_MAX


def test_a_pattern_lists_the_transactional_ids_it_matches_whole(broker: BrokerThread) -> None:
    with Wired(port_of(broker)) as wired:
        for pattern, many in (("a+", 1), ("a", 0), ("", 1), (None, 1)):
            assert len(wired.ask(listing(pattern), 2).transaction_states) == many


def test_a_long_transactional_id_is_matched_elsewhere(broker: BrokerThread) -> None:
    """RE2's time grows with name size times pattern size: 32 kB and 183 bytes take 1.5 s."""
    name = "ab" * 16_000
    pattern = "|".join(f"(a|b)*a(a|b){{{count}}}" for count in range(990, 1000))
    with Wired(port_of(broker)) as wired:
        init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000)
        assert wired.ask(init, 3).error_code == ErrorCode.NONE

        def ask() -> None:
            found = wired.ask(listing(f"{pattern}|{next(NUMBERS)}"), 2)
            assert [one.transactional_id for one in found.transaction_states] == [name]

        assert held(broker, ask) < HELD_MAX
