"""Loads a partition's log from its folder, after a clean stop or a crash.

After a clean stop the files are trusted: only the last few KiB of the active segment and the small files are read. If
the file does not end with a whole batch after all, that segment is recovered as after a crash.
After a crash every segment from the recovery point on is read: each batch must be complete, with a correct checksum and
ascending offsets; the log ends before the first that is not. Indexes, leader epochs, producer states and aborted
transactions are rebuilt from what was read. A segment with missing index files is recovered even after a clean stop.

Leftovers of interrupted work, by suffix:

    .deleted    was to be removed: removed
    .cleaned    compaction was writing it: removed, and with it every .swap at or above the lowest such offset
    .swap       compaction had finished it: replaces the segments whose offsets it covers
    .tmp        a checkpoint that was being written: removed
"""

from __future__ import annotations

import logging
import os
import zlib
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    CorruptCheckpointError,
    read_topic_id,
    write_topic_id,
)
from ottla.log.epochs import OFFSET_MAX, Epochs
from ottla.log.index import OFFSET_SUFFIX, TIME_SUFFIX
from ottla.log.producers import Producers
from ottla.log.reservation import free_leftovers
from ottla.log.segment import CLEANED, DELETED, LOG_SUFFIX, SUFFIXES, SWAP, Segment
from ottla.log.snapshots import SUFFIX as SNAPSHOT_SUFFIX
from ottla.log.spans import walk
from ottla.log.transactions import COUNTS, Aborted, CorruptTransactionIndexError, read_counts
from ottla.log.transactions import SUFFIX as TRANSACTION_SUFFIX
from ottla.records import batch
from ottla.records.markers import EndMarker, read_marker
from ottla.records.native import crc32c, walk_log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.config.topic import TopicConfig
    from ottla.disk import Disk
    from ottla.log.spans import FoundSpan
    from ottla.records.batch import Header

TMP = ".tmp"
DIGITS = 20

_WINDOW = 1 << 22  # bytes per read during recovery
_END_MAX = OFFSET_MAX - (1 << 32)  # offsets take 63 bits in the protocol, and the log will grow

logger = logging.getLogger("ottla.log")


class UnusableError(Exception):
    """A log that needs manual repair; the message says what to do."""


class Loaded(NamedTuple):
    segments: list[Segment]
    start: int
    end: int
    recovery_point: int
    epochs: Epochs
    producers: Producers
    topic_id: bytes | None
    now_ms: int
    aborts: dict[int, int]  # the content of the file COUNTS
    id_lost: bool = False  # there was a topic id, but it cannot be read


def create(
    folder: str, disk: Disk, config: TopicConfig, *, topic_id: bytes, epoch: int, now_ms: int, expiration_ms: int
) -> Loaded:
    """An empty log in a new folder. On OSError the folder is removed again."""
    disk.make_folder(folder)
    try:
        segment = Segment.create(folder, 0, disk, config, now_ms=now_ms, new=True)
        if any(topic_id):  # a controller before 2.8 assigns none
            write_topic_id(disk, folder, topic_id, new=True)
    except OSError:
        disk.remove_folder(folder)
        raise
    epochs = Epochs(os.path.join(folder, LEADER_EPOCHS), disk, [], stored=True)
    if epoch >= 0:
        epochs.assign(epoch, 0)
    producers = Producers(folder, disk, expiration_ms=expiration_ms)
    return Loaded([segment], 0, 0, 0, epochs, producers, topic_id, now_ms, {})


