"""Compaction of one partition: rewrites closed segments so that only the last value of each key stays.

Offsets and order do not change; removed records leave gaps. A run has two parts. Both run in a worker thread on a
`CompactionPlan`, which the event loop has taken from the log before:

1. `map_keys` reads the dirty part, [first dirty, first uncleanable), into a map from key to its last offset. The map is
   bounded; when it is full the run ends there, and the next one continues from that offset.
2. `clean` rewrites one group of neighbouring segments, clean and dirty ones, that together fit into one segment: a
   record stays if no later offset is known for its key. The result is written beside the log as `<base>.log.cleaned`,
   `.index.cleaned`, `.timeindex.cleaned` and, if needed, `.txnindex.cleaned`, synced.

The event loop then puts the result in place by renames, in the order that recovery relies on:

    .cleaned → .swap (the result is complete)   originals → .deleted   .swap → no suffix

A crash before the first rename leaves `.cleaned` files, which are deleted; after it, `.swap` files, which replace the
originals in their offset range.

What stays although it is no key's last value: the newest batch of each active producer and the last batch of the run,
as bare headers, for their sequence and offset; tombstones and markers of emptied transactions until their delete
horizon (see `sieve`); markers of transactions that still have data. Data of aborted transactions is removed at once.
"""

from __future__ import annotations

import logging
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from ottla.log import sieve, transactions
from ottla.log.fates import Fates, overlapping
from ottla.log.index import OFFSET_ENTRY, OFFSET_SUFFIX, TIME_ENTRY, TIME_SUFFIX
from ottla.log.recovery import checksum_ok
from ottla.log.segment import CLEANED, LOG_SUFFIX, RELATIVE_MAX, SUFFIXES, stem_of
from ottla.log.spans import walk
from ottla.records import batch
from ottla.records.compress import CorruptError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from threading import Event

    from ottla.clock import Clock
    from ottla.config import BrokerConfig
    from ottla.disk import Disk, File
    from ottla.log.log import Log
    from ottla.log.producers import LastBatch
    from ottla.log.spans import Span
    from ottla.log.transactions import Aborted
    from ottla.records.batch import Header, Record

# Bytes per key in a dict: key object, offset object and its share of the table just after it has doubled. Kafka's table
# takes 24 bytes a key. The option limits bytes, so we map fewer keys per pass and make more passes.
KEY_COST = 160

# A busy thread holds the interpreter for milliseconds. A short sleep after this many bytes lets the event loop run.
SLICE_SIZE = 1 << 16
SLICE_PAUSE_S = 0.0001

logger = logging.getLogger("ottla.log")

_WRITE_SIZE = 1 << 20


class SegmentSource(NamedTuple):
    """A closed segment as it was when the plan was made. `end` is the base of the segment that follows."""

    base: int
    end: int
    path: str
    size: int
    index_size: int
    time_index_size: int
    modified_ms: int


class CompactionPlan(NamedTuple):
    """All inputs of a run, taken at one moment. `sources` are the segments below `first_uncleanable`."""

    folder: str
    sources: tuple[SegmentSource, ...]
    first_dirty: int
    first_uncleanable: int
    aborted: tuple[Aborted, ...]
    last_batches: Mapping[int, LastBatch]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    keys_max: int
    read_size: int


class Cleaned(NamedTuple):
    """A group rewritten into `<base>.*.cleaned`. `replaced` are the bases of the segments it replaces."""

    base: int
    replaced: tuple[int, ...]
    suffixes: tuple[str, ...]
    size: int
    index_sizes: tuple[int, int]
    size_before: int
    records: int
    records_before: int
    aborted: tuple[Aborted, ...]  # the entries of its transaction index


class StoppedError(Exception):
    """The run was stopped; its unfinished files are removed."""


