"""Sends the rest of large answers in a thread, so that full sockets do not keep the loop busy.

The loop fills a socket once. If several clients wait for large answers, the rest of an answer (regions of log files and
the bytes between them) is passed to a native thread, native/src/sender.rs. It sends more whenever the socket takes
more, without the interpreter, and on another processor than the loop. If it has to read a file from a slow disk, only
other large answers wait.

Laws:
- Whoever passes on an answer keeps its socket and files open until the job has ended: until `ended` is called, or
  `released` if the job was cancelled.
- Without the native part, or on a system without epoll, `send` returns None, and the loop sends everything.
"""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    Piece = bytes | tuple[int, int, int]  # bytes, or a region: descriptor, position and size

log = logging.getLogger("ottla.net")


class NativeSender(Protocol):
    def fileno(self) -> int: ...
    def send(self, socket: int, pieces: Sequence[Piece], /) -> int: ...
    def left(self, job: int, /) -> int: ...
    def cancel(self, job: int, /) -> bool: ...
    def take_ends(self) -> list[tuple[int, int]]: ...
    def stop(self) -> None: ...


class RegionSender:
    """The jobs of one loop. The first one starts the thread."""

    __slots__ = ("_ended", "_failed", "_loop", "_native", "_start")

    def __init__(self, loop: asyncio.AbstractEventLoop, start: Callable[[], NativeSender] | None) -> None:
        """`start` starts the thread; None without the native part."""
        self._loop = loop
        self._start = start
        self._native: NativeSender | None = None
        self._failed = False  # whether the thread could not be started, the last time
        self._ended: dict[int, Callable[[OSError | None], object]] = {}  # what to call at the end of a job

    def send(self, socket: int, pieces: Sequence[Piece], ended: Callable[[OSError | None], object]) -> int | None:
        """Send these pieces in order, then call `ended` with the error, if any. Returns the number of the job."""
        native = self._native or self._begin()
        if native is None:
            return None
        try:
            job = native.send(socket, pieces)
        except OSError:  # a limit of the system
            return None
        self._ended[job] = ended
        return job

    def _begin(self) -> NativeSender | None:
        if self._start is None:
            return None
        try:
            native: NativeSender = self._start()
        except OSError as error:  # a limit of the system; the next job tries again
            if not self._failed:
                log.warning("large answers are sent without a thread of their own for now: %s", error)
            self._failed = True
            return None
        self._loop.add_reader(native.fileno(), self._take_ends)
        self._native = native
        return native

    def _take_ends(self) -> None:
        assert self._native is not None, "only a thread that was started reports"
        for job, error in self._native.take_ends():
            ended = self._ended.pop(job, None)
            if ended is not None:
                self._loop.call_soon(ended, OSError(error, os.strerror(error)) if error else None)

    def left(self, job: int) -> int:
        """How many bytes of a job are not sent yet."""
        return 0 if self._native is None else self._native.left(job)

    def cancel(self, job: int, released: Callable[[], object]) -> None:
        """End a job. Calls `released` when the thread no longer uses its socket and files: mostly at once."""
        if self._native is None or self._native.cancel(job):
            self._ended.pop(job, None)
            released()
        else:
            self._ended[job] = lambda _: released()

    def close(self) -> None:
        """End the thread, and every job. Connections should be closed before."""
        native, self._native, self._start = self._native, None, None
        if native is not None:
            self._loop.remove_reader(native.fileno())
            native.stop()
            unfinished, self._ended = self._ended, {}
            for ended in unfinished.values():  # those of cancelled jobs ignore the error
                ended(OSError(errno.ECANCELED, os.strerror(errno.ECANCELED)))
