"""A fixed number of requests, cycling through a list of frames, over connections that stay open.

The pump (pump.py) runs for a time; this runs for a count, so that a turn is the same work on every broker and at every
size. A request waits until a connection is free, and connections are used in turn: with as many lanes as connections
each has one request in flight, with fewer the requests rotate over all of them.
"""

from __future__ import annotations

import select
from collections import deque
from typing import TYPE_CHECKING

from bench.wire import BenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.wire import Connection

SILENCE_S = 60.0


class Circuit:
    def __init__(
        self,
        connections: Sequence[Connection],
        frames: Iterator[bytes | bytearray],
        error: Callable[[bytes], int],
        lanes: int,
    ) -> None:
        """`error` finds the error code in a response, after its length and correlation id."""
        self._by_fd = {connection.socket.fileno(): connection for connection in connections}
        self._free = deque(connections)
        self._frames = frames
        self._error = error
        self._lanes = min(lanes, len(connections))

    def run(self, count: int) -> None:
        """Send `count` requests and receive their responses."""
        poll = select.epoll()
        try:
            for fd in self._by_fd:
                poll.register(fd, select.EPOLLIN)
            left = count
            for _ in range(min(self._lanes, count)):
                left -= self._send()
            answered = 0
            while answered < count:
                events = poll.poll(SILENCE_S)
                if not events:
                    raise BenchError(f"no answer in {SILENCE_S:g} s")
                for fd, _ in events:
                    self._receive(self._by_fd[fd])
                    answered += 1
                    if left:
                        left -= self._send()
        finally:
            poll.close()

    def _send(self) -> int:
        self._free.popleft().socket.sendall(next(self._frames))
        return 1

    def _receive(self, connection: Connection) -> None:
        if error := self._error(connection.receive()):
            raise BenchError(f"a request was answered with error {error}")
        self._free.append(connection)
