"""Describes transactions: DescribeTransactions (65), ListTransactions (66).

ListTransactions v1 by duration; v2 by a regular expression. Only committed state is shown.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ottla.coord.patterns import LONG_SIZE, PatternError, compile_pattern
from ottla.coord.transactions.transaction import TransactionState
from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.handlers.repeats import Repeats
from ottla.records import aside
from ottla.wire.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransactionState,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseTransactionState,
    TopicData,
)

if TYPE_CHECKING:
    from ottla.coord.patterns import Pattern
    from ottla.coord.transactions.transaction import Transaction
    from ottla.handlers.call import Steps

STATES = {state.title: state for state in TransactionState}


@handles(DescribeTransactionsRequest)
def describe_transactions(
    parts: Parts, call: Call, request: DescribeTransactionsRequest
) -> Steps[DescribeTransactionsResponse]:
    states, repeats = [], Repeats()
    for name in request.transactional_ids:
        states.append((yield from describe(parts, name, repeats)))
        yield
    return DescribeTransactionsResponse(transaction_states=states)


def describe(parts: Parts, name: str, repeats: Repeats) -> Steps[DescribeTransactionsResponseTransactionState]:
    try:
        repeats.check(name)
        if name == "":
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        machine = parts.transactions.peek(name)
        known = machine.transactions.get(name)
        yield from parts.transactions.wait_for_commit(name, machine)  # even if there is no such transaction
        if known is None or known.state is TransactionState.DEAD:
            raise BrokerError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    except BrokerError as error:
        return DescribeTransactionsResponseTransactionState(
            error_code=error.code,
            transactional_id=name,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=[],
        )
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(known.partitions):
        topics.setdefault(topic, []).append(index)
    return DescribeTransactionsResponseTransactionState(
        error_code=0,
        transactional_id=name,
        transaction_state=known.state.title,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.started_ms,
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )


@handles(ListTransactionsRequest)
def list_transactions(parts: Parts, call: Call, request: ListTransactionsRequest) -> Steps[ListTransactionsResponse]:
    unknown = [text for text in request.state_filters if text not in STATES]
    states = {STATES[text] for text in request.state_filters if text in STATES}
    producers = frozenset(request.producer_id_filters)
    if parts.transactions.runtime.loading:
        return ListTransactionsResponse(
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, unknown_state_filters=unknown, transaction_states=[]
        )
    response = ListTransactionsResponse(error_code=0, unknown_state_filters=unknown, transaction_states=[])
    try:
        pattern = compile_pattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except PatternError:
        response.error_code = ErrorCode.INVALID_REGULAR_EXPRESSION
        return response
    now_ms = parts.clock.now_ms()
    for index, machine in list(parts.transactions.runtime.machines()):
        found = []
        for name, one in list(machine.transactions.items()):
            yield
            if one.state is TransactionState.DEAD or (request.state_filters and one.state not in states):
                continue
            if producers and one.producer_id not in producers:
                continue
            if request.duration_filter >= 0 and not lasts(one, request.duration_filter, now_ms):
                continue
            if pattern is not None and not (yield from matches(pattern, name)):
                continue
            found.append(
                ListTransactionsResponseTransactionState(
                    transactional_id=name, producer_id=one.producer_id, transaction_state=one.state.title
                )
            )
        with suppress(BrokerError):  # another broker coordinates it now
            yield from parts.transactions.runtime.wait_for_commit(index, machine)
            response.transaction_states += found
    return response


def matches(pattern: Pattern, name: str) -> Steps[bool]:
    """Whether the pattern matches. If that may take long, it runs in a thread without the GIL."""
    if len(name) <= LONG_SIZE:
        return pattern.matches(name)
    future = aside.run(len(name), partial(pattern.matches, name))
    yield future
    return future.result()


def lasts(one: Transaction, duration_ms: int, now_ms: int) -> bool:
    """Whether it began at least that long ago. As in Apache Kafka, ended transactions count, too."""
    return now_ms - one.started_ms > duration_ms
