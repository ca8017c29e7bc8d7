"""First and last offsets of partitions, and offsets of timestamps: ListOffsets, sent to the leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.client.cluster import TopicPartition, portions
from ottla.client.failure import Failed, check
from ottla.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.client.cluster import Cluster
    from ottla.client.connection import Connection

LIST_OFFSETS: Final = 2
ONE_SINCE: Final = 1  # before this version the answer is a list of segment offsets
CONSUMER: Final = -1  # instead of a follower's id
LATEST: Final = -1  # instead of a timestamp
EARLIEST: Final = -2
EARLIEST_LOCAL: Final = -4
LOCAL_SINCE: Final = 8  # the first version with it


def earliest(cluster: Cluster, wheres: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The first offset of each log: of the first record, or of the next one if the log is empty."""
    return {where: offset for where, (offset, _) in _ask(cluster, dict.fromkeys(wheres, EARLIEST)).items()}


def earliest_local(cluster: Cluster, where: TopicPartition) -> int:
    """The first offset on the leader's own disk: earlier ones are in tiered storage, which may be slow.

    A broker that is too old for this request has no tiered storage.
    """
    if cluster.leader(where).version(LIST_OFFSETS) < LOCAL_SINCE:
        return earliest(cluster, [where])[where]
    return _ask(cluster, {where: EARLIEST_LOCAL})[where][0]


def latest(cluster: Cluster, wheres: Iterable[TopicPartition], *, committed: bool = False) -> dict[TopicPartition, int]:
    """The offset after the last record that may be read: the high watermark, or the last stable offset."""
    found = _ask(cluster, dict.fromkeys(wheres, LATEST), isolation=1 if committed else 0)
    return {where: offset for where, (offset, _) in found.items()}


def at_time(
    cluster: Cluster, times: Mapping[TopicPartition, int], *, committed: bool = False
) -> dict[TopicPartition, tuple[int, int] | None]:
    """Offset and timestamp of the first record of this time or later, in milliseconds; None where there is none, or
    with `committed` none before the last stable offset."""
    if negative := [where for where, time_ms in times.items() if time_ms < 0]:
        where = negative[0]
        raise Failed(f"{where.topic} partition {where.partition}: {times[where]} is before 1970")
    found = _ask(cluster, times, isolation=1 if committed else 0)
    return {where: (offset, time_ms) if offset >= 0 else None for where, (offset, time_ms) in found.items()}


def _ask(
    cluster: Cluster, times: Mapping[TopicPartition, int], isolation: int = 0
) -> dict[TopicPartition, tuple[int, int]]:
    found: dict[TopicPartition, tuple[int, int]] = {}

    def attempt() -> None:
        """Ask the leaders of the partitions without an answer yet."""
        asked: dict[Connection, list[TopicPartition]] = {}
        for where in times:
            if where not in found:
                asked.setdefault(cluster.leader(where), []).append(where)
        for connection, wheres in asked.items():
            for some in portions(wheres):
                found.update(_ask_one(connection, {where: times[where] for where in some}, isolation))

    cluster.retrying(attempt, what="asking for offsets")
    return {where: found[where] for where in times}


def _ask_one(
    connection: Connection, times: Mapping[TopicPartition, int], isolation: int
) -> dict[TopicPartition, tuple[int, int]]:
    if connection.version(LIST_OFFSETS) < ONE_SINCE:
        raise Failed(f"the broker at {connection.name} is too old: Apache Kafka 0.11 and later are supported")
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, index), time_ms in times.items():
        topics.setdefault(topic, []).append(ListOffsetsPartition(partition_index=index, timestamp=time_ms))
    request = ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )
    found = {}
    for answered in connection.ask(request, ListOffsetsResponse).topics:
        for one in answered.partitions:
            check(f"{answered.name} partition {one.partition_index}", one.error_code)
            found[TopicPartition(answered.name, one.partition_index)] = (one.offset, one.timestamp)
    if missing := times.keys() - found.keys():
        where = min(missing)
        raise Failed(f"the broker at {connection.name} left out {where.topic} partition {where.partition}")
    return found
