"""Topics as a consumer group sees them: ids by name, a hash to detect changes, names that match a pattern."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from ottla.coord import patterns
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.cluster.image import Image, Topic


def ids(image: Image, names: Iterable[str]) -> frozenset[bytes]:
    """The ids of the topics that exist."""
    topics = image.topics
    return frozenset(topics[name].id for name in names if name in topics)


def metadata_hash(image: Image, names: Iterable[str]) -> int:
    """A hash that changes if one of these topics is created, deleted, grows or moves to other racks; 0 for no topics.

    Only Ottla brokers compare it. Kafka's hash of the same topics differs, so a group that was written by Kafka is
    assigned once more.
    """
    present = sorted(name for name in names if name in image.topics)
    if not present:
        return 0
    digest = blake2b(digest_size=8)
    for name in present:
        digest.update(_fingerprint(image, image.topics[name]))
    return int.from_bytes(digest.digest(), signed=True)


def _fingerprint(image: Image, topic: Topic) -> bytes:
    racks = [
        sorted(broker.rack or "" for replica in partition.replicas if (broker := image.brokers.get(replica)))
        for partition in topic.partitions
    ]
    placed = repr(racks) if any(any(names) for names in racks) else ""
    return b"%b%b\0%d\0%b" % (topic.id, topic.name.encode(), len(topic.partitions), placed.encode())


def matching(image: Image, text: str) -> frozenset[str]:
    """The topics that match a regular expression. BrokerError if it is invalid.

    Call `patterns.lookup` first, which fills the cache: then this is fast.
    """
    try:
        return patterns.matching(text, image.topics)
    except patterns.PatternError as error:
        reason = f"SubscribedTopicRegex `{text}` is not a valid regular expression: {error}."
        raise BrokerError(ErrorCode.INVALID_REGULAR_EXPRESSION, reason) from None
