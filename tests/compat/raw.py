"""Requests built from bytes, without any of Ottla's own code: also those that no client library sends.

Only the non-flexible versions are built here (and the flexible request header, for hostile tests). Batches and message
sets follow the published formats: magic 2 with CRC-32C over everything after the checksum, magic 0 and 1 with CRC-32.
"""

from __future__ import annotations

import gzip
import socket
import struct
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

import crc32c
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType
    from typing import Self

HEADER: Final = struct.Struct(">qiibIhiqqqhii")  # a magic 2 batch up to its records
PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, INIT_PRODUCER_ID = 0, 1, 2, 3, 18, 19, 22
LOADING = 14  # Apache Kafka asks for patience when it fetches its first block of producer ids


class Closed(ConnectionError):
    """The broker closed the connection before it had answered in full."""


class Raw:
    """One connection. Requests may be pipelined: `send` several, then `receive` their answers in order."""

    def __init__(self, port: int, *, timeout_s: float = 60.0, client_id: str | None = "raw") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client_id = client_id
        self._correlation = 0
        self._buffer = bytearray()

    def send(self, key: int, version: int, body: bytes, *, flexible: bool = False) -> int:
        self._correlation += 1
        header = struct.pack(">hhi", key, version, self._correlation) + string(self.client_id)
        self.send_frame(header + (b"\0" if flexible else b"") + body)
        return self._correlation

    def send_frame(self, frame: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self) -> bytes:
        """The next answer, from its correlation id on."""
        (size,) = struct.unpack(">i", self._take(4))
        return self._take(size)

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            try:
                data = self.socket.recv(max(65536, size - len(self._buffer)))
            except ConnectionResetError as error:
                raise Closed from error
            if not data:
                raise Closed
            self._buffer += data
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def call(self, key: int, version: int, body: bytes) -> Reader:
        """Send and wait; a reader placed after the correlation id, which must be ours."""
        correlation = self.send(key, version, body)
        answer = Reader(self.receive())
        assert answer.int32() == correlation, "an answer to another request"
        return answer

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Reader:
    """Non-flexible primitives from the left."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def _unpack(self, form: str, size: int) -> int:
        (value,) = struct.unpack_from(form, self.data, self.position)
        self.position += size
        assert isinstance(value, int)
        return value

    def int8(self) -> int:
        return self._unpack(">b", 1)

    def int16(self) -> int:
        return self._unpack(">h", 2)

    def int32(self) -> int:
        return self._unpack(">i", 4)

    def int64(self) -> int:
        return self._unpack(">q", 8)

    def string(self) -> str | None:
        data = self._bytes(self.int16())
        return None if data is None else data.decode()

    def blob(self) -> bytes | None:
        return self._bytes(self.int32())

    def _bytes(self, size: int) -> bytes | None:
        if size < 0:
            return None
        taken = self.data[self.position : self.position + size]
        assert len(taken) == size, "an answer that ends too early"
        self.position += size
        return taken

    def rest(self) -> bytes:
        return self.data[self.position :]


def string(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def blob(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def array(items: Sequence[bytes]) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)


def varint(value: int) -> bytes:
    """A zigzag varint, as in records."""
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


# --- records ---------------------------------------------------------------------------------------------------------


def record(index: int, key: bytes | None, value: bytes | None, delta_ms: int = 0) -> bytes:
    body = b"\0" + varint(delta_ms) + varint(index)
    for data in (key, value):
        body += varint(-1) if data is None else varint(len(data)) + data
    body += varint(0)
    return varint(len(body)) + body


def batch(
    values: Sequence[bytes | None],
    *,
    timestamp: int = 1_700_000_000_000,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    attributes: int = 0,
    keys: Sequence[bytes | None] | None = None,
) -> bytes:
    """One magic 2 batch, uncompressed, at base offset 0, all records at one time."""
    keys = keys or [None] * len(values)
    body = b"".join(record(index, key, value) for index, (key, value) in enumerate(zip(keys, values, strict=True)))
    last = len(values) - 1
    fields = (attributes, last, timestamp, timestamp, producer_id, epoch, sequence, len(values))
    return seal(struct.pack(">hiqqqhii", *fields) + body)


def seal(covered: bytes, *, base: int = 0, leader_epoch: int = -1) -> bytes:
    """Put length, magic and checksum before everything that the checksum covers."""
    return struct.pack(">qiibI", base, len(covered) + 9, leader_epoch, 2, crc32c.crc32c(covered)) + covered


class Batch(NamedTuple):
    """The header of a stored magic 2 batch and its bytes."""

    base: int
    last: int
    leader_epoch: int
    attributes: int
    producer_id: int
    epoch: int
    sequence: int
    count: int  # type: ignore[assignment]  # the wire's word wins over the tuple's method
    timestamp: int
    max_timestamp: int
    data: bytes

    @property
    def codec(self) -> str:
        return ("none", "gzip", "snappy", "lz4", "zstd")[self.attributes & 7]

    def values(self) -> list[bytes | None]:
        """The values of an uncompressed batch."""
        assert self.codec == "none"
        return [value for _, value in pairs(self.data[HEADER.size :], self.count)]


def pairs(data: bytes, count: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Keys and values of magic 2 records."""
    position = 0

    def number() -> int:
        nonlocal position
        result, shift = 0, 0
        while True:
            byte = data[position]
            position += 1
            result |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return (result >> 1) ^ -(result & 1)

    def field() -> bytes | None:
        nonlocal position
        size = number()
        if size < 0:
            return None
        position += size
        return data[position - size : position]

    for _ in range(count):
        end = number()
        end += position
        position += 1
        number()
        number()
        yield field(), field()
        position = end
    assert position == len(data), "bytes after the last record"


