"""The short way of a usual Produce: from the frame to the answer with no message in between.

Native code reads the request, prepares the answer up to the offsets (`read`), and says of each batch whether it can be
stored as it came (`check`). What is left needs the broker's state: find the partition, append, put the offset in.

Laws:
- It takes what is usual: versions 5 to 13, acks 1 or -1, no transaction, at most 1024 partitions and SIZE_MAX bytes,
  and batches that need nothing but their place, in logs that ask for no more. Compressed ones only up to
  PACKED_SIZE_MAX, so that not much was inflated in vain when one of them turns out to be unusual after all.
- A request that takes longer than TURN_S goes on in slices, with a copy of its frame. What is to be committed by others
  is waited for from before the next slice on: this broker may lose the lead meanwhile.
- From the first partition that is not usual on, the request goes the general way (`produce.Work`); so does the answer
  if it has to wait, or to tell of an error. What was appended before that keeps its result.
- Requests that have arrived together on one connection are handled together (`gather`): what they have for a partition
  is written at once. If that fails, it fails for all that were to be written, and for no other.
- Nothing is appended twice: an append that failed is an error in the answer, not a reason to try again.
- Both ways give the same bytes (tests/handlers/test_shortcut.py). Without the native part there is only the general
  one, and so it is with a fault on purpose in front of the handler, which works on messages. An authorizer and quotas
  do so, too: before anything is appended `clearance.py` says whether they want to see the request.
"""

from __future__ import annotations

from struct import Struct
from types import GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.errors import BrokerError
from ottla.handlers.call import Call
from ottla.handlers.produce import (
    ATTRIBUTES,
    BY_ID,
    TRANSACTIONAL,
    TURN_S,
    Work,
    answer_error,
    pieces,
    refuse_append,
)
from ottla.log.log import RETRY
from ottla.records.batch import CODEC_MASK, HEADER_SIZE
from ottla.records.native import produce_reader
from ottla.records.validate import ON_LOOP, ZSTD_SINCE, LargeError
from ottla.replica.partition import ALL, UNLIMITED
from ottla.wire import codec
from ottla.wire.decoding import RECORDS_ELEMENTS_MAX
from ottla.wire.frame import parse_header
from ottla.wire.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.handlers.call import Parts, Peer, Steps
    from ottla.handlers.clearance import Clearance
    from ottla.quota.quotas import Quotas
    from ottla.records.native import ProduceEntry, ProduceReader, Sound
    from ottla.records.validate import Terms
    from ottla.replica.partition import Partition
    from ottla.security.authorizer import Authorizer
    from ottla.wire.messages.produce import PartitionProduceResponse

    Done = tuple[Partition, int, int, int, int]  # as `Work.note` takes it
    Gathered = tuple[list["Placed"], bytes]  # the batches of a request, and the end of the answer

VERSION_MIN = 5  # see native/src/produce.rs
SIZE_MAX = 2 << 20
PACKED_SIZE_MAX = 192 << 10
RESULT = Struct(">qqq").pack  # base offset, append time, log start
NO_TIME = -1
ENTRIES_AT_ONCE = 16  # between two looks at the clock
GATHER_S = 0.001  # how long requests are gathered for one write
GATHERED_MAX = 64  # batches of one of them
BATCHES_MAX = 256  # of all but the last; the system takes 1024 pieces in one write, two for each


class Continued(NamedTuple):
    """A request that goes the general way from here on: what its handler returned."""

    correlation: int
    response: Any


