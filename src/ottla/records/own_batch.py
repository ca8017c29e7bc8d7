"""Batches that the broker itself writes: the records of its coordinators, and the markers that end transactions.

Such a batch is built complete, at its final offsets and in the current leader epoch, and written as it is: what we have
just built needs no validation. It is not compressed, all its records have the same time, and it has no sequence.

`native.own_batch` does the same in Rust.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.records import batch
from ottla.records.batch import CONTROL, TRANSACTIONAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    OwnRecord = tuple[bytes, bytes | None]  # key and value; no value is a tombstone

PLAIN: Final = 0
IN_TRANSACTION: Final = TRANSACTIONAL
MARKER: Final = TRANSACTIONAL | CONTROL


def build(
    records: Sequence[OwnRecord],
    base_offset: int,
    leader_epoch: int,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    attributes: int,
) -> bytes:
    return batch.build(
        [batch.Record(offset, timestamp, key, value) for offset, (key, value) in enumerate(records, base_offset)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=attributes & TRANSACTIONAL != 0,
        control=attributes & CONTROL != 0,
        leader_epoch=leader_epoch,
    )
