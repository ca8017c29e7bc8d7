"""Batches of one partition to its leader, as fast as they can be written: for copies inside a transaction.

The client's `Sender` serves many partitions, and sends again what failed. A copy of a partition needs neither: if
anything goes wrong the transaction is not committed, and the next one begins where this one began. What is left costs a
third a batch: a frame goes out in one system call without being put together in memory, and whatever answers have come
are taken in by one. Up to five requests are on their way, as many as a broker remembers of a producer.

The first batch of a transaction goes alone and is tried again while its error passes: only then does the broker know
the producer, and a later batch cannot be taken for the first.
"""

from __future__ import annotations

import ssl
import struct
from collections import deque
from typing import TYPE_CHECKING, Final

from ottla.client.connection import ANSWER_SIZE_MAX, Connection
from ottla.client.failure import Failed, Refused, Unreachable
from ottla.client.producing import ANNOUNCED_UNTIL, NAMES_UNTIL, Batch, explained
from ottla.client.transaction import newer_protocol
from ottla.wire import codec, frame
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster, TopicPartition
    from ottla.client.connection import Address
    from ottla.spark.mirror.endpoint import Endpoint

PRODUCE: Final = 0
IN_FLIGHT: Final = 5
FIRST: Final = 1 << 20  # correlation ids from here on, beyond those that the connection has used for its greeting
RECEIVE_SIZE: Final = 1 << 16
TIMEOUT_MS: Final = 30_000

Data = memoryview | bytes


class Region:
    """Stands for the records in a request, so that the encoder leaves a gap there instead of copying them."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0


class Pipe:
    """The socket of a connection: requests go out in parts, answers come in by the handful."""

    def __init__(self, endpoint: Endpoint, address: Address) -> None:
        made = Connection(address, endpoint.timeout_s, security=endpoint.security, client_id=endpoint.client_id)
        self.connection = made  # which has said who we are, and knows what the broker speaks
        self._socket = made._socket
        self._client_id = endpoint.client_id
        self._gathers = not isinstance(self._socket, ssl.SSLSocket)
        self._sent = self._taken = 0
        self._ahead = bytearray()  # what has come and not been taken

    def push(self, before: bytes, data: Data, after: bytes, version: int) -> None:
        """Send a Produce request that consists of these three."""
        self._sent += 1
        head = frame.request_header(PRODUCE, version, FIRST + self._sent, self._client_id)
        size = len(head) + len(before) + len(data) + len(after)
        parts: list[Data] = [b"".join((_SIZE.pack(size), head, before)), data, after]
        try:
            if self._gathers:
                self._gather(parts, size + 4)
            else:
                self._socket.sendall(b"".join(parts))
        except OSError as error:
            raise self._lost(error) from None

    def _gather(self, parts: list[Data], left: int) -> None:
        sent = self._socket.sendmsg(parts)
        while sent < left:  # the socket has no more room, and waits for some
            left -= sent
            while sent >= len(parts[0]):
                sent -= len(parts.pop(0))
            parts[0] = memoryview(parts[0])[sent:]
            sent = self._socket.sendmsg(parts)

    def take(self, version: int) -> ProduceResponse:
        """The answer to the oldest request."""
        try:
            data = self._frame()
            self._taken += 1
            correlation, position = frame.parse_response_header(PRODUCE, version, data)
            if correlation != FIRST + self._taken:
                raise codec.DecodeError(f"an answer to request {correlation} instead of {FIRST + self._taken}")
            return codec.decoder(ProduceResponse, version)(data, position)[0]
        except OSError as error:
            raise self._lost(error) from None
        except codec.DecodeError as error:
            self.close()
            raise Failed(f"the broker at {self.connection.name} answered with something else: {error}") from None

    def _frame(self) -> bytearray:
        ahead = self._ahead
        while len(ahead) < 4 or len(ahead) < 4 + _SIZE.unpack_from(ahead)[0]:
            if len(ahead) >= 4 and not 4 <= _SIZE.unpack_from(ahead)[0] <= ANSWER_SIZE_MAX:
                raise codec.DecodeError(f"a length of {_SIZE.unpack_from(ahead)[0]} bytes")
            data = self._socket.recv(RECEIVE_SIZE)
            if not data:
                raise ConnectionError("connection closed")
            ahead += data
        end = 4 + _SIZE.unpack_from(ahead)[0]
        found = ahead[4:end]
        del ahead[:end]
        return found

    def _lost(self, error: OSError) -> Unreachable:
        self.close()
        if isinstance(error, TimeoutError):
            return Unreachable(f"the broker at {self.connection.name} does not answer")
        return Unreachable(f"the broker at {self.connection.name} went away ({error.strerror or error})")

    def close(self) -> None:
        self.connection.close()


_SIZE: Final = struct.Struct(">i")


class Pusher:
    """The batches of one partition, transaction after transaction."""

    def __init__(self, endpoint: Endpoint, cluster: Cluster, where: TopicPartition, transactional_id: str) -> None:
        self._endpoint = endpoint
        self._cluster = cluster
        self._where = where
        self._name = f"{where.topic} partition {where.partition}"
        self._region = Region()
        part = PartitionProduceData(index=where.partition, records=self._region)  # type: ignore[arg-type]
        self._request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=[TopicProduceData(name=where.topic, partition_data=[part])],
        )
        self._pipe: Pipe | None = None
        self._version = 0
        self._flying: deque[Data] = deque()
        self._known = False  # does the broker know the producer of this transaction?

    def begin(self) -> None:
        """Of a transaction."""
        assert not self._flying, "the transaction before was flushed"
        self._known = False

    def send(self, batches: list[Data]) -> None:
        for data in batches:
            if not self._known:
                self._cluster.retrying(lambda data=data: self._alone(data), what=f"writing to {self._name}")  # type: ignore[misc]
                self._known = True
                continue
            if len(self._flying) >= IN_FLIGHT:
                self._answer()
            self._push(data)

    def flush(self) -> None:
        while self._flying:
            self._answer()

    def close(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
        self._pipe = None
        self._flying.clear()

    def _alone(self, data: Data) -> None:
        try:
            self._push(data)
            self._answer()
        except Failed:
            self.close()
            raise

    def _push(self, data: Data) -> None:
        if self._pipe is None:
            self._pipe = Pipe(self._endpoint, self._cluster.place(self._where))
            newest = NAMES_UNTIL if newer_protocol(self._cluster) else ANNOUNCED_UNTIL
            self._version = self._pipe.connection.version(PRODUCE, newest)
        self._region.size = len(data)
        before, _, after = codec.encoder(ProduceRequest, self._version)(self._request)
        assert isinstance(before, bytes), "what stands before the records is written out"
        assert isinstance(after, bytes), "and so is what follows them"
        self._pipe.push(before, data, after, self._version)
        self._flying.append(data)

    def _answer(self) -> None:
        """Of the oldest request on its way."""
        assert self._pipe is not None, "an answer is awaited where a request was sent"
        answer = self._pipe.take(self._version)
        data = self._flying.popleft()
        for topic in answer.responses:
            for one in topic.partition_responses:
                if one.error_code:
                    raise Refused(f"writing to {self._name}", one.error_code, explained(Batch(bytes(data)), one))
