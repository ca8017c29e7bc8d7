"""Decides on transactions: init, add partitions, end, time out, expire. Pure; see `coord/machine.py` for the contract.

The rules are Kafka's, for both of its protocols. In the older one a producer's epoch rises when the producer starts; in
the newer one (version 2, KIP-890) at the end of every transaction, so a delayed request can never affect a later
transaction.

    identity        producer id and epoch must be the current ones; an older epoch is fenced
    retries         a repeated request gets the same response as the first one
    markers         while markers are being written, every change is refused with CONCURRENT_TRANSACTIONS
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.coord.formats import TRANSACTIONS, TransactionLogKey, decode_record, encode_record
from ottla.coord.machine import NOTHING, Decision, wall_ms
from ottla.coord.transactions.transaction import (
    AT_REST,
    ENDING,
    EPOCH_EXHAUSTED,
    EXPIRY,
    FOR_EVER_MS,
    NO_EPOCH,
    NO_ID,
    TIMEOUT,
    Transaction,
    TransactionState,
    WriteMarkers,
    decode,
    encode,
)
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.coord.machine import Record, TimerKey, Token
    from ottla.coord.transactions.transaction import Partitions

EPOCH_PER_TRANSACTION = 2  # since this protocol version every transaction has its own epoch


class TransactionRules(NamedTuple):
    timeout_ms_max: int
    expiration_ms: int
    timeout_check_ms: int
    expiry_check_ms: int


class ProducerReply(NamedTuple):
    """The reply to init and end: the identity to continue with, or an error."""

    code: ErrorCode
    producer_id: int = NO_ID
    epoch: int = NO_EPOCH
    ongoing_id: int = NO_ID  # producer id of the open transaction that was kept
    ongoing_epoch: int = NO_EPOCH


NEEDS_ID = "a fresh producer id"  # the reply of init and end when they need one


class TransactionMachine:
    def __init__(self, rules: TransactionRules) -> None:
        self.transactions: dict[str, Transaction] = {}
        self._rules = rules
        # Transactional id → epoch before the last init, which lets a producer repeat that init. In memory only.
        self._last_epochs: dict[str, int] = {}
        self._begun: dict[str, int] = {}  # when open transactions began, in monotonic time

    # ------------------------------------------------------------------ operations

    def init(
        self,
        name: str,
        timeout_ms: int,
        expected: tuple[int, int] | None,
        fresh: int | None,
        token: Token,
        now_ms: int,
        *,
        keep_prepared: bool = False,
    ) -> Decision:
        """InitProducerId: end the open transaction of an earlier producer, and hand out the next epoch.

        `expected` is the client's previous producer id and epoch, `fresh` an unused producer id. With `keep_prepared`
        an open transaction stays open, so that this producer can commit or abort it as an external coordinator decides.
        """
        if not 0 < timeout_ms <= self._rules.timeout_ms_max and timeout_ms != FOR_EVER_MS:
            return refuse(token, ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        known = self.transactions.get(name)
        if known is None:
            if fresh is None:
                return Decision(replies=[(token, NEEDS_ID)])
            made = Transaction(
                producer_id=fresh,
                previous_producer_id=NO_ID,
                next_producer_id=NO_ID,
                epoch=0,
                next_epoch=NO_EPOCH,
                timeout_ms=timeout_ms,
                state=TransactionState.EMPTY,
                partitions=frozenset(),
                started_ms=-1,
                updated_ms=wall_ms(now_ms),
                version=0,
            )
            return self._identity(name, made, NO_EPOCH, token)
        if expected is not None and not self._is_known(known, expected):
            return refuse(token, ErrorCode.PRODUCER_FENCED)
        if known.state in ENDING:
            return refuse(token, ErrorCode.CONCURRENT_TRANSACTIONS)
        if known.state is TransactionState.ONGOING and expected is not None and expected[0] != known.producer_id:
            return refuse(token, ErrorCode.PRODUCER_FENCED)  # its successor is active
        if known.state is TransactionState.ONGOING and keep_prepared:
            kept = known._replace(next_epoch=known.identity[1] + 1, updated_ms=wall_ms(now_ms))
            if kept.next_epoch > EPOCH_EXHAUSTED:
                return refuse(token, ErrorCode.PRODUCER_FENCED)
            return self._identity(name, kept, NO_EPOCH, token)
        if known.state is TransactionState.ONGOING:
            # The abort fences the producer of the open transaction; the new one retries when the abort is done.
            self._last_epochs[name] = known.identity[1]  # if it is the same producer, its retry succeeds
            return self._end(name, self._fence(known), token, now_ms, ProducerReply(ErrorCode.CONCURRENT_TRANSACTIONS))
        return self._next_epoch(name, known, timeout_ms, expected, fresh, token, now_ms)

    def add(
        self, name: str, producer_id: int, epoch: int, partitions: Partitions, version: int, token: Token, now_ms: int
    ) -> Decision:
        """AddPartitionsToTxn: add partitions to the transaction. Replies with an error code."""
        known = self.transactions.get(name)
        code = self._check(known, producer_id, epoch)
        if known is None or code is not ErrorCode.NONE:
            return Decision(replies=[(token, code)])
        if known.state in ENDING:
            return Decision(replies=[(token, ErrorCode.CONCURRENT_TRANSACTIONS)])
        if known.state is TransactionState.ONGOING and partitions <= known.partitions:
            return Decision(replies=[(token, ErrorCode.NONE)])
        begun = known.state is TransactionState.ONGOING
        if not begun:
            self._begun[name] = now_ms
        after = known._replace(
            state=TransactionState.ONGOING,
            partitions=known.partitions | partitions if begun else partitions,
            started_ms=known.started_ms if begun else wall_ms(now_ms),
            updated_ms=wall_ms(now_ms),
            version=version,
        )
        return Decision(
            [self._record(name, after)],
            [(token, ErrorCode.NONE)],
            on_failure=lambda code: Decision(replies=[(token, code)]),
        )

    def verify(
        self, name: str, producer_id: int, epoch: int, partitions: Partitions
    ) -> dict[tuple[str, int], ErrorCode]:
        """Whether each partition is part of the ongoing transaction. Partition leaders ask this before they append."""
        known = self.transactions.get(name)
        code = self._check(known, producer_id, epoch)
        if known is not None and code is ErrorCode.NONE and known.state in ENDING:
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        if known is None or code is not ErrorCode.NONE:
            return dict.fromkeys(partitions, code)
        ongoing = known.partitions if known.state is TransactionState.ONGOING else frozenset()
        return {one: ErrorCode.NONE if one in ongoing else ErrorCode.TRANSACTION_ABORTABLE for one in partitions}

    def end(
        self,
        name: str,
        producer_id: int,
        epoch: int,
        version: int,
        fresh: int | None,
        token: Token,
        now_ms: int,
        *,
        commit: bool,
    ) -> Decision:
        """EndTxn: decide on commit or abort. The reply is sent when the decision is written, before the markers."""
        known = self.transactions.get(name)
        if known is None:
            return refuse(token, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        newer = version >= EPOCH_PER_TRANSACTION
        repeated = newer and (
            (known.producer_id == producer_id and epoch == known.epoch - 1)
            or (known.previous_producer_id == producer_id and epoch == EPOCH_EXHAUSTED and known.epoch == 0)
        )
        if not repeated:
            code = self._check(known, producer_id, epoch)
            if code is not ErrorCode.NONE:
                return refuse(token, code)
        verdict = self._end_verdict(known, commit=commit, newer=newer, repeated=repeated)
        if verdict is None:
            return Decision(replies=[(token, ProducerReply(ErrorCode.NONE, known.producer_id, known.epoch))])
        if verdict is not ErrorCode.NONE:
            return refuse(token, verdict)
        next_id = NO_ID
        if newer and known.exhausted:
            if fresh is None:
                return Decision(replies=[(token, NEEDS_ID)])
            next_id = fresh
        if newer:
            self._last_epochs[name] = epoch
        begun = known.state is TransactionState.ONGOING
        ended = known._replace(
            state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            # Markers need a higher epoch than the records. A producer that took over a transaction already has one.
            epoch=known.identity[1] + (1 if newer else 0),
            next_epoch=NO_EPOCH,
            next_producer_id=next_id,
            partitions=known.partitions if begun else frozenset(),
            started_ms=known.started_ms if begun else wall_ms(now_ms),
            version=version,
        )
        reply = ProducerReply(ErrorCode.NONE, next_id, 0) if next_id != NO_ID else None
        return self._end(
            name, ended, token, now_ms, reply or ProducerReply(ErrorCode.NONE, ended.producer_id, ended.epoch)
        )

    def _end_verdict(self, known: Transaction, *, commit: bool, newer: bool, repeated: bool) -> ErrorCode | None:
        """ErrorCode.NONE: do it. None: already done, repeat the response. Any other code: refuse."""
        match known.state:
            case TransactionState.ONGOING:
                return ErrorCode.PRODUCER_FENCED if repeated else ErrorCode.NONE
            case TransactionState.PREPARE_COMMIT | TransactionState.PREPARE_ABORT:
                return ErrorCode.CONCURRENT_TRANSACTIONS if commit is known.commits else ErrorCode.INVALID_TXN_STATE
            case TransactionState.COMPLETE_COMMIT | TransactionState.COMPLETE_ABORT:
                if commit is known.commits and (repeated or not newer):
                    return None
                # In the newer protocol a producer may abort when nothing is open, to get the next epoch.
                fresh_abort = newer and not repeated and not commit
                return ErrorCode.NONE if fresh_abort else ErrorCode.INVALID_TXN_STATE
            case TransactionState.EMPTY:
                if repeated:
                    return ErrorCode.PRODUCER_FENCED
                return ErrorCode.NONE if newer and not commit else ErrorCode.INVALID_TXN_STATE
        return ErrorCode.INVALID_TXN_STATE

    def is_ending(self, effect: WriteMarkers) -> bool:
        """Whether these markers are still to be written."""
        known = self.transactions.get(effect.transactional_id)
        return (
            known is not None
            and known.state in ENDING
            and (known.producer_id, known.epoch) == (effect.producer_id, effect.epoch)
        )

    def complete(self, name: str, producer_id: int, epoch: int, now_ms: int) -> Decision:
        """Called when every marker is written. Completes the transaction."""
        known = self.transactions.get(name)
        if known is None or known.state not in ENDING or (known.producer_id, known.epoch) != (producer_id, epoch):
            return NOTHING
        after = known._replace(
            state=TransactionState.COMPLETE_COMMIT if known.commits else TransactionState.COMPLETE_ABORT,
            partitions=frozenset(),
            updated_ms=wall_ms(now_ms),
        )
        if known.next_producer_id != NO_ID:
            after = after._replace(
                producer_id=known.next_producer_id,
                previous_producer_id=known.producer_id,
                next_producer_id=NO_ID,
                epoch=0,
            )
        return Decision([self._record(name, after)])

    # ------------------------------------------------------------------ machine

    def apply(self, key: bytes, value: bytes | None, *, offset: int, timestamp: int, producer_id: int) -> None:
        found = decode_record(TRANSACTIONS, key, value)
        if found is None:
            return
        name = found[0].transactional_id
        if found[1] is None:
            self.transactions.pop(name, None)
            self._last_epochs.pop(name, None)
            self._begun.pop(name, None)
        else:
            self.transactions[name] = one = decode(found[1])
            if one.state is not TransactionState.ONGOING:
                self._begun.pop(name, None)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        raise AssertionError("no transaction writes to the log of transactions")

    def finish_load(self, now_ms: int) -> Decision:
        for name, one in self.transactions.items():
            if one.state is TransactionState.ONGOING:
                self._begun[name] = now_ms - max(0, wall_ms(now_ms) - one.started_ms)
        return Decision(
            timers=self._timers(now_ms),
            effects=tuple(marker_effect(name, one) for name, one in self.transactions.items() if one.state in ENDING),
        )

    def expire(self, timer: TimerKey, now_ms: int) -> Decision:
        if timer == TIMEOUT:
            return self._time_out(now_ms)
        assert timer == EXPIRY
        old = wall_ms(now_ms) - self._rules.expiration_ms
        gone = [name for name, one in self.transactions.items() if one.state in AT_REST and one.updated_ms <= old]
        return Decision(
            [encode_record(TransactionLogKey(transactional_id=name), None) for name in gone],
            timers=[(EXPIRY, now_ms + self._rules.expiry_check_ms)],
        )

    def unload(self) -> list[tuple[Token, Any]]:
        return []

    def durable(self) -> dict[str, Transaction]:
        """The state that another machine must have after the same records."""
        return dict(self.transactions)

    # ------------------------------------------------------------------ helpers

    def _timers(self, now_ms: int) -> list[tuple[TimerKey, int | None]]:
        return [
            (TIMEOUT, now_ms + self._rules.timeout_check_ms),
            (EXPIRY, now_ms + self._rules.expiry_check_ms),
        ]

    def _time_out(self, now_ms: int) -> Decision:
        """Abort transactions that exceeded their timeout, and fence their producers."""
        late = {
            name: self._fence(one)._replace(updated_ms=wall_ms(now_ms))
            for name, one in self.transactions.items()
            if one.state is TransactionState.ONGOING
            and one.timeout_ms != FOR_EVER_MS
            and self._begun.setdefault(name, now_ms) + one.timeout_ms < now_ms
        }
        for name in late:
            self._last_epochs[name] = self.transactions[name].identity[1]
        return Decision(
            [self._record(name, one) for name, one in late.items()],
            timers=[(TIMEOUT, now_ms + self._rules.timeout_check_ms)],
            effects=tuple(marker_effect(name, one) for name, one in late.items()),
        )

    def _is_known(self, known: Transaction, expected: tuple[int, int]) -> bool:
        producer_id, epoch = expected
        return producer_id == known.producer_id or (
            producer_id == known.previous_producer_id and epoch >= EPOCH_EXHAUSTED
        )

    def _next_epoch(
        self,
        name: str,
        known: Transaction,
        timeout_ms: int,
        expected: tuple[int, int] | None,
        fresh: int | None,
        token: Token,
        now_ms: int,
    ) -> Decision:
        after = known._replace(
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            started_ms=-1,
            updated_ms=wall_ms(now_ms),
        )
        last = self._last_epochs.get(name, NO_EPOCH)
        if known.exhausted and (expected is None or expected[1] in (known.epoch, last)):
            if fresh is None:
                return Decision(replies=[(token, NEEDS_ID)])
            after = after._replace(producer_id=fresh, previous_producer_id=known.producer_id, epoch=0)
            return self._identity(name, after, known.epoch if expected is not None else NO_EPOCH, token)
        if expected is None:
            return self._identity(name, after._replace(epoch=known.epoch + 1), NO_EPOCH, token)
        if expected[1] == known.epoch:
            return self._identity(name, after._replace(epoch=known.epoch + 1), known.epoch, token)
        if last != NO_EPOCH and expected[1] == last:  # a retry: the first response was lost
            return self._identity(name, after, last, token)
        return refuse(token, ErrorCode.PRODUCER_FENCED)

    def _identity(self, name: str, after: Transaction, last_epoch: int, token: Token) -> Decision:
        self._last_epochs[name] = last_epoch
        ongoing = (after.producer_id, after.epoch) if after.state is TransactionState.ONGOING else (NO_ID, NO_EPOCH)
        return Decision(
            [self._record(name, after)],
            [(token, ProducerReply(ErrorCode.NONE, *after.identity, *ongoing))],
            on_failure=lambda code: refuse(token, code),
        )

    def _fence(self, known: Transaction) -> Transaction:
        """Abort a transaction with the next epoch, so that its producer is fenced.

        The highest epoch is reserved for this: no producer gets it, and the next producer gets another id.
        """
        assert known.identity[1] <= EPOCH_EXHAUSTED, "the last epoch is nobody's"
        return known._replace(state=TransactionState.PREPARE_ABORT, epoch=known.identity[1] + 1, next_epoch=NO_EPOCH)

    def _end(self, name: str, ended: Transaction, token: Token, now_ms: int, reply: ProducerReply) -> Decision:
        after = ended._replace(updated_ms=wall_ms(now_ms))
        return Decision(
            [self._record(name, after)],
            [(token, reply)],
            effects=(marker_effect(name, after),),
            on_failure=lambda code: refuse(token, code),
        )

    def _check(self, known: Transaction | None, producer_id: int, epoch: int) -> ErrorCode:
        if known is None or known.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if known.identity == (producer_id, epoch) else ErrorCode.PRODUCER_FENCED

    def _record(self, name: str, transaction: Transaction) -> Record:
        return encode_record(TransactionLogKey(transactional_id=name), encode(transaction))


def marker_effect(name: str, ending: Transaction) -> WriteMarkers:
    return WriteMarkers(name, ending.producer_id, ending.epoch, ending.commits, ending.partitions, ending.version)


def refuse(token: Token, code: ErrorCode) -> Decision:
    return Decision(replies=[(token, ProducerReply(code))])


def partitions_of(topics: Iterable[tuple[str, Iterable[int]]]) -> Partitions:
    return frozenset((topic, index) for topic, indexes in topics for index in indexes)