def load(
    folder: str,
    disk: Disk,
    config: TopicConfig,
    *,
    clean: bool,
    recovery_point: int,
    start: int,
    now_ms: int,
    expiration_ms: int,
    whole_from: int | None = None,
) -> Loaded:
    """The log in a folder. `clean`, `recovery_point` and `start` come from the directory's files.

    `whole_from`: from this offset on, each segment must begin where the one before ends; otherwise everything after the
    gap is removed. A power cut may lose a segment and keep the next one; a replica then copies both from its leader.
    UnusableError or OSError: the log cannot be opened.
    """
    sizes, snapshots = tidy(folder, disk)
    segments, suspects = _open_segments(folder, disk, config, sizes, now_ms)
    producers = Producers(folder, disk, expiration_ms=expiration_ms, snapshots=snapshots)
    rebuilt: set[int] = set()
    first = len(segments)
    if not clean and segments:
        first = max(0, bisect_right(segments, recovery_point, key=_base) - 1)
    path = os.path.join(folder, LEADER_EPOCHS)
    epochs = Epochs.open(path, disk)
    trusted = any(segment.size for segment in segments[:first])  # else every batch is read anyway
    if epochs is None or (trusted and not epochs.entries and _is_blank(path, disk)):
        # Epochs only of the segments that are rebuilt would not do: followers would cut off those in between.
        epochs = _gather_epochs(path, disk, segments)
    suspects = [at for at in suspects if at < first]
    if whole_from is not None:
        whole_from = max(whole_from, recovery_point)  # what is below was on disk: holes there are of compaction
    if suspects or first < len(segments):
        rebuilt = {*suspects, *range(first, len(segments))}
        _recover(segments, min(rebuilt), rebuilt, first, epochs, producers, start, now_ms, whole_from)
    if segments:
        last = len(segments) - 1
        if not segments[last].begin():
            rebuilt.add(last)
            _recover(segments, last, {last}, last, epochs, producers, start, now_ms, whole_from)
            segments[last].begin()
        if segments[-1].end < start:
            # The log start is past the end: the files with those records are gone.
            _remove(segments, producers)
            epochs.clear()
    if not segments:
        segments.append(Segment.create(folder, start, disk, config, now_ms=now_ms))

    start = max(start, segments[0].base)
    end = segments[-1].end
    if end > _END_MAX:
        raise UnusableError(f"{segments[-1].stem}{LOG_SUFFIX} ends at offset {end}, too near to the largest one")
    epochs.cut_end(end)
    epochs.cut_start(start)
    if not clean:
        epochs.flush()
    if not rebuilt:
        producers.remove_stray(segment.base for segment in segments)
        replay(segments, producers, start=start, end=end, now_ms=now_ms)
    aborts = read_counts(disk, folder) if COUNTS in sizes else {}
    for at, segment in enumerate(segments):
        size = sizes.get(f"{segment.base:020d}{TRANSACTION_SUFFIX}")
        if at not in rebuilt and (size is not None or segment.base in aborts):
            _read_transactions(segments, at, producers, start, now_ms, aborts.get(segment.base, 0))
    recovery_point = end if clean and not rebuilt else min(recovery_point, end)
    topic_id, id_lost = _topic_id(disk, folder)
    return Loaded(segments, start, end, recovery_point, epochs, producers, topic_id, now_ms, aborts, id_lost)


def force(loaded: Loaded, disk: Disk, folder: str) -> None:
    """Force records to disk that the last process may not have forced: a power cut could lose records already read.

    The recovery point does not move, since indexes are not forced.
    """
    for segment in loaded.segments:
        if segment.end > loaded.recovery_point:
            disk.sync(segment.file.fd)
    for path in (folder, os.path.dirname(folder)):
        disk.sync_folder(path)


def _read_transactions(
    segments: Sequence[Segment], at: int, producers: Producers, start: int, now_ms: int, count: int
) -> None:
    """Load the transaction index of a segment from its file, or rebuild it from the batches if the file is invalid.

    `count` is the number of entries according to the file COUNTS.
    """
    segment = segments[at]
    try:
        segment.read_transactions()
        if len(segment.transactions.entries) < count:
            raise CorruptTransactionIndexError(f"{len(segment.transactions.entries)} of {count} entries")
    except (CorruptTransactionIndexError, OSError) as error:
        logger.warning("transaction index rebuilt", extra={"segment": segment.stem, "reason": str(error)})
        segment.clear_transactions()
        # The producer snapshot at the segment's base tells which transactions were open there.
        known = [offset for offset in producers.snapshots if start < offset <= segment.base]
        before = Producers(producers.folder, segment.disk, expiration_ms=producers.expiration_ms, snapshots=known)
        replay(segments[:at], before, start=start, end=segment.base, now_ms=now_ms)
        for found in segment.spans():
            if found.span.magic == batch.MAGIC:
                _replay_span(found, segment, before)
        _save_transactions(segment)


def _save_transactions(segment: Segment) -> None:
    """On a full disk the entries stay in memory and are written later."""
    try:
        segment.write_transactions()
    except OSError as error:
        logger.warning("transaction index not written", extra={"segment": segment.stem, "reason": str(error)})


def _topic_id(disk: Disk, folder: str) -> tuple[bytes | None, bool]:
    """The topic's id, and whether it is lost."""
    try:
        return read_topic_id(disk, folder), False
    except CorruptCheckpointError as error:
        # A power cut may have emptied the file. The cluster knows the id of the current topic of this name.
        logger.warning("topic id unknown", extra={"folder": folder, "reason": str(error)})
        return None, True


