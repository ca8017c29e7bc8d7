"""The few requests that confluent-kafka has no call for, sent by ourselves: a blocking client, one request at a time.

    with Cluster("localhost:9092") as cluster:
        coordinator = cluster.coordinator("x", TRANSACTION)
        answer = coordinator.ask(DescribeTransactionsRequest(transactional_ids=["x"]), DescribeTransactionsResponse)

Each connection asks the broker first what it speaks, and takes the newest version that both know. Everything that is
waited for has an end: connecting, an answer, and a cluster that says "not yet". Plain connections only.
"""

import socket
import struct
import time
from collections.abc import Callable, Iterable
from typing import Final, Self, TypeVar

from ottla.errors import ErrorCode, description
from ottla.tools.session import TIMEOUT_S, Failed, pairs, places, silence
from ottla.wire import codec, frame
from ottla.wire.apis import BY_KEY
from ottla.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ottla.wire.schema import spec

GROUP: Final = 0  # the two kinds of coordinators, as FindCoordinator counts them
TRANSACTION: Final = 1

ANSWER_SIZE_MAX = 100 << 20  # Kafka's own bound for a message; a length beyond it is no length
PIECE = 1 << 16  # read so much at once: memory follows what arrives, not what a broker claims will
PAUSE_S = 0.1
BATCHED_COORDINATORS = 4  # FindCoordinator answers a list from here on
# What passes by itself: a coordinator that is being found or loaded, a leader that is being elected.
NOT_YET = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}

Address = tuple[str, int]
Answer = TypeVar("Answer")


class Refused(Failed):
    """The cluster answered with an error code."""

    def __init__(self, what: str, code: int) -> None:
        self.code = code
        known = code in set(ErrorCode)
        super().__init__(f"{what}: {description(code)}" + (f" ({ErrorCode(code).name})" if known else ""))


class Connection:
    def __init__(self, address: Address, timeout_s: float = TIMEOUT_S) -> None:
        self.name = f"{address[0]}:{address[1]}"
        self._count = 0
        try:
            self._socket = socket.create_connection(address, timeout=timeout_s)
        except OSError as error:
            raise Failed(f"no connection to the broker at {self.name} ({error.strerror or error})") from None
        self._versions = {18: (0, 0)}
        try:
            spoken = self.ask(ApiVersionsRequest(), ApiVersionsResponse)
            check(f"the broker at {self.name}", spoken.error_code)
        except BaseException:
            self.close()
            raise
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in spoken.api_keys}

    def version(self, key: int) -> int:
        """The newest version of an API that both sides know."""
        api = BY_KEY[key]
        low, high = self._versions.get(key, (0, -1))
        chosen = min(high, api.versions[1])
        if chosen < max(low, api.versions[0]):
            raise Failed(f"the broker at {self.name} is too old or too new: it does not take {api.name} as we send it")
        return chosen

    def ask(self, request: object, answer: type[Answer]) -> Answer:
        """Send a request and wait for its answer."""
        key = spec(type(request)).key
        assert key is not None, "only a request can be sent"
        version = self.version(key)
        self._count += 1
        body = frame.request_header(key, version, self._count, "ottla") + codec.encode(request, version)
        try:
            self._socket.sendall(struct.pack(">i", len(body)) + body)
            return self._answer(key, version, answer)
        except TimeoutError:
            raise Failed(f"the broker at {self.name} does not answer") from None
        except OSError as error:
            raise Failed(f"the broker at {self.name} went away ({error.strerror or error})") from None
        except codec.DecodeError as error:
            raise Failed(
                f"the broker at {self.name} answered with something else than {answer.__name__}: {error}"
            ) from None

    def _answer(self, key: int, version: int, answer: type[Answer]) -> Answer:
        (size,) = struct.unpack(">i", self._take(4))
        if not 4 <= size <= ANSWER_SIZE_MAX:
            raise codec.DecodeError(f"a length of {size} bytes")
        data = self._take(size)
        correlation, position = frame.parse_response_header(key, version, data)
        if correlation != self._count:
            raise codec.DecodeError(f"an answer to request {correlation} instead of {self._count}")
        response, end = codec.decoder(answer, version)(data, position)
        if end != size:
            raise codec.DecodeError(f"{size - end} bytes are left")
        return response

    def _take(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(min(size - len(data), PIECE))
            if not piece:
                raise ConnectionError("connection closed")
            data += piece
        return bytes(data)

    def close(self) -> None:
        self._socket.close()


class Cluster:
    """Connections to the brokers of a cluster, made when they are needed."""

    def __init__(self, bootstrap: str, properties: Iterable[str] = ()) -> None:
        if (security := pairs(properties).get("security.protocol", "plaintext")).lower() != "plaintext":
            raise Failed(f"this command speaks plaintext only, not {security}")
        self._open: dict[Address, Connection] = {}
        self._first = self._reach(bootstrap)

    def brokers(self) -> dict[int, Connection]:
        answer = self._first.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), MetadataResponse)
        return {broker.node_id: self._connect((broker.host, broker.port)) for broker in answer.brokers}

    def coordinator(self, name: str, kind: int) -> Connection:
        """The broker that keeps this group (GROUP) or transactional id (TRANSACTION)."""
        return self._connect(until_known(lambda: self._coordinator(name, kind)))

    def _coordinator(self, name: str, kind: int) -> Address:
        request = FindCoordinatorRequest(key=name, key_type=kind, coordinator_keys=[name])
        answer = self._first.ask(request, FindCoordinatorResponse)
        if self._first.version(10) >= BATCHED_COORDINATORS:
            (found,) = answer.coordinators
            check(f"coordinator of {name}", found.error_code)
            return found.host, found.port
        check(f"coordinator of {name}", answer.error_code)
        return answer.host, answer.port

    def leaders(self, topic: str) -> dict[int, Connection]:
        """Each partition of a topic with the broker that leads it."""
        return {index: self._connect(address) for index, address in until_known(lambda: self._leaders(topic)).items()}

    def _leaders(self, topic: str) -> dict[int, Address]:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer = self._first.ask(request, MetadataResponse)
        brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        (found,) = answer.topics
        check(topic, found.error_code)
        for partition in found.partitions:
            check(f"{topic} partition {partition.partition_index}", partition.error_code)
        return {partition.partition_index: brokers[partition.leader_id] for partition in found.partitions}

    def _reach(self, bootstrap: str) -> Connection:
        """The first of the given brokers that can be talked to."""
        for address in places(bootstrap):
            try:
                return self._connect(address)
            except Failed as error:
                reason = error
        raise silence(bootstrap, reason)

    def _connect(self, address: Address) -> Connection:
        if address not in self._open:
            self._open[address] = Connection(address)
        return self._open[address]

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def check(what: str, code: int) -> None:
    if code:
        raise Refused(what, code)


def until_known(attempt: Callable[[], Answer], passing: Iterable[int] = NOT_YET) -> Answer:
    """Try again while the cluster says that it is not ready, and give up with its last word."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return attempt()
        except Refused as error:
            if error.code not in passing or time.monotonic() > deadline:
                raise
        time.sleep(PAUSE_S)
