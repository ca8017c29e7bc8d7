"""Compares the replicas of a partition, as their brokers return them.

Every replica is read up to the high watermark that the leader had at the beginning. Batches must have the same offsets
and the same bytes. In a compacted topic replicas are compacted at different times: there the records that two replicas
both have must be equal, and one may lack records of the other.
"""

from __future__ import annotations

import time
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client import offsets
from ottla.client.failure import Failed, check
from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.records.compress import CorruptError
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ottla.client.cluster import Cluster, TopicPartition
    from ottla.client.connection import Connection

FETCH: Final = 1
FOLLOWERS_SINCE: Final = 11  # from this version of Fetch on, followers answer consumers
IDS_SINCE: Final = 13
BYTES_MAX: Final = 1 << 20
BATCH_MAX: Final = 256 << 20
BEHIND_S_MAX: Final = 10.0  # how long a replica may take to learn the leader's high watermark
PAUSE_S: Final = 0.1

Print = tuple[int, int, int]  # first and last offset, and a checksum of the records


class PartitionVerdict(NamedTuple):
    """The result for one partition."""

    start: int
    end: int
    records: int  # batches, or records of a compacted topic, that were compared
    faults: dict[int, str]  # by broker; empty: all replicas are equal


def compare(
    cluster: Cluster,
    where: TopicPartition,
    leader: int,
    others: Sequence[int],
    *,
    compacted: bool,
    told: Callable[[int], None] = lambda offset: None,
) -> PartitionVerdict:
    """Compare the leader's log with those of the followers; `told` is called with the progress."""
    start = offsets.earliest(cluster, [where])[where]
    stop = offsets.latest(cluster, [where])[where]
    brokers = cluster.brokers()
    if leader not in brokers:
        return PartitionVerdict(start, stop, 0, {leader: "the leader is not available"})
    faults: dict[int, str] = {}
    compared = 0
    for other in others:
        if other not in brokers:
            faults[other] = "the broker is not available"
            continue
        try:
            ours = ReplicaReading(cluster, where, brokers[leader], start, stop, compacted)
            theirs = ReplicaReading(cluster, where, brokers[other], start, stop, compacted)
            count, fault = difference(ours.prints(told), theirs.prints(), compacted)
        except (Failed, CorruptError) as error:
            count, fault = 0, str(error)
        compared = max(compared, count)
        if fault:
            faults[other] = fault
    return PartitionVerdict(start, stop, compared, faults)


def difference(ours: Iterator[Print], theirs: Iterator[Print], compacted: bool) -> tuple[int, str]:
    """How many were compared, and a description of the first difference; empty if there is none."""
    count = 0
    mine, other = next(ours, None), next(theirs, None)
    while mine is not None or other is not None:
        if mine is None or other is None or mine[:2] != other[:2]:
            if not compacted:
                return count, f"offset {describe(mine)} on the leader, {describe(other)} here"
            if other is None or (mine is not None and mine[0] < other[0]):
                mine = next(ours, None)
            else:
                other = next(theirs, None)
            continue
        if mine[2] != other[2]:
            return count, f"the records at offset {describe(mine)} differ"
        count += 1
        mine, other = next(ours, None), next(theirs, None)
    return count, ""


def describe(one: Print | None) -> str:
    if one is None:
        return "nothing more"
    return str(one[0]) if one[0] == one[1] else f"{one[0]} to {one[1]}"


class ReplicaReading:
    """One replica, read from start to stop."""

    def __init__(
        self, cluster: Cluster, where: TopicPartition, connection: Connection, start: int, stop: int, compacted: bool
    ) -> None:
        self._cluster = cluster
        self._where = where
        self._connection = connection
        self._position = start
        self._stop = stop
        self._compacted = compacted
        self._bytes_max = BYTES_MAX
        self._deadline: float | None = None

    def prints(self, told: Callable[[int], None] = lambda offset: None) -> Iterator[Print]:
        while self._position < self._stop:
            data = self._fetch()
            for entry in batch.entries(data):
                if entry.last_offset < self._position:
                    continue
                if entry.base_offset >= self._stop:
                    self._position = self._stop
                    return
                yield from self._of(data, entry)
                self._position = entry.last_offset + 1
            told(self._position)

    def _of(self, data: memoryview, entry: batch.Entry) -> Iterator[Print]:
        if not self._compacted:
            content = data[entry.position : entry.position + entry.size]
            yield entry.base_offset, entry.last_offset, zlib.crc32(content)
            return
        for record in batch.iterate(data, entry.position):
            if record.offset >= self._position:
                yield record.offset, record.offset, zlib.crc32(repr(record).encode())

    def _fetch(self) -> memoryview:
        """At least one whole batch; waits until the replica knows that it is committed."""
        while True:
            found = self._ask()
            size = sum(entry.size for entry in batch.entries(found))
            if size:
                self._deadline = None
                return found[:size]
            if len(found) and self._bytes_max < BATCH_MAX:
                self._bytes_max *= 4
                continue
            if self._deadline is None:
                self._deadline = time.monotonic() + BEHIND_S_MAX
            if time.monotonic() > self._deadline:
                if self._compacted:  # everything up to the end may have been compacted away
                    self._position = self._stop
                    return memoryview(b"")
                raise Failed(f"ends at offset {self._position}, the leader at {self._stop}")
            time.sleep(PAUSE_S)

    def _ask(self) -> memoryview:
        topic_id = self._cluster.topic(self._where.topic).id
        version = self._connection.version(FETCH, None if topic_id else IDS_SINCE - 1)
        if version < FOLLOWERS_SINCE:
            raise Failed(f"the broker at {self._connection.name} is too old: only leaders answer there")
        partition = FetchPartition(
            partition=self._where.partition, fetch_offset=self._position, partition_max_bytes=self._bytes_max
        )
        topic = FetchTopic(
            topic=self._where.topic, topic_id=topic_id.bytes if topic_id else ZERO_UUID, partitions=[partition]
        )
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=self._bytes_max, topics=[topic])
        answer = self._connection.ask(request, FetchResponse, newest=version)
        check(self._where.topic, answer.error_code)
        for found in (one for topic in answer.responses for one in topic.partitions):
            if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise Failed(f"does not have offset {self._position}")
            check("reading it", found.error_code)
            return found.records if isinstance(found.records, memoryview) else memoryview(b"")
        return memoryview(b"")
