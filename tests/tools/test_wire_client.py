"""The client against brokers that answer, answer nonsense, or do not answer."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from ottla.embed import BrokerProcess, BrokerThread
from ottla.errors import ErrorCode
from ottla.pytest_plugin import Namespace
from ottla.tools.session import Failed
from ottla.tools.wire_client import (
    ANSWER_SIZE_MAX,
    GROUP,
    TRANSACTION,
    Cluster,
    Connection,
    Refused,
    check,
    until_known,
)
from ottla.wire import codec, frame
from ottla.wire.messages.metadata import ApiVersion, ApiVersionsResponse, MetadataRequest, MetadataResponse

TIMEOUT_S = 10.0


@contextmanager
def stranger(*answers: bytes) -> Iterator[tuple[str, int]]:
    """A server that gives one answer to each request, whatever was asked, and then hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection, suppress(ConnectionError):  # whoever has heard enough hangs up
                for answer in answers:
                    (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
                    connection.recv(size, socket.MSG_WAITALL)
                    connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[:2]
        thread.join(TIMEOUT_S)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def versions(*apis: tuple[int, int, int], correlation: int = 1) -> bytes:
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in apis]
    body = codec.encode(ApiVersionsResponse(error_code=0, api_keys=keys), 0)
    return framed(frame.response_header(18, 0, correlation) + body)


def refuse(address: tuple[str, int]) -> str:
    with pytest.raises(Failed) as caught:
        Connection(address, TIMEOUT_S)
    return str(caught.value)


def test_the_newest_version_that_both_know_is_taken() -> None:
    with stranger(versions((3, 1, 5), (10, 90, 99))) as address:
        connection = Connection(address, TIMEOUT_S)
        assert connection.version(3) == 5
        for key in (10, 61):  # spoken in versions that we do not know, and not spoken at all
            with pytest.raises(Failed, match="does not take"):
                connection.version(key)
        connection.close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a length of 1213486160 bytes"),
        (struct.pack(">i", -1), "a length of -1 bytes"),
        (struct.pack(">i", ANSWER_SIZE_MAX + 1), "a length of"),
        (framed(b"\0\0\0\1"), "something else than ApiVersionsResponse"),
        (framed(b"\0\0\0\7\0\0\0\0\0\0"), "an answer to request 7 instead of 1"),
        (framed(b"\0\0\0\1\0\0\0\0\0\0\0"), "1 bytes are left"),
        (framed(b"\0\0\0\1\0\x23\0\0\0\0"), "UNSUPPORTED_VERSION"),
        (b"\0\0\0\x20short", "went away"),
        (b"", "went away"),
    ],
)
def test_an_answer_that_is_none_is_one_sentence(answer: bytes, said: str) -> None:
    with stranger(answer) as address:
        assert said in refuse(address)


def test_silence_has_an_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf, pytest.raises(Failed, match="does not answer"):
        Connection(deaf.getsockname()[:2], 0.2)


def test_nobody_there_is_one_sentence() -> None:
    assert "no connection to the broker at 127.0.0.1:1" in refuse(("127.0.0.1", 1))


def test_the_cluster_says_who_is_who(ottla_broker: BrokerProcess | BrokerThread, ottla_namespace: Namespace) -> None:
    with Cluster(f"127.0.0.1:1,{ottla_broker.bootstrap}") as cluster:
        assert list(cluster.brokers()) == [ottla_broker.node_id]
        for kind in (GROUP, TRANSACTION):
            assert cluster.coordinator(ottla_namespace.group(), kind).name == ottla_broker.bootstrap
        with pytest.raises(Refused) as refused:
            cluster.leaders(ottla_namespace.topic("missing"))
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_coordinators_are_found_in_the_old_way_too(ottla_broker: BrokerProcess | BrokerThread) -> None:
    with Cluster(ottla_broker.bootstrap) as cluster:
        first = cluster._first
        first._versions = {**first._versions, 10: (0, 3)}
        assert cluster.coordinator("g", GROUP).name == ottla_broker.bootstrap


def test_a_connection_is_used_again(ottla_broker: BrokerProcess | BrokerThread) -> None:
    with Cluster(ottla_broker.bootstrap) as cluster:
        (broker,) = cluster.brokers().values()
        assert cluster.brokers() == {ottla_broker.node_id: broker}
        for _ in range(3):
            assert broker.ask(MetadataRequest(topics=[]), MetadataResponse).topics == []


def test_only_plain_connections() -> None:
    with pytest.raises(Failed, match="speaks plaintext only, not ssl"):
        Cluster("127.0.0.1:1", ["security.protocol=ssl"])


@pytest.mark.parametrize("bootstrap", ["127.0.0.1:1", "127.0.0.1:1,localhost:1", "127.0.0.1:port"])
def test_no_cluster_is_one_sentence(bootstrap: str) -> None:
    with pytest.raises(Failed, match=f"nothing answers at {bootstrap}"):
        Cluster(bootstrap)


def answering(*codes: int) -> Callable[[], str]:
    left = list(codes)

    def attempt() -> str:
        check("it", left.pop(0))
        return "done"

    return attempt


def test_what_passes_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.tools.wire_client.PAUSE_S", 0)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert until_known(answering(loading, ErrorCode.NOT_COORDINATOR, 0)) == "done"
    with pytest.raises(Refused, match="INVALID_REQUEST"):
        until_known(answering(loading, ErrorCode.INVALID_REQUEST))
    monkeypatch.setattr("ottla.tools.wire_client.TIMEOUT_S", -1)
    with pytest.raises(Refused, match="COORDINATOR_LOAD_IN_PROGRESS"):
        until_known(answering(loading, 0))


def test_a_code_that_nobody_knows_is_told_as_a_number() -> None:
    with pytest.raises(Refused, match="it: unknown error code 12345"):
        check("it", 12345)