def plan(log: Log, first_dirty: int, first_uncleanable: int, config: BrokerConfig, now_ms: int) -> CompactionPlan:
    """The inputs of a run over a log, taken now."""
    sources = [
        SegmentSource(
            segment.base,
            segment.end,
            segment.stem + LOG_SUFFIX,
            segment.size,
            segment.offsets.table.count * segment.offsets.table.width,
            segment.times.table.count * segment.times.table.width,
            segment.modified_ms(),
        )
        for segment in log.segments[:-1]
        if segment.end <= first_uncleanable  # the dirty part may begin inside an uncleanable segment
    ]
    memory = config.log_cleaner_dedupe_buffer_size / config.log_cleaner_threads
    return CompactionPlan(
        folder=log.path,
        sources=tuple(sources),
        first_dirty=first_dirty,
        first_uncleanable=first_uncleanable,
        aborted=tuple(entry for segment in log.segments for entry in segment.transactions.entries),
        last_batches=log.producers.last_batches(),
        now_ms=now_ms,
        delete_retention_ms=log.config.delete_retention_ms,
        segment_bytes=log.config.segment_bytes,
        segment_index_bytes=log.config.segment_index_bytes,
        index_interval_bytes=log.config.index_interval_bytes,
        keys_max=int(memory * config.log_cleaner_io_buffer_load_factor / KEY_COST),
        read_size=config.log_cleaner_io_buffer_size,
    )


class ReadThrottle:
    """Called by a compaction with the bytes it has read: limits its speed, and stops it."""

    def __init__(self, config: BrokerConfig, clock: Clock, stop: Event) -> None:
        self._rate = config.log_cleaner_io_max_bytes_per_second
        self._clock = clock
        self._stop = stop
        self._begin = clock.monotonic()
        self._total = 0
        self._slice = 0

    def __call__(self, size: int) -> None:
        self._total += size
        self._slice += size
        if self._slice >= SLICE_SIZE:
            self._slice = 0
            ahead_s = self._total / self._rate - (self._clock.monotonic() - self._begin)
            if self._stop.wait(max(SLICE_PAUSE_S, ahead_s)):
                raise StoppedError


