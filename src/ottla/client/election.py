"""Asks the controller to elect leaders: the preferred replica, or any live one if no in-sync replica is live."""

from __future__ import annotations

from collections import defaultdict
from enum import IntEnum
from typing import TYPE_CHECKING

from ottla.client.failure import Refused, check, detail
from ottla.errors import ErrorCode
from ottla.wire.messages.topics import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.client.cluster import Cluster
    from ottla.client.placement import Place


class Election(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


def elect(cluster: Cluster, kind: Election, places: Iterable[Place] | None) -> tuple[list[Place], dict[Place, Refused]]:
    """Elect leaders of these partitions, or of all. Returns those that have a new leader, and those that failed.

    A partition that already has the right leader is in neither.
    """
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, index in places or ():
        topics[topic].append(index)
    wanted = None
    if places is not None:
        wanted = [TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in topics.items()]
    request = ElectLeadersRequest(
        election_type=int(kind), topic_partitions=wanted, timeout_ms=int(cluster.timeout_s * 1000)
    )

    def attempt() -> ElectLeadersResponse:
        answer = cluster.controller().ask(request, ElectLeadersResponse)
        check("election", answer.error_code)
        return answer

    answer = cluster.retrying(attempt, what="election")
    elected: list[Place] = []
    failed: dict[Place, Refused] = {}
    for result in answer.replica_election_results:
        for one in result.partition_result:
            place = (result.topic, one.partition_id)
            if not one.error_code:
                elected.append(place)
            elif one.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                what = f"{result.topic} partition {one.partition_id}"
                failed[place] = Refused(what, one.error_code, detail(one.error_message))
    return sorted(elected), failed
