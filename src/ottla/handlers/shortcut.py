"""The short way of a usual Produce: from the frame to the answer with no message in between.

Native code reads the request, prepares the answer up to the offsets (`read`), and says of each batch whether it can be
stored as it came (`check`). What is left needs the broker's state: find the partition, append, put the offset in.

Laws:
- It takes what is usual: versions 5 to 13, acks 1 or -1, no transaction, at most 64 partitions and SIZE_MAX bytes, and
  batches that need nothing but their place, in logs that ask for no more. Compressed ones only up to PACKED_SIZE_MAX,
  so that not much was inflated in vain when one of them turns out to be unusual after all.
- From the first partition that is not usual on, the request goes the general way (`produce.Work`); so does the answer
  if it has to wait, or to tell of an error. What was appended before that keeps its result.
- Requests that have arrived together on one connection, each with records for the same partition, are written at once
  (`gather`). If that fails, it fails for all of them, and for no other.
- Nothing is appended twice: an append that failed is an error in the answer, not a reason to try again.
- Both ways give the same bytes (tests/handlers/test_shortcut.py). Without the native part there is only the general
  one, and so it is with a fault on purpose in front of the handler, which works on messages. An authorizer and quotas
  do so, too: before anything is appended `clearance.py` says whether they want to see the request.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.errors import BrokerError
from ottla.handlers.call import Call
from ottla.handlers.produce import ATTRIBUTES, BY_ID, TRANSACTIONAL, TURN_S, Work, refuse_append
from ottla.log.log import RETRY
from ottla.records.batch import CODEC_MASK, HEADER_SIZE
from ottla.records.native import produce_reader
from ottla.records.validate import ON_LOOP, ZSTD_SINCE
from ottla.replica.partition import ALL, UNLIMITED
from ottla.wire import codec
from ottla.wire.decoding import RECORDS_ELEMENTS_MAX
from ottla.wire.frame import parse_header
from ottla.wire.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.handlers.call import Parts, Peer
    from ottla.handlers.clearance import Clearance
    from ottla.quota.quotas import Quotas
    from ottla.records.native import ProduceReader, Sound
    from ottla.records.validate import Terms
    from ottla.replica.partition import Partition
    from ottla.security.authorizer import Authorizer
    from ottla.wire.messages.produce import PartitionProduceResponse

    Done = tuple[Partition, int, int, int, int]  # as `Work.note` takes it

VERSION_MIN = 5  # see native/src/produce.rs
SIZE_MAX = 2 << 20
PACKED_SIZE_MAX = 192 << 10
RESULT = Struct(">qqq").pack  # base offset, append time, log start
NO_TIME = -1
GATHER_S = 0.001  # how long requests are gathered for one write


class Continued(NamedTuple):
    """A request that goes the general way from here on: what its handler returned."""

    correlation: int
    response: Any


class Gathered(NamedTuple):
    """A request that waits to be written with others."""

    partition: Partition
    partition_index: int
    data: memoryview
    sound: Sound
    piece: bytes  # of the answer, before the result
    tail: bytes


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
        clock, zstd, inflated_max = self._clock, self._zstd, self._inflated_max
        now_ms = clock.now_ms()
        until = clock.monotonic() + TURN_S if len(entries) > 1 else 0.0
        done: list[Done] = []
        pieces: list[bytes] = []
        waits = False
        for topic, index, start, end, piece in entries:
            partition = self._find(topic, index)
            terms = None if partition is None else usual_terms(partition, frame, start, end)
            if partition is None or terms is None or (done and clock.monotonic() >= until):
                return self._go_on(connection, frame, now_ms, done)
            _, keyed, before_ms, after_ms = terms
            sound = self._check(frame, start, end, keyed, now_ms, before_ms, after_ms, zstd, inflated_max)
            try:
                base = RETRY if sound is None else partition.append_sound(frame[start:end], sound, now_ms, acks)
            except BrokerError as error:
                return self._go_on(connection, frame, now_ms, done, refuse_append(index, error, partition))
            if sound is None or base == RETRY:
                return self._go_on(connection, frame, now_ms, done)
            log = partition.log
            done.append((partition, base, base + sound[0], NO_TIME, log.start))
            pieces += piece, RESULT(base, NO_TIME, log.start)
            if (acks == ALL and partition.followers is not None) or log.owed > log.recovery_point:
                waits = True
        if waits:
            return self._go_on(connection, frame, now_ms, done)
        pieces.append(tail)
        return b"".join(pieces)

    def gather(self, connection: Peer, frames: Sequence[memoryview]) -> list[bytes | Continued]:
        """The answers to the first of these frames, if they are usual and have records for one partition that can be
        written at once. None, if there is nothing to gain."""
        clock = self._clock
        now_ms, until = clock.now_ms(), clock.monotonic() + GATHER_S
        home: Partition | None = None
        gathered: list[Gathered] = []
        for frame in frames:
            one = self._prepare(connection, frame, home, now_ms)
            if one is None:
                break
            gathered.append(one)
            home = one.partition
            if clock.monotonic() >= until:
                break
        if home is None or len(gathered) == 1:
            return []
        log, run = home.log, [(one.data, one.sound) for one in gathered]
        base = log.end
        try:
            count = home.append_run(run)
        except BrokerError as error:  # of all that were to be written
            failed = zip(frames, gathered[: len(log.fitting(run))], strict=False)
            return [
                answer
                for frame, one in failed
                if (
                    answer := self._go_on(
                        connection, frame, now_ms, [], refuse_append(one.partition_index, error, home)
                    )
                )
            ]
        answers: list[bytes | Continued] = []
        for one in gathered[:count]:
            answers.append(one.piece + RESULT(base, NO_TIME, log.start) + one.tail)
            base += one.sound[0] + 1
        return answers

    def _prepare(self, connection: Peer, frame: memoryview, home: Partition | None, now_ms: int) -> Gathered | None:
        """The records of a request for one partition, `home` if that is given, unless there is something unusual."""
        found = self._read(frame)
        if found is None or len(found[2]) != 1 or (found[0] != 1 and found[0] != ALL):
            return None
        if self._clearance is not None and not self._clearance.lets_pass(connection, frame, found[2]):
            return None
        ((topic, index, start, end, piece),) = found[2]
        partition = self._find(topic, index)
        if partition is None or (home is not None and partition is not home) or partition.followers is not None:
            return None
        terms = usual_terms(partition, frame, start, end)
        if terms is None or partition.log.config.flush_messages != UNLIMITED:
            return None
        _, keyed, before_ms, after_ms = terms
        sound = self._check(frame, start, end, keyed, now_ms, before_ms, after_ms, self._zstd, self._inflated_max)
        return None if sound is None else Gathered(partition, index, frame[start:end], sound, piece, found[3])

    def _go_on(
        self,
        connection: Peer,
        frame: memoryview,
        now_ms: int,
        done: list[Done],
        refused: PartitionProduceResponse | None = None,
    ) -> Continued | None:
        """The general way, behind what is done and the partition that was refused; None if there is neither."""
        if not done and refused is None:
            return None
        key, version, correlation, client_id, position = parse_header(frame)
        request, _ = codec.decoder(ProduceRequest, version)(frame, position, RECORDS_ELEMENTS_MAX)
        call = Call(key, version, client_id or "", connection.host, connection.listener, connection.dialled, connection)
        work = Work(self._parts, call, request)
        work.now_ms = now_ms
        for one in done:
            work.note(*one)
        if refused is not None:
            work.results.append(refused)
        return Continued(correlation, work.go_on())


def usual_terms(partition: Partition, frame: memoryview, start: int, end: int) -> Terms | None:
    """What the log asks of a batch that lies there in the frame, unless there is something unusual about them."""
    size, terms = end - start, partition.log.terms
    if terms is None or partition.internal or not HEADER_SIZE <= size <= terms[0]:
        return None
    attributes = frame[start + ATTRIBUTES]
    if attributes & TRANSACTIONAL or (attributes & CODEC_MASK and size > PACKED_SIZE_MAX):
        return None
    return terms
