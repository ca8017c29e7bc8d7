"""Transactions of producers, step by step: identify, enlist partitions, write, end. The steps may be done by different
processes: an `ProducerIdentity` is a plain value.

    identity = identify(cluster, "orders-1", timeout_ms=60_000)      # fences the previous producer of this id
    enlist(cluster, identity, [where])
    Sender(cluster, identity=identity) ...                           # flush() before the end
    identity = end(cluster, identity, commit=True)

A step may be repeated when its answer was lost: coordinators recognise a step that is done. In the newer protocol
(transaction.version 2: Apache Kafka 4, Ottla) every transaction ends with a new epoch, so that a delayed request cannot
reach the next one; `end` returns the identity to continue with. If it is a new one, sequence numbers begin at 0 again;
if not, they continue.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ottla.client.cluster import GROUP, TRANSACTION, TopicPartition, portions
from ottla.client.failure import Failed, Refused, check
from ottla.client.groups import by_topic
from ottla.errors import ErrorCode
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.client.cluster import Cluster
    from ottla.client.groups import Committed

INIT: Final = 22
END: Final = 26
TWO_PHASE_SINCE: Final = 6  # version of InitProducerId
OWN_ADD_UNTIL: Final = 3  # AddPartitionsToTxn; later versions are between brokers
OLD_END_UNTIL: Final = 4  # EndTxn; later versions use the newer protocol
OLD_COMMIT_UNTIL: Final = 4  # and TxnOffsetCommit
FEATURE: Final = "transaction.version"
NEWER: Final = 2
ONGOING: Final = "Ongoing"


@dataclass(frozen=True)
class ProducerIdentity:
    """The identity of a producer, by which the broker fences it and recognises its batches."""

    transactional_id: str | None
    producer_id: int
    epoch: int


def identify(
    cluster: Cluster, transactional_id: str | None, *, timeout_ms: int, two_phase: bool = False
) -> ProducerIdentity:
    """Get a producer id and epoch. With a transactional id, fence its former producer and abort its transaction.

    `timeout_ms` is how long a transaction may stay open. With `two_phase` there is no limit. Refused if the cluster
    does not support or permit that.
    """
    what = f"transactional id {transactional_id}" if transactional_id else "a producer id"
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, enable_2pc=two_phase
    )

    def attempt() -> ProducerIdentity:
        if transactional_id is None:
            connection = cluster.anyone()
        else:
            connection = cluster.coordinator(transactional_id, TRANSACTION)
        if two_phase and connection.version(INIT) < TWO_PHASE_SINCE:
            raise Refused(what, ErrorCode.UNSUPPORTED_VERSION, ": no two-phase commit")
        answer = connection.ask(request, InitProducerIdResponse)
        check(what, answer.error_code)
        return ProducerIdentity(transactional_id, answer.producer_id, answer.producer_epoch)

    return cluster.retrying(attempt, what=what)


def enlist(cluster: Cluster, identity: ProducerIdentity, wheres: Iterable[TopicPartition]) -> None:
    """Add partitions to the transaction; the first one begins it."""
    for some in portions(wheres):
        _enlist(cluster, identity, by_topic(some))


def _enlist(cluster: Cluster, identity: ProducerIdentity, topics: Mapping[str, list[int]]) -> None:
    name = require_id(identity)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in topics.items()
        ],
    )

    def attempt() -> None:
        connection = cluster.coordinator(name, TRANSACTION)
        answer = connection.ask(request, AddPartitionsToTxnResponse, newest=OWN_ADD_UNTIL)
        codes = {
            (topic.name, one.partition_index): one.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for one in topic.results_by_partition
        }
        # OPERATION_NOT_ATTEMPTED comes last: the error of another partition is the reason.
        for (topic, index), code in sorted(codes.items(), key=lambda item: item[1] == NOT_ATTEMPTED):
            check(f"transactional id {name}, {topic} partition {index}", code)

    cluster.retrying(attempt, what=f"enlisting partitions for {name}")


NOT_ATTEMPTED: Final = ErrorCode.OPERATION_NOT_ATTEMPTED


def end(cluster: Cluster, identity: ProducerIdentity, *, commit: bool) -> ProducerIdentity:
    """Commit or abort. Succeeds if it already ended the same way; Refused if it ended the other way, or is fenced."""
    name = require_id(identity)
    request = EndTxnRequest(
        transactional_id=name, producer_id=identity.producer_id, producer_epoch=identity.epoch, committed=commit
    )

    def attempt() -> ProducerIdentity:
        newest = None if newer_protocol(cluster) else OLD_END_UNTIL
        answer = cluster.coordinator(name, TRANSACTION).ask(request, EndTxnResponse, newest=newest)
        check(f"{'committing' if commit else 'aborting'} the transaction of {name}", answer.error_code)
        if answer.producer_id < 0:
            return identity
        return replace(identity, producer_id=answer.producer_id, epoch=answer.producer_epoch)

    return cluster.retrying(attempt, what=f"ending the transaction of {name}")


def add_offsets(
    cluster: Cluster, identity: ProducerIdentity, group: str, offsets: Mapping[TopicPartition, Committed]
) -> None:
    """Commit offsets of a group with this transaction."""
    name = require_id(identity)
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, index), value in offsets.items():
        topics.setdefault(topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=value.offset,
                committed_leader_epoch=value.leader_epoch,
                committed_metadata=value.metadata,
            )
        )
    add = AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=identity.producer_id, producer_epoch=identity.epoch, group_id=group
    )
    store = TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=group,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=some) for topic, some in topics.items()],
    )
    what = f"offsets of {group} in the transaction of {name}"

    def announce() -> None:
        check(what, cluster.coordinator(name, TRANSACTION).ask(add, AddOffsetsToTxnResponse).error_code)

    def attempt() -> None:
        newest = None if newer_protocol(cluster) else OLD_COMMIT_UNTIL
        answer = cluster.coordinator(group, GROUP).ask(store, TxnOffsetCommitResponse, newest=newest)
        for topic in answer.topics:
            for one in topic.partitions:
                check(f"{what}: {topic.name} partition {one.partition_index}", one.error_code)

    cluster.retrying(announce, what=what)
    cluster.retrying(attempt, what=what)


def ongoing(cluster: Cluster, prefix: str) -> list[str]:
    """The transactional ids that begin with `prefix` and have an open transaction."""
    request = ListTransactionsRequest(state_filters=[ONGOING], producer_id_filters=[])

    def attempt() -> list[str]:
        found: set[str] = set()
        for connection in cluster.brokers().values():
            answer = connection.ask(request, ListTransactionsResponse)
            check(f"listing transactions at {connection.name}", answer.error_code)
            found.update(one.transactional_id for one in answer.transaction_states)
        return sorted(name for name in found if name.startswith(prefix))

    return cluster.retrying(attempt, what="listing transactions")


def newer_protocol(cluster: Cluster) -> bool:
    """Whether the cluster uses the newer protocol of transactions."""
    return cluster.feature(FEATURE) >= NEWER


def require_id(identity: ProducerIdentity) -> str:
    if identity.transactional_id is None:
        raise Failed("a transaction needs a transactional id, and this identity has none")
    return identity.transactional_id