class Run:
    """A request while its batches are appended."""

    __slots__ = ("acks", "begun", "done", "entries", "frame", "now_ms", "refused", "tail", "waits")

    def __init__(self, acks: int, now_ms: int, frame: memoryview, entries: list[ProduceEntry], tail: bytes) -> None:
        self.acks = acks
        self.now_ms = now_ms
        self.frame = frame
        self.entries = entries
        self.tail = tail  # of the answer
        self.done: list[Done] = []
        self.refused: PartitionProduceResponse | None = None  # the one behind what is done
        self.waits = False  # whether the answer waits for others, or for the disk
        self.begun: tuple[int, Work] | None = None  # on the general way, with its correlation id

    def note(self, result: Done | PartitionProduceResponse) -> bool:
        """Note the result of the next batch; False if it was refused."""
        if not isinstance(result, tuple):
            self.refused = result
            return False
        self.done.append(result)
        self.waits = self.waits or must_wait(result[0], self.acks)
        return True


class Placed:
    """A batch that waits to be written with others."""

    __slots__ = ("data", "partition", "piece", "result", "sound")

    def __init__(self, partition: Partition, data: memoryview, sound: Sound, piece: bytes) -> None:
        self.partition = partition
        self.data = data
        self.sound = sound
        self.piece = piece  # of the answer, before the result
        # Its offset, or why it was refused. None: it is for the general way.
        self.result: int | PartitionProduceResponse | None = None


def make(parts: Parts, version: int, authorizer: Authorizer | None, quotas: Quotas | None) -> Shortcut | None:
    """With the authorizer and the quotas that are in front of the handler, if any are."""
    reader = produce_reader()
    if reader is None or version < VERSION_MIN:
        return None
    clearance = None
    if authorizer is not None or quotas is not None:
        from ottla.handlers.clearance import Clearance  # most brokers have neither

        clearance = Clearance(parts, authorizer, quotas)
    return Shortcut(parts, version, reader, clearance)


