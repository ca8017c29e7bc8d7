"""The log of one partition: an ordered list of segments. Appends go to the last one, reads to any.

    start ≤ offset < end      readable offsets; retention and DeleteRecords move `start`, appends move `end`
    high                      high watermark: records below it are replicated; retention deletes only below it

`append` is the hot path: it validates once, writes once, and keeps everything else to a few comparisons. State changes
only after the write has succeeded, so a failed append changes nothing.

Closed segments never change. Retention deletes them and compaction replaces them: their files get the suffix `.deleted`
at once and are removed after `file.delete.delay.ms`, so that a reader in another process has time to finish.
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import BrokerError, ErrorCode
from ottla.log.checkpoints import write_topic_id
from ottla.log.directory import FULL
from ottla.log.durability import Durability
from ottla.log.recall import batches_before
from ottla.log.recovery import checksum_ok, marker_of, replay
from ottla.log.retention import count_expired
from ottla.log.seek import first_since, latest
from ottla.log.segment import DELETED, LOG_SUFFIX, Segment, Slice
from ottla.log.snapshots import SEQUENCE_MASK
from ottla.log.spans import FoundSpan, look
from ottla.log.transactions import Aborted, write_counts
from ottla.records import batch
from ottla.records.native import own_batch
from ottla.records.own_batch import IN_TRANSACTION, MARKER, PLAIN
from ottla.records.place import STAMP, STAMP_SIZE, rebase
from ottla.records.validate import keeps_own, terms_of, validate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.config.topic import TopicConfig
    from ottla.log.directory import Directory
    from ottla.log.planned_write import PlannedWrite
    from ottla.log.producers import Completed
    from ottla.log.recovery import Loaded
    from ottla.log.seek import Hit
    from ottla.log.snapshots import Batch
    from ottla.records.batch import Header
    from ottla.records.markers import EndMarker
    from ottla.records.native import Sound
    from ottla.records.own_batch import OwnRecord
    from ottla.records.validate import Accepted

NOTHING_KNOWN: Mapping[int, Hit | None] = {}

NOBODY = (batch.NO_PRODUCER, -1)  # the producer of records that are in no transaction, and its epoch
PRODUCE_VERSION = 11  # Produce version of our own batches: the newest
RETRY = -1  # returned instead of an offset: the batch is a duplicate, already in the log

_new = tuple.__new__
_stamp = STAMP.pack


class Appended(NamedTuple):
    base: int
    last: int
    append_time: int  # -1 unless the topic has LogAppendTime
    start: int
    duplicate: bool  # a retry: base and last are those of the first try


class Located(NamedTuple):
    """An offset with the timestamp of its record and the epoch that wrote it, -1 where unknown."""

    offset: int
    timestamp: int
    epoch: int


class Log:
    __slots__ = (
        "__weakref__",
        "_aborts",
        "_high",
        "_own_size_max",
        "_segment_bytes",
        "active",
        "compacted",
        "config",
        "directory",
        "disk",
        "doomed",
        "durability",
        "end",
        "epochs",
        "fault",
        "id_lost",
        "index",
        "path",
        "producers",
        "segments",
        "start",
        "terms",
        "topic",
        "topic_id",
    )

    def __init__(
        self, directory: Directory, folder: str, topic: str, index: int, config: TopicConfig, loaded: Loaded
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id: bytes = loaded.topic_id or bytes(16)
        self.id_lost = loaded.id_lost  # it had a topic id, which can no longer be read
        self.config = config
        self.durability: Durability = Durability(self, loaded.now_ms)
        self.compacted: int | None = None  # first offset that has not been compacted
        self._high: int | None = None
        self._segment_bytes = 0
        self._own_size_max = -1  # up to this size our own batches are stored as we build them
        self.settle_in(directory, folder, loaded)

    def settle_in(self, directory: Directory, folder: str, loaded: Loaded) -> None:
        """Use a folder: at opening, and after a move from another directory."""
        self.directory = directory
        self.disk = directory.disk
        self.path = folder
        self.segments: list[Segment] = loaded.segments
        self.active: Segment = loaded.segments[-1]
        self.start: int = loaded.start
        self.end: int = loaded.end
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.producers.recall = self._recall
        self.fault: str | None = None if directory.error is None else f"log directory {directory.path} is offline"
        self.doomed: list[Segment] = []  # see `doom`
        self._aborts = loaded.aborts  # as last written to their file
        self.durability.settle_in(loaded.recovery_point)
        self.reconfigure(self.config)
        directory.logs.add(self)

    def reconfigure(self, config: TopicConfig) -> None:
        self.config = config
        self.directory.unforced[self] = None
        self._segment_bytes = config.segment_bytes
        self.durability.flush_messages = config.flush_messages
        self.terms = terms_of(config)  # None: batches are not stored as received
        self._own_size_max = min(config.max_message_bytes, config.segment_bytes) if keeps_own(config) else -1
        self.active.reconfigure(config)

    @property
    def folder(self) -> Path:
        """`path` as a Path, built on demand: creating one costs more than looking up a log."""
        return Path(self.path)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def high(self) -> int:
        """The high watermark as last set, or the settled end of the log after `commit_all`."""
        if self._high is not None:
            return min(self._high, self.end)
        durability = self.durability
        return self.end if durability.held is None else durability.settled_end

    @high.setter
    def high(self, offset: int) -> None:
        self._high = offset

    def commit_all(self) -> None:
        """There is no other replica: the high watermark follows the end of the log from now on."""
        self._high = None

    def __repr__(self) -> str:
        return f"Log({self.topic}-{self.index}, {self.start}..{self.end})"

    # Appending.

    def append(
        self,
        data: memoryview,
        *,
        epoch: int,
        now_ms: int,
        produce_version: int,
        client: bool = True,
        accepted: Accepted | None = None,
    ) -> Appended:
        """Append a producer's data, as the leader. On BrokerError nothing has changed.

        `accepted`: the data was already validated in another thread, after a LargeError here.
        """
        if self.fault is not None:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, self.fault)
        if self.durability.owes_cut:
            self.durability.force_cut()
        if accepted is None:
            accepted = validate(
                data,
                self.config,
                base=self.end,
                epoch=epoch,
                now_ms=now_ms,
                produce_version=produce_version,
                client=client,
            )
        else:
            accepted = rebase(accepted, self.end, epoch)
        base, last, max_timestamp, _, append_time, header, parts, size = accepted
        if header is None:
            return self._append_messages(parts, size, base, last, append_time, now_ms)
        marker = None
        if header.producer_id >= 0:
            if header.attributes & batch.CONTROL:
                marker = self._check_marker(header, data)
            else:
                duplicate = self.producers.check(header, client=client)
                if duplicate is not None:
                    return Appended(duplicate.base, duplicate.last, duplicate.timestamp, self.start, True)
        self._write(parts, size, last, max_timestamp, epoch, now_ms, marks=marker is not None)
        if header.producer_id >= 0:
            self._note_producer(header, base, last, max_timestamp, marker)
        return _new(Appended, (base, last, append_time, self.start, False))

    def append_sound(self, data: memoryview, sound: Sound, epoch: int, now_ms: int) -> int:
        """Fast path: append a client's batch that needs only its offset and epoch filled in.

        Returns its base offset, or RETRY if it is a duplicate. Raises as `append`, which takes any batch but is slower.
        """
        if self.fault is not None:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, self.fault)
        if self.durability.owes_cut:
            self.durability.force_cut()
        delta, max_timestamp, producer_id = sound
        header = None
        if producer_id >= 0:
            header = batch.header(data)
            if self.producers.check(header) is not None:
                return RETRY
        base, size = self.end, len(data)
        parts: list[bytes | memoryview] = [_stamp(base, size - batch.LOG_OVERHEAD, epoch), data[STAMP_SIZE:]]
        self._write(parts, size, base + delta, max_timestamp, epoch, now_ms)
        if header is not None:
            self._note_producer(header, base, base + delta, max_timestamp, None)
        return base

    def append_own(
        self,
        records: Sequence[OwnRecord],
        epoch: int,
        now_ms: int,
        producer: tuple[int, int] | None = None,
        marker: EndMarker | None = None,
    ) -> tuple[int, int]:
        """Append records of this broker itself, in one batch. Returns the offset of the first and the batch's size.

        `producer`, an id and its epoch: they are part of this producer's transaction, or end it if they are the
        content of a `marker`. On BrokerError nothing has changed.
        """
        if self.fault is not None:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, self.fault)
        if self.durability.owes_cut:
            self.durability.force_cut()
        kind = PLAIN if producer is None else IN_TRANSACTION if marker is None else MARKER
        producer_id, producer_epoch = producer or NOBODY
        base, header = self.end, None
        data = own_batch(records, base, epoch, now_ms, producer_id, producer_epoch, kind)
        size, last = len(data), base + len(records) - 1
        if size > self._own_size_max:
            whole = memoryview(data)
            self.append(whole, epoch=epoch, now_ms=now_ms, produce_version=PRODUCE_VERSION, client=False)
            return base, size
        if producer_id >= 0:
            header = batch.header(data)
            if marker is None:
                self.producers.check(header, client=False)
            else:
                self.producers.check_marker(producer_id, producer_epoch, marker.coordinator_epoch)
        self._write((data,), size, last, now_ms, epoch, now_ms, marks=marker is not None)
        if header is not None:
            self._note_producer(header, base, last, now_ms, marker)
        return base, size

    def append_run(self, run: Sequence[tuple[memoryview, Sound]], epoch: int) -> int:
        """Append as many of these batches as possible with one write, in order. Returns how many.

        It stops, perhaps before the first, at a batch that needs more work: pass that one to `append_sound`.
        BrokerError: the write of the batches that `fitting` chose has failed, and nothing has changed.
        """
        if self.fault is not None or self.durability.owes_cut:
            return 0
        headers = self.fitting(run)
        base, size, last = self.end, 0, self.end - 1
        parts: list[bytes | memoryview] = []
        entries = []
        for data, (delta, max_timestamp, _) in run[: len(headers)]:
            length = len(data)
            parts += _stamp(last + 1, length - batch.LOG_OVERHEAD, epoch), data[STAMP_SIZE:]
            last += delta + 1
            entries.append((length, last, max_timestamp))
            size += length
        if not entries:
            return 0
        try:
            self.active.append_run(parts, size, entries)
        except OSError as error:
            self.directory.note_failure(error)
            raise self.directory.storage_error(error) from error
        end = self.end = last + 1
        if epoch != self.epochs.latest and epoch >= 0:
            self.epochs.assign(epoch, base)
        first = base
        for header, (_, last, max_timestamp) in zip(headers, entries, strict=True):
            if header is not None:
                self._note_producer(header, first, last, max_timestamp, None)
            first = last + 1
        durability = self.durability
        if end - durability.recovery_point >= durability.flush_messages:
            durability.owe(base)
        return len(entries)

    def fitting(self, run: Sequence[tuple[memoryview, Sound]]) -> list[Header | None]:
        """Headers of the leading batches that fit the active segment and are in sequence. None: no producer id."""
        segment, size, last = self.active, self.active.size, self.end - 1
        expected: dict[int, tuple[int, int]] = {}  # epoch and next sequence of producers in the run
        headers: list[Header | None] = []
        for data, (delta, max_timestamp, producer_id) in run:
            size += len(data)
            last += delta + 1
            if size > self._segment_bytes or last > segment.offset_max or max_timestamp > segment.roll_at:
                break
            header = None
            if producer_id >= 0:
                header = batch.header(data)
                number = header.producer_epoch, header.base_sequence
                known = expected.get(producer_id)
                if known != number and (known is not None or not self.producers.admits(header)):
                    break
                expected[producer_id] = header.producer_epoch, (header.base_sequence + delta + 1) & SEQUENCE_MASK
            headers.append(header)
            if not segment.size:
                break  # when it is to be rolled is known once it has a batch
        return headers

    def _write(
        self,
        parts: Sequence[bytes | memoryview],
        size: int,
        last: int,
        max_timestamp: int,
        epoch: int,
        now_ms: int,
        *,
        marks: bool = False,
    ) -> None:
        """Write a batch that begins at the end of the log. `marks`: it ends a transaction."""
        segment = self.active
        try:
            full = segment.size + size > self._segment_bytes or last > segment.offset_max
            if full or max_timestamp > segment.roll_at:
                segment = self._room(size, last, max_timestamp, now_ms)
            if marks:
                _ = segment.transactions  # opened while nothing has changed yet, if it can be
            segment.append(parts, size, last, max_timestamp)
        except OSError as error:
            self.directory.note_failure(error)
            raise self.directory.storage_error(error) from error
        base = self.end
        end = self.end = last + 1
        if epoch != self.epochs.latest and epoch >= 0:
            self.epochs.assign(epoch, base)
        durability = self.durability
        if end - durability.recovery_point >= durability.flush_messages:
            durability.owe(base)

    def plan_write(self, frame: memoryview, start: int, end: int, sound: Sound, epoch: int) -> PlannedWrite | None:
        """Decide where a batch of the frame goes: see `planned_write`. None: pass it to `append_sound`."""
        segment = self.active
        delta, max_timestamp, producer_id = sound
        position, base = segment.size, self.end
        if (
            max_timestamp > segment.roll_at
            or position + end - start > self._segment_bytes
            or base + delta > segment.offset_max
            or not position  # when it is to be rolled is known once it has a batch
            or self.fault is not None
            or self.durability.owes_cut
        ):
            return None
        file, header = segment.opened, None
        segment.used = True
        if producer_id >= 0:
            header = batch.header(frame[start:end])
            if not self.producers.admits(header):
                return None
        return None if file is None else (file.fd, position, base, epoch, start, end, header, file)

    def finish_write(self, write: PlannedWrite, sound: Sound) -> int:
        """Record that the batch was written. Returns its last offset."""
        _, position, base, epoch, start, stop, header, _ = write
        delta, max_timestamp, _ = sound
        last = base + delta
        self.active.extend(position, stop - start, last, max_timestamp)
        end = self.end = last + 1
        if epoch != self.epochs.latest and epoch >= 0:
            self.epochs.assign(epoch, base)
        durability = self.durability
        if end - durability.recovery_point >= durability.flush_messages:
            durability.owe(base)
        if header is not None:
            self._note_producer(header, base, last, max_timestamp, None)
        return last

    def undo_write(self, write: PlannedWrite, result: int | OSError) -> BrokerError:
        """Cut off what a failed write left in the file. `result` is that of `write_planned`. Returns the error."""
        _, position, _, _, start, end, _, file = write
        try:
            self.active.undo(file, position, end - start, result)
        except OSError as error:
            self.directory.note_failure(error)
            return self.directory.storage_error(error)

    def _check_marker(self, header: Header, data: memoryview) -> EndMarker | None:
        """The end marker in a control batch, None if it has none. BrokerError if the marker is fenced."""
        marker = marker_of(data)
        if marker is not None:
            self.producers.check_marker(header.producer_id, header.producer_epoch, marker.coordinator_epoch)
        return marker

    def _recall(self, offset: int, producer_id: int, epoch: int) -> list[Batch]:
        try:
            return batches_before(self.segments, offset, producer_id, epoch)
        except OSError as error:
            self.directory.note_failure(error)
            raise self.directory.storage_error(error) from error

    def _append_messages(
        self, parts: Sequence[bytes | memoryview], size: int, base: int, last: int, append_time: int, now_ms: int
    ) -> Appended:
        """For a topic stored as magic 0 or 1: any number of messages without a common header."""
        if size:
            data = b"".join(parts)
            self._append_run(data, list(batch.entries(data)), now_ms)
        return Appended(base, last, append_time, self.start, False)

    def _append_run(self, data: bytes | memoryview, entries: list[batch.Entry], now_ms: int) -> None:
        if self.durability.owes_cut:
            self.durability.force_cut()
        base, last = self.end, entries[-1].last_offset
        max_timestamp = max(entry.max_timestamp for entry in entries)
        sizes = [(entry.size, entry.last_offset, entry.max_timestamp) for entry in entries]
        try:
            self._room(len(data), last, max_timestamp, now_ms).append_run([data], len(data), sizes)
        except OSError as error:
            self.directory.note_failure(error)
            raise self.directory.storage_error(error) from error
        end = self.end = last + 1
        durability = self.durability
        if end - durability.recovery_point >= durability.flush_messages:
            durability.owe(base)

    def replicate(self, data: memoryview, *, now_ms: int) -> int:
        """Append batches from the leader with their offsets and epochs unchanged. Returns the new end.

        An incomplete batch at the end is ignored. BrokerError(CORRUPT_MESSAGE) when a checksum is wrong or an offset is
        below the end of the log: then nothing is appended.
        """
        if self.fault is not None:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, self.fault)
        entries = list(batch.entries(data))
        if not entries:
            return self.end
        headers = [check_copy(data, entry) for entry in entries]
        if self.start == self.end and entries[0].base_offset < self.end <= entries[0].last_offset:
            self._restart_within(entries[0].base_offset, now_ms)
        expected = self.end
        for entry in entries:
            if (entry.base_offset if entry.base_offset >= 0 else entry.last_offset) < expected:
                raise BrokerError(
                    ErrorCode.CORRUPT_MESSAGE, f"{self!r}: batch at {entry.base_offset}, expected {expected} or later"
                )
            expected = entry.last_offset + 1
        whole = entries[-1].position + entries[-1].size
        self._append_run(data[:whole], entries, now_ms)
        for header, entry in zip(headers, entries, strict=True):
            if header is not None:
                self.epochs.recall(header.leader_epoch, header.base_offset)
                if header.producer_id >= 0:
                    marker = marker_of(data[entry.position :]) if header.control else None
                    self._note_producer(header, header.base_offset, header.last_offset, header.max_timestamp, marker)
        self.epochs.flush()
        return self.end

    def _restart_within(self, base: int, now_ms: int) -> None:
        """The leader's log starts inside a batch: an empty log takes the whole batch and keeps that start offset."""
        start = self.start
        self.restart(base, now_ms=now_ms)
        self.start = start

    def _note_producer(self, header: Header, base: int, last: int, timestamp: int, marker: EndMarker | None) -> None:
        completed = self.producers.update(header, base, last, timestamp, marker)
        if completed is not None and completed.aborted:
            self._note_aborted(completed)

    def _note_aborted(self, completed: Completed) -> None:
        aborted = Aborted(completed.producer_id, completed.first, completed.last, completed.last_stable)
        try:
            self.active.transactions.append(aborted)
        except OSError as error:
            # Readers use the entries in memory. The file is written before the recovery point passes the marker.
            self.directory.note_failure(error)

    def _room(self, size: int, last: int, max_timestamp: int, now_ms: int) -> Segment:
        """The segment to write to: the active one, or a new one if it must roll."""
        if self.active.must_roll(size, last, max_timestamp, now_ms=now_ms, config=self.config):
            self.roll(now_ms)
        return self.active

    def roll(self, now_ms: int) -> None:
        """Close the active segment and start a new one at the end of the log."""
        old = self.active
        if old.size == 0 and old.base == self.end:
            return
        durability = self.durability
        if durability.owes_flush:
            # Otherwise a power cut could lose the end of this segment and keep the start of the next: a hole.
            durability.flush(durability.flushed_ms)
        new = Segment.create(self.path, self.end, self.disk, self.config, now_ms=now_ms)
        self.segments.append(new)
        self.active = new
        durability.note_roll(old)
        old.seal()
        self._snapshot()

    def _snapshot(self) -> None:
        """Write a producer snapshot. A full disk is no failure: an older snapshot and the batches give the same."""
        try:
            self.producers.snapshot(self.end, sync=False)
        except OSError as error:
            self.directory.note_failure(error)

    # Reading.

    def read(
        self, offset: int, size_max: int, *, offset_max: int, min_one: bool = True, partial: bool = False
    ) -> Slice | None:
        """Bytes of one segment, from the batch that holds `offset` (or the next batch), below offset_max.

        With `min_one` the first batch is whole even if larger than size_max. Without it, a first batch that does not
        fit is left out, unless `partial` is set: then the part that fits is returned, as fetches before version 3
        expect.
        """
        if self.fault is not None:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, self.fault)
        end = self.end
        if offset >= offset_max or offset >= end or offset < self.start:
            if self.start <= offset <= end:
                return None
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is not in {self.start}..{end}")
        segment = self.active
        try:
            if offset >= segment.base:
                found = segment.locate(offset)
            else:
                segment, found = self._find(offset)
            if found is None:
                return None
            position, first = found
            limit = segment.size
            if offset_max < segment.end:
                bound = segment.locate(offset_max)
                limit = bound[0] if bound is not None else limit
            size = limit - position
            if size > size_max:
                if first <= size_max or partial:
                    size = size_max
                elif min_one:
                    size = first
                else:
                    return None
            return segment.slice(position, size) if size > 0 else None
        except OSError as error:
            self.directory.note_failure(error)
            raise self.directory.storage_error(error) from error

    def _find(self, offset: int) -> tuple[Segment, tuple[int, int] | None]:
        """The segment that holds the batch for an offset below the active one, or else the next batch."""
        for segment in self.segments_from(offset):
            found = segment.locate(offset)
            if found is not None:
                return segment, found
        return self.active, None

    def segments_from(self, offset: int) -> list[Segment]:
        """The segment in whose range the offset falls, and all after it."""
        return self.segments[max(0, bisect_right(self.segments, offset, key=_base) - 1) :]

    # Time.

    def offset_for_time(self, timestamp: int, known: Mapping[int, Hit | None] = NOTHING_KNOWN) -> Located | None:
        """The first record at or after `timestamp`. For LongSearchError and `known`, see `seek`."""
        return self._locate(first_since(self.segments, timestamp, self.start, known))

    def max_timestamp(self, known: Mapping[int, Hit | None] = NOTHING_KNOWN) -> Located | None:
        """The first record with the largest timestamp of the log."""
        return self._locate(latest(self.segments, self.start, known))

    def _locate(self, found: tuple[Hit, int] | None) -> Located | None:
        if found is None:
            return None
        (offset, timestamp), epoch = found
        return Located(offset, timestamp, epoch if epoch >= 0 else self.epochs.of(offset))

    # Epochs and transactions.

    def assign_epoch(self, epoch: int) -> None:
        """A leader of this epoch starts writing at the end of the log."""
        if epoch > self.epochs.latest:
            self.epochs.assign(epoch, self.end)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above `epoch`, and its end offset; (-1, -1) if `epoch` is unknown."""
        return self.epochs.end_of(epoch, self.end)

    @property
    def latest_epoch(self) -> int:
        return self.epochs.latest

    def last_stable(self, high: int) -> int:
        """The last stable offset, never below the start: an open transaction may begin in records deleted since."""
        stable = self.producers.last_stable(high)
        return high if stable == high else max(stable, min(self.start, high))

    def list_aborted(self, start: int, end: int, found: Slice | None = None) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that overlap start <= offset < end.

        With `found`, the result of `read` for `start`, only those that concern its bytes, and perhaps a few after them.
        """
        segments = self.segments_from(start)
        if found is not None:
            segment = next((one for one in segments if found.file.path.startswith(one.stem)), self.active)
            end = min(end, segment.bound(found.position + found.size))
        listed: list[tuple[int, int]] = []
        for segment in segments:
            try:
                entries, complete = segment.transactions.collect(start, end)
            except OSError as error:
                self.directory.note_failure(error)
                raise self.directory.storage_error(error) from error
            listed += [(entry.producer_id, entry.first) for entry in entries]
            if complete:
                break
        return listed

    # Deleting.

    def delete_before(self, offset: int) -> int:
        """DeleteRecords: move the start to `offset`. The next retention run removes the files. Returns the start."""
        if self.fault is not None:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, self.fault)
        if offset > self.high:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is above the high watermark {self.high}")
        self._advance_start(offset)
        return self.start

    def _advance_start(self, offset: int) -> None:
        if offset > self.start:
            self.start = offset
            self.epochs.cut_start(offset)
            self.producers.advance_start(offset)

    def retain(self, now_ms: int) -> int:
        """Delete the segments that retention has expired, oldest first. Returns how many."""
        if self.fault is not None:
            return 0
        try:
            count = count_expired(
                self.segments, self.config, start=self.start, end=self.end, high=self.high, now_ms=now_ms
            )
            if count and count == len(self.segments):
                self.roll(now_ms)
            for segment in self.segments[:count]:
                size = segment.size
                self._retire(segment)
                self.directory.retired += 1
                self.directory.retired_size += size
                self._advance_start(self.segments[1].base)
                del self.segments[0]
                self.durability.note_deletion()
                self.producers.remove(segment.base)
        except OSError as error:
            self.directory.note_failure(error)
            raise self.directory.storage_error(error) from error
        return count

    def _retire(self, segment: Segment) -> None:
        """Rename the files of a segment before it leaves the list. On OSError the segment is unchanged."""
        try:
            segment.rename("", DELETED)
        except OSError as error:
            if self.disk.exists(segment.stem + LOG_SUFFIX):
                if error.errno not in FULL:
                    raise
                segment.remove()  # a full disk may have no room for the new name; deleting frees space
        segment.close()
        self.doom([segment])

    def doom(self, segments: Sequence[Segment]) -> None:
        """These are renamed to .deleted: let housekeeping remove them after a delay."""
        self.doomed += segments
        self.directory.shrunk[self] = None

    # Truncating.

    def truncate(self, offset: int, *, now_ms: int) -> None:
        """Remove everything at or above `offset`, as a follower does to match its leader.

        The caller may force that to disk in a thread with `Flusher.force_cut`; if not, the next write does it.
        """
        if offset >= self.end:
            self.epochs.cut_end(offset)  # the leader may not know an epoch in which nothing was written
            return
        try:
            if offset < self.segments[0].base:
                self.restart(offset, now_ms=now_ms)
                return
            gone = self.segments_from(offset)[1:]
            self._remove(gone)
            del self.segments[len(self.segments) - len(gone) :]
            self.active = self.segments[-1]
            self.active.truncate(offset)
            self.end = self.active.end
            self._settle(now_ms)
        except OSError as error:
            self.directory.note_failure(error)
            raise self.directory.storage_error(error) from error
        self.durability.owes_cut = True

    def restart(self, offset: int, *, now_ms: int) -> None:
        """Delete everything and start empty at `offset`, as a follower does whose leader has no older records."""
        try:
            self._restart(offset, now_ms)
        except OSError as error:
            self.directory.note_failure(error)
            raise self.directory.storage_error(error) from error
        self.durability.owes_cut = True

    def _restart(self, offset: int, now_ms: int) -> None:
        self._remove(self.segments)
        self.active = Segment.create(self.path, offset, self.disk, self.config, now_ms=now_ms)
        self.segments = [self.active]
        self.start = self.end = offset
        if self._high is not None:
            self._high = offset
        self.epochs.clear()
        self.producers.reset()
        self._settle(now_ms)

    def _remove(self, segments: Sequence[Segment]) -> None:
        """Remove files without the usual delay: their names may be needed again before it is over."""
        for segment in segments:
            segment.close()
            segment.remove()
            self.producers.remove(segment.base)

    def _settle(self, now_ms: int) -> None:
        """Bring all derived state in line with the new end of the log."""
        self.start = min(self.start, self.end)
        self.durability.note_cut()
        self.epochs.cut_end(self.end)
        self.epochs.flush()
        replay(self.segments, self.producers, start=self.start, end=self.end, now_ms=now_ms)
        if self._high is not None:
            self._high = min(self._high, self.end)

    # Life.

    def set_topic_id(self, topic_id: bytes) -> None:
        if topic_id != self.topic_id:
            write_topic_id(self.disk, self.path, topic_id)
            self.topic_id = topic_id
            self.id_lost = False

    def close(self) -> None:
        """Write what a fast start needs and close the files. The log must not be used afterwards."""
        if self.fault is None:
            self.seal()
            for segment in self.segments:
                segment.close()
        self._leave("closed")

    def seal(self) -> None:
        """Write what a fast start from this folder needs. Appends may follow."""
        if self.durability.owes_cut:
            self.durability.force_cut()
        for segment in self.segments:
            segment.write_transactions()
        self.active.seal()
        if self.active.aborts:
            self.active.transactions.force()  # unlike the other small files, it has no checksum
        counts = {segment.base: len(segment.transactions.entries) for segment in self.segments if segment.aborts}
        if counts != self._aborts:
            write_counts(self.disk, self.path, counts)
            self._aborts = counts
        self.epochs.flush(self.end)
        self._snapshot()

    def drop(self) -> None:
        """Close all files: the folder is about to be renamed and removed."""
        for segment in self.segments:
            segment.close()
        self._leave("deleted")

    def _leave(self, reason: str) -> None:
        self.fault = self.fault or f"{self!r} is {reason}"
        self.directory.logs.discard(self)
        self.directory.unforced.pop(self, None)
        self.directory.shrunk.pop(self, None)


def check_copy(data: memoryview, entry: batch.Entry) -> Header | None:
    """Check a batch copied from another broker; its header, None before magic 2. BrokerError on a wrong checksum."""
    if entry.magic == batch.MAGIC:
        header = batch.header(data, entry.position)
        if header.last_offset_delta >= 0 and batch.crc_ok(data, entry.position, header):
            return header
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"checksum of the batch at {entry.base_offset} is wrong")
    span = look(data, entry.position, entry.position, len(data))
    if span is None or not checksum_ok(FoundSpan(span, data, entry.position)):
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"checksum of the message at {entry.base_offset} is wrong")
    return None


def _base(segment: Segment) -> int:
    return segment.base
