"""The state of one transactional id: its producer, and the state of its transaction.

    EMPTY ──────► ONGOING ──────► PREPARE_COMMIT ──► COMPLETE_COMMIT
      ▲  ▲           │  │                                │   │
      │  │           │  └───────► PREPARE_ABORT ───► COMPLETE_ABORT
      │  └───────────┼───────────────────┴────────────── │ ──┘      (InitProducerId)
      └─ (new)       └── a new ONGOING begins from either COMPLETE state

The record of a PREPARE state is the decision; the markers in the partitions only announce it. A coordinator that finds
a PREPARE state when it loads writes the markers again.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from ottla.coord.formats import PartitionsSchema, TransactionLogValue

if TYPE_CHECKING:
    from ottla.coord.machine import TimerKey

NO_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 0x7FFF
FOR_EVER_MS = 0x7FFFFFFF  # timeout of a transaction that an external coordinator ends (two-phase commit)
# The last epoch is reserved for fencing a producer that has used all others.
EPOCH_EXHAUSTED = EPOCH_MAX - 1


class TransactionState(IntEnum):
    """Numbers as in the log, names as in DescribeTransactions."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        return self.name.title().replace("_", "")


ENDING = frozenset((TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT))
AT_REST = frozenset((TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT))

Partitions = frozenset[tuple[str, int]]


class Transaction(NamedTuple):
    producer_id: int
    previous_producer_id: int
    next_producer_id: int  # used once the markers are written, because this id has no epochs left
    epoch: int
    next_epoch: int  # of a producer that took over a prepared transaction; NO_EPOCH if its writer still owns it
    timeout_ms: int
    state: TransactionState
    partitions: Partitions
    started_ms: int
    updated_ms: int
    version: int  # 2: the epoch rises with every transaction

    @property
    def exhausted(self) -> bool:
        return self.epoch >= EPOCH_EXHAUSTED

    @property
    def identity(self) -> tuple[int, int]:
        """The producer id and epoch that requests must carry."""
        return self.producer_id, self.epoch if self.next_epoch == NO_EPOCH else self.next_epoch

    @property
    def commits(self) -> bool:
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


def encode(transaction: Transaction) -> TransactionLogValue:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(index)
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.epoch,
        next_producer_epoch=transaction.next_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        # As Kafka: no list at all for a transaction that has not begun.
        transaction_partitions=None
        if transaction.state is TransactionState.EMPTY
        else [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()],
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.version,
    )


def decode(value: TransactionLogValue) -> Transaction:
    return Transaction(
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        epoch=value.producer_epoch,
        next_epoch=value.next_producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=frozenset(
            (topic.topic, index) for topic in value.transaction_partitions or () for index in topic.partition_ids
        ),
        started_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        version=value.client_transaction_version,
    )


class WriteMarkers(NamedTuple):
    """An effect: write the markers that end a transaction, then call `TransactionMachine.complete`."""

    transactional_id: str
    producer_id: int
    epoch: int
    commits: bool
    partitions: Partitions
    version: int


TIMEOUT: TimerKey = "transactions that take too long"
EXPIRY: TimerKey = "ids that nobody uses"
