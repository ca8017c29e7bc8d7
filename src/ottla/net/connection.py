"""One client connection: frames in, answers out in the order of the requests.

The socket is read and written here directly, on readiness events of the loop, because that allows what a stream object
does not: every connection receives into one shared buffer, so a request that arrived whole is handled where it lies and
never copied; and regions of log files leave by `sendfile`.

Laws:
- A frame is only lent to the handler. The shared buffer is overwritten by the next read of any connection, so whatever
  a handler wants to keep after it returned it must copy. (Record batches are written to the log before it returns.)
- Memory follows the bytes that have arrived: a frame that is not whole yet is held in a buffer that grows with them,
  whatever length it declared. From some megabytes on it is a mapping of the declared length, which the kernel fills
  with memory as bytes arrive: it never grows, and it belongs to the frame. After a large frame the next read goes
  straight into a buffer of that size, so that a stream of large frames is not copied either; between frames these
  buffers belong to all connections (`Receiver`). Of less large ones several are read at once, to be handled together.
- A request without records is refused for its size as soon as its API is known: the rest of it is never received.
- Answers leave in request order, through the outbox. A late answer (a Future) holds back the ones behind it, not their
  handling; only one that is worked out in slices holds back that too.
- Two bounds stop the reading of a connection until it drains: requests not yet answered, and bytes not yet sent, also
  those of answers that wait behind a late one.
- A connection whose client is over a quota is muted: nothing is read from it for a while.
- A connection gets a turn, not the loop. Frames that are left when it is over wait for the next one, and a connection
  whose last turn was long waits before it handles anything: others, who ask for less, go first.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any

from ottla.clock import monotonic
from ottla.errors import Hangup
from ottla.net.outbox import Outbox, Part, size_of
from ottla.net.receiver import EXPECTED_SIZE_MAX, LARGE_SIZE, MAPPED, SPARE_SIZE_MAX, WASTE_MAX, OwnMapping, Receiver
from ottla.net.turns import TURN_S
from ottla.security.principal import ANONYMOUS
from ottla.wire.frame import carries_records

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from socket import socket

    from ottla.net.counts import Times
    from ottla.security.login import Login
    from ottla.security.principal import Principal

log = logging.getLogger("ottla.net")

LENGTH = Struct(">i")
_unpack_length = LENGTH.unpack_from
KEY = Struct(">h")
# The largest request without records: 65,536 of the longest names. What is read from it, and what is answered, may be
# as large again, and nothing that a group says fits into a record when it is larger.
PLAIN_SIZE_MAX = 16 << 20
# Frames that may be handled at once: how many, and how large. Larger writes gain little by being one.
GATHERED_MAX = 64
GATHERED_SIZE_MAX = 128 * 1024
# One read into a large buffer takes at most this much.
FILL_SIZE_MAX = 1 << 20
# From here on a frame is mapped. New pages cost more time than copying does, so smaller ones grow by copying.
MAPPED_SIZE_MIN = SPARE_SIZE_MAX


# Answers whose time to leave is measured at once. A connection that never quite empties its queue counts them early.
UNSENT_MAX = 1000
# A turn longer than this was a long one.
LONG_TURN_S = TURN_S / 2


class Deferred:
    """An answer that comes later: `encode` turns the finished future into parts to send, or None for no answer.

    `exclusive`: no further request of the connection is handled before it is there.
    """

    __slots__ = ("encode", "exclusive", "fault", "future", "parts", "ready", "times")

    def __init__(
        self,
        future: asyncio.Future[Any],
        encode: Callable[[asyncio.Future[Any]], list[Part] | None],
        *,
        exclusive: bool = False,
    ) -> None:
        self.future = future
        self.encode = encode
        self.exclusive = exclusive
        self.ready = False
        self.fault: str | None = None  # why there is none, and no more of this connection
        self.parts: list[Part] | None = None
        self.times: Times | None = None


Answer = list[Part] | Deferred | None


class Limits:
    """Bounds of one listener's connections, from the option table."""

    __slots__ = ("frame_size_max", "requests_max", "unchecked_max", "unsent_size_max")

    def __init__(self, frame_size_max: int, requests_max: int, unsent_size_max: int) -> None:
        self.frame_size_max = frame_size_max
        self.unchecked_max = min(frame_size_max, PLAIN_SIZE_MAX)  # any request may be as large
        self.requests_max = requests_max
        self.unsent_size_max = unsent_size_max


