"""One client connection: frames in, answers out in the order of the requests.

The socket is read and written directly, on readiness events of the loop. This allows what asyncio streams do not: all
connections receive into one shared buffer, so a request that arrives whole is handled in place and never copied; and
regions of log files are sent by `sendfile`.

Laws:
- A frame is only lent to the handler. The next read of any connection overwrites the shared buffer, so a handler must
  copy whatever it keeps after it returns. (Record batches are written to the log before it returns.)
- Memory follows the bytes that have arrived, not the declared length: an incomplete frame is held in a buffer that
  grows with its bytes. From `MAPPED_SIZE_MIN` on it is a memory mapping of the declared length, which the kernel fills
  with pages as bytes arrive; it never grows, and it belongs to this frame alone. After a large frame the next read goes
  straight into a buffer of that size, so that a stream of large frames is not copied either. Between frames these
  buffers are shared by all connections (`Receiver`). Several medium-sized frames are read at once and handled together.
- A request without records that is too large is refused as soon as its API is known: the rest is never received.
- Answers are sent in request order, through the outbox. While an answer is pending (a Future), the answers after it
  wait, but their requests are handled. Only a request that is worked out in slices delays that too.
- Two limits pause reading until the connection drains: the number of unanswered requests, and the bytes not yet sent,
  which include answers that wait behind a pending one.
- A connection whose client is over a quota is muted: nothing is read from it for a while.
- A connection handles frames for one turn, then others get the loop. Remaining frames wait for its next turn. After a
  long turn a connection must first wait in line, so that clients with less work go first.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any

from ottla.clock import monotonic
from ottla.errors import Hangup
from ottla.net.answer import Deferred
from ottla.net.outbox import Outbox, size_of
from ottla.net.receiver import EXPECTED_SIZE_MAX, LARGE_SIZE, MAPPED, SPARE_SIZE_MAX, WASTE_MAX, OwnMapping, Receiver
from ottla.net.turns import TURN_S
from ottla.security.principal import ANONYMOUS
from ottla.wire.frame import carries_records

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from socket import socket

    from ottla.net.answer import Answer
    from ottla.net.counts import Times
    from ottla.net.outbox import Part
    from ottla.security.login import Login
    from ottla.security.principal import Principal

log = logging.getLogger("ottla.net")

LENGTH = Struct(">i")
_unpack_length = LENGTH.unpack_from
KEY = Struct(">h")
# The largest request without records: 65,536 of the longest names. The decoded request and its answer may be as large
# again, and larger group metadata would not fit into a record.
PLAIN_SIZE_MAX = 16 << 20
# How many frames are handled together, and their largest size. Larger writes gain little from it.
GATHERED_MAX = 64
GATHERED_SIZE_MAX = 128 * 1024
# After this many reads a client is no longer new (see `Newcomers`): it has logged in, and sent some requests.
READS_WHILE_NEW = 10
# The most bytes of one read into a large buffer.
FILL_SIZE_MAX = 1 << 20
# Frames from this size on are mapped. Below it, growing by copying is faster than faulting in new pages.
MAPPED_SIZE_MIN = SPARE_SIZE_MAX
# How many answers may wait for their send time. Beyond that they are counted early, even if the outbox is not empty.
UNSENT_MAX = 1000
# A longer turn counts as a long one.
LONG_TURN_S = TURN_S / 2


class ConnectionLimits:
    """Bounds of one listener's connections, from the option table."""

    __slots__ = ("fits_buffers", "frame_size_max", "requests_max", "unchecked_max", "unsent_size_max")

    def __init__(
        self, frame_size_max: int, requests_max: int, unsent_size_max: int, *, fits_buffers: bool = False
    ) -> None:
        self.frame_size_max = frame_size_max
        self.unchecked_max = min(frame_size_max, PLAIN_SIZE_MAX)  # any request may have this size
        self.requests_max = requests_max
        self.unsent_size_max = unsent_size_max
        self.fits_buffers = fits_buffers  # whether the size of send buffers follows the client: see `SendBuffer`


def is_own(data: memoryview) -> bool:
    """Whether these bytes stay valid. Most frames are in a buffer that the next read overwrites."""
    return data.obj.__class__ in (bytes, OwnMapping)


def plain(address: str) -> str:
    """An IPv4 address on a socket for both families, without the `::ffff:` prefix."""
    return address.removeprefix("::ffff:")


