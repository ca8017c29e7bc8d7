"""Listeners: names, protocols, addresses, and what is told to clients."""

import pytest

from ottla.config import ConfigError, load
from ottla.config.listeners import parse


def test_several_listeners_with_names_of_their_own() -> None:
    config = load(
        {
            "listeners": "IN://127.0.0.1:9092, out://[::1]:0",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
            "inter.broker.listener.name": "IN",
            "advertised.listeners": "OUT://kafka.example:19092",
            "listener.name.in.max.connections": "5",
        }
    )
    assert [tuple(listener)[:5] for listener in config.opened] == [
        ("IN", "PLAINTEXT", "127.0.0.1", 9092, 5),
        ("OUT", "PLAINTEXT", "::1", 0, None),
    ]
    assert config.advertised == {"OUT": ("kafka.example", 19092)}
    assert config.notices == ()


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ({"listeners": "SSL://:9093"}, "SSL listener SSL: set ssl.keystore.location"),
        ({"listeners": "SASL_PLAINTEXT://:9093"}, "sasl.enabled.mechanisms: GSSAPI is not supported"),
        (
            {"listeners": "SASL_PLAINTEXT://:9093", "sasl.enabled.mechanisms": "PLAIN"},
            "PLAIN needs its users in listener.name.sasl_plaintext.plain.sasl.jaas.config",
        ),
        ({"security.inter.broker.protocol": "SSL"}, "no listener uses SSL"),
        (
            {"security.inter.broker.protocol": "PLAINTEXT", "inter.broker.listener.name": "PLAINTEXT"},
            "Only one of inter.broker.listener.name and security.inter.broker.protocol",
        ),
        (
            {"listener.name.plaintext.ssl.client.auth": "maybe"},
            "listener.name.plaintext.ssl.client.auth: String must be",
        ),
        ({"listeners": "IN://:9092"}, "No security protocol defined for listener IN"),
        ({"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9093"}, "a different name"),
        (
            {"listeners": "PLAINTEXT://:1,A://:1", "listener.security.protocol.map": "A:PLAINTEXT,PLAINTEXT:PLAINTEXT"},
            "port",
        ),
        ({"listeners": ""}, "at least one"),
        ({"listener.security.protocol.map": "A:TLS"}, "Expected NAME:PROTOCOL"),
        ({"inter.broker.listener.name": "X"}, "X is not one of the listeners"),
        ({"advertised.listeners": "PLAINTEXT://:9092"}, "clients cannot connect to PLAINTEXT:"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "clients cannot connect to PLAINTEXT:"),
        ({"advertised.listeners": "OUT://a:1"}, "OUT is not one of the listeners"),
        ({"listener.name.plaintext.max.connections": "-1"}, "listener.name.plaintext.max.connections: Value must be"),
    ],
)
def test_the_impossible_is_refused_by_name(pairs: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(pairs)


@pytest.mark.parametrize(
    "text", ["", "PLAINTEXT", "://:1", "P://host", "P://host:", "P://host:x", "P://h:65536", "P://::1:9"]
)
def test_what_is_no_listener(text: str) -> None:
    with pytest.raises(ConfigError, match="configuration listeners"):
        parse("listeners", text)