def tidy(folder: str, disk: Disk) -> tuple[dict[str, int], list[int]]:
    """Finish or undo interrupted work. Returns the sizes of the segments' files by name, and snapshot offsets."""
    sizes: dict[str, int] = {}
    snapshots: list[int] = []
    leftovers: list[str] = []
    for entry in disk.scan(folder):
        name = entry.name
        stem, suffix = name[:DIGITS], name[DIGITS:]
        if entry.is_dir():
            if (stem.isdecimal() and suffix.startswith(".")) or name.startswith(
                (LEADER_EPOCHS, PARTITION_METADATA, COUNTS)
            ):
                raise UnusableError(f"{entry.path} is a folder but must be a file: remove it and restart")
            continue  # not ours
        if name.endswith((DELETED, CLEANED, SWAP, TMP)):
            leftovers.append(name)
        elif len(stem) == DIGITS and stem.isdecimal():
            if suffix in SUFFIXES:
                sizes[name] = entry.stat().st_size
            elif suffix == SNAPSHOT_SUFFIX:
                snapshots.append(int(stem))
        elif name == COUNTS:
            sizes[name] = 0
    if leftovers:
        _finish(folder, disk, leftovers)
        return tidy(folder, disk)
    for name in list(sizes):
        if name != COUNTS and name[:DIGITS] + LOG_SUFFIX not in sizes:
            disk.remove(os.path.join(folder, name))
            del sizes[name]
    return sizes, snapshots


def _finish(folder: str, disk: Disk, leftovers: Sequence[str]) -> None:
    lowest = min((_offset(name) for name in leftovers if name.endswith(CLEANED)), default=None)
    swaps = []
    for name in leftovers:
        if name.endswith(SWAP) and (lowest is None or _offset(name) < lowest):
            swaps.append(name)
        else:
            disk.remove(os.path.join(folder, name))
    covered = [_cover(folder, disk, name) for name in swaps if name.endswith(LOG_SUFFIX + SWAP)]
    if covered:
        low, high = min(base for base, _ in covered), max(end for _, end in covered)
        for entry in disk.scan(folder):
            name = entry.name
            if not name.endswith(SWAP) and name[:DIGITS].isdecimal() and low <= _offset(name) < high:
                disk.remove(entry.path)
    for name in swaps:
        disk.rename(os.path.join(folder, name), os.path.join(folder, name.removesuffix(SWAP)))


def _cover(folder: str, disk: Disk, name: str) -> tuple[int, int]:
    """The offset range of a finished segment of compaction, as far as its own batches show."""
    base = end = _offset(name)
    file = disk.open(os.path.join(folder, name))
    for found in walk(disk, file, 0, disk.stat(file.path).st_size):
        end = found.span.last + 1
    file.close()
    return base, end


def _offset(name: str) -> int:
    return int(name[:DIGITS]) if name[:DIGITS].isdecimal() else -1


def _base(segment: Segment) -> int:
    return segment.base


def _open_segments(
    folder: str, disk: Disk, config: TopicConfig, sizes: dict[str, int], now_ms: int
) -> tuple[list[Segment], list[int]]:
    """Segments in order, and which of them lack an index file."""
    bases = sorted(int(name[:DIGITS]) for name in sizes if name.endswith(LOG_SUFFIX))
    segments, suspects = [], []
    for at, base in enumerate(bases):
        stem = f"{base:020d}"
        offsets, times = sizes.get(stem + OFFSET_SUFFIX), sizes.get(stem + TIME_SUFFIX)
        size = sizes[stem + LOG_SUFFIX]
        if size and (offsets is None or times is None):
            suspects.append(at)
        end = bases[at + 1] if at + 1 < len(bases) else base
        lengths = (offsets or 0, times or 0)
        segments.append(Segment.open(folder, base, disk, config, size=size, lengths=lengths, end=end, now_ms=now_ms))
    return segments, suspects


def _is_blank(path: str, disk: Disk) -> bool:
    """Whether a file is missing or empty. Ours are never empty, those of Apache Kafka may be."""
    try:
        return disk.stat(path).st_size == 0
    except FileNotFoundError:
        return True


def _gather_epochs(path: str, disk: Disk, segments: Sequence[Segment]) -> Epochs:
    epochs = Epochs(path, disk, [])
    for segment in segments:
        for found in segment.spans():
            epochs.recall(found.span.epoch, found.span.base)
    return epochs