class Shortcut:
    """Of one version. Call it with a connection and a frame of Produce at that version.

    It returns the answer with the length before it; or how it went on; or None: nothing was done.
    """

    __slots__ = ("_check", "_clearance", "_clock", "_find", "_inflated_max", "_parts", "_read", "_zstd")

    def __init__(self, parts: Parts, version: int, reader: ProduceReader, clearance: Clearance | None) -> None:
        self._parts = parts
        self._clearance = clearance
        self._read, self._check = reader
        self._find: Callable[[Any, int], Partition | None] = (
            parts.replicas.find_led_by_id if version >= BY_ID else parts.replicas.find_led
        )
        self._clock = parts.clock
        self._zstd = version >= ZSTD_SINCE
        self._inflated_max = ON_LOOP.inflated

    def __call__(self, connection: Peer, frame: memoryview) -> bytes | Continued | None:
        if len(frame) > SIZE_MAX:
            return None
        found = self._read(frame)
        if found is None:
            return None
        acks, _, entries, tail = found
        if acks != 1 and acks != ALL:
            return None
        if self._clearance is not None and not self._clearance.lets_pass(connection, frame, entries):
            return None
        clock = self._clock
        now_ms = clock.now_ms()
        if len(entries) == 1:
            result = self._append(entries[0], frame, acks, now_ms)
            if result is None:
                return None
            if isinstance(result, tuple) and not must_wait(result[0], acks):
                return entries[0][4] + RESULT(result[1], NO_TIME, result[4]) + tail
            run = Run(acks, now_ms, frame, entries, tail)
            run.note(result)
            return self._go_on(connection, run)
        run = Run(acks, now_ms, frame, entries, tail)
        until = clock.monotonic() + TURN_S
        while not self._append_some(run):
            if clock.monotonic() >= until:
                return self._put_off(connection, run)
        return self._conclude(connection, run)

    def _append(
        self, entry: ProduceEntry, frame: memoryview, acks: int, now_ms: int
    ) -> Done | PartitionProduceResponse | None:
        """Append a batch, if it is a usual one: where it is, or why it was refused."""
        topic, index, start, end, _ = entry
        partition = self._find(topic, index)
        terms = None if partition is None else usual_terms(partition, frame, start, end)
        if partition is None or terms is None:
            return None
        _, keyed, before_ms, after_ms = terms
        sound = self._check(frame, start, end, keyed, now_ms, before_ms, after_ms, self._zstd, self._inflated_max)
        if sound is None:
            return None
        try:
            base = partition.append_sound(frame[start:end], sound, now_ms, acks)
        except BrokerError as error:
            return refuse_append(index, error, partition)
        return None if base == RETRY else (partition, base, base + sound[0], NO_TIME, partition.log.start)

    def _append_some(self, run: Run) -> bool:
        """Append the next batches; whether it is over: there are no more, or the next is not a usual one."""
        acks, now_ms, frame, first = run.acks, run.now_ms, run.frame, len(run.done)
        for entry in run.entries[first : first + ENTRIES_AT_ONCE]:
            result = self._append(entry, frame, acks, now_ms)
            if result is None or not run.note(result):
                return True
        return len(run.done) == len(run.entries)

    def _conclude(self, connection: Peer, run: Run) -> bytes | Continued | None:
        """The answer, or the general way for the rest."""
        if run.waits or len(run.done) < len(run.entries):
            return self._go_on(connection, run)
        parts: list[bytes] = []
        for (*_, piece), (_, base, _, time_ms, start) in zip(run.entries, run.done, strict=True):
            parts += piece, RESULT(base, time_ms, start)
        parts.append(run.tail)
        return b"".join(parts)

    def _put_off(self, connection: Peer, run: Run) -> Continued:
        """Append the rest in slices. The frame is only valid until we return."""
        run.frame = memoryview(bytes(run.frame))
        if run.waits:
            self._note(connection, run)
        return Continued(parse_header(run.frame)[2], self._finish(connection, run))

    def _finish(self, connection: Peer, run: Run) -> Steps[Any]:
        """The rest of a request. The connection waits, so order is kept."""
        while not self._append_some(run):
            if run.waits:
                self._note(connection, run)
            yield
        answer = self._conclude(connection, run)
        if not isinstance(answer, Continued):
            return answer
        response = answer.response
        return (yield from response) if response.__class__ is GeneratorType else response

    def gather(self, connection: Peer, frames: Sequence[memoryview]) -> list[bytes | Continued]:
        """The answers to the first of these frames, if they are usual; what they have for a partition is written at
        once. None, if there is nothing to gain."""
        clock = self._clock
        now_ms, until = clock.now_ms(), clock.monotonic() + GATHER_S
        gathered: list[Gathered] = []
        count = 0
        for frame in frames:
            one = self._prepare(connection, frame, now_ms)
            if one is None:
                break
            gathered.append(one)
            count += len(one[0])
            if count >= BATCHES_MAX or clock.monotonic() >= until:
                break
        if len(gathered) < 2:
            return []
        runs: dict[Partition, list[Placed]] = {}
        for batches, _ in gathered:
            for batch in batches:
                run = runs.get(batch.partition)
                if run is None:
                    runs[batch.partition] = [batch]
                else:
                    run.append(batch)
        for partition, run in runs.items():
            write(partition, run)
        return [self._answer(connection, frame, now_ms, one) for frame, one in zip(frames, gathered, strict=False)]

    def _prepare(self, connection: Peer, frame: memoryview, now_ms: int) -> Gathered | None:
        """A request, unless there is something unusual about it."""
        found = self._read(frame)
        if found is None:
            return None
        acks, _, entries, tail = found
        if (acks != 1 and acks != ALL) or len(entries) > GATHERED_MAX:
            return None
        if self._clearance is not None and not self._clearance.lets_pass(connection, frame, entries):
            return None
        check, find, zstd, inflated_max = self._check, self._find, self._zstd, self._inflated_max
        batches = []
        for topic, index, start, end, piece in entries:
            partition = find(topic, index)
            if partition is None or partition.followers is not None:
                return None
            terms = usual_terms(partition, frame, start, end)
            if terms is None or partition.log.config.flush_messages != UNLIMITED:
                return None
            _, keyed, before_ms, after_ms = terms
            sound = check(frame, start, end, keyed, now_ms, before_ms, after_ms, zstd, inflated_max)
            if sound is None:
                return None
            batches.append(Placed(partition, frame[start:end], sound, piece))
        return batches, tail

    def _answer(self, connection: Peer, frame: memoryview, now_ms: int, one: Gathered) -> bytes | Continued:
        """The answer to a request whose batches were written, or have failed, or go the general way."""
        batches, tail = one
        parts: list[bytes] = []
        for batch in batches:
            base = batch.result
            if base.__class__ is not int:
                return self._fill(connection, frame, now_ms, batches)
            parts += batch.piece, RESULT(base, NO_TIME, batch.partition.log.start)
        parts.append(tail)
        return b"".join(parts)

    def _fill(self, connection: Peer, frame: memoryview, now_ms: int, batches: Sequence[Placed]) -> Continued:
        """The general way for what has no result yet."""
        correlation, work = self._begin(connection, frame, now_ms)
        for (topic, data), batch in zip(pieces(work.request), batches, strict=True):
            base, partition = batch.result, batch.partition
            if base is None:
                try:
                    work.append(topic, data)
                except LargeError as error:  # it was not large a moment ago
                    work.results.append(answer_error(data.index, error))
            elif isinstance(base, int):
                work.note(partition, base, base + batch.sound[0], NO_TIME, partition.log.start)
            else:
                work.results.append(base)
        return Continued(correlation, work.go_on())

    def _go_on(self, connection: Peer, run: Run) -> Continued | None:
        """The general way, behind what is done and the partition that was refused; None if there is neither."""
        if not run.done and run.refused is None:
            return None
        correlation, work = self._note(connection, run)
        if run.refused is not None:
            work.results.append(run.refused)
        return Continued(correlation, work.go_on())

    def _note(self, connection: Peer, run: Run) -> tuple[int, Work]:
        """Have the general way know, and wait for, what is done."""
        if run.begun is None:
            run.begun = self._begin(connection, run.frame, run.now_ms)
        work = run.begun[1]
        for one in run.done[len(work.results) :]:
            work.note(*one)
        return run.begun

    def _begin(self, connection: Peer, frame: memoryview, now_ms: int) -> tuple[int, Work]:
        """The correlation id, and the request as the general way has it."""
        key, version, correlation, client_id, position = parse_header(frame)
        request, _ = codec.decoder(ProduceRequest, version)(frame, position, RECORDS_ELEMENTS_MAX)
        call = Call(key, version, client_id or "", connection.host, connection.listener, connection.dialled, connection)
        work = Work(self._parts, call, request)
        work.now_ms = now_ms
        return correlation, work


