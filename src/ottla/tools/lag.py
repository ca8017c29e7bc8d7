"""How far a group is behind: per partition, in records and in seconds.

records   end - committed, as Kafka's own tool counts; a partition without a commit has end - start to read. So
          control records and gaps of compaction count, since nobody can tell without reading them.
seconds   age of the oldest record the group could have read: that at the committed offset, or the next one there
          is. Records of aborted and of open transactions are none. 0 when there is nothing to read; unknown when
          the broker did not hand it out in time.
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

# Of each partition: enough for a batch of the usual size. Brokers hand out at least one, however large it is.
PEEK_SIZE_MAX = 1 << 16
WAIT_S = 0.5

Place = tuple[str, int]


class Commit(NamedTuple):
    offset: int
    metadata: str | None = None


class Span(NamedTuple):
    start: int
    end: int


class Lag(NamedTuple):
    committed: int | None
    start: int | None  # no bounds: the partition is gone
    end: int | None
    records: int | None
    seconds: float | None


def read_commits(bootstrap: str, properties: Iterable[str], group: str) -> dict[Place, Commit]:
    """Every offset that a group has committed.

    By our own client: confluent-kafka reads metadata up to a zero byte, which it commits with its own and others do
    not, so that whatever lies behind theirs in memory follows.
    """
    with wire(bootstrap, properties) as cluster:
        return sort_commits(groups.read_offsets(cluster, group, stable=False).items())


def sort_commits(found: Iterable[tuple[Place, groups.Committed]]) -> dict[Place, Commit]:
    """In order of topics and partitions."""
    return {
        (topic, index): Commit(one.offset, one.metadata.partition("\0")[0]) for (topic, index), one in sorted(found)
    }


def spans(cluster: AdminClient, places: Iterable[Place]) -> dict[Place, Span]:
    """Start and end of each partition; those that do not exist (any more) are left out."""
    topics = cluster.list_topics(timeout=TIMEOUT_S).topics
    wanted = [
        TopicPartition(*place) for place in places if place[0] in topics and place[1] in topics[place[0]].partitions
    ]
    starts = bounds(cluster, wanted, OffsetSpec.earliest())
    ends = bounds(cluster, wanted, OffsetSpec.latest())
    return {place: Span(starts[place], ends[place]) for place in starts if place in ends}


def bounds(cluster: AdminClient, wanted: list[TopicPartition], spec: OffsetSpec) -> dict[Place, int]:
    if not wanted:
        return {}
    futures = cluster.list_offsets(dict.fromkeys(wanted, spec), request_timeout=TIMEOUT_S)
    answers = settle(futures, fine=[KafkaError.UNKNOWN_TOPIC_OR_PART])  # deleted while we asked
    return {(part.topic, part.partition): answer.offset for part, answer in answers.items()}


def lags(
    consumer: Consumer, commits: Mapping[Place, Commit], bounds: Mapping[Place, Span], places: Iterable[Place]
) -> dict[Place, Lag]:
    """The lag of each of these places. The consumer joins nothing; it reads one record of each that is behind."""
    found: dict[Place, Lag] = {}
    unread: dict[Place, int] = {}  # where the oldest record that was not read must be, or after it
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
        # The clock of a producer may be ahead of ours: its records are then younger than nothing.
        age_ms = 0 if timestamp is None else max(0, now_ms - timestamp)
        found[place] = found[place]._replace(seconds=age_ms / 1000)
    return found


def oldest(consumer: Consumer, starts: Mapping[Place, int]) -> dict[Place, int | None]:
    """The timestamp of the first record at or after each offset; None where no record follows.

    A place is left out when its record has no timestamp (format 0) or did not come in time.
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
                continue  # the client tries again by itself
            found[place] = None
        else:
            kind, timestamp = message.timestamp()
            if kind != TIMESTAMP_NOT_AVAILABLE:
                found[place] = timestamp
        pending.discard(place)
        consumer.pause([TopicPartition(*place)])
    return found
