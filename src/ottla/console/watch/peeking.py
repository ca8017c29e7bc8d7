"""Read the timestamp of the record at an offset, for lag in seconds where samples are too coarse. One Fetch for many
partitions.

The result is cached until the group commits a new offset, so that an idle group causes no requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from ottla.client.cluster import TopicPartition
from ottla.errors import BrokerError
from ottla.records import batch
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.console.watch.links import Link

NAMES_UNTIL: Final = 12  # last version of Fetch with topic names; later ones use topic ids
SIZE_MAX: Final = 1 << 16  # per partition; brokers return at least one batch of the first, however large
ALL_MAX: Final = 4 << 20
AT_ONCE: Final = 64
INFLATED_MAX: Final = 8 << 20


def times(link: Link, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The timestamp in milliseconds of the first record at or after each offset; omitted if it did not arrive."""
    topics: dict[str, list[FetchPartition]] = {}
    for (name, index), offset in list(offsets.items())[:AT_ONCE]:
        part = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=SIZE_MAX)
        topics.setdefault(name, []).append(part)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=ALL_MAX,
        isolation_level=0,
        topics=[FetchTopic(topic=name, partitions=partitions) for name, partitions in topics.items()],
    )
    found = {}
    for topic in link.ask(request, FetchResponse, newest=NAMES_UNTIL).responses:
        for one in topic.partitions:
            where = TopicPartition(topic.topic, one.partition_index)
            if not one.error_code and one.records and where in offsets:
                moment = time_of(bytes(cast("bytes", one.records)), offsets[where])
                if moment is not None:
                    found[where] = moment
    return found


def time_of(data: bytes, offset: int) -> int | None:
    try:
        for entry in batch.entries(data):
            if entry.last_offset < offset:
                continue
            if entry.magic == batch.MAGIC:
                head = batch.header(data, entry.position)
                if head.control:
                    continue
                if head.max_timestamp - head.base_timestamp < 500 or head.log_append_time:
                    return head.max_timestamp if head.log_append_time else head.base_timestamp
            for record in batch.iterate(data, entry.position, INFLATED_MAX):
                if record.offset >= offset:
                    return record.timestamp if record.timestamp >= 0 else None
    except (BrokerError, ValueError):
        return None
    if len(data) >= batch.HEADER_SIZE and data[batch.MAGIC_POSITION] == batch.MAGIC:
        return batch.header(data).base_timestamp  # an incomplete batch: its base timestamp is close enough
    return None