def _recover(
    segments: list[Segment],
    begin: int,
    chosen: set[int],
    unforced: int,
    epochs: Epochs,
    producers: Producers,
    start: int,
    now_ms: int,
    whole_from: int | None,
) -> None:
    """Check the chosen segments batch by batch; `begin` is the lowest. Afterwards producer states are up to date.

    Those before `unforced` were on disk when the last process ended: damage in one of them says nothing about the next.
    So later ones are kept, unless a replica can copy them again together with what was damaged.
    """
    replay(segments[:begin], producers, start=start, end=segments[begin].base, now_ms=now_ms)
    at = begin
    while at < len(segments):
        segment = segments[at]
        if at in chosen:
            cut = rebuild(segment, epochs, producers)
            end = segment.end if segment.size else segment.base
            hole = whole_from is not None and whole_from <= end < (segments[at + 1].base if segments[at + 1 :] else end)
            if cut and at < unforced and whole_from is None:
                logger.error("removed damaged data from a log", extra={"segment": segment.stem, "bytes": cut})
            elif cut or hole:
                # Records after a broken batch may belong to another history. Apache Kafka drops them too.
                logger.warning(
                    "removed incomplete data at the end of a log",
                    extra={"segment": segment.stem, "bytes": cut, "later_segments": len(segments) - at - 1},
                )
                dropped = segments[at + 1 :]
                del segments[at + 1 :]
                _remove(dropped, producers)
        else:
            _replay_segment(segment, producers, segment.base, segment.offset_max)
        at += 1
        if at < len(segments):
            segment.end = segments[at].base
            producers.snapshot(segment.end, sync=False)


def rebuild(segment: Segment, epochs: Epochs | None, producers: Producers | None) -> int:
    """Check every batch and rebuild all derived state. Returns how many bytes were cut off the end."""
    size, position, window = segment.size, 0, _WINDOW
    segment.clear()
    file = segment.file
    while position < size:
        data = segment.disk.pread(file.fd, min(window, size - position), position)
        walked = walk_log(data, segment.state(OFFSET_MAX if epochs is None else epochs.latest))
        segment.advance(position, walked)
        if epochs is not None:
            for epoch, base in walked.epochs:
                epochs.recall(epoch, base)
        if producers is not None:
            for at in walked.producers:
                _replay_batch(data, at, segment, producers)
        position += walked.size
        window = _WINDOW
        if not walked.sound:
            break
        if not walked.size:  # a batch larger than the window, or an incomplete one
            window = int.from_bytes(data[8:12], signed=True) + batch.LOG_OVERHEAD
            if not len(data) < window <= size - position:
                break
    segment.finish()
    _save_transactions(segment)
    if position < size:
        segment.disk.cut(file.fd, position)
    else:
        free_leftovers(segment.disk, file, size)
    return size - position


def checksum_ok(found: FoundSpan) -> bool:
    span, buffer, at = found
    view = memoryview(buffer)[at : at + span.size]
    if span.magic == batch.MAGIC:
        return crc32c(view[21:]) == int.from_bytes(view[17:21], "big")
    return zlib.crc32(view[16:]) == int.from_bytes(view[12:16], "big")


def replay(segments: Sequence[Segment], producers: Producers, *, start: int, end: int, now_ms: int) -> None:
    """Bring producer states up to `end`: load the newest snapshot, then replay the batch headers after it."""
    offset = producers.load(start, end, now_ms)
    for segment in segments:
        if segment.end > offset and segment.base < end:
            _replay_segment(segment, producers, offset, end)


def _replay_segment(segment: Segment, producers: Producers, offset: int, end: int) -> None:
    found = segment.locate(max(offset, segment.base))
    if found is None:
        return
    for step in segment.spans(found[0]):
        if step.span.base >= end:
            return
        if step.span.magic == batch.MAGIC:
            _replay_span(step, segment, producers, index=False)


def _replay_span(found: FoundSpan, segment: Segment, producers: Producers, *, index: bool = True) -> None:
    header = batch.header(found.buffer, found.at)
    if header.producer_id >= 0:
        whole = segment.slice(found.span.position, found.span.size).read() if header.control else b""
        _replay_header(header, whole, segment, producers, index=index)


def _replay_batch(data: bytes, at: int, segment: Segment, producers: Producers) -> None:
    header = batch.header(data, at)
    whole = data[at : at + header.size] if header.control else b""
    _replay_header(header, whole, segment, producers, index=True)


def _replay_header(header: Header, whole: bytes, segment: Segment, producers: Producers, *, index: bool) -> None:
    """Update the producer state from a batch; `whole` holds all bytes of a control batch."""
    completed = producers.replay(header, marker_of(whole) if whole else None)
    if index and completed is not None and completed.aborted:
        segment.transactions.add(Aborted(completed.producer_id, completed.first, completed.last, completed.last_stable))


def marker_of(data: bytes | memoryview) -> EndMarker | None:
    """The end marker in the control batch at the beginning of `data`, None if it has none."""
    record = next(batch.iterate(data), None)
    return read_marker(record.key, record.value) if record is not None else None


def _remove(segments: list[Segment], producers: Producers) -> None:
    for segment in segments:
        segment.close()
        producers.remove(segment.base)
        segment.remove()
    segments.clear()