def batches(data: bytes) -> list[Batch]:
    """The complete batches of fetched bytes, which must be magic 2 with a right checksum; a partial tail is dropped."""
    found, position = [], 0
    while position + 12 <= len(data):
        (size,) = struct.unpack_from(">i", data, position + 8)
        end = position + 12 + size
        if end > len(data):
            break
        base, _, leader, magic, crc, attributes, delta, first, most, producer, epoch, sequence, count = (
            HEADER.unpack_from(data, position)
        )
        assert magic == 2, f"magic {magic} at {position}"
        assert crc == crc32c.crc32c(data[position + 21 : end]), f"the batch at offset {base} fails its checksum"
        found.append(
            Batch(
                base,
                base + delta,
                leader,
                attributes,
                producer,
                epoch,
                sequence,
                count,
                first,
                most,
                data[position:end],
            )
        )
        position = end
    return found


class Message(NamedTuple):
    """One entry of a magic 0 or 1 message set."""

    offset: int
    magic: int
    attributes: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None


def message(
    key: bytes | None, value: bytes | None, *, magic: int = 0, attributes: int = 0, timestamp: int = 0
) -> bytes:
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    body += blob(key) + blob(value)
    return struct.pack(">I", zlib.crc32(body)) + body


def message_set(messages: Sequence[bytes], offsets: Sequence[int] | None = None) -> bytes:
    places = range(len(messages)) if offsets is None else offsets
    return b"".join(struct.pack(">qi", offset, len(data)) + data for offset, data in zip(places, messages, strict=True))


def wrapped(inner: bytes, *, magic: int = 0, timestamp: int = 0) -> bytes:
    """A message set gzipped into one message: the nested sets of the old formats."""
    packed = gzip.compress(inner, mtime=0)
    return message_set([message(None, packed, magic=magic, attributes=1, timestamp=timestamp)])


def messages(data: bytes) -> list[Message]:
    """Every whole message of a set, checksums checked; nested sets stay closed."""
    found, position = [], 0
    while position + 12 <= len(data):
        offset, size = struct.unpack_from(">qi", data, position)
        end = position + 12 + size
        if end > len(data):
            break
        crc, magic, attributes = struct.unpack_from(">Ibb", data, position + 12)
        assert crc == zlib.crc32(data[position + 16 : end]), f"the message at offset {offset} fails its checksum"
        reader = Reader(data[position + 18 : end])
        timestamp = reader.int64() if magic else None
        found.append(Message(offset, magic, attributes, timestamp, reader.blob(), reader.blob()))
        position = end
    return found


# --- requests --------------------------------------------------------------------------------------------------------


class Produced(NamedTuple):
    error: int
    base: int
    append_time: int = -1
    start: int = -1


def produce_body(
    topic: str, data: bytes, *, partition: int = 0, acks: int = -1, version: int = 7, timeout_ms: int = 10_000
) -> bytes:
    body = string(None) if version >= 3 else b""
    body += struct.pack(">hi", acks, timeout_ms)
    return body + array([string(topic) + array([struct.pack(">i", partition) + blob(data)])])


