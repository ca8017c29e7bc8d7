"""How transactions end, learnt while compaction goes through a log from its beginning.

Whether a batch belongs to an aborted transaction is known before its marker comes, from the transaction indexes. What
is not known before is whether anything of a transaction is left: its marker has to stay as long as that is so, and with
it the entry in the transaction index that tells readers which records to drop.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from ottla.log.producers import ABORT, COMMIT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.log.transactions import Aborted
    from ottla.records.batch import Header


class Fates:
    """How each transaction ends, learnt while batches are read in order, and which abort markers must stay."""

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
        """Take note of a data batch; True if its transaction was aborted."""
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
        """Take note of a control batch; True if no data of its transaction is left, so that it may go one day."""
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
