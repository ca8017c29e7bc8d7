"""Reads a range of one partition as whole record batches, fetching ahead while the caller decodes.

    for piece in fetch(cluster, TopicPartition("events", 0), start=0, stop=1_000_000):
        columns = decode_columns(piece.data, start=piece.start, stop=1_000_000, ...)

The next Fetch is sent before a piece is yielded, so the broker and the network work while the caller decodes. Nothing
is decoded here: the headers of the batches tell where the next fetch starts. That offset is the only state, so a leader
that moves or a broker that restarts costs a repeated request, and no batch is lost or repeated. A topic that was
deleted and created again is recognised by its id, and is an error: its offsets mean something else.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.client import offsets
from ottla.client.cluster import Patience
from ottla.client.failure import Failed, Refused, Unreachable, check, passes
from ottla.errors import ErrorCode
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterator

    from ottla.client.cluster import Cluster, TopicPartition
    from ottla.client.connection import Connection
    from ottla.wire.messages.fetch import PartitionData

FETCH: Final = 1
BATCHES_SINCE: Final = 4  # before this version a broker converts record batches to older formats
IDS_SINCE: Final = 13
PIECE_MAX: Final = 256 << 20  # what a decoder accepts at once
PIECE_MIN: Final = 1 << 16
EMPTY_MAX: Final = 2  # after this many empty answers below the end, the rest was compacted away

# What the formats have in common: base offset, length of what follows it, and magic, each in the same place.
HEAD: Final = struct.Struct(">qi4xb")
OVERHEAD: Final = 12
LENGTH_MIN: Final = 14  # of a message of the oldest format
BATCH_LENGTH_MIN: Final = 49  # of a batch without records
BATCH_MAGIC: Final = 2
LAST_DELTA: Final = struct.Struct(">i")
LAST_DELTA_POSITION: Final = 23


class OutOfRange(Refused):
    """The offset is not in the log, which holds those from `log_start` to before `high`; -1: unknown."""

    def __init__(self, what: str, code: int, more: str = "", log_start: int = -1, high: int = -1) -> None:
        super().__init__(what, code, more)
        self.log_start = log_start
        self.high = high

    def __reduce__(self) -> tuple[type[OutOfRange], tuple[str, int, str, int, int]]:  # type: ignore[override]
        return type(self), (self.what, self.code, self.more, self.log_start, self.high)


class Recreated(Failed):
    """The topic was deleted and created again."""


@dataclass(frozen=True, slots=True)
class Piece:
    data: memoryview  # whole batches; the first may begin before `start`. Valid as long as somebody holds it
    aborted: list[tuple[int, int]] | None  # (producer id, first offset) of aborted transactions; None: all are wanted
    high: int  # the high watermark
    stable: int  # the last stable offset
    log_start: int
    start: int  # the offset asked for
    end: int  # where the next piece starts


def fetch(
    cluster: Cluster,
    where: TopicPartition,
    *,
    start: int,
    stop: int,
    committed: bool = False,
    bytes_max: int = 8 << 20,
    wait_ms: int = 500,
    topic_id: uuid.UUID | None = None,
) -> Iterator[Piece]:
    """The batches with offsets from `start` to before `stop`. With `committed`, up to the last stable offset only.

    `stop` must not be above the high watermark (or the last stable offset): records that are not there yet are waited
    for no longer than the cluster's timeout. The first and the last batch may hold more than was asked for. With
    `topic_id`, a topic of that name with another id is `Recreated`, even if it was so from the beginning.
    """
    reader = PartitionReader(cluster, where, topic_id, committed=committed, bytes_max=bytes_max, wait_ms=wait_ms)
    position = start
    try:
        while position < stop:
            piece = reader.next(position, stop)
            position = piece.end
            if position < stop:
                reader.ask_ahead(position, stop)
            if piece.data:
                yield piece
    finally:
        reader.close()


class PartitionReader:
    """The connection to the current leader of the partition, with at most one Fetch in flight."""

    def __init__(
        self,
        cluster: Cluster,
        where: TopicPartition,
        topic_id: uuid.UUID | None,
        *,
        committed: bool,
        bytes_max: int,
        wait_ms: int,
    ) -> None:
        self._cluster = cluster
        self._where = where
        self._what = f"{where.topic} partition {where.partition}"
        self._committed = committed
        self._bytes_max = bytes_max
        self._wait_ms = wait_ms
        self._connection: Connection | None = None
        self._asked: int | None = None  # the offset of the Fetch in flight
        self._id = topic_id
        self._patience = Patience(cluster)
        self._density = 0.0  # bytes per offset, as seen so far
        self._empty = 0

    def next(self, position: int, stop: int) -> Piece:
        while True:
            try:
                if self._asked != position:
                    self._ask(position, stop)
                piece = self._answer(position, stop)
            except Failed as error:
                self.close()
                if isinstance(error, OutOfRange):
                    raise self._beside(position, error) from None
                self._patience.bear(error)
                continue
            if piece is not None:
                self._patience.progress()
                self._empty = 0
                return piece

    def ask_ahead(self, position: int, stop: int) -> None:
        """Send the next Fetch now. Temporary errors are handled when its answer is needed."""
        try:
            self._ask(position, stop)
        except Failed as error:
            self.close()
            if not passes(error):
                raise

    def close(self) -> None:
        if self._connection is not None:
            self._cluster.release(self._connection)
        self._connection = self._asked = None

    def _ask(self, position: int, stop: int) -> None:
        if self._connection is None or self._asked is not None:
            self.close()
            topic = self._cluster.topic(self._where.topic)
            if self._id is not None and topic.id is not None and topic.id != self._id:
                raise Recreated(
                    f"{self._where.topic} was deleted and created again, and offset {position} was one of the old one: "
                    "start again from the beginning"
                )
            self._id = topic.id
            self._connection = self._cluster.lease(self._where)
        connection = self._connection
        version = connection.version(FETCH, None if self._id else IDS_SINCE - 1)
        if version < BATCHES_SINCE:
            raise Failed(f"the broker at {connection.name} is too old: Apache Kafka 0.11 and later are supported")
        size = self._size(position, stop)
        partition = FetchPartition(partition=self._where.partition, fetch_offset=position, partition_max_bytes=size)
        topic_id = self._id.bytes if self._id else ZERO_UUID
        request = FetchRequest(
            max_wait_ms=self._wait_ms,
            min_bytes=1,
            max_bytes=size,
            isolation_level=1 if self._committed else 0,
            topics=[FetchTopic(topic=self._where.topic, topic_id=topic_id, partitions=[partition])],
        )
        connection.send(request, newest=version, wait_s=self._wait_ms / 1000)
        self._asked = position

    def _size(self, position: int, stop: int) -> int:
        """How many bytes to request: the maximum, or an estimate of the rest, from the batches so far."""
        if not self._density:
            return self._bytes_max
        left = int((stop - position) * self._density * 1.1) + PIECE_MIN
        return min(self._bytes_max, left)

    def _answer(self, position: int, stop: int) -> Piece | None:
        """The answer, or None if it was empty and must be asked for again."""
        assert self._connection is not None, "asked before"
        answer = self._connection.receive(FetchResponse)
        self._asked = None
        check(self._what, answer.error_code)
        found = [
            one
            for topic in answer.responses
            for one in topic.partitions
            if one.partition_index == self._where.partition
        ]
        if not found:  # over quota, a broker sends nothing
            self._patience.bear(Refused(self._what, ErrorCode.THROTTLING_QUOTA_EXCEEDED))
            return None
        data = found[0]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OutOfRange(self._what, data.error_code)
        check(self._what, data.error_code)
        records = data.records if isinstance(data.records, memoryview) else memoryview(b"")
        kept, size, end = walk(records, position, stop, self._what)
        if not size:
            return self._nothing(data, records, position, stop)
        if end <= position:
            raise Failed(f"{self._what}: the broker answered offset {position} with records before it")
        self._density = max(self._density, size / (end - position))
        return self._piece(data, records[:kept], position, end)

    def _nothing(self, data: PartitionData, records: memoryview, position: int, stop: int) -> Piece | None:
        """No whole batch came: it is too large, or not there yet, or everything up to `stop` was compacted away."""
        if records:
            if self._bytes_max >= PIECE_MAX:
                raise Failed(f"{self._what}: the batch at offset {position} is larger than {PIECE_MAX >> 20} MiB")
            self._bytes_max = min(2 * self._bytes_max, PIECE_MAX)
            self._density = 0.0
            return None
        bound = data.last_stable_offset if self._committed else data.high_watermark
        if bound >= stop:
            self._empty += 1
            if self._empty < EMPTY_MAX:
                return None
            if position < offsets.earliest_local(self._cluster, self._where):
                raise Unreachable(f"{self._what} at offset {position}: the broker's tiered storage does not answer")
            return self._piece(data, records, position, stop)
        kind = "last stable offset" if self._committed else "high watermark"
        more = f": offset {stop - 1} was asked for, the {kind} is {bound}"
        self._patience.bear(Refused(self._what, ErrorCode.OFFSET_NOT_AVAILABLE, more))
        return None

    def _piece(self, data: PartitionData, records: memoryview, start: int, end: int) -> Piece:
        aborted = None
        if self._committed:
            aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or []]
        return Piece(
            data=records.toreadonly(),
            aborted=aborted,
            high=data.high_watermark,
            stable=data.last_stable_offset,
            log_start=data.log_start_offset,
            start=start,
            end=end,
        )

    def _beside(self, position: int, error: OutOfRange) -> OutOfRange:
        """The error with the offset range of the log, if the leader returns it."""
        try:
            (first,) = offsets.earliest(self._cluster, [self._where]).values()
            (high,) = offsets.latest(self._cluster, [self._where]).values()
        except Failed:
            return OutOfRange(error.what, error.code, f": offset {position} was asked for")
        held = f"holds {first} to {high - 1}" if high > first else f"is empty, its next offset is {high}"
        more = f": offset {position} was asked for, and the log {held}"
        return OutOfRange(error.what, error.code, more, first, high)


def walk(data: memoryview, start: int, stop: int, what: str) -> tuple[int, int, int]:
    """How many bytes to keep (batches that begin before `stop`), how many are whole batches, and the offset after them.

    The offset is `stop` if a batch begins at or after it: nothing lies between. An incomplete batch at the end does not
    count.
    """
    position, end, before, size = 0, start, -1, len(data)
    head, last_delta = HEAD.unpack_from, LAST_DELTA.unpack_from
    while position + OVERHEAD + LENGTH_MIN <= size:
        base, length, magic = head(data, position)
        if length < (BATCH_LENGTH_MIN if magic >= BATCH_MAGIC else LENGTH_MIN):
            raise Failed(f"{what}: the batch at offset {base} claims a length of {length}: the log is damaged there")
        after = position + OVERHEAD + length
        if after > size:
            break
        if base >= stop:
            # For a wrapper of old messages this is its last offset: it may contain messages before `stop`.
            return (position if magic >= BATCH_MAGIC else after), after, stop
        last = base
        if magic >= BATCH_MAGIC:
            last += last_delta(data, position + LAST_DELTA_POSITION)[0]
        if last < base or base <= before:
            raise Failed(f"{what}: the batch at offset {base} overlaps the one before it: the log is damaged there")
        before, end, position = last, max(end, last + 1), after
    return position, position, end
