"""The few Kafka calls the load generators need, encoded by hand.

Nothing of `ottla` is used here: a bug in our own codec must not cancel itself out, and both brokers must get the same
bytes. Produce v11 and Fetch v12 are flexible versions that name the topic; admin calls use old, inflexible versions.

    frame    length i32 | key i16 | version i16 | correlation i32 | client id | [tags] | body
    batch    the v2 record batch: 61 bytes of header, then records; CRC-32C from byte 21 on
"""

from __future__ import annotations

import socket
import struct
import time
from typing import NamedTuple

import cramjam
from crc32c import crc32c

PRODUCE, FETCH, LIST_OFFSETS, METADATA, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 2, 3, 19, 20
CODECS = {"none": 0, "lz4": 3, "lz4-4M": 3}
CLIENT = b"bench"
# Magic, version 1 with independent blocks (Kafka reads no others), the block size, and the check byte of those two.
LZ4_FRAMES = {"lz4": (bytes.fromhex("04224d18604082"), 64 << 10), "lz4-4M": (bytes.fromhex("04224d18607073"), 4 << 20)}
WORDS = (
    b"GET POST PUT 200 204 301 404 500 /orders /users /search /cart /login host=web-1 host=web-2 region=eu region=us "
    b"user= order= session= price= amount= status=ok status=failed retry=1 cache=hit cache=miss latency_ms= bytes= "
    b"trace= span= level=info level=warn level=error component=checkout component=payment component=stock"
).split()


class BenchError(Exception):
    """A broker answered with an error, or not at all: the row gets no number."""


def text(size: int, seed: int) -> bytes:
    """A log line of exactly that size: words and numbers, so that lz4 compresses about as well as on real logs."""
    state = seed * 2654435761 + 1
    line = bytearray()
    while len(line) < size:
        state = (state * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        line += WORDS[(state >> 33) % len(WORDS)] + b"%d " % ((state >> 40) % 100000)
    return bytes(line[:size])


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    return uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def compact(data: bytes) -> bytes:
    return uvarint(len(data) + 1) + data


def string(name: str) -> bytes:
    data = name.encode()
    return struct.pack(">h", len(data)) + data


def lz4(data: bytes, codec: str = "lz4") -> bytes:
    head, block_size = LZ4_FRAMES[codec]
    out = [head]
    for start in range(0, len(data), block_size):
        block = data[start : start + block_size]
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        whole = len(packed) >= len(block)
        out.append(struct.pack("<I", len(block) | 0x80000000 if whole else len(packed)) + (block if whole else packed))
    return b"".join([*out, bytes(4)])


class Batch(NamedTuple):
    data: bytes
    records: int
    value_bytes: int


def batch(size: int, target: int, codec: str = "none", now_ms: int | None = None) -> Batch:
    """As many records of `size` bytes as fit into `target` bytes before compression, at least one."""
    now = int(time.time() * 1000) if now_ms is None else now_ms
    records, used, count = [], 61, 0
    while True:
        value = text(size, count)
        body = b"\0" + varint(0) + varint(count) + varint(-1) + varint(len(value)) + value + varint(0)
        record = varint(len(body)) + body
        if count and used + len(record) > target:
            break
        records.append(record)
        used, count = used + len(record), count + 1
    payload = b"".join(records)
    if codec in LZ4_FRAMES:
        payload = lz4(payload, codec)
    tail = struct.pack(">hiqqqhii", CODECS[codec], count - 1, now, now, -1, -1, -1, count) + payload
    return Batch(struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc32c(tail)) + tail, count, count * size)


def frame(key: int, version: int, body: bytes, *, flexible: bool) -> bytes:
    head = struct.pack(">hhih", key, version, 1, len(CLIENT)) + CLIENT + (b"\0" if flexible else b"")
    return struct.pack(">i", len(head) + len(body)) + head + body


def produce_frame(topic: str, data: dict[int, bytes], acks: int, timeout_ms: int = 10_000) -> bytes:
    partitions = b"".join(struct.pack(">i", index) + compact(records) + b"\0" for index, records in data.items())
    topics = b"\x02" + compact(topic.encode()) + uvarint(len(data) + 1) + partitions + b"\0"
    return frame(PRODUCE, 11, b"\0" + struct.pack(">hi", acks, timeout_ms) + topics + b"\0", flexible=True)


class Shape(NamedTuple):
    """A Produce v11 response without errors: its size, and the position of the first error code's two bytes."""

    size: int
    error_at: int


def produce_shape(topic: str, partitions: int = 1) -> Shape:
    head = 4 + 4 + 1 + 1 + len(compact(topic.encode())) + len(uvarint(partitions + 1))
    return Shape(head + 33 * partitions + 6, head + 4)


def produce_error(answer: bytes, topic: str) -> int:
    """The error of a Produce v11 response (after its length and correlation id) for one partition."""
    return int(struct.unpack_from(">h", answer, produce_shape(topic).error_at - 8)[0])


def fetch_frame(topic: str, partition: int, offset: int, partition_max: int, *, min_bytes: int = 1) -> bytes:
    head = struct.pack(">iiiibii", -1, 500, min_bytes, 50 << 20, 0, 0, -1)
    entry = struct.pack(">iiqiqi", partition, -1, offset, -1, -1, partition_max) + b"\0"
    topics = b"\x02" + compact(topic.encode()) + b"\x02" + entry + b"\0"
    return frame(FETCH, 12, head + topics + b"\x01" + b"\x01" + b"\0", flexible=True)


