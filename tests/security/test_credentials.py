"""A broker as the client of another: TLS, logins, and their renewal, through the connections that brokers use."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from security.conftest import PLAIN_MODULE

from ottla.cluster import peers
from ottla.cluster.image import Broker
from ottla.cluster.peers import Connections, PeerError
from ottla.config import ConfigError, load
from ottla.security.credentials import Credentials
from ottla.wire.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from security.conftest import Place

    from ottla.config import Listener


def listener(place: Place, protocol: str, password: str = "admin-secret", **options: str) -> Listener:
    own = f'{PLAIN_MODULE} required username="admin" password="{password}";'
    pairs = {
        "listeners": f"{protocol}://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"listener.name.{protocol.lower()}.plain.sasl.jaas.config": own,
        "ssl.keystore.location": str(place.client),
        "ssl.truststore.location": str(place.ca),
        **{name.replace("_", "."): text for name, text in options.items()},
    }
    return load(pairs).opened[0]


async def ask(place: Place, name: str, wanted: Listener) -> int:
    """How many brokers the one behind a listener knows."""
    host, _, port = place.address(name).rpartition(":")
    broker = Broker(1, {"X": (host, int(port))}, None, 1)
    connections = Connections("X", Credentials(wanted))
    try:
        answers = await asyncio.gather(
            *(connections.ask(broker, MetadataRequest(topics=[]), timeout_s=60) for _ in range(3))
        )
        return len(answers[-1].brokers)
    finally:
        await connections.close()


@pytest.mark.parametrize(
    ("name", "protocol"),
    [("SSL", "SSL"), ("MUTUAL", "SSL"), ("SASL_PLAINTEXT", "SASL_PLAINTEXT"), ("SASL_SSL", "SASL_SSL")],
)
def test_a_broker_comes_in(place: Place, name: str, protocol: str) -> None:
    assert asyncio.run(ask(place, name, listener(place, protocol))) == 1


def test_a_broker_with_another_password_stays_out(place: Place) -> None:
    with pytest.raises(PeerError, match=r"no login .*Invalid username or password"):
        asyncio.run(ask(place, "SASL_SSL", listener(place, "SASL_SSL", "other")))


@pytest.mark.parametrize("name", ["MISNAMED", "SSL"])
def test_a_broker_that_is_not_who_it_should_be_is_not_talked_to(place: Place, name: str) -> None:
    trust = place.ca if name == "MISNAMED" else place.stranger
    with pytest.raises(PeerError, match="certificate verify failed"):
        asyncio.run(ask(place, name, listener(place, "SSL", ssl_truststore_location=str(trust))))


def test_a_login_is_renewed_before_it_ends(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "RENEWAL_SHARE", 1.2 / 60)
    root = place.broker._broker._root
    assert root is not None
    (found,) = (one for one in root._listeners if one.name == "RENEWED")

    async def story() -> None:
        host, _, port = place.address("RENEWED").rpartition(":")
        broker = Broker(1, {"X": (host, int(port))}, None, 1)
        connections = Connections("X", Credentials(listener(place, "SASL_PLAINTEXT")))
        await connections.ask(broker, MetadataRequest(topics=[]), timeout_s=60)
        (connection,) = found.connections
        assert connection.login is not None
        first = connection.login._proved_at
        async with asyncio.timeout(60):
            while connection.login._proved_at == first:
                await connections.ask(broker, MetadataRequest(topics=[]), timeout_s=60)
                await asyncio.sleep(0.02)
        await connections.ask(broker, MetadataRequest(topics=[]), timeout_s=60)
        assert list(found.connections) == [connection]
        await connections.close()

    asyncio.run(story())


def test_what_brokers_need_is_asked_for_at_the_start(place: Place) -> None:
    option = "sasl.mechanism.inter.broker.protocol"
    with pytest.raises(ConfigError, match=f"{option}: SCRAM-SHA-256 is not in sasl.enabled.mechanisms"):
        Credentials(listener(place, "SASL_SSL", **{option: "SCRAM-SHA-256"}))
    with pytest.raises(ConfigError, match="needs a username and a password"):
        Credentials(listener(place, "SASL_SSL", ""))
