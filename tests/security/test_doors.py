"""Certificates of a running broker: read again when their file changes, and when an option names another."""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from waiting import wait_until

from ottla.config import load
from ottla.embed import BrokerFailed, BrokerThread
from ottla.net import doors
from ottla.testing.certificates import Certificate

if TYPE_CHECKING:
    from pathlib import Path

AUTHORITY = Certificate("authority")


def shown(address: str) -> bytes:
    """The certificate that a client gets to see."""
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(socket.create_connection((host, int(port)))) as secured:
        certificate = secured.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate


def set_option(address: str, broker: int, name: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    entry = ConfigEntry(name, value, ConfigSource.DYNAMIC_BROKER_CONFIG)
    entry.incremental_operation = AlterConfigOpType.SET
    resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)


def test_certificates_follow_their_file_and_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "LOOK_S", 0.05)
    first, second, third = (Certificate(name, AUTHORITY) for name in ("first", "second", "third"))
    path = first.write(tmp_path / "a.pem")
    options = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", "ssl.keystore.location": str(path)}
    with BrokerThread(options=options) as broker:
        address = broker.listeners["SSL"]
        assert shown(address) == first.der
        path.write_text("torn")
        assert shown(address) == first.der
        second.write(path)
        wait_until(lambda: shown(address) == second.der)
        monkeypatch.setattr(doors, "LOOK_S", 1000.0)
        path = third.write(tmp_path / "b.pem")
        set_option(broker.listeners["PLAINTEXT"], broker.node_id, "listener.name.ssl.ssl.keystore.location", str(path))
        wait_until(lambda: shown(address) == third.der)
        for name in (
            "listener.name.other.ssl.keystore.location",
            "listener.name.ssl.ssl.client.auth",
            "ssl.keystore.location",
        ):
            with pytest.raises(KafkaException):
                set_option(broker.listeners["PLAINTEXT"], broker.node_id, name, "x")


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    path = Certificate("own", AUTHORITY).write(tmp_path / "a.pem", "key-secret")
    options = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.location": str(path),
        "ssl.key.password": "key-secret",
    }
    with BrokerThread(options=options) as broker:
        admin = AdminClient({"bootstrap.servers": broker.listeners["PLAINTEXT"]})
        resource = ConfigResource(ResourceType.BROKER, str(broker.node_id))
        (found,) = (future.result(60) for future in admin.describe_configs([resource]).values())
        assert found["ssl.keystore.location"].value == str(path)
        assert found["ssl.key.password"].is_sensitive
        assert not [name for name, entry in found.items() if "key-secret" in str(entry.value)]


def test_a_broker_without_its_certificate_does_not_start(tmp_path: Path) -> None:
    options = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(tmp_path / "none.pem")}
    with pytest.raises(BrokerFailed, match=r"ssl\.keystore\.location: .*none\.pem: No such file"):
        BrokerThread(options=options).start()


def test_what_was_set_for_a_listener_that_is_gone_keeps_nobody_from_starting() -> None:
    config = load({})
    assert config.overlay({"listener.name.gone.ssl.keystore.location": "x"}) is config