def fetch_error(answer: bytes, topic: str) -> int:
    """The error of a Fetch v12 response (after its length and correlation id), or else that of its one partition."""
    error = int(struct.unpack_from(">h", answer, 1 + 4)[0])
    position = 1 + 4 + 2 + 4 + 1 + len(compact(topic.encode())) + 1 + 4
    return error or int(struct.unpack_from(">h", answer, position)[0])


def lookup_frame(topic: str, partition: int, timestamp_ms: int) -> bytes:
    """ListOffsets v1: the first offset with this timestamp or a later one."""
    entry = struct.pack(">iiq", 1, partition, timestamp_ms)
    return frame(LIST_OFFSETS, 1, struct.pack(">ii", -1, 1) + string(topic) + entry, flexible=False)


def lookup(answer: bytes, topic: str) -> tuple[int, int]:
    """Error and offset in a ListOffsets v1 response for one partition."""
    error, _timestamp, offset = struct.unpack_from(">hqq", answer, 4 + len(string(topic)) + 4 + 4)
    return int(error), int(offset)


def fetched(answer: bytes, topic: str) -> bytes:
    """The records in a Fetch v12 response (after its length and correlation id) for one partition."""
    if error := fetch_error(answer, topic):
        raise BenchError(f"a fetch was answered with error {error}")
    position = 1 + 4 + 2 + 4 + 1 + len(compact(topic.encode())) + 1 + 4 + 2 + 3 * 8
    aborted, position = read_uvarint(answer, position)
    assert aborted < 2, "nothing was aborted here"
    size, position = read_uvarint(answer, position + 4)
    return answer[position : position + size - 1]


def read_uvarint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while data[position] & 128:
        value |= (data[position] & 127) << shift
        position, shift = position + 1, shift + 7
    return value | data[position] << shift, position + 1


class Connection:
    """One blocking connection for calls outside the measured time."""

    def __init__(self, port: int, timeout: float = 60.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def call(self, request: bytes) -> bytes:
        """The response's bytes after its length and correlation id."""
        self.socket.sendall(request)
        return self.receive()

    def receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)[4:]

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise BenchError("the broker closed the connection")
            data += piece
        return bytes(data)

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        entry = string(topic) + struct.pack(">ihii", partitions, 1, 0, 0)
        body = struct.pack(">i", 1) + entry + struct.pack(">ib", 60_000, 0)
        answer = self.call(frame(CREATE_TOPICS, 4, body, flexible=False))
        expect_no_error("CreateTopics", answer, 4 + 4 + 2 + len(topic.encode()))

    def delete_topic(self, topic: str) -> None:
        body = struct.pack(">i", 1) + string(topic) + struct.pack(">i", 60_000)
        answer = self.call(frame(DELETE_TOPICS, 3, body, flexible=False))
        expect_no_error("DeleteTopics", answer, 4 + 4 + 2 + len(topic.encode()))

    def led(self, topic: str, *, create: bool = False) -> int:
        """How many partitions of the topic have a leader, after Metadata v4."""
        answer = self.call(frame(METADATA, 4, struct.pack(">i", 1) + string(topic) + bytes([create]), flexible=False))
        position, (brokers,) = 8, struct.unpack_from(">i", answer, 4)
        for _ in range(brokers):
            position = skip_string(answer, skip_string(answer, position + 4) + 4)
        position = skip_string(answer, position) + 4  # cluster id, controller
        error, name_size = struct.unpack_from(">hh", answer, position + 4)
        position += 8 + name_size + 1
        (partitions,) = struct.unpack_from(">i", answer, position)
        position, leaders = position + 4, 0
        for _ in range(partitions if error == 0 else 0):
            fault, _index, leader, replicas = struct.unpack_from(">hiii", answer, position)
            position += 14 + 4 * replicas
            position += 4 + 4 * int(struct.unpack_from(">i", answer, position)[0])
            leaders += fault == 0 and leader >= 0
        return leaders

    def wait_led(self, topic: str, partitions: int, seconds: float = 60.0) -> None:
        """Wait until every partition's leader serves it: Kafka puts leaders into Metadata a moment before they do."""
        deadline = time.monotonic() + seconds
        while self.led(topic) < partitions:
            self._be_patient(topic, deadline)
        for index in range(partitions):
            while fetch_error(self.call(fetch_frame(topic, index, 0, 1, min_bytes=0)), topic):
                self._be_patient(topic, deadline)

    def _be_patient(self, topic: str, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise BenchError(f"{topic}: not every partition has a leader in time")
        time.sleep(0.002)

    def produce(self, topic: str, data: bytes, acks: int = 1) -> int:
        """Produce once to partition 0; return the error code."""
        return produce_error(self.call(produce_frame(topic, {0: data}, acks)), topic)


def skip_string(data: bytes, position: int) -> int:
    """The position after a nullable string."""
    return position + 2 + max(0, int(struct.unpack_from(">h", data, position)[0]))


def expect_no_error(call: str, answer: bytes, position: int) -> None:
    (error,) = struct.unpack_from(">h", answer, position)
    if error:
        raise BenchError(f"{call}: error {error}")
