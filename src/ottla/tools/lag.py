"""The lag of a group, per partition, in records and in seconds.

records   end - committed, as Kafka's own tool counts; end - start for a partition without a committed offset. Control
          records and gaps left by compaction are counted, since finding them would mean reading the partition.
seconds   age of the oldest unread record: the first at or after the committed offset. Records of aborted and of open
          transactions are skipped. 0 when there is nothing to read; unknown when the broker did not send it in time.
"""

import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from ottla.client import groups
from ottla.tools.session import TIMEOUT_S, settle, wire

# Per partition; fits a batch of usual size. Brokers send at least one batch, however large it is.
PEEK_SIZE_MAX = 1 << 16
WAIT_S = 0.5

Place = tuple[str, int]


class Commit(NamedTuple):
    offset: int
    metadata: str | None = None


class OffsetSpan(NamedTuple):
    start: int
    end: int


class Lag(NamedTuple):
    committed: int | None
    start: int | None  # start and end are None if the partition does not exist
    end: int | None
    records: int | None
    seconds: float | None


def read_commits(bootstrap: str, properties: Iterable[str], group: str) -> dict[Place, Commit]:
    """Every offset that a group has committed.

    Uses Ottla's own client: confluent-kafka reads commit metadata up to a zero byte. It writes that byte itself, but
    other clients do not, so it would return the memory behind their metadata, too.
    """
    with wire(bootstrap, properties) as cluster:
        return sort_commits(groups.read_offsets(cluster, group, stable=False).items())


def sort_commits(found: Iterable[tuple[Place, groups.Committed]]) -> dict[Place, Commit]:
    """Sorted by topic and partition."""
    return {
        (topic, index): Commit(one.offset, one.metadata.partition("\0")[0]) for (topic, index), one in sorted(found)
    }


def spans(cluster: AdminClient, places: Iterable[Place]) -> dict[Place, OffsetSpan]:
    """Start and end of each partition. Partitions that do not exist are omitted."""
    topics = cluster.list_topics(timeout=TIMEOUT_S).topics
    wanted = [
        TopicPartition(*place) for place in places if place[0] in topics and place[1] in topics[place[0]].partitions
    ]
    starts = bounds(cluster, wanted, OffsetSpec.earliest())
    ends = bounds(cluster, wanted, OffsetSpec.latest())
    return {place: OffsetSpan(starts[place], ends[place]) for place in starts if place in ends}


def bounds(cluster: AdminClient, wanted: list[TopicPartition], spec: OffsetSpec) -> dict[Place, int]:
    if not wanted:
        return {}
    futures = cluster.list_offsets(dict.fromkeys(wanted, spec), request_timeout=TIMEOUT_S)
    answers = settle(futures, fine=[KafkaError.UNKNOWN_TOPIC_OR_PART])  # deleted meanwhile
    return {(part.topic, part.partition): answer.offset for part, answer in answers.items()}


def lags(
    consumer: Consumer, commits: Mapping[Place, Commit], bounds: Mapping[Place, OffsetSpan], places: Iterable[Place]
) -> dict[Place, Lag]:
    """The lag of each partition. The consumer joins no group; it reads one record of each partition with lag."""
    found: dict[Place, Lag] = {}
    unread: dict[Place, int] = {}  # the oldest unread record is here or later
    for place in places:
        commit, span = commits.get(place), bounds.get(place)
        offset = commit.offset if commit else None
        if span is None:
            found[place] = Lag(offset, None, None, None, None)
            continue
        first = span.start if offset is None else offset
        if records := max(0, span.end - first):
            unread[place] = max(first, span.start)
        found[place] = Lag(offset, *span, records, None if records else 0.0)
    now_ms = int(time.time() * 1000)
    for place, timestamp in oldest(consumer, unread).items():
        # A producer's clock may be ahead of ours; then the age would be negative.
        age_ms = 0 if timestamp is None else max(0, now_ms - timestamp)
        found[place] = found[place]._replace(seconds=age_ms / 1000)
    return found


def oldest(consumer: Consumer, starts: Mapping[Place, int]) -> dict[Place, int | None]:
    """The timestamp of the first record at or after each offset; None where no record follows.

    A partition is omitted if its record has no timestamp (format 0) or did not arrive in time.
    """
    found: dict[Place, int | None] = {}
    pending = set(starts)
    if pending:
        consumer.assign([TopicPartition(topic, index, offset) for (topic, index), offset in starts.items()])
    deadline = time.monotonic() + TIMEOUT_S
    while pending and time.monotonic() < deadline:
        message = consumer.poll(WAIT_S)
        place = (message.topic(), message.partition()) if message else None
        if message is None or place not in pending:
            continue
        if error := message.error():
            if error.code() != KafkaError._PARTITION_EOF:
                continue  # the client retries
            found[place] = None
        else:
            kind, timestamp = message.timestamp()
            if kind != TIMESTAMP_NOT_AVAILABLE:
                found[place] = timestamp
        pending.discard(place)
        consumer.pause([TopicPartition(*place)])
    return found