def produced(answer: Reader, version: int = 7) -> Produced:
    """The only partition of an answer."""
    assert answer.int32() == 1
    answer.string()
    assert answer.int32() == 1
    answer.int32()
    return Produced(
        answer.int16(),
        answer.int64(),
        answer.int64() if version >= 2 else -1,
        answer.int64() if version >= 5 else -1,
    )


def produce(raw: Raw, topic: str, data: bytes, *, partition: int = 0, acks: int = -1, version: int = 7) -> Produced:
    body = produce_body(topic, data, partition=partition, acks=acks, version=version)
    return produced(raw.call(PRODUCE, version, body), version)


class Fetched(NamedTuple):
    error: int
    high: int
    data: bytes
    start: int = -1


def fetch(
    raw: Raw,
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    version: int = 11,
    size_max: int = 1 << 20,
    wait_ms: int = 0,
    min_bytes: int = 1,
) -> Fetched:
    """Fetch v0 to v11 of one partition, without a session."""
    place = struct.pack(">i", partition) + (struct.pack(">i", -1) if version >= 9 else b"")
    place += struct.pack(">q", offset) + (struct.pack(">q", -1) if version >= 5 else b"") + struct.pack(">i", size_max)
    body = struct.pack(">iii", -1, wait_ms, min_bytes)
    body += struct.pack(">i", size_max) if version >= 3 else b""
    body += b"\0" if version >= 4 else b""
    body += struct.pack(">ii", 0, -1) if version >= 7 else b""
    body += array([string(topic) + array([place])])
    body += array([]) if version >= 7 else b""
    body += string("") if version >= 11 else b""
    answer = raw.call(FETCH, version, body)
    if version >= 1:
        answer.int32()
    if version >= 7:
        assert answer.int16() == 0
        answer.int32()
    assert answer.int32() == 1
    assert answer.string() == topic
    assert answer.int32() == 1
    assert answer.int32() == partition
    error, high = answer.int16(), answer.int64()
    start = -1
    if version >= 4:
        answer.int64()
        start = answer.int64() if version >= 5 else -1
        for _ in range(max(0, answer.int32())):
            answer.int64()
            answer.int64()
    if version >= 11:
        answer.int32()
    return Fetched(error, high, answer.blob() or b"", start)


def read_all(raw: Raw, topic: str, *, partition: int = 0, start: int | None = None) -> list[Batch]:
    """Every batch from the log's start (or `start`) to its high watermark, checksums checked."""
    if start is None:
        start = list_offset(raw, topic, -2, partition=partition)
    found: list[Batch] = []
    while True:
        answer = fetch(raw, topic, start, partition=partition)
        assert answer.error == 0, f"fetch at {start}: error {answer.error}"
        part = batches(answer.data)
        if not part:
            assert start >= answer.high, f"nothing at {start} below the high watermark {answer.high}"
            return found
        found += part
        start = part[-1].last + 1


def list_offset(raw: Raw, topic: str, timestamp: int, *, partition: int = 0) -> int:
    """ListOffsets v1: -1 latest, -2 earliest, else the first offset at or after the time (-1 when there is none)."""
    place = string(topic) + array([struct.pack(">iq", partition, timestamp)])
    answer = raw.call(LIST_OFFSETS, 1, struct.pack(">i", -1) + array([place]))
    assert answer.int32() == 1
    answer.string()
    assert answer.int32() == 1
    answer.int32()
    error = answer.int16()
    assert error == 0, f"ListOffsets error {error}"
    answer.int64()
    return answer.int64()


def create_topic(raw: Raw, topic: str, partitions: int = 1, configs: dict[str, str] | None = None) -> int:
    """CreateTopics v2; the error code."""
    pairs = array([string(name) + string(value) for name, value in (configs or {}).items()])
    wanted = string(topic) + struct.pack(">ih", partitions, 1) + array([]) + pairs
    answer = raw.call(CREATE_TOPICS, 2, array([wanted]) + struct.pack(">ib", 10_000, 0))
    answer.int32()
    assert answer.int32() == 1
    answer.string()
    return answer.int16()


def init_producer(raw: Raw) -> tuple[int, int]:
    """InitProducerId v0 without a transactional id: a fresh id and its epoch."""

    def attempt() -> tuple[int, int] | None:
        answer = raw.call(INIT_PRODUCER_ID, 0, string(None) + struct.pack(">i", 60_000))
        answer.int32()
        error = answer.int16()
        assert error in (0, LOADING), f"InitProducerId error {error}"
        return None if error else (answer.int64(), answer.int16())

    return wait_until(attempt, "the coordinator is still loading")
