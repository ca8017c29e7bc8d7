"""Tracks how transactions end while compaction reads a log from its beginning.

The transaction indexes tell whether a batch belongs to an aborted transaction before its marker is read. What they do
not tell is whether a transaction still has data. As long as it has, its marker must stay, and so must the entry in the
transaction index that tells readers which records to drop.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from ottla.records.markers import ABORT, COMMIT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.log.transactions import Aborted
    from ottla.records.batch import Header


class Fates:
    """The outcome of each transaction, tracked while batches are read in order, and which abort markers must stay."""

    def __init__(self) -> None:
        self._coming: list[tuple[int, Aborted]] = []
        self._aborted: dict[int, tuple[Aborted, bool]] = {}  # producer id → transaction, whether data of it was seen
        self._committed: set[int] = set()
        self._kept: list[Aborted] = []

    def add(self, aborted: Iterable[Aborted]) -> None:
        for entry in aborted:
            heapq.heappush(self._coming, (entry.first, entry))

    def take(self) -> list[Aborted]:
        """The aborted transactions of the group that still have data: its transaction index."""
        kept, self._kept = self._kept, []
        return kept

    def judge_data(self, head: Header) -> bool:
        """Record a data batch; True if its transaction was aborted."""
        self._arrive(head.last_offset)
        if not head.transactional:
            return False
        aborted = self._aborted.get(head.producer_id)
        if aborted is None:
            self._committed.add(head.producer_id)
            return False
        self._aborted[head.producer_id] = aborted[0], True
        return True

    def judge_marker(self, head: Header, kind: int | None) -> bool:
        """Record a control batch; True if its transaction has no data left, so that it may be removed later."""
        self._arrive(head.last_offset)
        if kind is None:
            return True
        if kind == ABORT:
            aborted = self._aborted.pop(head.producer_id, None)
            if aborted is None or not aborted[1]:
                return True
            self._kept.append(aborted[0])
            return False
        if kind == COMMIT:
            seen = head.producer_id in self._committed
            self._committed.discard(head.producer_id)
            return not seen
        return False

    def _arrive(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            _, entry = heapq.heappop(self._coming)
            self._aborted.setdefault(entry.producer_id, (entry, False))


def overlapping(aborted: Iterable[Aborted], start: int, end: int) -> list[Aborted]:
    return [entry for entry in aborted if entry.last >= start and entry.first < end]
