"""The transaction machine: a scenario for each rule, then random sequences, with the guarantees checked each time."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.coord.transactions.machine import NEEDS_ID, ProducerReply, TransactionMachine, TransactionRules
from ottla.coord.transactions.transaction import (
    EPOCH_EXHAUSTED,
    EXPIRY,
    FOR_EVER_MS,
    TIMEOUT,
    TransactionState,
    WriteMarkers,
)
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.coord.machine import Decision

RULES = TransactionRules(
    timeout_ms_max=900_000, expiration_ms=10_000_000, timeout_check_ms=10_000, expiry_check_ms=60_000
)
A, B = ("a", 0), ("b", 1)
TOKEN = 7


class World:
    """One machine and its log; markers are written when the test says so."""

    def __init__(self) -> None:
        self.machine = TransactionMachine(RULES)
        self.journal: list[tuple[bytes, bytes | None]] = []
        self.markers: list[WriteMarkers] = []
        self.now_ms = 1_000_000
        self.next_id = 100

    def carry_out(self, decision: Decision) -> Any:
        for record in decision.records:
            self.journal.append(record)
            self.machine.apply(record.key, record.value, offset=0, timestamp=self.now_ms, producer_id=-1)
        self.markers += decision.effects
        return dict(decision.replies).get(TOKEN)

    def init(
        self, timeout_ms: int = 60_000, expected: tuple[int, int] | None = None, *, keep: bool = False
    ) -> ProducerReply:
        def attempt(fresh: int | None) -> Any:
            return self.carry_out(
                self.machine.init("x", timeout_ms, expected, fresh, TOKEN, self.now_ms, keep_prepared=keep)
            )

        reply = attempt(None)
        if reply is NEEDS_ID:
            self.next_id += 1
            reply = attempt(self.next_id)
        assert isinstance(reply, ProducerReply)
        return reply

    def add(self, producer: ProducerReply, *partitions: tuple[str, int], version: int = 0) -> ErrorCode:
        who = producer.producer_id, producer.epoch
        code = self.carry_out(self.machine.add("x", *who, frozenset(partitions), version, TOKEN, self.now_ms))
        assert isinstance(code, ErrorCode)
        return code

    def end(self, producer: ProducerReply, *, commit: bool, version: int = 0) -> ProducerReply:
        def attempt(fresh: int | None) -> Any:
            who = producer.producer_id, producer.epoch
            return self.carry_out(self.machine.end("x", *who, version, fresh, TOKEN, self.now_ms, commit=commit))

        reply = attempt(None)
        if reply is NEEDS_ID:
            self.next_id += 1
            reply = attempt(self.next_id)
        assert isinstance(reply, ProducerReply)
        return reply

    def mark(self) -> None:
        while self.markers:
            one = self.markers.pop(0)
            self.carry_out(self.machine.complete(one.transactional_id, one.producer_id, one.epoch, self.now_ms))

    @property
    def state(self) -> TransactionState:
        return self.machine.transactions["x"].state

    def replayed(self) -> TransactionMachine:
        fresh = TransactionMachine(RULES)
        for key, value in self.journal:
            fresh.apply(key, value, offset=0, timestamp=0, producer_id=-1)
        return fresh


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_from_begin_to_end(commit: bool) -> None:
    world = World()
    producer = world.init()
    assert producer == ProducerReply(ErrorCode.NONE, 101, 0)
    assert world.add(producer, A) is ErrorCode.NONE
    assert world.add(producer, B) is ErrorCode.NONE
    assert world.end(producer, commit=commit) == producer
    assert world.state is (TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT)
    assert world.markers == [WriteMarkers("x", 101, 0, commit, frozenset((A, B)), 0)]
    world.mark()
    assert world.state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
    assert world.machine.transactions["x"].partitions == frozenset()


def test_adding_what_is_there_already_writes_nothing() -> None:
    world = World()
    producer = world.init()
    world.add(producer, A)
    written = len(world.journal)
    assert world.add(producer, A) is ErrorCode.NONE
    assert len(world.journal) == written


def test_while_markers_are_written_everything_has_to_wait() -> None:
    world = World()
    producer = world.init()
    world.add(producer, A)
    world.end(producer, commit=True)
    assert world.add(producer, B) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.init().code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.end(producer, commit=True).code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.end(producer, commit=False).code is ErrorCode.INVALID_TXN_STATE
    assert set(world.machine.verify("x", 101, 0, frozenset((A,))).values()) == {ErrorCode.CONCURRENT_TRANSACTIONS}


def test_a_retried_end_is_answered_as_the_first_and_the_opposite_refused() -> None:
    world = World()
    producer = world.init()
    world.add(producer, A)
    world.end(producer, commit=True)
    world.mark()
    assert world.end(producer, commit=True) == producer
    assert world.end(producer, commit=False).code is ErrorCode.INVALID_TXN_STATE


def test_a_new_producer_fences_the_old_one_and_aborts_what_it_left() -> None:
    world = World()
    old = world.init()
    world.add(old, A)
    assert world.init().code is ErrorCode.CONCURRENT_TRANSACTIONS, "the abort comes first"
    assert world.markers == [WriteMarkers("x", 101, 1, False, frozenset((A,)), 0)]
    world.mark()
    new = world.init()
    assert new == ProducerReply(ErrorCode.NONE, 101, 2)
    assert world.add(old, A) is ErrorCode.PRODUCER_FENCED
    assert world.end(old, commit=True).code is ErrorCode.PRODUCER_FENCED
    assert world.add(new, A) is ErrorCode.NONE


def test_strangers_are_refused() -> None:
    world = World()
    stranger = ProducerReply(ErrorCode.NONE, 5, 0)
    assert world.add(stranger, A) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.end(stranger, commit=True).code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer = world.init()
    assert world.add(stranger, A) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.end(producer, commit=True).code is ErrorCode.INVALID_TXN_STATE, "nothing was begun"


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_impossible_timeouts_are_refused(timeout_ms: int) -> None:
    assert World().init(timeout_ms).code is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() -> None:
    world = World()
    producer = world.init(timeout_ms=5000)
    world.add(producer, A)
    world.now_ms += 5000
    assert not world.machine.expire(TIMEOUT, world.now_ms).records, "not yet"
    world.now_ms += 1
    world.carry_out(world.machine.expire(TIMEOUT, world.now_ms))
    assert world.markers == [WriteMarkers("x", 101, 1, False, frozenset((A,)), 0)]
    world.mark()
    assert world.state is TransactionState.COMPLETE_ABORT
    assert world.end(producer, commit=True).code is ErrorCode.PRODUCER_FENCED


def test_an_id_that_nobody_uses_is_forgotten_but_not_one_in_a_transaction() -> None:
    world = World()
    producer = world.init()
    world.now_ms += RULES.expiration_ms - 1
    assert not world.machine.expire(EXPIRY, world.now_ms).records
    world.add(producer, A)
    world.now_ms += 2 * RULES.expiration_ms
    assert not world.machine.expire(EXPIRY, world.now_ms).records
    world.end(producer, commit=True)
    world.mark()
    world.now_ms += RULES.expiration_ms
    decision = world.machine.expire(EXPIRY, world.now_ms)
    world.carry_out(decision)
    assert world.machine.transactions == {}
    assert dict(decision.timers)[EXPIRY] == world.now_ms + RULES.expiry_check_ms


def test_a_producer_that_asks_again_gets_the_next_epoch_and_the_same_one_for_a_retry() -> None:
    world = World()
    first = world.init()
    second = world.init(expected=(first.producer_id, first.epoch))
    assert second.epoch == first.epoch + 1
    assert world.init(expected=(first.producer_id, first.epoch)) == second, "its answer was lost"
    third = world.init(expected=(second.producer_id, second.epoch))
    assert third.epoch == second.epoch + 1
    assert world.init(expected=(first.producer_id, first.epoch)).code is ErrorCode.PRODUCER_FENCED
    assert world.init(expected=(99, 0)).code is ErrorCode.PRODUCER_FENCED


def test_a_producer_that_starts_over_in_the_middle_of_its_own_transaction_is_not_a_stranger() -> None:
    world = World()
    producer = world.init()
    world.add(producer, A)
    who = (producer.producer_id, producer.epoch)
    assert world.init(expected=who).code is ErrorCode.CONCURRENT_TRANSACTIONS, "its transaction is aborted first"
    world.mark()
    assert world.init(expected=who) == ProducerReply(ErrorCode.NONE, 101, 1)
    assert world.init(expected=(101, 1)) == ProducerReply(ErrorCode.NONE, 101, 2)
    assert world.init(expected=who).code is ErrorCode.PRODUCER_FENCED


def test_a_producer_whose_transaction_timed_out_may_start_over() -> None:
    world = World()
    producer = world.init(timeout_ms=10)
    world.add(producer, A)
    world.now_ms += 11
    world.carry_out(world.machine.expire(TIMEOUT, world.now_ms))
    world.mark()
    assert world.init(expected=(producer.producer_id, producer.epoch)) == ProducerReply(ErrorCode.NONE, 101, 1)


def test_a_producer_that_missed_the_answer_to_its_end_may_start_over() -> None:
    world = World()
    producer = world.init()
    world.add(producer, A, version=2)
    world.end(producer, commit=True, version=2)
    world.mark()
    assert world.init(expected=(producer.producer_id, producer.epoch)) == ProducerReply(ErrorCode.NONE, 101, 1)


def test_a_used_up_producer_id_is_replaced() -> None:
    world = World()
    world.init()
    exhausted = world.machine.transactions["x"]._replace(epoch=EPOCH_EXHAUSTED)
    world.machine.transactions["x"] = exhausted
    fresh = world.init()
    assert (fresh.producer_id, fresh.epoch) == (102, 0)
    assert world.machine.transactions["x"].previous_producer_id == 101


def test_the_last_epoch_is_for_fencing_and_never_a_producers() -> None:
    world = World()
    world.init(timeout_ms=10)
    world.machine.transactions["x"] = world.machine.transactions["x"]._replace(epoch=EPOCH_EXHAUSTED)
    last = ProducerReply(ErrorCode.NONE, 101, EPOCH_EXHAUSTED)
    assert world.add(last, A) is ErrorCode.NONE
    world.now_ms += 11
    world.carry_out(world.machine.expire(TIMEOUT, world.now_ms))
    assert world.markers[0].epoch == EPOCH_EXHAUSTED + 1
    world.mark()
    after = world.init(expected=(101, EPOCH_EXHAUSTED))
    assert (after.producer_id, after.epoch) == (102, 0)
    assert world.add(after, A) is ErrorCode.NONE
    assert world.init(expected=(101, EPOCH_EXHAUSTED)).code is ErrorCode.PRODUCER_FENCED, "a zombie"
    assert world.state is TransactionState.ONGOING


class TestEveryTransactionHasItsEpoch:
    """The newer protocol (KIP-890)."""

    def test_the_end_hands_out_the_next_epoch(self) -> None:
        world = World()
        producer = world.init()
        assert world.add(producer, A, version=2) is ErrorCode.NONE
        after = world.end(producer, commit=True, version=2)
        assert after == ProducerReply(ErrorCode.NONE, 101, 1)
        assert world.markers == [WriteMarkers("x", 101, 1, True, frozenset((A,)), 2)]
        world.mark()
        assert world.end(producer, commit=True, version=2) == after, "a retry with the old epoch"
        assert world.add(producer, A, version=2) is ErrorCode.PRODUCER_FENCED
        assert world.add(after, A, version=2) is ErrorCode.NONE

    def test_a_late_end_cannot_touch_a_later_transaction(self) -> None:
        world = World()
        first = world.init()
        world.add(first, A, version=2)
        second = world.end(first, commit=True, version=2)
        world.mark()
        world.add(second, A, version=2)
        assert world.end(first, commit=True, version=2).code is ErrorCode.PRODUCER_FENCED
        assert world.end(first, commit=False, version=2).code is ErrorCode.PRODUCER_FENCED
        assert world.state is TransactionState.ONGOING

    def test_aborting_when_nothing_is_open_takes_the_next_epoch(self) -> None:
        world = World()
        producer = world.init()
        after = world.end(producer, commit=False, version=2)
        assert after.epoch == producer.epoch + 1
        world.mark()
        assert world.state is TransactionState.COMPLETE_ABORT
        assert world.end(after, commit=True, version=2).code is ErrorCode.INVALID_TXN_STATE

    def test_a_used_up_producer_id_is_replaced_at_the_end(self) -> None:
        world = World()
        world.init()
        world.machine.transactions["x"] = world.machine.transactions["x"]._replace(epoch=EPOCH_EXHAUSTED)
        last = ProducerReply(ErrorCode.NONE, 101, EPOCH_EXHAUSTED)
        world.add(last, A, version=2)
        after = world.end(last, commit=True, version=2)
        assert (after.producer_id, after.epoch) == (102, 0)
        assert world.markers[0].producer_id == 101
        world.mark()
        assert world.end(last, commit=True, version=2) == after
        assert world.add(after, A, version=2) is ErrorCode.NONE


class TestTwoPhaseCommit:
    """An external coordinator decides. The transaction waits for the decision, whichever client brings it."""

    def test_it_does_not_time_out(self) -> None:
        world = World()
        world.add(world.init(timeout_ms=FOR_EVER_MS), A)
        world.now_ms += 10 * FOR_EVER_MS
        assert not world.machine.expire(TIMEOUT, world.now_ms).records

    @pytest.mark.parametrize("commit", [True, False])
    def test_a_new_producer_may_end_what_it_finds_prepared(self, commit: bool) -> None:
        world = World()
        old = world.init(timeout_ms=FOR_EVER_MS)
        world.add(old, A, version=2)
        new = world.init(timeout_ms=FOR_EVER_MS, keep=True)
        assert new == ProducerReply(ErrorCode.NONE, 101, 1, ongoing_id=101, ongoing_epoch=0)
        assert world.state is TransactionState.ONGOING
        assert world.end(old, commit=commit, version=2).code is ErrorCode.PRODUCER_FENCED
        newest = world.init(timeout_ms=FOR_EVER_MS, keep=True)
        assert (newest.epoch, newest.ongoing_epoch) == (2, 0)
        assert world.replayed().transactions["x"].next_epoch == 2, "a restart of the coordinator remembers it"
        after = world.end(newest, commit=commit, version=2)
        assert world.markers == [WriteMarkers("x", 101, 3, commit, frozenset((A,)), 2)]
        world.mark()
        assert world.add(after, A, version=2) is ErrorCode.NONE

    def test_without_being_asked_to_keep_it_it_is_aborted(self) -> None:
        world = World()
        world.add(world.init(timeout_ms=FOR_EVER_MS), A)
        world.init(timeout_ms=FOR_EVER_MS, keep=True)
        assert world.init(timeout_ms=FOR_EVER_MS).code is ErrorCode.CONCURRENT_TRANSACTIONS
        assert world.markers == [WriteMarkers("x", 101, 2, False, frozenset((A,)), 0)]


def test_a_partition_is_verified_only_while_it_is_part_of_the_transaction() -> None:
    world = World()
    producer = world.init()
    who = producer.producer_id, producer.epoch
    assert world.machine.verify("x", *who, frozenset((A,)))[A] is ErrorCode.TRANSACTION_ABORTABLE
    world.add(producer, A)
    assert world.machine.verify("x", *who, frozenset((A, B))) == {
        A: ErrorCode.NONE,
        B: ErrorCode.TRANSACTION_ABORTABLE,
    }
    assert world.machine.verify("x", who[0], 9, frozenset((A,)))[A] is ErrorCode.PRODUCER_FENCED
    assert world.machine.verify("y", *who, frozenset((A,)))[A] is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_coordinator_that_finds_a_decision_writes_its_markers_again() -> None:
    world = World()
    producer = world.init()
    world.add(producer, A)
    world.end(producer, commit=True)
    decision = world.replayed().finish_load(world.now_ms)
    assert list(decision.effects) == world.markers
    assert dict(decision.timers).keys() == {TIMEOUT, EXPIRY}


@pytest.mark.parametrize("seed", range(200))
def test_no_life_breaks_a_promise(seed: int) -> None:
    """With zombies and retries: epochs never decrease, a decision never changes, and the log has the complete state."""
    random, world = Random(seed), World()
    known: list[ProducerReply] = [world.init()]
    decided: dict[tuple[int, int], bool] = {}
    for _ in range(120):
        world.now_ms += random.randrange(20_000)
        producer, version = random.choice(known[-3:]), random.choice((0, 2))
        before = world.machine.transactions.get("x")
        match random.randrange(7):
            case 0 | 1:
                world.add(producer, random.choice((A, B)), version=version)
            case 2 | 3:
                reply = world.end(producer, commit=random.random() < 0.7, version=version)
                if reply.code is ErrorCode.NONE:
                    known.append(reply)
            case 4:
                reply = world.init(expected=random.choice((None, (producer.producer_id, producer.epoch))))
                if reply.code is ErrorCode.NONE:
                    known.append(reply)
            case 5:
                world.carry_out(world.machine.expire(TIMEOUT, world.now_ms))
            case 6:
                world.mark()
        after = world.machine.transactions["x"]
        for marker in world.markers:
            verdict = decided.setdefault((marker.producer_id, marker.epoch), marker.commits)
            assert verdict is marker.commits or marker.version < 2, "a decision is for ever"
        if before is not None and before.producer_id == after.producer_id:
            assert after.epoch >= before.epoch
            if before.state is TransactionState.PREPARE_COMMIT:
                assert after.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
        assert world.replayed().durable() == world.machine.durable()