class Compaction:
    """One run over one log. `pause` is called with the bytes read since the last call: it may wait or raise
    StoppedError."""

    def __init__(self, plan: CompactionPlan, disk: Disk, pause: Callable[[int], None] = lambda _: None) -> None:
        self.plan = plan
        self.end = plan.first_dirty
        self.groups: list[tuple[SegmentSource, ...]] = []
        self._disk = disk
        self._pause = pause
        self._offsets: dict[bytes, int] = {}
        self._fates = Fates()
        self._unreadable: set[int] = set()
        clean = [source for source in plan.sources if source.base < plan.first_dirty]
        self._legacy_horizon_ms = clean[-1].modified_ms - plan.delete_retention_ms if clean else 0

    def map_keys(self) -> None:
        """First part: map every dirty key to its last offset, as far as memory allows, and group the segments."""
        plan = self.plan
        fates = Fates()
        fates.add(overlapping(plan.aborted, plan.first_dirty, plan.first_uncleanable))
        for source in plan.sources:
            if source.end > plan.first_dirty and not self._map_source(source, fates):
                break
        reached = [source for source in plan.sources if source.base < self.end]
        self.groups = group(reached, plan)

    def _map_source(self, source: SegmentSource, fates: Fates) -> bool:
        """Add one segment to the map; False when the map is full."""
        offsets, first, room = self._offsets, self.plan.first_dirty, self.plan.keys_max
        for span, data in self._read(source):
            decided = span.magic == 2 and (_judge(fates, data) or batch.header(data).control)
            if span.last >= first and not decided:
                found = self._keys(span, data, first)
                # The first batch is taken whatever its size, or the run would make no progress.
                if offsets and len(offsets) + sum(key not in offsets for key in found) > room:
                    return False
                offsets.update(found)
            self.end = max(self.end, span.last + 1)
        self.end = max(self.end, source.end)
        return True

    def _keys(self, span: Span, data: memoryview, first: int) -> dict[bytes, int]:
        try:
            records = sieve.read_records(data)
            return {name(r.key): r.offset for r in records if r.key is not None and r.offset >= first}
        except CorruptError as error:
            self._say_unreadable(span, error)
            return {}

    def _say_unreadable(self, span: Span, error: CorruptError) -> None:
        """Log a batch that cannot be opened. It stays as it is, and newer values of its keys stay too."""
        if span.base not in self._unreadable:
            self._unreadable.add(span.base)
            if len(self._unreadable) == 1:
                logger.warning(
                    "%s: the batch at offset %d is kept as it is: %s", self.plan.folder, span.base, error.message
                )

    def clean(self, sources: Sequence[SegmentSource]) -> Cleaned:
        """Second part, once per group in order: write the remaining records of these segments into one."""
        target = NewSegment(self.plan, sources[0].base, self._disk)
        before, kept = 0, 0
        try:
            for source in sources:
                self._fates.add(overlapping(self.plan.aborted, source.base, source.end))
                retain_deletes = source.modified_ms > self._legacy_horizon_ms
                for span, data in self._read(source):
                    sifted = self._sift(span, data, retain_deletes=retain_deletes)
                    before, kept = before + sifted.read, kept + sifted.kept
                    if sifted.data is not None:
                        target.append(sifted.data, sifted.last_offset, sifted.max_timestamp)
            aborted = self._fates.take()
            suffixes = target.close(aborted, sources[-1].modified_ms)
        except BaseException:
            target.discard()
            raise
        size_before = sum(source.size for source in sources)
        replaced = tuple(source.base for source in sources)
        return Cleaned(
            sources[0].base,
            replaced,
            suffixes,
            target.size,
            target.index_sizes,
            size_before,
            kept,
            before,
            tuple(aborted),
        )

    def _sift(self, span: Span, data: memoryview, *, retain_deletes: bool) -> sieve.FilteredBatch:
        try:
            return self._sift_sound(span, data, retain_deletes=retain_deletes)
        except CorruptError as error:
            self._say_unreadable(span, error)
            count = batch.header(data).count if span.magic == 2 else 1
            return sieve.FilteredBatch(data, count, count, span.last, span.max_timestamp)

    def _sift_sound(self, span: Span, data: memoryview, *, retain_deletes: bool) -> sieve.FilteredBatch:
        if span.magic < 2:
            return sieve.sift_legacy(data, self._make_keep(retain_deletes=retain_deletes))
        plan, head = self.plan, batch.header(data)
        gone = _judge(self._fates, data)
        horizon = head.delete_horizon
        passed = horizon is not None and horizon <= plan.now_ms
        retain_empty = self._is_newest(head) or head.last_offset + 1 == plan.first_uncleanable
        if gone and (passed or not head.control):
            return (
                sieve.build_empty(head)
                if retain_empty
                else sieve.FilteredBatch(None, head.count, 0, head.last_offset, -1)
            )
        return sieve.sift(
            data,
            head,
            _everything if head.control else self._make_keep(retain_deletes=not passed),
            new_horizon_ms=plan.now_ms + plan.delete_retention_ms,
            retain_empty=retain_empty,
            ended_empty=gone,
        )

    def _make_keep(self, *, retain_deletes: bool) -> sieve.Keep:
        end, offsets = self.end, self._offsets

        def keep(record: Record) -> bool:
            if record.offset >= end:
                return True  # beyond the part of this run
            if record.key is None or (record.value is None and not retain_deletes):
                return False
            return record.offset >= offsets.get(name(record.key), -1)

        return keep

    def _is_newest(self, head: Header) -> bool:
        """Whether this batch holds an active producer's last sequence, or its epoch when only a marker is left."""
        newest = self.plan.last_batches.get(head.producer_id)
        if newest is None:
            return False
        if newest.offset is None:
            return head.control and head.producer_epoch == newest.epoch
        return head.last_offset == newest.offset

    def _read(self, source: SegmentSource) -> Iterator[tuple[Span, memoryview]]:
        """The segment's batches in order, with verified checksums."""
        file = self._disk.open(source.path)
        reached = 0
        try:
            for found in walk(self._disk, file, 0, source.size, whole=True, window=self.plan.read_size):
                span, buffer, at = found
                if not checksum_ok(found):
                    raise CorruptError(f"{source.path}: the batch at offset {span.base} fails its checksum")
                yield span, memoryview(buffer)[at : at + span.size]
                reached = span.position + span.size
                self._pause(span.size)
        finally:
            file.close()
        if reached != source.size:
            raise CorruptError(f"{source.path} holds no batch at position {reached}")


