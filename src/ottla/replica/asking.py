"""What a follower sends to a leader: the requests, and its side of a fetch session."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from ottla.wire.messages.fetch import FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from ottla.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.config import BrokerConfig
    from ottla.replica.copying import Copy

EPOCH_MAX = 0x7FFFFFFF
LATEST, EARLIEST = -1, -2


class FollowerSession:
    """The follower's side of a fetch session."""

    def __init__(self) -> None:
        self.id = 0
        self.epoch = 0  # of the next request; 0: a full fetch, which opens a session
        self.by_id = True

    def reset(self) -> None:
        """Start a new session. The full fetch that opens it closes the former one."""
        self.epoch = 0

    def advance(self, identity: int) -> None:
        if self.epoch == 0:
            self.id, self.epoch = identity, 1 if identity else 0
        else:
            self.epoch = self.epoch + 1 if self.epoch < EPOCH_MAX else 1


def fetch_request(
    config: BrokerConfig, replica: tuple[int, int], session: FollowerSession, named: list[Copy], forgotten: list[Copy]
) -> FetchRequest:
    """`replica`: id and broker epoch of this broker."""
    size_max = config.replica_fetch_max_bytes
    return FetchRequest(
        replica_id=replica[0],
        replica_state=ReplicaState(replica_id=replica[0], replica_epoch=replica[1]),
        max_wait_ms=config.replica_fetch_wait_max_ms,
        min_bytes=config.replica_fetch_min_bytes,
        max_bytes=config.replica_fetch_response_max_bytes,
        session_id=session.id,
        session_epoch=session.epoch,
        topics=[
            FetchTopic(topic=topic, topic_id=topic_id, partitions=[one.build_request(size_max) for one in of])
            for (topic, topic_id), of in by_topic(named)
        ],
        forgotten_topics_data=[
            ForgottenTopic(topic=topic, topic_id=topic_id, partitions=[one.index for one in of])
            for (topic, topic_id), of in by_topic(forgotten)
        ],
    )


def epochs_request(me: int, copies: list[Copy]) -> OffsetForLeaderEpochRequest:
    """Requests the leader's end offset for the latest epoch of each log."""
    return OffsetForLeaderEpochRequest(
        replica_id=me,
        topics=[
            OffsetForLeaderTopic(
                topic=topic,
                partitions=[
                    OffsetForLeaderPartition(
                        partition=one.index,
                        current_leader_epoch=one.epoch,
                        leader_epoch=one.partition.log.latest_epoch,
                    )
                    for one in of
                ],
            )
            for (topic, _), of in by_topic(copies)
        ],
    )


def offsets_request(me: int, copies: list[Copy], timestamp: int) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=me,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=one.index, current_leader_epoch=one.epoch, timestamp=timestamp)
                    for one in of
                ],
            )
            for (topic, _), of in by_topic(copies)
        ],
    )


def by_topic(copies: Iterable[Copy]) -> Iterable[tuple[tuple[str, bytes], list[Copy]]]:
    ordered = sorted(copies, key=lambda copy: (copy.topic, copy.topic_id, copy.index))
    return [(topic, list(of)) for topic, of in groupby(ordered, lambda copy: (copy.topic, copy.topic_id))]
