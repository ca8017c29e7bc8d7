"""The raw load: prebuilt frames over plain sockets, so that the broker and not the client is the limit.

One thread, one epoll. Each connection keeps `window` requests in flight: it counts the responses and sends as many new
frames in one send. A produce response has a fixed size, so counting is a division and checking the error codes a slice;
fetched bytes are dropped inside the kernel (MSG_TRUNC). A request costs this side a few microseconds.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from bench.wire import BenchError, Connection, fetch_error, fetch_frame

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.brokers import Broker
    from bench.rows import Sample
    from bench.wire import Shape

ANSWERS = 1 << 16
FETCHED_MIN = 1000
SILENCE_S = 20.0


class Stretch(NamedTuple):
    """How long to run: the warm-up does not count."""

    warm_s: float
    seconds: float


class Clock:
    """The measured time: begins after the warm-up, and measures the broker's CPU time."""

    def __init__(self, broker: Broker, stretch: Stretch) -> None:
        self._broker = broker
        self.start = time.perf_counter() + stretch.warm_s
        self.end = self.start + stretch.seconds
        self._cpu_s = 0.0
        self.begun = False
        self.latencies: list[float] = []

    def begin(self) -> None:
        self.begun, self.start, self._cpu_s = True, time.perf_counter(), self._broker.cpu_s()
        self.latencies.clear()

    def result(self, count: int, size: int) -> Sample:
        seconds, cpu_s = time.perf_counter() - self.start, self._broker.cpu_s() - self._cpu_s
        if not count or not self.latencies:
            raise BenchError(f"{self._broker.name}: nothing was answered")
        self.latencies.sort()
        return {"count": count, "bytes": size, "seconds": seconds, "cpu_s": cpu_s} | percentiles(self.latencies)


def percentiles(ordered: Sequence[float]) -> Sample:
    """p50, p99 and p99.9 in milliseconds of sorted seconds."""
    last = len(ordered) - 1
    shares = (("p50_ms", 0.5), ("p99_ms", 0.99), ("p999_ms", 0.999))
    return {name: ordered[min(last, int(len(ordered) * share))] * 1e3 for name, share in shares}


def produce(
    broker: Broker, frames: Sequence[bytes], shape: Shape, stretch: Stretch, *, value_bytes: Sequence[int], window: int
) -> Sample:
    """One connection for each frame, each sending its own again and again and counting its own `value_bytes`."""
    senders = [Sender(broker.port, frame, window, shape) for frame in frames]
    by_fd = {sender.socket.fileno(): (sender, size) for sender, size in zip(senders, value_bytes, strict=True)}
    poll = select.epoll()
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    clock, count, sent = Clock(broker, stretch), 0, 0
    try:
        for sender in senders:
            sender.send(window)
        while (now := time.perf_counter()) < clock.end:
            if not clock.begun and now >= clock.start:
                clock.begin()
                count = sent = 0
            events = poll.poll(SILENCE_S)
            if not events:
                raise BenchError(f"{broker.name}: no answer in {SILENCE_S:g} s")
            for fd, _ in events:
                sender, size = by_fd[fd]
                answered = sender.turn(clock.latencies)
                count, sent = count + answered, sent + answered * size
        return clock.result(count, sent)
    finally:
        poll.close()
        for sender in senders:
            sender.close()


class Sender:
    """One connection with its window of requests in flight."""

    def __init__(self, port: int, frame: bytes, window: int, shape: Shape) -> None:
        self.socket = Connection(port, SILENCE_S).socket
        self._frames = memoryview(frame * window)
        self._frame_size = len(frame)
        self._shape = shape
        self._rest = b""
        self._sent: deque[float] = deque()

    def send(self, count: int) -> None:
        self._sent.extend([time.perf_counter()] * count)
        self.socket.sendall(self._frames[: count * self._frame_size])

    def turn(self, latencies: list[float]) -> int:
        """Take the responses that have arrived and send as many new requests."""
        count = self._receive(latencies)
        if count:
            self.send(count)
        return count

    def _receive(self, latencies: list[float]) -> int:
        data = self.socket.recv(ANSWERS)
        if not data:
            raise BenchError("the broker closed the connection")
        if self._rest:
            data = self._rest + data
        size, error_at = self._shape
        count = len(data) // size
        whole = count * size
        self._rest = data[whole:]
        # An error response may have another size: the length of the last response shows whether all were as expected.
        odd = count and int.from_bytes(data[whole - size : whole - size + 4]) != size - 4
        if odd or any(data[error_at:whole:size]) or any(data[error_at + 1 : whole : size]):
            raise BenchError(f"a produce was answered with an error: {data[:size].hex()}")
        now = time.perf_counter()
        latencies.extend([now - self._sent.popleft() for _ in range(count)])
        return count

    def close(self) -> None:
        """Wait for requests in flight, so that the connection closes cleanly."""
        try:
            while self._sent:
                self._receive([])
        except (OSError, BenchError):
            pass
        self.socket.close()


def fetch(
    broker: Broker, topic: str, offsets: Sequence[int], stretch: Stretch, *, partition_max: int, connections: int
) -> Sample:
    """Fetch partition 0 from each offset in turn on every connection, one request in flight each."""
    frames = [fetch_frame(topic, 0, offset, partition_max) for offset in offsets]
    with Connection(broker.port) as first:
        answer = first.call(frames[0])
        if fetch_error(answer, topic) or len(answer) < FETCHED_MIN:
            raise BenchError(f"a fetch was answered with error {fetch_error(answer, topic)} and {len(answer)} bytes")
    readers = [Reader(broker.port, cycle(frames, start)) for start in range(connections)]
    by_fd = {reader.socket.fileno(): reader for reader in readers}
    poll = select.epoll()
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    clock, count, size = Clock(broker, stretch), 0, 0
    try:
        for reader in readers:
            reader.send()
        while (now := time.perf_counter()) < clock.end:
            if not clock.begun and now >= clock.start:
                clock.begin()
                count = size = 0
            for fd, _ in poll.poll(SILENCE_S):
                if got := by_fd[fd].turn(clock.latencies):
                    count, size = count + 1, size + got
        return clock.result(count, size)
    finally:
        poll.close()
        for reader in readers:
            reader.socket.close()


def cycle(frames: Sequence[bytes], start: int) -> Iterator[bytes]:
    position = start * 7919  # a different walk for each connection
    while True:
        position += 1
        yield frames[position % len(frames)]


class Reader:
    """One connection that fetches and drops the bytes."""

    def __init__(self, port: int, frames: Iterator[bytes]) -> None:
        self.socket = Connection(port, SILENCE_S).socket
        self._frames = frames
        self._size = self._left = 0
        self._sent = 0.0
        self._dropped = bytearray(1 << 20)

    def send(self) -> None:
        self._sent = time.perf_counter()
        self.socket.sendall(next(self._frames))

    def turn(self, latencies: list[float]) -> int:
        """The bytes of the response when this turn completed one, otherwise 0."""
        if not self._left:
            head = self.socket.recv(4, socket.MSG_WAITALL)
            if len(head) < 4:
                raise BenchError("the broker closed the connection")
            self._size = self._left = int(struct.unpack(">i", head)[0])
        self._left -= self.socket.recv_into(self._dropped, min(self._left, len(self._dropped)), socket.MSG_TRUNC)
        if self._left:
            return 0
        if self._size < FETCHED_MIN:
            raise BenchError(f"a fetch was answered with {self._size} bytes")
        latencies.append(time.perf_counter() - self._sent)
        self.send()
        return self._size
