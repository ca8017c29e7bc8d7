"""What members with the classic protocol put into their joins and find in their part: subscriptions and assignments.

int16 version, then the fields of that version; a version that is newer than we know begins with the fields we do
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


def version_of(data: bytes) -> int:
    """The version of a subscription or an assignment; DecodeError when there is none."""
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


def write_assignment(image: Image, part: Mapping[bytes, Iterable[int]], version: int) -> bytes:
    """A part of the assignment, by the names of its topics; topics that are gone are left out."""
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
    """Partitions by the ids of their topics; topics that there are not are left out."""
    found: Owned = {}
    for one in partitions:
        topic = image.topics.get(one.topic)
        if topic is not None and one.partitions:
            found.setdefault(topic.id, set()).update(one.partitions)
    return found