def close_socket(sock: socket, _: list[Part]) -> None:
    """Close a socket, and only then forget the answers that a thread was sending to it: they keep their files open."""
    sock.close()


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
        "_job",
        "_job_left",
        "_job_parts",
        "_large",
        "_limits",
        "_loop",
        "_mute",
        "_on_close",
        "_out",
        "_queued",
        "_reading",
        "_reads_left",
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
        limits: ConnectionLimits,
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
        self.login: Login | None = None  # the SASL login, if the listener requires one
        peer, local = sock.getpeername(), sock.getsockname()
        self.host, self.port = plain(peer[0]), peer[1]
        self.dialled: tuple[str, int] = (plain(local[0]), local[1])
        self.software = ("unknown", "unknown")  # until the client sends its name and version
        self.active_at = loop.time()
        self.arrived = self.begun = 0.0  # arrival of the current frame, and start of its turn
        self.unsent: list[Times] = []  # of answers that are not sent yet
        self.closed = False
        self._closing = False  # no more requests are read; the connection closes after the last answer
        self._held: memoryview | None = None  # the buffer of an incomplete frame
        self._held_size = 0  # how many of its bytes have arrived
        self._reserved = 0  # bytes reserved in `Room`
        self._starved: Callable[[], None] | None = None  # resumes reading; set while it waits for room
        self._expected = 0  # the size of the last frame if it was large: the next one is probably as large
        self._backlog: memoryview | None = None  # frames, the last perhaps partial, not handled yet
        self._queued = False  # whether it waits for a turn
        self._slow = False  # whether its last turn was a long one
        self._exclusive = False  # whether the pending answer must be ready before the next frame is handled
        self._answers: deque[list[Part] | Deferred] = deque()
        self._waiting_size = 0  # bytes of answers that wait behind a pending one
        self._out = Outbox(fits_buffer=limits.fits_buffers)
        self._reads_left = READS_WHILE_NEW  # until it is no longer new
        self._reading = True
        self._writing = False  # whether it waits until the socket takes more
        self._large = False  # whether it does so for a large region
        self._job: int | None = None  # a thread waits instead, and then sends the next `_job_parts` of the outbox
        self._job_parts = self._job_left = 0
        self._mute: asyncio.TimerHandle | None = None  # set while nothing is read
        self.muted_by: Any = None  # the quota that is the cause
        loop.add_reader(self._fd, self._on_first_readable)

    # ------------------------------------------------------------------ in

    def _on_first_readable(self) -> None:
        """Called instead of `_on_readable` while the client is new."""
        if not self._receiver.newcomers.serve(self._read_first) and not self.closed:
            self._loop.remove_reader(self._fd)  # until it is served

    def _read_first(self) -> None:
        if self.closed or not self._reading:  # the latter: whatever stopped it resumes it
            return
        self._reads_left -= 1
        self._start_reading()
        self._on_readable()

    def _start_reading(self) -> None:
        self._reading = True
        self._loop.add_reader(self._fd, self._on_first_readable if self._reads_left > 0 else self._on_readable)

    def _on_readable(self) -> None:
        self.active_at = self._loop.time()
        held = self._held
        try:
            expected = self._expected
            if held is None and expected and (self._slow or expected > GATHERED_SIZE_MAX):
                held = self._held = self._receiver.take_expected(expected)
            if held is None:
                shared = self._receiver.shared
                if 0 < expected <= len(shared):  # whole frames of that size, and no part of another
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
            self._send()  # the common case: one answer, nothing pending
            if self._closing or not self._reading:
                self._settle()

    def _fill_end(self, held: memoryview) -> int:
        """Where to stop filling the buffer: at the end of the frame, if it is known."""
        if self._held_size < 4:
            return self._expected or len(held)
        (length,) = LENGTH.unpack_from(held)
        return min(4 + int(length), len(held), self._held_size + FILL_SIZE_MAX)

    def _consume(self, data: memoryview, *, fresh: bool = True) -> None:
        """Handle the complete frames in data for one turn; keep the rest. `fresh`: they did not wait in line."""
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
                gather = None  # nothing to handle together
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
        """Handle as many small frames as possible together, from `position` on. Returns the next position, and whether
        any was handled."""
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
        """Handle these frames later; pause reading until then."""
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
            return  # whatever stopped it lines it up again
        backlog, self._backlog = self._backlog, None
        try:
            self._consume(backlog, fresh=False)
        except Exception as error:
            self._end_with(error)
            return
        self._flush()

    def _check_length(self, length: int, data: memoryview, position: int, size: int) -> None:
        """Refuse a frame that is too large, before its body is read. It starts at `position`; data ends at `size`."""
        if not 0 <= length <= self._limits.frame_size_max:
            raise Hangup(f"a frame of {length} bytes, the limit is {self._limits.frame_size_max}")
        if length > PLAIN_SIZE_MAX and size - position >= 6:
            (key,) = KEY.unpack_from(data, position + 4)
            if not carries_records(key):
                raise Hangup(f"a request of {length} bytes without records, the limit is {PLAIN_SIZE_MAX}")

    def _hold(self, data: memoryview) -> None:
        """Keep the start of a frame. The buffer is twice what has arrived, whatever length was declared."""
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
        """Reserve memory for a frame that has begun. If there is none, pause reading until there is."""
        room = self._receiver.room
        if room is None or self._reserved or self._starved is not None:
            return
        if self.login is not None and self.login.principal is None:
            return  # frames before the login are small, and must not make others wait
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
        """More bytes arrived in the held buffer: handle complete frames, or enlarge the buffer."""
        arrived, length = self._held_size, 0
        if arrived >= 4:
            (length,) = LENGTH.unpack_from(held)
            self._check_length(length, held, 0, arrived)
        if arrived < 4 + length:
            wasted = len(held) > WASTE_MAX * max(4 + length, 4096)
            if wasted:
                self._expected = 0  # this frame is smaller than the last one
            if wasted or arrived == len(held):
                self._hold(held[:arrived])
                if length < MAPPED_SIZE_MIN:  # a mapping is used once
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
        """Send this answer when it is ready and all before it are sent."""
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
        """Called when answers have been sent: first handle the frames that wait, then read from the socket again."""
        if self.closed or self._closing or self._is_stopped():
            return
        if self._backlog is not None:
            self._line_up()
        elif not self._reading:
            self._start_reading()

    def mute(self, seconds: float, cause: Any) -> None:
        """Read nothing for this long, because of a quota. Requests received before are still answered."""
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
        """A pending answer is ready: count its bytes, and send it if it is the next one."""
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
        """Move finished answers, in order, to the outbox and send as much as the socket takes."""
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
        """Send until the socket is full or everything is sent."""
        try:
            everything = self._out.send(self._socket)
        except OSError:
            self.close()
            return
        if not everything:
            self._wait_for_room()
        elif self._writing or self._large:
            self._stop_waiting()
        unsent = self.unsent
        if unsent and (everything or len(unsent) > UNSENT_MAX):
            now = monotonic()
            for times in unsent:
                times[0].add(times, now)
            unsent.clear()

    def _wait_for_room(self) -> None:
        """Continue when the socket takes more."""
        out, receiver = self._out, self._receiver
        pieces = out.list_pieces()
        if pieces and not self._large:
            self._large = True
            receiver.senders += 1
        crowded = receiver.senders > 1
        if pieces:
            out.fit_buffer(self._socket, crowded=crowded)
            if crowded and receiver.sender is not None:  # alone, the loop has nothing better to do
                self._job = receiver.sender.send(self._fd, pieces, self._on_passed_on)
                self._job_parts = len(pieces)
        if self._job is None and not self._writing:
            self._loop.add_writer(self._fd, self._on_writable)
        elif self._job is not None and self._writing:
            self._loop.remove_writer(self._fd)
        self._writing = True

    def _stop_waiting(self) -> None:
        """Everything is sent, or nothing more will be."""
        if self._large:
            self._large = False
            self._receiver.senders -= 1
        if self._writing and self._job is None:
            self._loop.remove_writer(self._fd)
        self._writing = False

    def _on_passed_on(self, error: OSError | None) -> None:
        """The thread has sent everything, or failed."""
        if self.closed:
            return
        self._job, self._writing = None, False
        self.active_at = self._loop.time()
        if error is not None:
            self.close()
            return
        self._out.drop(self._job_parts)
        self._send()
        self._settle()

    def note_progress(self) -> None:
        """Count what the thread has sent meanwhile as activity."""
        sender = self._receiver.sender
        if self._job is not None and sender is not None:
            left = sender.left(self._job)
            if left != self._job_left:
                self._job_left, self.active_at = left, self._loop.time()

    # ------------------------------------------------------------------ end

    @property
    def waiting(self) -> bool:
        """Whether the peer waits for an answer and has read everything sent so far."""
        return bool(self._answers) and not self._out and not self._reserved

    def enter(self, handle: Callable[[Connection, memoryview], Answer], limits: ConnectionLimits) -> None:
        """The client has authenticated: use this handler and these limits from now on."""
        self._handle, self._limits = handle, limits

    def drain(self) -> None:
        """Read no more requests; close after the last answer is sent."""
        if self.closed:
            return
        self._closing = True
        self._stop_reading()
        self._backlog = None
        self._settle()

    def hang_up(self, reason: str) -> None:
        """Close the connection because of what the peer sent. Answers to earlier requests are sent if possible."""
        if self.closed:
            return
        log.warning("closing the connection of %s:%d: %s", self.host, self.port, reason)
        if not self._closing:
            self._closing = True
            self._flush()
        self.close()

    def _end_with(self, error: Exception) -> None:
        """Handling failed, so the start of the next frame is unknown: close the connection."""
        if not isinstance(error, Hangup):
            log.error("frames could not be handled", exc_info=error)
        self.hang_up(str(error) or type(error).__name__)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._reading:
            self._loop.remove_reader(self._fd)
        self._stop_waiting()
        if self._mute is not None:
            self._mute.cancel()
        if self._job is not None and self._receiver.sender is not None:
            self._receiver.sender.cancel(self._job, partial(close_socket, self._socket, self._out.take_parts()))
        else:
            self._socket.close()
        for answer in self._answers:
            if isinstance(answer, Deferred):
                answer.future.cancel()
        self._answers.clear()
        self._out.clear()
        self._held = self._backlog = None
        self._release()
        self._on_close(self)
        if self.login is not None:
            self.login.close()
