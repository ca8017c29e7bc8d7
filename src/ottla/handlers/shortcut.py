"""The fast path for Produce: from the frame to the answer without decoding messages.

Native code parses the request, prepares the answer except for the offsets (`read`), and checks for each batch whether
it can be stored unchanged (`check`). What is left needs the broker's state: find the partition, append, fill in the
offset.

Laws:
- It takes common requests only: versions 5 to 13, acks 1 or -1, no transaction, at most 1024 partitions and SIZE_MAX
  bytes, and batches that only need their offset, in logs without special requirements. Compressed batches only up to
  PACKED_SIZE_MAX, so that little decompression is wasted if one of them does not qualify after all.
- A request that takes longer than TURN_S continues in slices, with a copy of its frame. Waiting for acks of other
  replicas starts before the next slice, because this broker may lose leadership meanwhile.
- From the first partition that does not qualify on, the request takes the general path (`produce.Work`). So does the
  answer, if it must wait or report an error. What was appended before keeps its result.
- Batches of one request for different partitions are checked together, and written together (`log/planned_write.py`) if
  they need nothing but a write. A second thread helps to decompress and to write them. Their results are those of
  single writes in the same order: the first failure ends it, and the rest of the request takes the general path.
- Requests that arrived together on one connection are handled together (`gather`): their batches for one partition are
  written at once. If that write fails, it fails for all batches in it, and for no others.
- Nothing is appended twice: a failed append is an error in the answer, not a reason to try again.
- Both paths produce the same bytes (tests/handlers/test_shortcut.py). Without the native extension, or with an injected
  fault, which needs decoded messages, only the general path is used. An authorizer and quotas need them, too: before
  anything is appended, `clearance.py` decides whether they must see the request.
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
from ottla.log.append import RETRY, fitting
from ottla.log.planned_write import drop_write, undo_write, write_planned
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
    from ottla.log.planned_write import PlannedWrite
    from ottla.quota.quotas import Quotas
    from ottla.records.native import ProduceEntry, ProduceReader, Sound
    from ottla.records.validate import Terms
    from ottla.replica.partition import Partition
    from ottla.security.authorizer import Authorizer
    from ottla.wire.messages.produce import PartitionProduceResponse

    Done = tuple[Partition, int, int, int, int]  # the arguments of `Work.note`
    Gathered = tuple[list["Placed"], bytes]  # the batches of a request, and the end of its answer

VERSION_MIN = 5  # see native/src/produce.rs
SIZE_MAX = 2 << 20
PACKED_SIZE_MAX = 192 << 10
RESULT = Struct(">qqq").pack  # base offset, append time, log start
NO_TIME = -1
ENTRIES_AT_ONCE = 16  # between two checks of the clock; the clock is also checked after each compressed batch
# The same for batches that are written together. Native code ends earlier when it has decompressed much.
TOGETHER_MAX = 64
GATHER_S = 0.001  # how long requests are collected for one write
GATHERED_MAX = 64  # the most batches of one request
BATCHES_MAX = 256  # of all requests but the last; the system takes 1024 pieces per write, two for each batch


class Continued(NamedTuple):
    """A request that takes the general path from here on: what its handler returned."""

    correlation: int
    response: Any


class ProduceRun:
    """A request while its batches are appended."""

    __slots__ = ("acks", "begun", "done", "entries", "frame", "now_ms", "refused", "tail", "waits")

    def __init__(self, acks: int, now_ms: int, frame: memoryview, entries: list[ProduceEntry], tail: bytes) -> None:
        self.acks = acks
        self.now_ms = now_ms
        self.frame = frame
        self.entries = entries
        self.tail = tail  # the end of the answer
        self.done: list[Done] = []
        self.refused: PartitionProduceResponse | None = None  # the partition after the last success, if it failed
        self.waits = False  # whether the answer waits for other replicas or the disk
        self.begun: tuple[int, Work] | None = None  # set on the general path, with the correlation id

    def note(self, result: Done | PartitionProduceResponse) -> bool:
        """Store the result of the next batch; False if it was refused."""
        if not isinstance(result, tuple):
            self.refused = result
            return False
        self.done.append(result)
        self.waits = self.waits or must_wait(result[0], self.acks)
        return True


class Placed:
    """A batch that waits to be written together with others."""

    __slots__ = ("data", "partition", "piece", "result", "sound")

    def __init__(self, partition: Partition, data: memoryview, sound: Sound, piece: bytes) -> None:
        self.partition = partition
        self.data = data
        self.sound = sound
        self.piece = piece  # of the answer, before the result
        # Its offset, or why it was refused. None: it takes the general path.
        self.result: int | PartitionProduceResponse | None = None


def make(parts: Parts, version: int, authorizer: Authorizer | None, quotas: Quotas | None) -> Shortcut | None:
    """The shortcut of a version; None if there is none. Respects the authorizer and the quotas, if any."""
    reader = produce_reader()
    if reader is None or version < VERSION_MIN:
        return None
    clearance = None
    if authorizer is not None or quotas is not None:
        from ottla.handlers.clearance import Clearance  # most brokers have neither

        clearance = Clearance(parts, authorizer, quotas)
    return Shortcut(parts, version, reader, clearance)


class Shortcut:
    """The fast path of one version. Call it with a connection and a Produce frame of that version.

    Returns the answer with its length prefix, or `Continued`, or None: nothing was done.
    """

    __slots__ = (
        "_check",
        "_check_each",
        "_clearance",
        "_clock",
        "_compressed",
        "_find",
        "_inflated_max",
        "_parts",
        "_read",
        "_zstd",
    )

    def __init__(self, parts: Parts, version: int, reader: ProduceReader, clearance: Clearance | None) -> None:
        self._parts = parts
        self._clearance = clearance
        self._read, self._check, self._check_each = reader
        self._find: Callable[[Any, int], Partition | None] = (
            parts.replicas.find_led_by_id if version >= BY_ID else parts.replicas.find_led
        )
        self._clock = parts.clock
        self._zstd = version >= ZSTD_SINCE
        self._inflated_max = ON_LOOP.inflated
        self._compressed = PACKED_SIZE_MAX, self._inflated_max, self._zstd

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
            run = ProduceRun(acks, now_ms, frame, entries, tail)
            run.note(result)
            return self._go_on(connection, run)
        run = ProduceRun(acks, now_ms, frame, entries, tail)
        until = clock.monotonic() + TURN_S
        while not self._append_some(run):
            if clock.monotonic() >= until:
                return self._put_off(connection, run)
        return self._conclude(connection, run)

    def _append(
        self, entry: ProduceEntry, frame: memoryview, acks: int, now_ms: int
    ) -> Done | PartitionProduceResponse | None:
        """Append a batch if it qualifies. Returns its place, or why it was refused."""
        topic, index, start, end, _ = entry
        partition = self._find(topic, index)
        terms = None if partition is None else usual_terms(partition, frame, start, end)
        if partition is None or terms is None:
            return None
        _, keyed, before_ms, after_ms = terms
        sound = self._check(frame, start, end, keyed, now_ms, before_ms, after_ms, self._zstd, self._inflated_max)
        return None if sound is None else append_checked(partition, frame[start:end], sound, now_ms, acks)

    def _append_some(self, run: ProduceRun) -> bool:
        """Append the next batches. True if this path is done: no batch is left, or the next one does not qualify."""
        acks, now_ms, frame, first = run.acks, run.now_ms, run.frame, len(run.done)
        if self._append_together(run, run.entries[first : first + TOGETHER_MAX]):
            return run.refused is not None or len(run.done) == len(run.entries)
        for entry in run.entries[first : first + ENTRIES_AT_ONCE]:
            result = self._append(entry, frame, acks, now_ms)
            if result is None or not run.note(result):
                return True
            if is_compressed(frame, entry[2]):
                break
        return len(run.done) == len(run.entries)

    def _append_together(self, run: ProduceRun, entries: Sequence[ProduceEntry]) -> bool:
        """Check the leading batches together, and write together those that only need to be written. False if none was
        appended or refused."""
        partitions = self._find_alike(entries)
        if len(partitions) < 2:
            return False
        frame, first = run.frame, len(run.done)
        terms = partitions[0].log.terms
        assert terms is not None, "partitions with terms were chosen"
        sounds = self._check_each(frame, entries[: len(partitions)], terms, run.now_ms, self._compressed)
        checked = list(zip(partitions, entries, sounds, strict=False))
        singly = 0
        while len(run.done) - first < len(checked) and run.refused is None and singly < ENTRIES_AT_ONCE:
            rest = checked[len(run.done) - first :]
            if self._write_together(run, rest):
                continue
            singly += 1
            partition, (_, _, start, end, _), sound = rest[0]
            result = append_checked(partition, frame[start:end], sound, run.now_ms, run.acks)
            if result is None or not run.note(result):
                break
        return len(run.done) > first or run.refused is not None

    def _write_together(self, run: ProduceRun, checked: Sequence[tuple[Partition, ProduceEntry, Sound]]) -> bool:
        """Write the leading batches, as far as they only need to be written. False if not even the first does."""
        frame, acks = run.frame, run.acks
        writes: list[PlannedWrite] = []
        for partition, entry, sound in checked:
            write = partition.plan_write(frame, entry[2], entry[3], sound, acks)
            if write is None:
                break
            writes.append(write)
        if not writes:
            return False
        count, result = write_planned(self._parts.store.disk, frame, writes)
        for (partition, _, sound), write in zip(checked, writes[:count], strict=False):
            last, log = partition.finish_write(write, sound), partition.log
            durability = log.durability
            run.done.append((partition, write[2], last, NO_TIME, log.start))
            if durability.owed > durability.recovery_point or (partition.followers is not None and acks == ALL):
                run.waits = True
        if count < len(writes):
            partition = checked[count][0]
            run.refused = refuse_append(partition.index, undo_write(partition.log, writes[count], result), partition)
            for (later, _, _), write in zip(checked[count + 1 :], writes[count + 1 :], strict=False):
                drop_write(later.log, write)
        return True

    def _find_alike(self, entries: Sequence[ProduceEntry]) -> list[Partition]:
        """The partitions of the leading entries, as long as they are different ones with the same terms."""
        find, terms = self._find, None
        partitions: dict[Partition, None] = {}
        for topic, index, _, _, _ in entries:
            partition = find(topic, index)
            if partition is None or partition in partitions or partition.internal:
                break
            if partition.log.terms is not terms or terms is None:
                terms = partition.log.terms
                if terms is None or partitions:
                    break
            partitions[partition] = None
        return list(partitions)

    def _conclude(self, connection: Peer, run: ProduceRun) -> bytes | Continued | None:
        """The answer, or the rest on the general path."""
        if run.waits or len(run.done) < len(run.entries):
            return self._go_on(connection, run)
        pairs = zip(run.entries, run.done, strict=True)
        parts = [piece + RESULT(base, time_ms, start) for (*_, piece), (_, base, _, time_ms, start) in pairs]
        parts.append(run.tail)
        return b"".join(parts)

    def _put_off(self, connection: Peer, run: ProduceRun) -> Continued:
        """Append the rest in slices. Copies the frame, which is only valid until this returns."""
        run.frame = memoryview(bytes(run.frame))
        if run.waits:
            self._note(connection, run)
        return Continued(parse_header(run.frame)[2], self._finish(connection, run))

    def _finish(self, connection: Peer, run: ProduceRun) -> Steps[Any]:
        """Append the rest of a request. The connection waits, so order is kept."""
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
        """The answers to the first of these frames, if they qualify. Their batches for one partition are written at
        once. An empty list if that gains nothing."""
        clock = self._clock
        now_ms, until = clock.now_ms(), clock.monotonic() + GATHER_S
        gathered: list[Gathered] = []
        count = 0
        for frame in frames:
            one = self._prepare(connection, frame, now_ms, until)
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

    def _prepare(self, connection: Peer, frame: memoryview, now_ms: int, until: float) -> Gathered | None:
        """Prepare a request; None if it does not qualify, or if its compressed batches take longer than `until`."""
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
            if is_compressed(frame, start) and self._clock.monotonic() >= until and len(batches) < len(entries):
                return None
        return batches, tail

    def _answer(self, connection: Peer, frame: memoryview, now_ms: int, one: Gathered) -> bytes | Continued:
        """The answer to a request whose batches were written, have failed, or take the general path."""
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
        """Handle the batches without a result on the general path."""
        correlation, work = self._begin(connection, frame, now_ms)
        for (topic, data), batch in zip(pieces(work.request), batches, strict=True):
            base, partition = batch.result, batch.partition
            if base is None:
                try:
                    work.append(topic, data)
                except LargeError as error:  # it did not count as large before
                    work.results.append(answer_error(data.index, error))
            elif isinstance(base, int):
                work.note(partition, base, base + batch.sound[0], NO_TIME, partition.log.start)
            else:
                work.results.append(base)
        return Continued(correlation, work.go_on())

    def _go_on(self, connection: Peer, run: ProduceRun) -> Continued | None:
        """The general path, after the finished batches and the refused one; None if there is neither."""
        if not run.done and run.refused is None:
            return None
        correlation, work = self._note(connection, run)
        if run.refused is not None:
            work.results.append(run.refused)
        return Continued(correlation, work.go_on())

    def _note(self, connection: Peer, run: ProduceRun) -> tuple[int, Work]:
        """Pass the finished batches to the general path, which waits for them if necessary."""
        if run.begun is None:
            run.begun = self._begin(connection, run.frame, run.now_ms)
        work = run.begun[1]
        for one in run.done[len(work.results) :]:
            work.note(*one)
        return run.begun

    def _begin(self, connection: Peer, frame: memoryview, now_ms: int) -> tuple[int, Work]:
        """The correlation id, and the request on the general path."""
        key, version, correlation, client_id, position = parse_header(frame)
        request, _ = codec.decoder(ProduceRequest, version)(frame, position, RECORDS_ELEMENTS_MAX)
        call = Call(key, version, client_id or "", connection.host, connection.listener, connection.dialled, connection)
        work = Work(self._parts, call, request)
        work.now_ms = now_ms
        return correlation, work


def must_wait(partition: Partition, acks: int) -> bool:
    """Whether the append is acknowledged later."""
    durability = partition.log.durability
    return (acks == ALL and partition.followers is not None) or durability.owed > durability.recovery_point


def append_checked(
    partition: Partition, data: memoryview, sound: Sound, now_ms: int, acks: int
) -> Done | PartitionProduceResponse | None:
    """Append a batch. Returns its place, or why it was refused; None if it takes the general path."""
    try:
        base = partition.append_sound(data, sound, now_ms, acks)
    except BrokerError as error:
        return refuse_append(partition.index, error, partition)
    return None if base == RETRY else (partition, base, base + sound[0], NO_TIME, partition.log.start)


def write(partition: Partition, run: Sequence[Placed]) -> None:
    """Write the batches of several requests for one partition at once, and set their results. A batch that needs more
    than that gets no result, nor do those after it."""
    log = partition.log
    base = log.end
    batches = [(one.data, one.sound) for one in run]
    try:
        count = partition.append_run(batches)
    except BrokerError as error:  # of all batches in this write
        for one in run[: len(fitting(log, batches))]:
            one.result = refuse_append(partition.index, error, partition)
        return
    for one in run[:count]:
        one.result = base
        base += one.sound[0] + 1


def is_compressed(frame: memoryview, start: int) -> bool:
    return bool(frame[start + ATTRIBUTES] & CODEC_MASK)


def usual_terms(partition: Partition, frame: memoryview, start: int, end: int) -> Terms | None:
    """The log's requirements for a batch at this place in the frame; None if the batch or the log does not qualify."""
    size, terms = end - start, partition.log.terms
    if terms is None or partition.internal or not HEADER_SIZE <= size <= terms[0]:
        return None
    attributes = frame[start + ATTRIBUTES]
    if attributes & TRANSACTIONAL or (attributes & CODEC_MASK and size > PACKED_SIZE_MAX):
        return None
    return terms
