"""State of the idempotent and transactional producers of one partition.

Per producer id: the epoch, the last five batches (so that a retry is answered with the offsets of the first try), the
open transaction and the epoch of the coordinator that ended the last one. The log calls `check` before an append and
`update` after it. Nothing here is a source of truth: the state is a function of the batch headers in the log, and
recovery rebuilds it from the newest valid snapshot by replaying the headers after it.

Sequences: within an epoch they are consecutive, wrapping from 2^31-1 to 0; a new epoch starts at 0; an unknown producer
may start anywhere, because retention may have deleted its earlier records.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import BrokerError, ErrorCode
from ottla.log.snapshots import (
    SEQUENCE_MASK,
    SUFFIX,
    CorruptSnapshotError,
    ProducerState,
    decode_snapshot,
    encode_snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.disk import Disk
    from ottla.log.snapshots import Batch
    from ottla.records.batch import Header
    from ottla.records.markers import EndMarker

    Recall = Callable[[int, int, int], list[Batch]]  # before this offset, of this producer id and epoch; in order

WINDOW = 5
EXPIRATION_MS = 86_400_000

_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_NO_EPOCH = -1
_EPOCH_LAST = 32767


class Duplicate(NamedTuple):
    """A retry of a batch that is already in the log: the offsets of the first try."""

    base: int
    last: int
    timestamp: int


class Completed(NamedTuple):
    """A transaction that a marker at `last` ended. Aborted ones go into the segment's transaction index."""

    producer_id: int
    first: int
    last: int
    last_stable: int
    aborted: bool


