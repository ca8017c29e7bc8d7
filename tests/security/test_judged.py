"""SASL against Apache Kafka: the same bytes to both, and the same codes and words back. And Kafka's own clients."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import judge
import pytest
from handlers.wired import Wired, plain
from security.conftest import USERS

from ottla.embed import BrokerThread
from ottla.wire.messages.auth import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.metadata import ApiVersionsRequest, MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from security.conftest import Place

pytestmark = pytest.mark.xdist_group("client")  # with those that start Apache Kafka anyway

OPTIONS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS.replace("\n", " "),
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "listener.name.sasl_plaintext.max.connections": "77",
    "listener.name.sasl_plaintext.sasl.server.max.receive.size": "500000",
    "sasl.server.max.receive.size": "400000",
}


@pytest.fixture(scope="module")
def theirs() -> Iterator[int]:
    kafka = judge.Kafka()
    (port,) = judge.free_ports(1)
    here = f"PLAINTEXT://127.0.0.1:{kafka.port},SASL_PLAINTEXT://127.0.0.1:{port}"
    kafka._settings |= {
        **OPTIONS,
        "listeners": f"{here},CONTROLLER://127.0.0.1:{kafka._side_port}",
        "advertised.listeners": here,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
    }
    with kafka:
        yield port


@pytest.fixture(scope="module")
def ours() -> Iterator[int]:
    with BrokerThread(options={**OPTIONS, "listeners": "SASL_PLAINTEXT://127.0.0.1:0"}) as broker:
        yield int(broker.bootstrap.rpartition(":")[2])


PLAIN, SCRAM = (SaslHandshakeRequest(mechanism=name) for name in ("PLAIN", "SCRAM-SHA-256"))
EVERYTHING = MetadataRequest(topics=[])


def token(data: bytes) -> SaslAuthenticateRequest:
    return SaslAuthenticateRequest(auth_bytes=data)


GOOD = token(b"\0alice\0wonder land")
# A request of another kind in the middle of a login ends the connection at both; Kafka answers it before.
STORIES: dict[str, list[tuple[Any, int]]] = {
    "good": [(ApiVersionsRequest(), 0), (PLAIN, 1), (GOOD, 2), (EVERYTHING, 1)],
    "good, old": [(PLAIN, 1), (GOOD, 0), (EVERYTHING, 1)],
    "the same name twice": [(PLAIN, 1), (token(b"alice\0alice\0wonder land"), 2), (EVERYTHING, 1)],
    "again": [(PLAIN, 1), (GOOD, 2), (PLAIN, 1), (GOOD, 2)],
    "wrong password": [(PLAIN, 1), (token(b"\0alice\0x"), 2), (EVERYTHING, 1)],
    "wrong name": [(PLAIN, 1), (token(b"\0nobody\0x"), 1)],
    "another identity": [(PLAIN, 1), (token(b"bob\0alice\0wonder land"), 1)],
    "no name": [(PLAIN, 1), (token(b"\0\0x"), 1)],
    "no password": [(PLAIN, 1), (token(b"\0alice\0"), 1)],
    "one word": [(PLAIN, 1), (token(b"alice"), 1)],
    "nothing": [(PLAIN, 1), (token(b""), 1)],
    "no such mechanism": [(SaslHandshakeRequest(mechanism="NONSENSE"), 1), (GOOD, 1)],
    "no handshake": [(GOOD, 1)],
    "a request first": [(EVERYTHING, 1)],
    "a handshake in between": [(PLAIN, 1), (SCRAM, 1)],
    "no message": [(SCRAM, 1), (token(b"nonsense"), 1)],
    "another identity, scram": [(SCRAM, 1), (token(b"n,a=bob,n=alice,r=abc"), 1)],
}


def transcript(port: int, story: list[tuple[Any, int]]) -> list[Any]:
    """What came back, up to the end of the connection."""
    said: list[Any] = []
    with Wired(port) as wired:
        for request, version in story:
            try:
                answer = wired.ask(request, version)
            except (ConnectionError, struct.error):
                said.append("closed")
                break
            facts = ("error_code", "error_message", "mechanisms", "auth_bytes", "session_lifetime_ms")
            said.append({fact: getattr(answer, fact) for fact in facts if hasattr(answer, fact)})
    return said


@pytest.mark.parametrize("story", STORIES)
def test_the_answers_are_kafkas(theirs: int, ours: int, story: str) -> None:
    assert transcript(ours, STORIES[story]) == transcript(theirs, STORIES[story])


def test_options_of_one_listener_are_described_and_no_secrets(theirs: int, ours: int) -> None:
    def describe(port: int, *names: str) -> list[Any]:
        resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=list(names) or None)
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
        with Wired(port) as wired:
            wired.ask(PLAIN, 1)
            wired.ask(GOOD, 2)
            (result,) = wired.ask(request, 4).results
        found = [plain(one) for one in result.configs if one.name.startswith("listener.name.")]
        return sorted(found, key=lambda one: str(one["name"]))

    expected = describe(theirs)
    assert len(expected) == 4
    assert describe(ours) == expected
    assert "wonder land" not in repr(expected)
    name = "listener.name.sasl_plaintext.max.connections"
    assert describe(ours, name, "listener.name.nowhere.max.connections") == describe(theirs, name)


MODULES = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-256": "scram.ScramLoginModule"}


def properties(place: Place, path: Path, mechanism: str, name: str, password: str) -> str:
    module = f"org.apache.kafka.common.security.{MODULES[mechanism]}"
    path.write_text(
        f"""security.protocol=SASL_SSL
ssl.truststore.type=PEM
ssl.truststore.location={place.ca}
sasl.mechanism={mechanism}
sasl.jaas.config={module} required username="{name}" password="{password}";
"""
    )
    return str(path)


def test_kafkas_own_tools_come_in_and_stay_out(place: Place, tmp_path: Path) -> None:
    alice = properties(place, tmp_path / "alice", "PLAIN", "alice", "wonder land")
    eve = properties(place, tmp_path / "eve", "SCRAM-SHA-256", "eve", "pencil")
    mallory = properties(place, tmp_path / "mallory", "PLAIN", "alice", "x")

    def run(login: str, tool: str, *words: str, check: bool = True) -> judge.Output:
        server = ("--bootstrap-server", place.address("SASL_SSL"), "--command-config", login)
        return judge.tool(tool, *server, *words, check=check)

    run(alice, "org.apache.kafka.tools.TopicCommand", "--create", "--topic", "java", "--partitions", "1")
    words = ("--entity-type", "users", "--entity-name", "eve", "--alter", "--add-config")
    run(alice, "kafka.admin.ConfigCommand", *words, "SCRAM-SHA-256=[iterations=8192,password=pencil]")
    assert "java" in run(eve, "org.apache.kafka.tools.TopicCommand", "--list").out
    refused = run(mallory, "org.apache.kafka.tools.TopicCommand", "--list", check=False)
    assert "Authentication failed: Invalid username or password" in refused.out + refused.err
