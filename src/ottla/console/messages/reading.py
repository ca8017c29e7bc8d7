"""Read records of a topic for the page: from the newest, the oldest, an offset or a time, with limits.

The newest are read backwards in steps, so that a filter finds the newest matches first. Reading ends with enough
matches, at the end of the log, after `SCAN_S` seconds or `SCAN_RECORDS` records. The page shows the reason, and can
continue from there. Records of aborted transactions are omitted, as with read_committed.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed
from ottla.client.fetching import OutOfRange, fetch
from ottla.client.offsets import at_time, earliest, latest
from ottla.console.messages.filter import TEXT_MAX, CandidateRecord
from ottla.errors import BrokerError
from ottla.records import batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.client.cluster import Cluster
    from ottla.client.fetching import Piece

LIMIT_MAX: Final = 500
SCAN_S: Final = 20.0
SCAN_RECORDS: Final = 2_000_000
STEP: Final = 1_000  # offsets in the first step backwards; doubled each time
STEP_MAX: Final = 100_000
KEPT_MAX: Final = 16 << 20  # bytes of all records kept for the page
INFLATED_MAX: Final = 64 << 20
FETCH_BYTES: Final = 1 << 20
ABORT: Final = 0

NEWEST, OLDEST, OFFSET, TIME = "newest", "oldest", "offset", "time"


class Message(NamedTuple):
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def size(self) -> int:
        return len(self.key or b"") + len(self.value or b"") + sum(len(value or b"") for _, value in self.headers)


@dataclass
class MessageQuery:
    topic: str
    start: str = NEWEST
    amount: int = 0  # an offset, or milliseconds since 1970
    partition: int | None = None
    limit: int = 50
    test: Callable[[CandidateRecord], bool] = lambda seen: True


@dataclass
class Reading:
    """The records found so far; a thread fills it while the page reads it."""

    found: list[Message] = field(default_factory=list)
    scanned: int = 0
    kept: int = 0
    ended: str = ""  # why it ended; empty while it runs
    positions: dict[int, int] = field(default_factory=dict)  # where to continue
    stop: threading.Event = field(default_factory=threading.Event)
    began: float = field(default_factory=time.monotonic)

    def full(self, limit: int) -> bool:
        if self.stop.is_set():
            self.ended = "stopped"
        elif len(self.found) >= limit:
            self.ended = "enough"
        elif self.scanned >= SCAN_RECORDS or time.monotonic() - self.began > SCAN_S:
            self.ended = f"stopped after {self.scanned:,} records"
        elif self.kept > KEPT_MAX:
            self.ended = "stopped: the records are large"
        return bool(self.ended)


def read(cluster: Cluster, query: MessageQuery, reading: Reading) -> Reading:
    """Fill a reading; runs in its own thread."""
    limit = max(1, min(query.limit, LIMIT_MAX))
    topic = cluster.topics([query.topic]).get(query.topic)
    if topic is None:
        raise Failed(f"there is no topic {query.topic}")
    if query.partition is not None and not 0 <= query.partition < topic.partitions:
        raise Failed(f"{query.topic} has no partition {query.partition}: it has {topic.partitions}")
    chosen = range(topic.partitions) if query.partition is None else [query.partition]
    wheres = [TopicPartition(query.topic, index) for index in chosen]
    starts, ends = earliest(cluster, wheres), latest(cluster, wheres, committed=True)
    if query.start == NEWEST:
        backwards(cluster, query, reading, starts, ends, limit)
    else:
        first = dict(starts)
        if query.start == OFFSET:
            first = {where: min(max(query.amount, starts[where]), ends[where]) for where in wheres}
        elif query.start == TIME:
            moments = at_time(cluster, dict.fromkeys(wheres, query.amount))
            first = {where: ends[where] if (one := moments[where]) is None else one[0] for where in wheres}
        forwards(cluster, query, reading, first, ends, limit)
    reading.ended = reading.ended or "all"
    return reading


def backwards(
    cluster: Cluster,
    query: MessageQuery,
    reading: Reading,
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    limit: int,
) -> None:
    upper, step = dict(ends), max(STEP, 2 * limit)
    while not reading.full(limit) and any(upper[where] > starts[where] for where in upper):
        some: list[Message] = []
        for where in [where for where in upper if upper[where] > starts[where]]:
            lower = max(starts[where], upper[where] - step)
            for record in records(cluster, where, lower, upper[where], reading):
                if matches(query, record):
                    some.append(record)
                    reading.kept += record.size
            upper[where] = lower
            if reading.stop.is_set():
                break
        reading.found = newest([*reading.found, *some])[:limit]
        reading.kept = sum(record.size for record in reading.found)
        step = min(2 * step, STEP_MAX)
    reading.positions = {where.partition: offset for where, offset in ends.items()}


def forwards(
    cluster: Cluster,
    query: MessageQuery,
    reading: Reading,
    first: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    limit: int,
) -> None:
    reading.positions = {where.partition: offset for where, offset in first.items()}
    share = max(1, -(-limit // max(1, len(first))))
    for round_limit in (share, limit):  # first an equal share of each partition, then the rest
        for where in first:
            taken = 0
            position = reading.positions[where.partition]
            if position >= ends[where] or reading.full(limit):
                continue
            for record in records(cluster, where, position, ends[where], reading):
                reading.positions[where.partition] = record.offset + 1
                if matches(query, record):
                    reading.found.append(record)
                    reading.kept += record.size
                    taken += 1
                if taken >= round_limit or reading.full(limit):
                    break
            else:
                reading.positions[where.partition] = ends[where]
    reading.found.sort(key=lambda one: (one.timestamp, one.partition, one.offset))


def follow(cluster: Cluster, query: MessageQuery, positions: dict[int, int]) -> Reading:
    """New records, for the live tail. Skips ahead if there are more than can be shown."""
    wheres = [TopicPartition(query.topic, index) for index in positions]
    ends = latest(cluster, wheres, committed=True)
    reading = Reading()
    most = LIMIT_MAX // max(1, len(wheres)) + 1
    first = {where: max(positions[where.partition], ends[where] - most) for where in wheres}
    forwards(cluster, query, reading, first, ends, LIMIT_MAX)
    return reading


def ends_of(cluster: Cluster, topic: str, partition: int | None) -> dict[int, int]:
    found = cluster.topics([topic]).get(topic)
    if found is None:
        raise Failed(f"there is no topic {topic}")
    wheres = [TopicPartition(topic, index) for index in range(found.partitions) if partition in (None, index)]
    return {where.partition: end for where, end in latest(cluster, wheres, committed=True).items()}


def newest(messages: list[Message]) -> list[Message]:
    return sorted(messages, key=lambda one: (one.timestamp, one.partition, one.offset), reverse=True)


def matches(query: MessageQuery, record: Message) -> bool:
    seen = CandidateRecord(
        record.partition,
        record.offset,
        record.timestamp,
        (record.key or b"")[:TEXT_MAX].decode(errors="replace"),
        (record.value or b"")[: 16 * TEXT_MAX].decode(errors="replace"),
        {name: (value or b"")[:TEXT_MAX].decode(errors="replace") for name, value in record.headers},
        {},
    )
    return query.test(seen)


def records(cluster: Cluster, where: TopicPartition, start: int, stop: int, reading: Reading) -> Iterator[Message]:
    try:
        for piece in fetch(cluster, where, start=start, stop=stop, committed=True, bytes_max=FETCH_BYTES):
            for record in decode(where.partition, piece, reading):
                if start <= record.offset < stop:
                    reading.scanned += 1
                    yield record
            if reading.stop.is_set() or time.monotonic() - reading.began > SCAN_S:
                return
    except OutOfRange:  # deleted by retention meanwhile
        return


def decode(partition: int, piece: Piece, reading: Reading) -> Iterator[Message]:
    """The records of complete batches, without control records and aborted transactions."""
    data = bytes(piece.data)
    aborted = sorted(piece.aborted or (), key=lambda one: one[1])
    hidden: set[int] = set()
    for entry in batch.entries(data):
        try:
            if entry.magic == batch.MAGIC:
                head = batch.header(data, entry.position)
                while aborted and aborted[0][1] <= entry.last_offset:
                    hidden.add(aborted.pop(0)[0])
                if head.control:
                    if is_abort(data, entry.position):
                        hidden.discard(head.producer_id)
                    continue
                if head.transactional and head.producer_id in hidden:
                    continue
            for one in batch.iterate(data, entry.position, INFLATED_MAX):
                yield Message(partition, one.offset, one.timestamp, one.key, one.value, tuple(one.headers))
        except BrokerError:  # damaged, or too large when decompressed: skip it
            continue
        if reading.stop.is_set():
            return


def is_abort(data: bytes, position: int) -> bool:
    for one in batch.iterate(data, position, INFLATED_MAX):
        return one.key is not None and int.from_bytes(one.key[2:4], "big") == ABORT
    return False
