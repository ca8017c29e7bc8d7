"""Hostile bytes for a running broker: it survives, its memory stays bounded, it serves other clients, and it answers or
closes as Kafka does.

Every API key at every version, each with a good request of random content and with cut, flipped, stuffed and random
bytes; unknown keys and versions; headers of garbage; compression bombs. A witness produces and fetches on a connection
of its own all the while and measures how long it waits. A traceback in the broker's log is a failure too: it must
expect any bytes.

SEEDS sets how many rounds.
"""

from __future__ import annotations

import gzip
import os
import socket
import struct
import threading
import time
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest
from compat.raw import (
    API_VERSIONS,
    Closed,
    Raw,
    Reader,
    batch,
    create_topic,
    fetch,
    list_offset,
    message,
    message_set,
    produce,
    seal,
    wrapped,
)
from fuzz.hostile.good_client import cpu_s, slowness
from fuzz.test_codec_fuzz import flipped, spliced, stuffed
from process import Ottla
from wire.samples import instance

from ottla.wire.apis import BY_KEY
from ottla.wire.codec import encode

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.xdist_group("live-fuzz")
ROUNDS = max(1, int(os.environ.get("SEEDS", "20")) // 20)
UNSUPPORTED_VERSION = 35
# How long one frame may keep us: a good request may ask for a long wait, which is no fault.
PATIENCE_S = 0.1
WITNESS_S_MAX = 5.0
GROWTH_MB_MAX = 100.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Ottla]:
    # A frame may be as large as a bomb needs, and no larger.
    with Ottla(settings={"socket.request.max.bytes": "2000000"}) as running:
        with Raw(running.port) as raw:
            assert create_topic(raw, "witness") == 0
        yield running


class Witness:
    """The connection of another client: produces, fetches, and remembers the longest wait."""

    def __init__(self, broker: Ottla) -> None:
        self._broker = broker
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.worst_s = 0.0
        self.rounds = 0
        self.failure: BaseException | None = None

    def _run(self) -> None:
        try:
            with Raw(self._broker.port) as raw:
                while not self._stop.wait(0.01):
                    began, used = time.monotonic(), cpu_s(self._broker.pid)
                    result = produce(raw, "witness", batch([b"still here"]))
                    assert result.error == 0, f"produce error {result.error}"
                    assert fetch(raw, "witness", result.base).data, "what was just written is not there"
                    # On a busy machine time passes without the broker: what it has used meanwhile is what counts.
                    passed_s = min(time.monotonic() - began, cpu_s(self._broker.pid) - used)
                    if passed_s > self.worst_s:
                        self.worst_s = max(self.worst_s, passed_s / slowness())
                    self.rounds += 1
        except BaseException as failure:  # shown by the thread that runs the test
            self.failure = failure

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)


@pytest.fixture
def witness(broker: Ottla) -> Iterator[Witness]:
    """Checks what must hold whatever a test sends."""
    small_mb, seen = broker.rss_mb(), broker.log.stat().st_size
    with Witness(broker) as watching:
        yield watching
    assert broker.alive, broker.log.read_text(errors="replace")[-3000:]
    if watching.failure is not None:
        raise watching.failure
    assert watching.worst_s < WITNESS_S_MAX, f"somebody else waited {watching.worst_s:.1f} s"
    assert broker.rss_mb() < small_mb + GROWTH_MB_MAX
    said = broker.log.read_bytes()[seen:].decode(errors="replace")
    assert "Traceback" not in said, said[said.index("Traceback") - 500 :][:4000]


def answered(port: int, frame: bytes) -> bytes | None:
    """Send one frame. Returns the answer; None if the connection was closed or no answer came in time."""
    with Raw(port, timeout_s=PATIENCE_S) as raw:
        try:
            raw.send_frame(frame)
            return raw.receive()
        except (Closed, TimeoutError, BrokenPipeError, ConnectionResetError):
            return None


def head(key: int, version: int, correlation: int, *, flexible: bool) -> bytes:
    return struct.pack(">hhih", key, version, correlation, 4) + b"fuzz" + (b"\0" if flexible else b"")