class Active(NamedTuple):
    """One row of DescribeProducers. -1 stands for unknown or none."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start: int


class LastBatch(NamedTuple):
    """The newest batch of a producer: compaction must keep its header, or the sequence would be lost."""

    offset: int | None
    epoch: int


class Producers:
    """Producer state of one partition and its snapshot files in the partition's folder."""

    def __init__(
        self, folder: str, disk: Disk, *, expiration_ms: int = EXPIRATION_MS, snapshots: Iterable[int] = ()
    ) -> None:
        self.folder = folder
        self.expiration_ms = expiration_ms
        self.snapshots = sorted(snapshots)
        self._disk = disk
        self._producers: dict[int, ProducerState] = {}
        self._ongoing: dict[int, int] = {}  # first offset → producer id, first offsets ascending
        self._unreplicated: dict[int, int] = {}  # first offset → offset of a marker the high watermark has not passed
        self._snapshot_end = 0
        self.recall: Recall | None = None  # looks up batches in the log that a snapshot does not hold

    def __len__(self) -> int:
        return len(self._producers)

    # The append path.

    def check(self, header: Header, *, client: bool = True) -> Duplicate | None:
        """Accept a data batch (None), recognise a retry, or raise. A coordinator's own batches carry no sequences."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        epoch = header.producer_epoch
        if epoch == producer.epoch:
            if header.base_sequence == producer.next_sequence:
                if producer.first < 0:
                    return None
            elif client:
                retry = _find_duplicate(producer, header) or self._recall_duplicate(producer, header)
                if retry is not None:
                    return retry
                raise BrokerError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer.producer_id} sent sequence {header.base_sequence},"
                    f" expected {producer.next_sequence}",
                )
        elif epoch < producer.epoch:
            raise _fencing_error(producer, epoch)
        elif client and header.base_sequence != 0 and producer.epoch != _NO_EPOCH:
            raise BrokerError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer.producer_id} began epoch {epoch} with sequence {header.base_sequence}, expected 0",
            )
        if producer.first >= 0 and not header.attributes & _TRANSACTIONAL:
            raise BrokerError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer.producer_id} has an open transaction since offset {producer.first}"
                " and sent a batch outside of it",
            )
        return None

    def admits(self, header: Header) -> bool:
        """Whether a client's batch is new and may be appended. If not, `check` tells why."""
        try:
            return self.check(header) is None
        except BrokerError:
            return False

    def _recall_duplicate(self, producer: ProducerState, header: Header) -> Duplicate | None:
        """Search again, including the batches that the snapshot does not hold. They are read from the log once."""
        if not producer.short or self.recall is None:
            return None
        missing = WINDOW - len(producer.batches)
        if missing > 0:
            oldest = producer.batches[0][2]
            producer.batches[:0] = self.recall(oldest, producer.producer_id, producer.epoch)[-missing:]
        producer.short = False
        return _find_duplicate(producer, header)

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, *, version: int = 0) -> None:
        """Accept an end marker from a coordinator, or raise.

        From transaction version 2 on a marker carries a raised epoch, so an equal one is stale unless the transaction
        has already ended (a retried marker) or the epoch can be raised no further.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        if epoch < producer.epoch:
            raise _fencing_error(producer, epoch)
        if version >= 2 and epoch == producer.epoch and producer.first >= 0 and epoch != _EPOCH_LAST:
            raise _fencing_error(producer, epoch)
        if coordinator_epoch < producer.coordinator_epoch:
            raise BrokerError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"marker for producer {producer_id} has coordinator epoch {coordinator_epoch},"
                f" {producer.coordinator_epoch} is known",
            )

    def update(
        self, header: Header, base: int, last: int, timestamp: int, marker: EndMarker | None = None
    ) -> Completed | None:
        """Record a batch that was appended at base..last; `timestamp` is its largest, as written."""
        if header.attributes & _CONTROL:
            # An empty control batch is what compaction leaves of a removed transaction.
            return None if marker is None else self._end(header, base, timestamp, marker)
        producer_id, epoch = header.producer_id, header.producer_epoch
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = ProducerState(producer_id, epoch)
        elif producer.epoch != epoch:
            producer.epoch, producer.short = epoch, False
            producer.batches.clear()
        first_sequence = header.base_sequence
        last_sequence = (first_sequence + last - base) & SEQUENCE_MASK if first_sequence >= 0 else -1
        window = producer.batches
        if len(window) == WINDOW:
            del window[0]
        window.append((first_sequence, last_sequence, base, last, timestamp))
        producer.next_sequence = (last_sequence + 1) & SEQUENCE_MASK
        producer.timestamp = timestamp
        if header.attributes & _TRANSACTIONAL and producer.first < 0:
            producer.first = base
            self._ongoing[base] = producer_id
        return None

    def replay(self, header: Header, marker: EndMarker | None = None) -> Completed | None:
        """Record a batch found in the log (`marker` for control batches: see `markers.read_marker`)."""
        if header.producer_id < 0:
            return None
        return self.update(
            header, header.base_offset, header.base_offset + header.last_offset_delta, header.max_timestamp, marker
        )

    def _end(self, header: Header, offset: int, timestamp: int, marker: EndMarker) -> Completed | None:
        producer_id, epoch = header.producer_id, header.producer_epoch
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = ProducerState(producer_id, epoch)
        elif producer.epoch != epoch:
            producer.epoch, producer.short = epoch, False
            producer.batches.clear()
            producer.next_sequence = 0
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.timestamp = timestamp
        first, producer.first = producer.first, -1
        if first < 0:
            return None  # a transaction without data has no effect on the last stable offset
        self._ongoing.pop(first, None)
        self._unreplicated[first] = offset
        return Completed(producer_id, first, offset, next(iter(self._ongoing), offset + 1), aborted=not marker.commit)

    # Transactions.

    @property
    def first_undecided(self) -> int | None:
        """First offset of the oldest open transaction."""
        return next(iter(self._ongoing), None)

    def last_stable(self, high: int) -> int:
        """The offset below which every transaction is decided and its marker is below the high watermark."""
        if not self._ongoing and not self._unreplicated:
            return high
        for first in [first for first, last in self._unreplicated.items() if last < high]:
            del self._unreplicated[first]
        return min((high, next(iter(self._ongoing), high), *self._unreplicated))  # the first of them is the oldest

    # Queries.

    def knows(self, producer_id: int) -> bool:
        return producer_id in self._producers

    def in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether this producer has a transaction open here, in this epoch."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.first >= 0 and producer.epoch == epoch

    def active(self) -> list[Active]:
        return [
            Active(p.producer_id, p.epoch, p.last_sequence, p.timestamp, p.coordinator_epoch, p.first)
            for p in self._producers.values()
        ]

    def last_batches(self) -> dict[int, LastBatch]:
        """By producer id. A new dict, so that a compaction thread may keep it."""
        return {
            p.producer_id: LastBatch(p.batches[-1][3] if p.batches else None, p.epoch) for p in self._producers.values()
        }

    def expire(self, now_ms: int) -> int:
        """Forget producers idle for longer than `expiration_ms`, unless in a transaction. Returns how many."""
        old = [p.producer_id for p in self._producers.values() if self._is_expired(p, now_ms)]
        for producer_id in old:
            del self._producers[producer_id]
        return len(old)

    def _is_expired(self, producer: ProducerState, now_ms: int) -> bool:
        return producer.first < 0 and now_ms - producer.timestamp >= self.expiration_ms

    # Life of the state and its snapshot files.

    def load(self, start: int, end: int, now_ms: int) -> int:
        """Reload from the newest valid snapshot within start < offset <= end, at opening and after truncation.

        Deletes snapshots outside the range and any corrupt ones it reads. Returns the offset from which the caller must
        `replay` batches up to `end`.
        """
        self._clear()
        for offset in [offset for offset in self.snapshots if offset > end or offset <= start]:
            self.remove(offset)
        while self.snapshots:
            offset = self.snapshots[-1]
            try:
                found = decode_snapshot(self._disk.read(self.path(offset)))
            except (CorruptSnapshotError, FileNotFoundError):
                self.remove(offset)
                continue
            except OSError:
                self.snapshots.remove(offset)  # may be readable later; an older one plus the batches also work
                continue
            self._producers = {p.producer_id: p for p in found if not self._is_expired(p, now_ms)}
            self._ongoing = dict(sorted((p.first, p.producer_id) for p in found if p.first >= 0))
            self._snapshot_end = offset
            return offset
        self._snapshot_end = start
        return start

    def snapshot(self, end: int, *, sync: bool) -> str | None:
        """Write the state at log end `end`, at a roll or clean stop, unless a snapshot that new exists."""
        if end <= self._snapshot_end:
            return None
        path = self.path(end)
        self._disk.write(path, encode_snapshot(self._producers.values()), sync=sync)
        self._snapshot_end = end
        if end not in self.snapshots:
            insort(self.snapshots, end)
        return path

    def advance_start(self, start: int) -> None:
        """The log now begins at `start`: transactions that ended before it no longer count as unreplicated."""
        for first in [first for first, last in self._unreplicated.items() if last < start]:
            del self._unreplicated[first]
        self._snapshot_end = self.snapshots[-1] if self.snapshots else start

    def reset(self) -> None:
        """The whole log was deleted: forget everything, and delete the snapshot files."""
        self._clear()
        for offset in list(self.snapshots):
            self.remove(offset)
        self._snapshot_end = 0

    def remove(self, offset: int) -> None:
        """Delete the snapshot at `offset`, if any: its segment is gone."""
        if offset in self.snapshots:
            self.snapshots.remove(offset)
            self._disk.remove(self.path(offset), missing_ok=True)

    def remove_stray(self, segment_bases: Iterable[int]) -> None:
        """Delete snapshots without a segment, except the newest when it is above all segments (the clean stop's)."""
        bases = set(segment_bases)
        highest = max(bases, default=-1)
        strays = [offset for offset in self.snapshots if offset not in bases]
        if strays and strays[-1] >= highest:
            strays.pop()
        for offset in strays:
            self.remove(offset)

    def path(self, offset: int) -> str:
        return f"{self.folder}/{offset:020d}{SUFFIX}"

    def _clear(self) -> None:
        self._producers, self._ongoing, self._unreplicated = {}, {}, {}


def _find_duplicate(producer: ProducerState, header: Header) -> Duplicate | None:
    first = header.base_sequence
    last = (first + header.last_offset_delta) & SEQUENCE_MASK if first >= 0 else -1
    for batch_first, batch_last, base, end, timestamp in producer.batches:
        if batch_first == first and batch_last == last:
            return Duplicate(base, end, timestamp)
    return None


def _fencing_error(producer: ProducerState, epoch: int) -> BrokerError:
    return BrokerError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer.producer_id} sent epoch {epoch}, epoch {producer.epoch} is known",
    )