def is_own(data: memoryview) -> bool:
    """Whether these bytes stay as they are. Most are in a buffer that the next read overwrites."""
    return data.obj.__class__ in (bytes, OwnMapping)


def plain(address: str) -> str:
    """An IPv4 address on a socket for both families, without the `::ffff:` prefix."""
    return address.removeprefix("::ffff:")


class Connection:
    __slots__ = (
        "__weakref__",
        "_answers",
        "_backlog",
        "_closing",
        "_exclusive",
        "_expected",
        "_fd",
        "_handle",
        "_held",
        "_held_size",
        "_limits",
        "_loop",
        "_mute",
        "_on_close",
        "_out",
        "_queued",
        "_reading",
        "_receiver",
        "_reserved",
        "_slow",
        "_socket",
        "_starved",
        "_waiting_size",
        "_writing",
        "active_at",
        "arrived",
        "begun",
        "closed",
        "dialled",
        "host",
        "listener",
        "login",
        "muted_by",
        "port",
        "principal",
        "software",
        "unsent",
    )

    def __init__(
        self,
        sock: socket,
        *,
        listener: str,
        handle: Callable[[Connection, memoryview], Answer],
        on_close: Callable[[Connection], None],
        loop: asyncio.AbstractEventLoop,
        receiver: Receiver,
        limits: Limits,
        principal: Principal = ANONYMOUS,
    ) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._handle = handle
        self._on_close = on_close
        self._loop = loop
        self._receiver = receiver
        self._limits = limits
        self.listener = listener
        self.principal = principal
        self.login: Login | None = None  # where the client proves by SASL who it is
        peer, local = sock.getpeername(), sock.getsockname()
        self.host, self.port = plain(peer[0]), peer[1]
        self.dialled: tuple[str, int] = (plain(local[0]), local[1])
        self.software = ("unknown", "unknown")  # until the client says it
        self.active_at = loop.time()
        self.arrived = self.begun = 0.0  # when the frame that is handled came, and when its turn began
        self.unsent: list[Times] = []  # of answers that the socket has not taken yet
        self.closed = False
        self._closing = False  # no more requests are read; the connection ends when the last answer has left
        self._held: memoryview | None = None  # where a frame gathers that is not whole yet
        self._held_size = 0  # how much of it has arrived
        self._reserved = 0  # what it has taken of the room for all
        self._starved: Callable[[], None] | None = None  # what goes on when there is room, while it waits for some
        self._expected = 0  # the size of the last frame, if it was large: the next is likely to be like it
        self._backlog: memoryview | None = None  # frames, the last perhaps partial, that wait for handling to go on
        self._queued = False  # whether it waits for a turn
        self._slow = False  # whether its last turn was a long one
        self._exclusive = False  # whether an answer must be there before the next frame is handled
        self._answers: deque[list[Part] | Deferred] = deque()
        self._waiting_size = 0  # bytes of answers that wait behind a late one
        self._out = Outbox()
        self._reading = True
        self._writing = False
        self._mute: asyncio.TimerHandle | None = None  # the end of the time in which nothing is read
        self.muted_by: Any = None  # why
        loop.add_reader(self._fd, self._on_readable)

    # ------------------------------------------------------------------ in

    def _on_readable(self) -> None:
        self.active_at = self._loop.time()
        held = self._held
        try:
            expected = self._expected
            if held is None and expected and (self._slow or expected > GATHERED_SIZE_MAX):
                held = self._held = self._receiver.take_expected(expected)
            if held is None:
                shared = self._receiver.shared
                if expected:  # several of them, and no part of another
                    shared = shared[: len(shared) // expected * expected]
                size = self._socket.recv_into(shared)
            else:
                size = self._socket.recv_into(held[self._held_size : self._fill_end(held)])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        if size == 0:
            self.close()
            return
        if held is None and self._slow:
            self.arrived = monotonic()
            self._wait(self._receiver.shared[:size])
            return
        try:
            if held is None:
                self._consume(self._receiver.shared[:size])
            else:
                self._held_size += size
                self._gather(held)
        except Exception as error:
            self._end_with(error)
            return
        out = self._out
        if self._answers or self._writing or len(out) > 1:
            self._flush()
        elif out:
            self._send()  # the common case: one answer, and nothing in its way
            if self._closing or not self._reading:
                self._settle()

    def _fill_end(self, held: memoryview) -> int:
        """Up to where to fill the buffer: the end of the frame, as far as it is known."""
        if self._held_size < 4:
            return self._expected or len(held)
        (length,) = LENGTH.unpack_from(held)
        return min(4 + int(length), len(held), self._held_size + FILL_SIZE_MAX)

    def _consume(self, data: memoryview, *, fresh: bool = True) -> None:
        """Handle the whole frames in data, for one turn; keep the rest. `fresh`: they have not waited for it."""
        position, size, started = 0, len(data), monotonic()
        self.begun = started
        if fresh:
            self.arrived = started
        answers, out, unchecked_max = self._answers, self._out, self._limits.unchecked_max
        turn_s, gather = 0.0, getattr(self._handle, "gather", None)
        while size - position >= 4:
            if (answers or out.size or self._mute is not None) and self._is_stopped():
                self._keep(data[position:])
                return
            (length,) = _unpack_length(data, position)
            if not 0 <= length <= unchecked_max:
                self._check_length(length, data, position, size)
            end = position + 4 + length
            if end > size:
                break
            if position:
                turn_s = turn_s or self._receiver.turns.turn_s()
                self.begun = monotonic()
                if self.begun - started >= turn_s:
                    self._slow = True
                    self._wait(data[position:])
                    return
            if gather is not None and size - end > 4:
                position, gathered = self._handle_several(gather, data, position)
                if gathered:
                    continue
                gather = None  # nothing to gain here
            answer = self._handle(self, data[position + 4 : end])
            if answer.__class__ is list and not answers:
                out.add(answer)
            elif answer is not None:
                self._line_up_answer(answer)
            position = end
            if self.closed or self._closing:
                return
        self._slow = monotonic() - started >= LONG_TURN_S
        if position < size:
            self._hold(data[position:])

    def _handle_several(
        self, gather: Callable[[Connection, list[memoryview]], list[Answer]], data: memoryview, position: int
    ) -> tuple[int, bool]:
        """Handle as many of the small frames from there on as can be at once: where to go on, and whether any was."""
        frames, size, at = list[memoryview](), len(data), position
        kind, most = data[at + 4 : at + 8], min(GATHERED_SIZE_MAX, self._limits.unchecked_max)
        while size - at >= 4 and len(frames) < GATHERED_MAX:
            (length,) = _unpack_length(data, at)
            end = at + 4 + length
            if not 0 <= length <= most or end > size or data[at + 4 : at + 8] != kind:
                break
            frames.append(data[at + 4 : end])
            at = end
        answers = gather(self, frames) if len(frames) > 1 else []
        for frame, answer in zip(frames, answers, strict=False):
            position += 4 + len(frame)
            if answer.__class__ is list and not self._answers:
                self._out.add(answer)
            elif answer is not None:
                self._line_up_answer(answer)
        return position, bool(answers)

    def _keep(self, data: memoryview) -> None:
        """Handle these frames later, and read no more until then."""
        if self._reading:
            self._stop_reading()
        self._backlog = data if is_own(data) else memoryview(bytes(data))

    def _wait(self, data: memoryview) -> None:
        """Handle these frames in the next turn of this connection."""
        self._keep(data)
        self._line_up()

    def _line_up(self) -> None:
        if not self._queued:
            self._queued = True
            self._receiver.turns.add(self._turn)

    def _turn(self) -> None:
        self._queued = False
        if self.closed or self._closing or self._backlog is None or self._is_stopped():
            return  # what stopped it queues it again when it is over
        backlog, self._backlog = self._backlog, None
        try:
            self._consume(backlog, fresh=False)
        except Exception as error:
            self._end_with(error)
            return
        self._flush()

    def _check_length(self, length: int, data: memoryview, position: int, size: int) -> None:
        """Refuse a frame for its size, before its body is read: it begins at `position`, data ends at `size`."""
        if not 0 <= length <= self._limits.frame_size_max:
            raise Hangup(f"a frame of {length} bytes, allowed are {self._limits.frame_size_max}")
        if length > PLAIN_SIZE_MAX and size - position >= 6:
            (key,) = KEY.unpack_from(data, position + 4)
            if not carries_records(key):
                raise Hangup(f"a request of {length} bytes without records, allowed are {PLAIN_SIZE_MAX}")

    def _hold(self, data: memoryview) -> None:
        """Keep the beginning of a frame. Room is made for as much again as has come, not for what was announced."""
        arrived = len(data)
        room = max(2 * arrived, 4096, min(self._expected, EXPECTED_SIZE_MAX))
        if arrived >= 4:
            whole = 4 + LENGTH.unpack_from(data)[0]
            if min(room, whole) >= MAPPED_SIZE_MIN:
                held = memoryview(OwnMapping(-1, whole, flags=MAPPED))
            else:
                held = self._receiver.take(min(room, whole))
        else:
            held = self._receiver.take(room)
        held[:arrived] = data
        self._held, self._held_size = held, arrived
        if arrived >= 4:
            self._reserve(whole)

    def _reserve(self, size: int) -> None:
        """Take room for a frame that has begun, or read nothing before there is some."""
        room = self._receiver.room
        if room is None or self._reserved or self._starved is not None:
            return
        if self.login is not None and self.login.principal is None:
            return  # frames of strangers are small, and must not keep others waiting
        if room.take(size):
            self._reserved = size
            return
        self._stop_reading()

        def go_on() -> None:
            self._starved = None
            self._reserve(size)
            self._resume_reading()

        self._starved = go_on
        room.wait(go_on)

    def _release(self) -> None:
        size, self._reserved = self._reserved, 0
        if self._starved is not None and self._receiver.room is not None:
            self._receiver.room.leave(self._starved)
            self._starved = None
        if size and self._receiver.room is not None:
            self._receiver.room.give(size)

    def _gather(self, held: memoryview) -> None:
        """More bytes came into the held buffer: handle what is whole, or make room for more."""
        arrived, length = self._held_size, 0
        if arrived >= 4:
            (length,) = LENGTH.unpack_from(held)
            self._check_length(length, held, 0, arrived)
        if arrived < 4 + length:
            wasted = len(held) > WASTE_MAX * max(4 + length, 4096)
            if wasted:
                self._expected = 0  # it is not like the last one
            if wasted or arrived == len(held):
                self._hold(held[:arrived])
                if length < MAPPED_SIZE_MIN:  # else this is for once
                    self._receiver.give(held)
            if arrived >= 4:
                self._reserve(4 + length)
            return
        self._held, self._held_size = None, 0
        self._expected = 4 + length if LARGE_SIZE <= length < SPARE_SIZE_MAX else 0
        if self._slow and arrived < LARGE_SIZE:
            self.arrived = monotonic()
            self._wait(held[:arrived])
        else:
            self._consume(held[:arrived])
        self._receiver.give(held)
        self._release()

    def _line_up_answer(self, answer: list[Part] | Deferred) -> None:
        """Send it when it is there and those before it have left."""
        if not isinstance(answer, Deferred):
            self._waiting_size += size_of(answer)
        else:
            self._exclusive = answer.exclusive
            answer.future.add_done_callback(partial(self._on_answer, answer))
        self._answers.append(answer)

    def _is_stopped(self) -> bool:
        return (
            self._exclusive
            or len(self._answers) >= self._limits.requests_max
            or self._out.size + self._waiting_size > self._limits.unsent_size_max
            or self._mute is not None
            or self._starved is not None
        )

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _resume_reading(self) -> None:
        """Called when answers have left: take up the frames that waited, then the socket again."""
        if self.closed or self._closing or self._is_stopped():
            return
        if self._backlog is not None:
            self._line_up()
        elif not self._reading:
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def mute(self, seconds: float, cause: Any) -> None:
        """Read nothing for so long, because of a quota. What was asked before is answered meanwhile."""
        until = self._loop.time() + seconds
        if self.closed or self._closing or (self._mute is not None and self._mute.when() >= until):
            return
        if self._mute is not None:
            self._mute.cancel()
        self._mute, self.muted_by = self._loop.call_at(until, self.unmute), cause
        self._stop_reading()

    def unmute(self) -> None:
        if self._mute is not None:
            self._mute.cancel()
            self._mute = self.muted_by = None
            self._resume_reading()

    # ------------------------------------------------------------------ out

    def _on_answer(self, answer: Deferred, future: asyncio.Future[Any]) -> None:
        """A late answer is there: count its bytes, and send it if it is next."""
        if self.closed:
            return
        if answer.exclusive:
            self._exclusive = False
        try:
            answer.parts = answer.encode(future)
        except Hangup as reason:
            answer.fault = str(reason)
        answer.ready = True
        if answer.times is not None:
            counts, arrived, begun, handled, _, weight = answer.times
            now = monotonic()
            answer.times = counts, arrived, begun, now, now - handled, weight
        self._waiting_size += size_of(answer.parts or ())
        if self._answers[0] is answer:
            self._flush()
        else:
            self._settle()

    def _flush(self) -> None:
        """Move the answers that are ready, in order, to the outgoing queue and send what the socket takes."""
        if self.closed:
            return
        answers, out = self._answers, self._out
        while answers:
            answer = answers[0]
            if isinstance(answer, Deferred):
                if not answer.ready:
                    break
                if answer.fault is not None:
                    self.hang_up(answer.fault)
                    return
                parts = answer.parts or []
                if answer.times is not None:
                    self.unsent.append(answer.times)
            else:
                parts = answer
            answers.popleft()
            self._waiting_size -= size_of(parts)
            out.add(parts)
        if out and not self._writing:
            self._send()
        self._settle()

    def _settle(self) -> None:
        if self.closed:
            return
        if self._closing and not self._answers and not self._out:
            self.close()
        elif not self._reading:
            self._resume_reading()

    def _on_writable(self) -> None:
        self.active_at = self._loop.time()
        self._send()
        self._settle()

    def _send(self) -> None:
        """Send until the socket is full or everything is out."""
        try:
            everything = self._out.send(self._socket)
        except OSError:
            self.close()
            return
        if not everything:
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._fd, self._on_writable)
        elif self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        unsent = self.unsent
        if unsent and (everything or len(unsent) > UNSENT_MAX):
            now = monotonic()
            for times in unsent:
                times[0].add(times, now)
            unsent.clear()

    # ------------------------------------------------------------------ end

    @property
    def waiting(self) -> bool:
        """Whether the peer waits for an answer, and has read all that was sent so far."""
        return bool(self._answers) and not self._out and not self._reserved

    def enter(self, handle: Callable[[Connection, memoryview], Answer], limits: Limits) -> None:
        """The client has proved who it is: from now on its requests go there, and may be as large."""
        self._handle, self._limits = handle, limits

    def drain(self) -> None:
        """Read no more requests and close once every answer has left."""
        if self.closed:
            return
        self._closing = True
        self._stop_reading()
        self._backlog = None
        self._settle()

    def hang_up(self, reason: str) -> None:
        """End the connection because of what the peer sent. Answers to earlier requests are sent if possible."""
        if self.closed:
            return
        log.warning("closing the connection of %s:%d: %s", self.host, self.port, reason)
        if not self._closing:
            self._closing = True
            self._flush()
        self.close()

    def _end_with(self, error: Exception) -> None:
        """Handling failed, so where the next frame begins is not known any more: close the connection."""
        if not isinstance(error, Hangup):
            log.error("frames could not be handled", exc_info=error)
        self.hang_up(str(error) or type(error).__name__)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._reading:
            self._loop.remove_reader(self._fd)
        if self._writing:
            self._loop.remove_writer(self._fd)
        if self._mute is not None:
            self._mute.cancel()
        self._socket.close()
        for answer in self._answers:
            if isinstance(answer, Deferred):
                answer.future.cancel()
        self._answers.clear()
        self._out.clear()
        self._held = self._backlog = None
        self._release()
        self._on_close(self)