def every_version() -> list[tuple[int, int]]:
    return [(key, version) for key, api in BY_KEY.items() for version in range(api.versions[0], api.versions[1] + 1)]


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_every_api_at_every_version(broker: Ottla, witness: Witness, seed: int) -> None:
    random = Random(seed)
    answers = 0
    for key, version in every_version():
        api = BY_KEY[key]
        good = encode(instance(api.request, version, random), version)
        flexible = version >= api.flexible
        for body in (good, flipped(good, random), stuffed(good, random), spliced(good, random), random.randbytes(30)):
            correlation = random.randrange(1 << 31)
            found = answered(broker.port, head(key, version, correlation, flexible=flexible) + body)
            if found is not None:
                answers += 1
                assert found[:4] == struct.pack(">i", correlation), f"{api.name} v{version}: another's answer"
    assert answers > len(BY_KEY), "hardly anything was answered"
    assert witness.rounds > 10


def test_unknown_versions_are_answered_as_kafka_does(broker: Ottla, witness: Witness) -> None:
    for key, api in BY_KEY.items():
        for version in (api.versions[1] + 1, 32767, -1):
            found = answered(broker.port, head(key, version, 7, flexible=version >= api.flexible))
            if key != API_VERSIONS:
                assert found is None, f"{api.name} v{version}: closed, for nobody knows how to answer"
                continue
            assert found is not None
            answer = Reader(found)
            assert answer.int32() == 7
            assert answer.int16() == UNSUPPORTED_VERSION
            offered = {}
            for _ in range(answer.int32()):
                number = answer.int16()
                offered[number] = (answer.int16(), answer.int16())
            assert answer.rest() == b"", "the form of version 0"
            assert offered[0] == (0, 13), "with the list, so that the client can choose again"
    for key in (-1, 500, 32767):
        assert answered(broker.port, head(key, 0, 7, flexible=False)) is None


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_headers_of_garbage(broker: Ottla, witness: Witness, seed: int) -> None:
    random = Random(f"header {seed}")
    for size in range(40):
        for _ in range(5):
            answered(broker.port, random.randbytes(size))
    for length in (-2, -32768, 32767, 5):
        answered(broker.port, struct.pack(">hhih", 18, 0, 1, length) + b"abc")
    for key, version in ((18, 3), (3, 12), (0, 9)):
        for tags in (b"\xff\xff\xff\xff\x0f", b"\x01\x00\xff\xff\xff\xff\x07", b"\x80" * 10, b"\x01"):
            answered(broker.port, struct.pack(">hhih", key, version, 1, -1) + tags)
    assert witness.failure is None


class Bombs(NamedTuple):
    """Three hundred megabytes of zeros, a thousand times smaller when gzipped: as an old message set and as a batch."""

    old: bytes
    new: bytes


@pytest.fixture(scope="module")
def bombs() -> Bombs:
    zeros, time_ms = bytes(300 << 20), 1_700_000_000_000
    head = struct.pack(">hiqqqhii", 1, 0, time_ms, time_ms, -1, -1, -1, 1)
    return Bombs(wrapped(message_set([message(None, zeros)])), seal(head + gzip.compress(zeros)))


@pytest.mark.parametrize("version", [0, 2])
def test_bombs_in_old_message_sets(broker: Ottla, bombs: Bombs, witness: Witness, version: int) -> None:
    with Raw(broker.port, timeout_s=30) as raw:
        topic = f"bomb-{version}"
        assert create_topic(raw, topic) == 0
        deep = wrapped(wrapped(message_set([message(None, b"x")])))
        for data in (bombs.old, wrapped(bombs.old), deep):
            assert produce(raw, topic, data, version=version).error != 0
        assert list_offset(raw, topic, -1) == 0
    assert witness.failure is None


@pytest.mark.parametrize(
    "configs", [{"cleanup.policy": "compact"}, {"compression.type": "zstd"}], ids=["compact", "zstd"]
)
def test_bombs_where_batches_must_be_opened(
    broker: Ottla, bombs: Bombs, witness: Witness, configs: dict[str, str]
) -> None:
    """For a compacted topic and for one with its own codec, the broker has to decompress records."""
    with Raw(broker.port, timeout_s=30) as raw:
        topic = f"bomb-{next(iter(configs.values()))}"
        assert create_topic(raw, topic, 1, configs) == 0
        assert produce(raw, topic, bombs.new).error != 0
        assert list_offset(raw, topic, -1) == 0
    assert witness.failure is None


def test_a_trickle_of_bytes_is_a_request_like_any_other(broker: Ottla, witness: Witness) -> None:
    frame = head(API_VERSIONS, 0, 9, flexible=False)
    with Raw(broker.port) as raw:
        raw.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in struct.pack(">i", len(frame)) + frame:
            raw.socket.sendall(bytes([byte]))
        answer = Reader(raw.receive())
        assert (answer.int32(), answer.int16()) == (9, 0)
