"""What is measured around a handler. tests/quota covers what a client sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from handlers.wired import Wired
from quota.asking import entity, fetch, make_topic, port_of, set_quota

from ottla.embed import BrokerThread
from ottla.net import throttling
from ottla.wire.messages.metadata import ApiVersionsRequest, MetadataRequest
from ottla.wire.messages.transactions import AddPartitionsToTxnRequest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with BrokerThread() as broker:
        made = port_of(broker)
        make_topic(made, "t")
        set_quota(made, entity(client_id="limited"), consumer_byte_rate=1000)
        yield made


def test_a_fetch_that_cannot_be_measured_after_it_has_waited_leaves_nobody_waiting(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its response has no place for an internal error, so the connection is closed."""

    def fail(response: Any) -> int:
        raise RuntimeError("a bug")

    monkeypatch.setattr(throttling, "size_of", fail)
    with Wired(port, client_id="limited") as client, pytest.raises(ConnectionError):
        client.ask(fetch("t"), 12)


def test_what_brokers_ask_is_not_measured_on_their_listener() -> None:
    """A client may have the same user, and must not slow brokers down."""
    options = {
        "listeners": "PLAINTEXT://127.0.0.1:0,BROKERS://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
    }
    verification = AddPartitionsToTxnRequest(transactions=[])
    with BrokerThread(options=options) as broker:
        ports = {name: port_of(broker, name) for name in ("PLAINTEXT", "BROKERS")}
        set_quota(ports["PLAINTEXT"], entity(user="ANONYMOUS"), request_percentage=1e-9)
        throttled = {}
        for listener, port in ports.items():
            for request, version in ((ApiVersionsRequest(), 1), (verification, 4), (MetadataRequest(topics=[]), 4)):
                with Wired(port) as client:  # the previous connection is muted
                    answer = client.ask(request, version)
                throttled[listener, type(request).__name__] = answer.throttle_time_ms > 0
    assert throttled == {
        ("PLAINTEXT", "ApiVersionsRequest"): True,
        ("PLAINTEXT", "AddPartitionsToTxnRequest"): True,
        ("PLAINTEXT", "MetadataRequest"): True,
        ("BROKERS", "ApiVersionsRequest"): False,
        ("BROKERS", "AddPartitionsToTxnRequest"): False,
        ("BROKERS", "MetadataRequest"): True,
    }