def group(sources: Sequence[SegmentSource], plan: CompactionPlan) -> list[tuple[SegmentSource, ...]]:
    """Groups of neighbours that fit into one segment, by size, index sizes and relative offsets."""
    groups: list[tuple[SegmentSource, ...]] = []
    taken: list[SegmentSource] = []
    for source in sources:
        together = [*taken, source]
        fits = (
            sum(s.size for s in together) <= plan.segment_bytes
            and sum(s.index_size for s in together) <= plan.segment_index_bytes
            and sum(s.time_index_size for s in together) <= plan.segment_index_bytes
            and (source.size == 0 or source.end - 1 - together[0].base <= RELATIVE_MAX)
        )
        if taken and not fits:
            groups.append(tuple(taken))
            taken = []
        taken.append(source)
    return [*groups, tuple(taken)] if taken else groups


def name(key: bytes) -> bytes:
    """The form of a key in the map: long keys become a digest, which is longer than any short key."""
    return key if len(key) < 16 else blake2b(key, digest_size=16).digest()


class NewSegment:
    """The segment being written, under names that recovery deletes."""

    def __init__(self, plan: CompactionPlan, base: int, disk: Disk) -> None:
        self.base = base
        self.size = 0
        self._plan = plan
        self._disk = disk
        self.discard()
        self._file: File = disk.open(self._path(LOG_SUFFIX), create=True)
        self._parts: list[bytes | memoryview] = []
        self._pending = 0
        self._unindexed = 0
        self._offsets = bytearray()
        self._times = bytearray()
        self._latest = (-1, base)  # largest timestamp so far and the last offset of its batch
        self._indexed_timestamp = -1

    def append(self, data: bytes | memoryview, last: int, timestamp: int) -> None:
        if timestamp > self._latest[0]:
            self._latest = timestamp, last
        if self._unindexed > self._plan.index_interval_bytes:
            self._offsets += OFFSET_ENTRY.pack(last - self.base, self.size)
            self._mark_time()
            self._unindexed = 0
        self._parts.append(data)
        self.size += len(data)
        self._unindexed += len(data)
        self._pending += len(data)
        if self._pending >= _WRITE_SIZE:
            self._write()

    def close(self, aborted: Sequence[Aborted], modified_ms: int) -> tuple[str, ...]:
        """Write and sync everything, keeping the modification time of the sources. Returns the file suffixes."""
        self._write()
        self._mark_time()
        self._disk.sync(self._file.fd)
        self._file.close()
        contents = {OFFSET_SUFFIX: bytes(self._offsets), TIME_SUFFIX: bytes(self._times)}
        if aborted:
            contents[transactions.SUFFIX] = transactions.encode(aborted)
        for suffix, content in contents.items():
            self._disk.write(self._path(suffix), content, sync=True)
        self._disk.set_modified(self._path(LOG_SUFFIX), modified_ms)
        return (LOG_SUFFIX, *contents)

    @property
    def index_sizes(self) -> tuple[int, int]:
        return len(self._offsets), len(self._times)

    def discard(self) -> None:
        """Remove the files, including leftovers of an earlier run."""
        for suffix in SUFFIXES:
            self._disk.remove(self._path(suffix), missing_ok=True)

    def _write(self) -> None:
        position, rest = self.size - self._pending, b"".join(self._parts)
        self._parts.clear()
        self._pending = 0
        view = memoryview(rest)
        while view:
            written = self._disk.writev(self._file.fd, [view], position)
            view, position = view[written:], position + written

    def _mark_time(self) -> None:
        timestamp, offset = self._latest
        if timestamp > self._indexed_timestamp:
            self._times += TIME_ENTRY.pack(timestamp, offset - self.base)
            self._indexed_timestamp = timestamp

    def _path(self, suffix: str) -> str:
        return stem_of(self._plan.folder, self.base) + suffix + CLEANED


def _judge(fates: Fates, data: memoryview) -> bool:
    """Record a v2 batch in `fates`: True if it is data of an aborted transaction, or a marker whose data is gone."""
    head = batch.header(data)
    return fates.judge_marker(head, sieve.control_type(data)) if head.control else fates.judge_data(head)


def _everything(_: Record) -> bool:
    return True
