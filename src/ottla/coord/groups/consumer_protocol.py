"""The consumer protocol: the blobs in JoinGroup and SyncGroup by which classic consumers agree on an assignment.

A JoinGroup request carries a subscription, a SyncGroup response an assignment. The broker decodes them only to see
which topics a group uses, and to serve classic members in a consumer group.

    int16 version, then the fields of that version

Unknown newer versions begin with the fields of the newest known version.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from ottla.wire.codec import DecodeError, decoder, encode
from ottla.wire.messages.groups import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.cluster.image import Image
    from ottla.coord.groups.reconciliation import Owned
    from ottla.wire.messages.groups import SubscriptionTopicPartition

_VERSION = Struct(">h")
NEWEST = 3
CONSUMER = "consumer"  # the protocol type of a group whose members send these


def version_of(data: bytes) -> int:
    """The version of a subscription or an assignment. DecodeError if there is none."""
    if len(data) < _VERSION.size:
        raise DecodeError("no version")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise DecodeError(f"version {version}")
    return min(int(version), NEWEST)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    return decoder(ConsumerProtocolSubscription, version_of(data))(data, _VERSION.size)[0]


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    return decoder(ConsumerProtocolAssignment, version_of(data))(data, _VERSION.size)[0]


def read_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all these subscriptions; None if one of them cannot be decoded."""
    read = decoder(ConsumerProtocolSubscription, 0)  # every later version begins with the fields of version 0
    try:
        return frozenset(topic for one in subscriptions for topic in read(one, _VERSION.size)[0].topics)
    except DecodeError:
        return None


def write_assignment(image: Image, part: Mapping[bytes, Iterable[int]], version: int) -> bytes:
    """Encode a member's assignment. Deleted topics are left out."""
    names = image.names_by_id
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignmentTopicPartition(topic=names[topic], partitions=sorted(indexes))
            for topic, indexes in part.items()
            if topic in names
        ]
    )
    return _VERSION.pack(version) + encode(assignment, version)


def by_id(image: Image, partitions: Iterable[AssignmentTopicPartition] | Iterable[SubscriptionTopicPartition]) -> Owned:
    """Group partitions by topic id. Topics that do not exist are left out."""
    found: Owned = {}
    for one in partitions:
        topic = image.topics.get(one.topic)
        if topic is not None and one.partitions:
            found.setdefault(topic.id, set()).update(one.partitions)
    return found
