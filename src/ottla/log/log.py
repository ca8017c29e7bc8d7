"""The log of one partition: an ordered list of segments. Appends go to the last one, reads to any.

    start ≤ offset < end      readable offsets; retention and DeleteRecords move `start`, appends move `end`
    high                      high watermark: records below it are replicated; retention deletes only below it

`write` is in the hot path: one write, and a few comparisons. What comes before it is in `append`, `planned_write` and
`replicate`. State changes only after the write has succeeded, so a failed append changes nothing.

Closed segments never change. Retention deletes them and compaction replaces them: their files get the suffix `.deleted`
at once and are removed after `file.delete.delay.ms`, so that a reader in another process has time to finish.
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.errors import BrokerError, ErrorCode
from ottla.log.checkpoints import write_topic_id
from ottla.log.durability import Durability
from ottla.log.recall import batches_before
from ottla.log.seek import NOTHING_KNOWN, first_since, latest, locate
from ottla.log.segment import Segment, Slice
from ottla.log.transactions import Aborted
from ottla.records.validate import keeps_own, terms_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.config.topic import TopicConfig
    from ottla.log.directory import Directory
    from ottla.log.producers import Completed
    from ottla.log.recovery import Loaded
    from ottla.log.seek import Hit, Located
    from ottla.log.snapshots import Batch
    from ottla.records.batch import Entry, Header
    from ottla.records.markers import EndMarker


class Log:
    __slots__ = (
        "__weakref__",
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
        "high_set",
        "id_lost",
        "index",
        "own_size_max",
        "path",
        "producers",
        "segment_bytes",
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
        self.high_set: int | None = None  # high watermark as last set; None: it follows the end
        self.segment_bytes = 0
        self.own_size_max = -1  # up to this size our own batches are stored as we build them
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
        self.durability.settle_in(loaded)
        self.reconfigure(self.config)
        directory.logs.add(self)

    def reconfigure(self, config: TopicConfig) -> None:
        self.config = config
        self.directory.unforced[self] = None
        self.segment_bytes = config.segment_bytes
        self.durability.flush_messages = config.flush_messages
        self.terms = terms_of(config)  # None: batches are not stored as received
        self.own_size_max = min(config.max_message_bytes, config.segment_bytes) if keeps_own(config) else -1
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
        """The high watermark: as last set, or the settled end of the log."""
        if self.high_set is not None:
            return min(self.high_set, self.end)
        durability = self.durability
        return self.end if durability.held is None else durability.settled_end

    @high.setter
    def high(self, offset: int) -> None:
        self.high_set = offset

    def commit_all(self) -> None:
        """There is no other replica: the high watermark follows the end of the log from now on."""
        self.high_set = None

    def __repr__(self) -> str:
        return f"Log({self.topic}-{self.index}, {self.start}..{self.end})"

    # Writing.

    def write(
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
            full = segment.size + size > self.segment_bytes or last > segment.offset_max
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

    def write_entries(self, data: bytes | memoryview, entries: list[Entry], now_ms: int) -> None:
        """Write batches, or messages in an old format, at the end of the log. Their epochs are left to the caller."""
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

    def note_producer(self, header: Header, base: int, last: int, timestamp: int, marker: EndMarker | None) -> None:
        """Update the producer's state for a batch that was written. `marker`: it ends a transaction."""
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
        self.snapshot()

    def snapshot(self) -> None:
        """Write a producer snapshot. A full disk is no failure: an older snapshot and the batches give the same."""
        try:
            self.producers.snapshot(self.end, sync=False)
        except OSError as error:
            self.directory.note_failure(error)

    def _recall(self, offset: int, producer_id: int, epoch: int) -> list[Batch]:
        try:
            return batches_before(self.segments, offset, producer_id, epoch)
        except OSError as error:
            self.directory.note_failure(error)
            raise self.directory.storage_error(error) from error

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
        return locate(first_since(self.segments, timestamp, self.start, known), self.epochs)

    def max_timestamp(self, known: Mapping[int, Hit | None] = NOTHING_KNOWN) -> Located | None:
        """The first record with the largest timestamp of the log."""
        return locate(latest(self.segments, known), self.epochs)

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
        self.advance_start(offset)
        return self.start

    def advance_start(self, offset: int) -> None:
        """Nothing below `offset` is readable from now on."""
        if offset > self.start:
            self.start = offset
            self.epochs.cut_start(offset)
            self.producers.advance_start(offset)

    def doom(self, segments: Sequence[Segment]) -> None:
        """These are renamed to .deleted: let housekeeping remove them after a delay."""
        self.doomed += segments
        self.directory.shrunk[self] = None

    # Life.

    def set_topic_id(self, topic_id: bytes) -> None:
        if topic_id != self.topic_id:
            write_topic_id(self.disk, self.path, topic_id)
            self.topic_id = topic_id
            self.id_lost = False

    def close(self) -> None:
        """Write what a fast start needs and close the files. The log must not be used afterwards."""
        if self.fault is None:
            self.durability.seal()
            for segment in self.segments:
                segment.close()
        self._leave("closed")

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


def _base(segment: Segment) -> int:
    return segment.base
