"""Attacks by connections: many at once, many requests at once, halves of requests, and readers that do not read."""

from __future__ import annotations

import socket
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from compat.raw import (
    API_VERSIONS,
    FETCH,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    Raw,
    Reader,
    array,
    batch,
    produce,
    produce_body,
    string,
)
from fuzz.hostile.stage import GONE, Stage, attack
from waiting import wait_until

from ottla.wire import codec, frame
from ottla.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource

if TYPE_CHECKING:
    from collections.abc import Iterator

TARGET: Final = "target"
ADD_PARTITIONS: Final = 24


def whole(key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhi", key, version, 1) + string("attacker")
    return struct.pack(">i", len(head) + len(body)) + head + body


def flooding(name: str, key: int, version: int, body: bytes) -> None:
    @attack(f"40 connections with 3,000 pipelined {name} each")
    def perform(stage: Stage) -> Iterator[None]:
        stage.topic(TARGET)
        count = stage.size(1500, 3000)
        data = whole(key, version, body) * count
        raws = [stage.raw() for _ in range(40)]
        yield

        def flood(raw: Raw) -> None:
            raw.socket.sendall(data)
            stage.sent += len(data)

        stage.together(
            [lambda raw=raw: flood(raw) for raw in raws]  # type: ignore[misc]
            + [lambda raw=raw: stage.hear(raw, count) for raw in raws]  # type: ignore[misc]
        )


flooding("Metadata", METADATA, 4, array([string(TARGET)]) + b"\0")
flooding("Metadata of everything", METADATA, 4, struct.pack(">i", -1) + b"\0")
flooding("ApiVersions", API_VERSIONS, 0, b"")
flooding("Produce", PRODUCE, 7, produce_body(TARGET, batch([b"x"])))


def fetch_body(topic: str, *, wait_ms: int, min_bytes: int, size: int, isolation: int = 0, offset: int = 0) -> bytes:
    place = struct.pack(">iqi", 0, offset, size)
    head = struct.pack(">iiiib", -1, wait_ms, min_bytes, size, isolation)
    return head + array([string(topic) + array([place])])


@attack("256 requests behind one whose answer is late")
def late(stage: Stage) -> Iterator[None]:
    topic = stage.topic(TARGET)
    resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    asked = frame.request_header(32, 4, 1, "attacker") + codec.encode(request, 4)
    slow = whole(FETCH, 4, fetch_body(topic, wait_ms=stage.size(2_000, 10_000), min_bytes=1 << 20, size=1 << 20))
    raws = [stage.raw() for _ in range(stage.size(4, 20))]
    yield
    for raw in raws:
        data = slow + (struct.pack(">i", len(asked)) + asked) * 255
        raw.socket.sendall(data)
        stage.sent += len(data)
    stage.together([lambda raw=raw: stage.hear(raw, 256) for raw in raws])  # type: ignore[misc]


@attack("readers that do not read")
def unread(stage: Stage) -> Iterator[None]:
    topic = stage.topic(TARGET)
    with Raw(stage.port) as raw:
        for _ in range(4):
            assert produce(raw, topic, batch([b"x" * 500_000])).error == 0
    raws = [stage.raw() for _ in range(stage.size(20, 100))]
    data = whole(FETCH, 4, fetch_body(topic, wait_ms=0, min_bytes=1, size=2 << 20)) * 200
    yield
    for raw in raws:
        raw.socket.settimeout(2)
        with suppress(TimeoutError):
            raw.socket.sendall(data)
        stage.sent += len(data)
    time.sleep(1)


@attack("halves of requests that declare 100 MB")
def halves(stage: Stage) -> Iterator[None]:
    yield
    raws = [stage.raw() for _ in range(stage.size(100, 400))]
    for number, raw in enumerate(raws):
        data = (struct.pack(">i", 100 << 20) + struct.pack(">hhi", 0, 7, 1) + bytes(1000))[: 1 + number * 7 % 1000]
        raw.socket.sendall(data)
        stage.sent += len(data)
    time.sleep(1)


@attack("requests that come byte by byte")
def dribble(stage: Stage) -> Iterator[None]:
    yield
    raws = [stage.raw() for _ in range(20)]
    data = whole(METADATA, 4, struct.pack(">i", -1) + b"\0")
    for at in range(len(data)):
        for raw in raws:
            raw.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.socket.sendall(data[at : at + 1])
            stage.sent += 1
    for raw in raws:
        assert len(stage.hear(raw)) == 1, "no answer"


@attack("idle connections")
def idle(stage: Stage) -> Iterator[None]:
    yield
    for _ in range(stage.size(300, 900)):
        stage.raw()
    time.sleep(0.5)


@attack("connections that come and go")
def coming(stage: Stage) -> Iterator[None]:
    yield
    for _ in range(stage.size(1_000, 10_000)):
        with suppress(*GONE), socket.create_connection(("127.0.0.1", stage.port), timeout=5) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@attack("arrays that declare two thousand million elements")
def declared(stage: Stage) -> Iterator[None]:
    yield
    most = struct.pack(">i", (1 << 31) - 1)
    for key, version, before in (
        (METADATA, 4, b""),
        (FETCH, 4, struct.pack(">iiiib", -1, 0, 1, 1 << 20, 0)),
        (PRODUCE, 7, string(None) + struct.pack(">hi", -1, 1000)),
        (19, 2, b""),
        (32, 1, b""),
        (8, 2, string("g") + struct.pack(">i", -1) + string("") + struct.pack(">q", -1)),
        (9, 1, string("g")),
        (15, 0, b""),
    ):
        raw = stage.raw(timeout_s=5)
        raw.send(key, version, before + most + bytes(50))
        stage.hear(raw)


@attack("long polls for committed records behind an open transaction")
def open_transaction(stage: Stage) -> Iterator[None]:
    topic = stage.topic(TARGET)
    producer = begun(stage, topic)
    with Raw(stage.port) as raw:
        data = batch([b"x"] * 10, producer_id=producer[0], epoch=producer[1], sequence=0, attributes=0x10)
        body = string("t") + produce_body(topic, data)[2:]
        answer = Reader(raw.call(PRODUCE, 7, body).rest())
        assert answer.int32() == 1
    wait_ms = 500
    body = fetch_body(topic, wait_ms=wait_ms, min_bytes=1, size=1 << 20, isolation=1)
    yield
    raws = [stage.raw() for _ in range(20)]
    answers = 0
    end = time.monotonic() + 2

    def write() -> None:
        """New records above the open transaction, which no reader of committed ones may have."""
        raw = stage.raw()
        while time.monotonic() < end:
            produce(raw, topic, batch([b"more"]))
            time.sleep(0.005)

    def poll(raw: Raw) -> None:
        nonlocal answers
        while time.monotonic() < end:
            raw.send(FETCH, 4, body)
            answers += len(stage.hear(raw))

    stage.together([write, *(lambda raw=raw: poll(raw) for raw in raws)])  # type: ignore[misc]
    most = len(raws) * 8  # four waits fit into the time; twice that
    assert answers <= most, f"{answers} answers to long polls of {wait_ms} ms within 2 s"


def begun(stage: Stage, topic: str) -> tuple[int, int]:
    """A transaction that has the partition in it."""
    found: list[tuple[int, int]] = []
    with Raw(stage.port) as raw:

        def made() -> bool:
            answer = raw.call(INIT_PRODUCER_ID, 0, string("t") + struct.pack(">i", 60_000))
            answer.int32()
            if answer.int16():
                return False
            found.append((answer.int64(), answer.int16()))
            return True

        wait_until(made, "the coordinator of transactions")
        body = string("t") + struct.pack(">qh", *found[0]) + array([string(topic) + array([struct.pack(">i", 0)])])

        def added() -> bool:
            answer = raw.call(ADD_PARTITIONS, 0, body)
            answer.int32()
            answer.int32()
            answer.string()
            answer.int32()
            answer.int32()
            return answer.int16() == 0

        wait_until(added, "the partition is part of the transaction")
    return found[0]
