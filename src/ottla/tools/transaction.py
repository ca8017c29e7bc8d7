"""Describe transactions, and abort hanging ones.

A transaction is known in two places: to the coordinator of its transactional id (state, timeout, partitions), and to
each partition it wrote to (producer id and start offset). If a partition has an open transaction that the coordinator
no longer knows, the transaction hangs: it never ends, and read_committed consumers wait at its start forever.
"""

import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ottla.client.cluster import TRANSACTION, Cluster
from ottla.client.connection import Connection
from ottla.client.failure import Failed, Refused, check
from ottla.client.fencing import OPEN, look_up
from ottla.errors import ErrorCode
from ottla.tools.lag import Place
from ottla.wire.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ProducerState,
    TopicRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

LIST = 66
DURATION_SINCE = 1  # versions of ListTransactions
PATTERN_SINCE = 2


class Filters(NamedTuple):
    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    duration_ms: int = -1
    pattern: str | None = None


def find_transactions(cluster: Cluster, filters: Filters) -> list[dict[str, Any]]:
    """Every transactional id that passes the filters, from every coordinator."""
    request = ListTransactionsRequest(
        state_filters=list(filters.states),
        producer_id_filters=list(filters.producer_ids),
        duration_filter=filters.duration_ms,
        transactional_id_pattern=filters.pattern,
    )
    found = []
    for broker, connection in cluster.brokers().items():
        needed = PATTERN_SINCE if filters.pattern is not None else DURATION_SINCE if filters.duration_ms >= 0 else 0
        if connection.version(LIST) < needed:  # it would ignore the filter, and list too many
            raise Failed(f"the broker at {connection.name} is too old for this filter")
        answer = ask_for_list(cluster, connection, request)
        if answer.unknown_state_filters:
            raise Failed(f"no such state: {', '.join(answer.unknown_state_filters)}")
        found += [
            {
                "transactional_id": one.transactional_id,
                "coordinator": broker,
                "producer_id": one.producer_id,
                "state": one.transaction_state,
            }
            for one in answer.transaction_states
        ]
    return sorted(found, key=lambda row: str(row["transactional_id"]))


def ask_for_list(
    cluster: Cluster, connection: Connection, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    def attempt() -> ListTransactionsResponse:
        answer = connection.ask(request, ListTransactionsResponse)
        check("transactions", answer.error_code)
        return answer

    return cluster.retrying(attempt, what="listing transactions")


def facts(cluster: Cluster, name: str) -> dict[str, Any]:
    """What `ottla transactions describe --json` prints."""
    found = look_up(cluster, name)
    started_ms = found.transaction_start_time_ms if found.transaction_start_time_ms >= 0 else None
    open_now = found.transaction_state == OPEN
    places = sorted((topic.topic, index) for topic in found.topics for index in topic.partitions)
    starts = {
        place: one.current_txn_start_offset
        for place, active in producers(cluster, places).items()
        for one in active
        if one.producer_id == found.producer_id and one.current_txn_start_offset >= 0
    }
    return {
        "transactional_id": name,
        "coordinator": cluster.coordinator(name, TRANSACTION).name,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "state": found.transaction_state,
        "timeout_ms": found.transaction_timeout_ms,
        "started_ms": started_ms,
        "age_seconds": max(0.0, time.time() - started_ms / 1000) if open_now and started_ms is not None else None,
        "partitions": [
            {"topic": topic, "partition": index, "start_offset": starts.get((topic, index))} for topic, index in places
        ],
    }


def producers(cluster: Cluster, places: Iterable[Place]) -> dict[Place, list[ProducerState]]:
    """Recent producers of these partitions, and those with an open transaction, as their leaders report."""
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    return {place: active for topic in topics for place, active in writers(cluster, topic, topics[topic]).items()}


def writers(cluster: Cluster, topic: str, indexes: Iterable[int]) -> dict[Place, list[ProducerState]]:
    cluster.leaders(topic)  # fails at once if the topic does not exist

    def attempt() -> dict[Place, list[ProducerState]]:
        leaders = cluster.leaders(topic)
        found: dict[Place, list[ProducerState]] = {}
        for index in indexes:
            if index not in leaders:
                raise Failed(f"{topic} has no partition {index}")
            request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[index])])
            (answer,) = leaders[index].ask(request, DescribeProducersResponse).topics
            (partition,) = answer.partitions
            check(f"{topic} partition {index}", partition.error_code)
            found[topic, index] = partition.active_producers
        return found

    return cluster.retrying(attempt, what=f"asking for the producers of {topic}")


def abort_hanging(cluster: Cluster, place: Place, start: int) -> int:
    """Write the missing abort marker; returns the producer id of the transaction."""
    active = [one for one in producers(cluster, [place])[place] if one.current_txn_start_offset >= 0]
    hanging = next((one for one in active if one.current_txn_start_offset == start), None)
    where = f"{place[0]} partition {place[1]}"
    if hanging is None:
        others = ", ".join(f"{one.current_txn_start_offset} (producer {one.producer_id})" for one in active)
        raise Failed(f"no transaction begins at offset {start} of {where}; open ones begin at: {others or 'none'}")
    if owner := living(cluster, hanging.producer_id, place):
        raise Failed(f"{owner} is not hanging, its coordinator knows it: abort it with --transactional-id {owner}")
    marker = WritableTxnMarker(
        producer_id=hanging.producer_id,
        producer_epoch=hanging.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=place[0], partition_indexes=[place[1]])],
        coordinator_epoch=max(0, hanging.coordinator_epoch),  # -1: no transaction of this producer has ended here
    )
    answer = cluster.leaders(place[0])[place[1]].ask(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
    for written in answer.markers:
        for topic in written.topics:
            for partition in topic.partitions:
                check(where, partition.error_code)
    return hanging.producer_id


def living(cluster: Cluster, producer_id: int, place: Place) -> str | None:
    """The transactional id whose coordinator still has this partition in a transaction of this producer."""
    for row in find_transactions(cluster, Filters(producer_ids=[producer_id])):
        name = row["transactional_id"]
        try:
            found = look_up(cluster, name)
        except Refused as error:
            if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:  # gone since it was listed
                raise
            continue
        if any(topic.topic == place[0] and place[1] in topic.partitions for topic in found.topics):
            return str(name)
    return None
