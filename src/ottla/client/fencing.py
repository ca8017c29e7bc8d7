"""Aborts the open transaction of a transactional id from outside, as its next producer would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.client.cluster import TRANSACTION
from ottla.client.failure import Failed, check
from ottla.wire.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.wire.messages.transactions import DescribeTransactionsResponseTransactionState

OPEN: Final = "Ongoing"
FOR_EVER_MS: Final = 0x7FFFFFFF  # the timeout of a transaction that takes part in a two-phase commit


def look_up(cluster: Cluster, name: str) -> DescribeTransactionsResponseTransactionState:
    def attempt() -> DescribeTransactionsResponseTransactionState:
        request = DescribeTransactionsRequest(transactional_ids=[name])
        (found,) = cluster.coordinator(name, TRANSACTION).ask(request, DescribeTransactionsResponse).transaction_states
        check(name, found.error_code)
        return found

    return cluster.retrying(attempt, what=f"asking for the transaction of {name}")


def fence(cluster: Cluster, name: str) -> None:
    """Abort the open transaction of a transactional id, as its next producer would. The current producer is fenced."""
    found = look_up(cluster, name)
    if found.transaction_state != OPEN:
        raise Failed(f"{name} has no open transaction, it is {found.transaction_state}: nothing to abort")
    # The timeout of the next producer: one that the cluster has accepted before.
    request = InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=found.transaction_timeout_ms,
        enable_2pc=found.transaction_timeout_ms == FOR_EVER_MS,
    )

    def attempt() -> None:
        answer = cluster.coordinator(name, TRANSACTION).ask(request, InitProducerIdResponse)
        check(name, answer.error_code)

    # The coordinator answers CONCURRENT_TRANSACTIONS until the abort is done.
    cluster.retrying(attempt, what=f"fencing {name}")