def must_wait(partition: Partition, acks: int) -> bool:
    """Whether what was appended is to be acknowledged later."""
    log = partition.log
    return (acks == ALL and partition.followers is not None) or log.owed > log.recovery_point


def write(partition: Partition, run: Sequence[Placed]) -> None:
    """Write the batches of several requests for one partition at once, and note their results. One that needs more
    than that has none, nor do those behind it."""
    log = partition.log
    base = log.end
    batches = [(one.data, one.sound) for one in run]
    try:
        count = partition.append_run(batches)
    except BrokerError as error:  # of all that were to be written
        for one in run[: len(log.fitting(batches))]:
            one.result = refuse_append(partition.index, error, partition)
        return
    for one in run[:count]:
        one.result = base
        base += one.sound[0] + 1


def usual_terms(partition: Partition, frame: memoryview, start: int, end: int) -> Terms | None:
    """What the log asks of a batch that lies there in the frame, unless there is something unusual about them."""
    size, terms = end - start, partition.log.terms
    if terms is None or partition.internal or not HEADER_SIZE <= size <= terms[0]:
        return None
    attributes = frame[start + ATTRIBUTES]
    if attributes & TRANSACTIONAL or (attributes & CODEC_MASK and size > PACKED_SIZE_MAX):
        return None
    return terms
