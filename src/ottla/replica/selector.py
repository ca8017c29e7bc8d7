"""Which replica a consumer should read from (KIP-392): one in its rack, if that has the requested offset.

Only in-sync replicas are chosen: any other may lag without limit, and the consumer with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.cluster.image import Image
    from ottla.replica.partition import Partition

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def choose_replica(
    selector: str | None, partition: Partition, offset: int, rack: str, image: Image, listener: str
) -> int | None:
    """A follower in this rack, or None to read from the leader, which is this broker."""
    followers = partition.followers
    if selector != RACK_AWARE or followers is None:
        return None
    leader = image.brokers.get(followers.me)
    if leader is not None and leader.rack == rack:
        return None
    best, best_end = None, -1
    for replica in followers.isr:
        follower, broker = followers.followers.get(replica), image.brokers.get(replica)
        if follower is None or broker is None or broker.rack != rack or listener not in broker.endpoints:
            continue
        if follower.start <= offset <= follower.end and follower.end > best_end:
            best, best_end = replica, follower.end
    return best
