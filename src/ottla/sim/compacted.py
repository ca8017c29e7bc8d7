"""The committed records of one partition of a compacted topic, and which of them a replica may have removed.

Replicas compact at different times, so their bytes differ. But every record must be what was committed at its offset,
and a missing record needs a reason:

    replaced    a later record of its key is committed
    aborted     its transaction was aborted
    tombstone   it was a tombstone, and `delete.retention.ms` have passed since it was committed

A transactional record replaces others only when its transaction is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.records import batch
from ottla.sim.transactions import is_abort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class Kept(NamedTuple):
    """A record, and when its commit was first seen."""

    key: bytes | None
    value: bytes | None
    time: float


class CompactedTruth:
    def __init__(self, time: Callable[[], float], delete_retention_s: float = 24 * 3600.0) -> None:
        self.high = 0
        self.delete_retention_s = delete_retention_s
        self._time = time
        self._records: dict[int, Kept] = {}  # by offset
        self._last: dict[bytes | None, int] = {}  # last decided offset of each key
        self._aborted: set[int] = set()
        self._open: dict[int, list[int]] = {}  # offsets of open transactions, by producer

    def verify(self, found: Iterable[tuple[batch.Entry, bytes]], begin: int, end: int) -> Iterator[str]:
        """Check a replica between two offsets, all below its high watermark. Yields what is wrong."""
        at = begin
        for entry, data in found:
            if entry.base_offset >= self.high:
                self._learn(entry, data)
                at = entry.last_offset + 1
                continue
            for record in batch.iterate(data):
                known = self._records.get(record.offset)
                if known is not None and (known.key, known.value) != (record.key, record.value):
                    yield f"{record.key!r}={record.value!r} at {record.offset}, where the others have {known.value!r}"
                if known is None and not batch.header(data).control:
                    yield f"{record.key!r}={record.value!r} at {record.offset}, where the others have nothing"
                yield from self._explain(at, record.offset)
                at = record.offset + 1
        yield from self._explain(at, min(end, self.high))

    def _explain(self, begin: int, end: int) -> Iterator[str]:
        """Check the reasons for missing offsets. Yields what is wrong."""
        for offset in range(begin, end):
            known = self._records.get(offset)
            if known is None or offset in self._aborted or self._last.get(known.key, -1) > offset:
                continue
            age_s = self._time() - known.time
            if known.value is not None or age_s < self.delete_retention_s:
                yield f"the last record of {known.key!r} is missing, {known.value!r} at {offset}, after {age_s:.1f} s"

    def _learn(self, entry: batch.Entry, data: bytes) -> None:
        header, now = batch.header(data), self._time()
        self.high = entry.last_offset + 1
        if header.control:
            offsets = self._open.pop(header.producer_id, [])
            if is_abort(data, 0):
                self._aborted.update(offsets)
                offsets = []
        else:
            found = list(batch.iterate(data))
            self._records.update((one.offset, Kept(one.key, one.value, now)) for one in found)
            offsets = [one.offset for one in found]
            if header.transactional:
                self._open.setdefault(header.producer_id, []).extend(offsets)
                offsets = []
        for offset in offsets:
            key = self._records[offset].key
            self._last[key] = max(self._last.get(key, -1), offset)
