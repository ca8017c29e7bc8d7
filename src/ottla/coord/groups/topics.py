"""What a consumer group sees of the topics: ids for names, sizes, and whether anything about them has changed."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from ottla.coord import patterns
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.cluster.image import Image, Topic


def ids(image: Image, names: Iterable[str]) -> frozenset[bytes]:
    """The ids of those topics that there are."""
    topics = image.topics
    return frozenset(topics[name].id for name in names if name in topics)


def metadata_hash(image: Image, names: Iterable[str]) -> int:
    """A number that changes when one of these topics comes, goes, grows or moves to other racks; 0 for no topics.

    Only this broker and its successors compare it. Kafka's number for the same topics is another one, so a group that
    has come from there is assigned once more.
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
    """The topics that a regular expression stands for; BrokerError when it is none.

    It is quick for those that were looked up before, which is for whoever asks for this to see to.
    """
    try:
        return patterns.matching(text, image.topics)
    except patterns.PatternError as error:
        reason = f"SubscribedTopicRegex `{text}` is not a valid regular expression: {error}."
        raise BrokerError(ErrorCode.INVALID_REGULAR_EXPRESSION, reason) from None
