"""Connections that misbehave harm nobody but themselves: half-open, slow, too many, too large."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from compat.raw import (
    API_VERSIONS,
    FETCH,
    PRODUCE,
    Closed,
    Raw,
    Reader,
    array,
    batch,
    batches,
    create_topic,
    list_offset,
    produce,
    produce_body,
    produced,
    string,
)
from process import Ottla
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.xdist_group("connections")


@pytest.fixture(scope="module")
def broker() -> Iterator[Ottla]:
    with Ottla(settings={"socket.request.max.bytes": "1000000"}) as running:
        yield running


def is_closed(raw: Raw, timeout_s: float = 60.0) -> bool:
    """Whether the broker closes the connection within the time, saying nothing."""
    raw.socket.settimeout(timeout_s)
    try:
        return raw.socket.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def serves(port: int) -> bool:
    with Raw(port) as raw:
        return raw.call(API_VERSIONS, 0, b"").int16() == 0


def descriptors(broker: Ottla) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


def test_half_a_frame_holds_up_nobody_and_is_closed_when_idle(tmp_path: Path) -> None:
    with Ottla(tmp_path, settings={"connections.max.idle.ms": "1500"}) as broker:
        halves = [Raw(broker.port) for _ in range(20)]
        for n, raw in enumerate(halves):
            raw.socket.sendall((struct.pack(">i", 500) + bytes(100))[: n * 5 + 1])
        assert serves(broker.port), "others are served"
        assert all(is_closed(raw) for raw in halves), "connections.max.idle.ms"
        for raw in halves:
            raw.close()


def test_clients_that_come_back_together_do_not_have_to_try_again(broker: Ottla) -> None:
    """The broker is busy meanwhile. A client that does not fit into the queue would wait for a second or more."""
    with contextlib.ExitStack() as stack:
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            waiting = [stack.enter_context(Raw(broker.port)) for _ in range(100)]
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        assert all(raw.call(API_VERSIONS, 0, b"").int16() == 0 for raw in waiting)


def test_a_vanished_client_costs_nothing(broker: Ottla) -> None:
    before = descriptors(broker)
    for _ in range(50):
        raw = Raw(broker.port)
        raw.send(API_VERSIONS, 0, b"")
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.close()  # a reset instead of a farewell, an answer on its way
    wait_until(lambda: descriptors(broker) <= before, "descriptors are given back")
    assert serves(broker.port)


@pytest.mark.parametrize(
    "size", [-1, -(1 << 31), 0, 1_000_001, (1 << 31) - 1], ids=["minus one", "least", "zero", "too large", "largest"]
)
def test_impossible_frame_sizes_close_the_connection(broker: Ottla, size: int) -> None:
    before = broker.rss_mb()
    with Raw(broker.port) as raw:
        raw.socket.sendall(struct.pack(">i", size))
        assert is_closed(raw)
    assert broker.rss_mb() < before + 20, "memory follows what has arrived, not what was declared"
    assert serves(broker.port)


def test_a_frame_of_the_largest_size_is_read(broker: Ottla) -> None:
    with Raw(broker.port) as raw:
        assert create_topic(raw, "largest", 1, {"max.message.bytes": "2000000"}) == 0
        head = len(struct.pack(">hhi", 0, 7, 1) + string("raw") + produce_body("largest", b""))
        data = batch([b"x" * 900_000])
        data = batch([b"x" * (900_000 + 1_000_000 - head - len(data))])
        assert head + len(data) == 1_000_000
        assert produce(raw, "largest", data).error == 0


def test_a_slow_reader_is_not_served_faster_than_it_reads(broker: Ottla) -> None:
    with Raw(broker.port) as raw:
        assert create_topic(raw, "slow") == 0
        data = batch([b"x" * 500_000])
        for _ in range(4):
            assert produce(raw, "slow", data).error == 0
        before = broker.rss_mb()
        place = struct.pack(">iqi", 0, 0, 1 << 20)
        body = struct.pack(">iiiib", -1, 0, 1, 1 << 20, 0) + array([string("slow") + array([place])])
        asked = 200
        sender = threading.Thread(target=lambda: [raw.send(FETCH, 4, body) for _ in range(asked)])
        sender.start()
        assert serves(broker.port), "others are served while it sleeps"
        assert broker.rss_mb() < before + 50, "what it has not read does not pile up"
        first, *others = [raw.receive()[4:] for _ in range(asked)]
        start = first.index(struct.pack(">qi", 0, len(data) - 12))
        assert [part.base for part in batches(first[start:])] == [0, 1], "what fits into a megabyte"
        assert all(answer == first for answer in others)
        sender.join(10)
        assert not sender.is_alive()
        assert list_offset(raw, "slow", -1) == 4


def test_pipelined_requests_are_answered_in_order(broker: Ottla) -> None:
    with Raw(broker.port) as raw:
        assert create_topic(raw, "pipeline") == 0
        sent = []
        for n in range(200):
            sent.append(raw.send(PRODUCE, 7, produce_body("pipeline", batch([b"%d" % n]))))
            sent.append(raw.send(API_VERSIONS, 0, b""))
        bases = []
        for n, correlation in enumerate(sent):
            answer = Reader(raw.receive())
            assert answer.int32() == correlation
            if n % 2 == 0:
                bases.append(produced(answer).base)
        assert bases == list(range(200))


def test_a_storm_of_connections(broker: Ottla) -> None:
    before = descriptors(broker)
    storm = [Raw(broker.port) for _ in range(400)]
    for raw in storm:
        raw.send(API_VERSIONS, 0, b"")
    for raw in storm:
        assert Reader(raw.receive()).int32() == 1
        raw.close()
    wait_until(lambda: descriptors(broker) <= before, "descriptors are given back")
    assert serves(broker.port)


def test_connections_per_address_are_counted(tmp_path: Path) -> None:
    with Ottla(tmp_path, settings={"max.connections.per.ip": "5"}) as broker:
        wait_until(lambda: descriptors_settled(broker), "the connections of the start are gone")
        held = [Raw(broker.port) for _ in range(5)]
        for raw in held:
            assert raw.call(API_VERSIONS, 0, b"").int16() == 0
        with Raw(broker.port) as extra:
            with contextlib.suppress(OSError):
                extra.send(API_VERSIONS, 0, b"")
            assert is_closed(extra), "one too many"
        held.pop().close()
        wait_until(lambda: answers_once(broker.port), "a place is free again")
        for raw in held:
            assert raw.call(API_VERSIONS, 0, b"").int16() == 0, "the others were never disturbed"
            raw.close()


def descriptors_settled(broker: Ottla) -> bool:
    """No connection of our own is left on the broker's side."""
    tables = Path(f"/proc/{broker.pid}/net/tcp").read_text().splitlines()[1:]
    local = f":{broker.port:04X}"
    return not [line for line in tables if line.split()[1].endswith(local) and line.split()[3] == "01"]


def answers_once(port: int) -> bool:
    try:
        return serves(port)
    except (Closed, OSError):
        return False


def test_all_connections_are_counted(tmp_path: Path) -> None:
    with Ottla(tmp_path, settings={"max.connections": "6"}) as broker:
        wait_until(lambda: descriptors_settled(broker), "the connections of the start are gone")
        held = [Raw(broker.port) for _ in range(6)]
        for raw in held:
            assert raw.call(API_VERSIONS, 0, b"").int16() == 0
        # As in Kafka the next one waits in the accept queue: it is not served, nor is anybody thrown out for it.
        extra = Raw(broker.port, timeout_s=0.5)
        with pytest.raises((TimeoutError, Closed)):
            extra.call(API_VERSIONS, 0, b"")
        for raw in held[1:]:
            assert raw.call(API_VERSIONS, 0, b"").int16() == 0
        held[0].close()
        extra.close()
        wait_until(lambda: answers_once(broker.port), "a place is free again")
        for raw in held:
            raw.close()
