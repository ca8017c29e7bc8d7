"""Checks the guarantees of transactions against what clients saw (V10). Pure.

Every value belongs to one transaction. A producer reports when it begins, what it writes, when it requests the commit,
and the response; a read_committed reader reports what it got. From these alone `SimTransactions` finds:

    early     a value that was read before a commit of its transaction was requested
    aborted   a value that was read although its transaction was aborted
    half      a transaction of which only a part was read in the end
    lost      a transaction whose commit was acknowledged, but which was not read in the end
    zombie    a commit that was acknowledged to a producer after another one had taken over
    offsets   a final offset of a group that is not that of the last transaction that committed one
    marker    a transaction without an end marker in a log before its producer's next one, or with the wrong marker:
              readers may not notice, since they take the next transaction's marker for its own
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.records import batch
from ottla.sim.transactions import is_abort

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.sim.history import Partition


class SimTransaction:
    def __init__(self, number: int, epoch: int) -> None:
        self.number = number
        self.epoch = epoch  # of its producer
        self.values: set[tuple[Partition, bytes]] = set()
        self.acknowledged: set[tuple[Partition, bytes]] = set()
        self.offset: int | None = None
        self.asked = False  # whether a commit may have been requested
        self.fenced = False  # another producer had taken over before that
        self.committed: bool | None = None  # None: its producer does not know

    def __repr__(self) -> str:
        return f"transaction {self.number}"


class SimTransactions:
    """The transactions of one transactional id, in order."""

    def __init__(self, wrong: Callable[[str], None]) -> None:
        self.begun: list[SimTransaction] = []
        self.of: dict[tuple[Partition, bytes], SimTransaction] = {}
        self.read: dict[Partition, dict[int, bytes]] = {}
        self._epoch = -1
        self._wrong = wrong

    # Producers.

    def note_takeover(self, epoch: int) -> None:
        """A producer got this epoch and has taken over. Responses may overtake each other, but epochs are ordered."""
        self._epoch = max(self._epoch, epoch)

    def begin(self, epoch: int) -> SimTransaction:
        made = SimTransaction(len(self.begun), epoch)
        self.begun.append(made)
        return made

    def note_write(self, transaction: SimTransaction, partition: Partition, values: list[bytes]) -> None:
        for value in values:
            transaction.values.add((partition, value))
            self.of[partition, value] = transaction

    def note_acknowledged(self, transaction: SimTransaction, partition: Partition, values: list[bytes]) -> None:
        transaction.acknowledged.update((partition, value) for value in values)

    def note_commit_request(self, transaction: SimTransaction) -> None:
        """Its producer is about to request the commit, perhaps not for the first time."""
        if not transaction.asked:
            transaction.asked, transaction.fenced = True, transaction.epoch < self._epoch

    def note_end(self, transaction: SimTransaction, *, commit: bool) -> None:
        """Its end was acknowledged; or it was abandoned, which is an abort if no commit was requested."""
        if commit and transaction.fenced:
            self._wrong(f"V10 zombie: the commit of {transaction} was acknowledged, and another had taken over")
        if commit or not transaction.asked:
            transaction.committed = commit

    # Readers.

    def note_read(self, partition: Partition, offset: int, value: bytes) -> None:
        self.read.setdefault(partition, {})[offset] = value
        transaction = self.of.get((partition, value))
        if transaction is None:
            return
        where = f"{value!r} of {transaction} at {partition[0]}-{partition[1]} {offset}"
        if transaction.committed is False:
            self._wrong(f"V10 aborted: {where} was read")
        elif not transaction.asked:
            self._wrong(f"V10 early: {where} was read")

    # The end.

    def look_for_ends(self, partition: Partition, data: bytes) -> None:
        """Check the markers in all batches of a log."""
        where = f"{partition[0]}-{partition[1]}"
        last: dict[int, SimTransaction] = {}  # by producer id: its open transaction
        for entry in batch.entries(data):
            header = batch.header(data, entry.position)
            if header.control:
                ended = last.pop(header.producer_id, None)
                if ended is not None and ended.committed is is_abort(data, entry.position):
                    self._wrong(f"V10 marker: {ended}, committed={ended.committed}, has the wrong end in {where}")
            elif header.transactional:
                for record in batch.iterate(data, entry.position):
                    one = self.of[partition, record.value or b""]
                    before = last.setdefault(header.producer_id, one)
                    if before is not one:
                        self._wrong(f"V10 marker: {before} has no end in {where}, and {one} begins at {record.offset}")
                        return

    def close(self, logs: Mapping[Partition, Mapping[int, bytes]], offset: int) -> None:
        """Final check, when all transactions have ended and were read: the logs by offset, and the group's offset."""
        for partition, values in logs.items():
            read = self.read.get(partition, {})
            for at, value in sorted(values.items()):
                if read.get(at, value) != value or ((partition, value) not in self.of and at not in read):
                    self._wrong(f"V10 {partition[0]}-{partition[1]}: {value!r} at {at}, and {read.get(at)!r} was read")
                    return
        seen = {(partition, value) for partition, values in self.read.items() for value in values.values()}
        final = None
        for transaction in self.begun:
            found = transaction.values & seen
            if transaction.asked and found and not transaction.acknowledged <= found:
                missing = sorted(transaction.acknowledged - found)
                self._wrong(f"V10 half: of {transaction} {len(found)} were read, and not {missing[0]}")
            if transaction.committed and not transaction.acknowledged <= found:
                self._wrong(f"V10 lost: {transaction} was committed, and nothing of it was read")
            if transaction.committed is False and found:
                self._wrong(f"V10 aborted: {transaction}, and {sorted(found)[0]} was read")
            if transaction.offset is not None and found:
                final = transaction.offset
        if (final or 0) != max(offset, 0):
            self._wrong(f"V10 offsets: {offset} in the end, and {final} was the last that was committed")
