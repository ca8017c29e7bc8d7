"""Finds out, with few requests, where the bytes of a log are, so that `planning` can cut it.

Kafka has no request for "the offset at byte n". It has two that help:

- DescribeLogDirs, one request for each broker, returns the size of every partition. A partition that fits into one
  split needs no more than that. It requires rights on the cluster; without them, a few more requests are made.
- A Fetch of a few bytes returns whole batches, at least one: the first that ends after the requested offset. Their
  headers tell which offsets they span and how large they are. That is a sample of the bytes per offset there, gaps of
  compaction included. It costs reading a 64th of a split, or one batch.

A range is sampled at its first and last offset. Then it is sampled in the middle of every interval that is larger than
two splits, or whose ends differ so much that a cut in it could be off by an eighth of a split. Each round requests the
samples of all partitions together. So an even log costs about one sample for every two splits, and a log that is tiny
at first and huge at the end is bisected to where that changes. Between samples, the bytes per offset are assumed to be
the mean of both ends. If the size that the broker reports shows that much was missed (a hump between two samples), the
widest intervals are halved too.

Sampling ends when it has read a sixteenth of the range. A sample that fails ends the sampling of that partition; the
only effect is less even splits.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed
from ottla.client.fetching import BATCH_LENGTH_MIN, HEAD, LAST_DELTA, LAST_DELTA_POSITION, LENGTH_MIN, OVERHEAD
from ottla.spark.source.planning import Profile, even
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.messages.folders import DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ottla.client.cluster import Cluster
    from ottla.client.connection import Connection
    from ottla.spark.source.planning import Range
    from ottla.wire.messages.fetch import PartitionData

    Place = tuple[TopicPartition, int]  # and an offset

SAMPLE_BYTES_MAX: Final = 64 << 10
SHARE: Final = 16  # of a range, at most 1/16 is read for samples
TOGETHER: Final = 16  # requests in flight to one broker: each response has up to a whole batch
SURE: Final = 4  # a known range is not sampled again if even this many times its estimate needs no cut
IDS_SINCE: Final = 13
MAGIC: Final = 2
PIECE_MIN: Final = 64 << 10  # no target is smaller: a batch cannot be cut without reading it twice


class Sample(NamedTuple):
    """The first batch that ends after `offset`, and perhaps some that follow it: base <= their offsets < after. There
    are no records between `offset` and the first."""

    base: int
    after: int
    size: int
    offset: int

    @property
    def left(self) -> int:
        return min(self.base, self.offset)

    @property
    def density(self) -> float:
        """Bytes per offset, a gap before the first batch included."""
        return self.size / (self.after - self.left)

    def until(self, end: int) -> Sample:
        """The part before an offset, if there is one."""
        if not self.base < end < self.after:
            return self
        return self._replace(after=end, size=self.size * (end - self.base) // (self.after - self.base))


class UnknownSpan(NamedTuple):
    """Offsets between two samples, and the bytes per offset at both ends."""

    first: int
    end: int
    low: float
    high: float

    @property
    def span(self) -> int:
        return self.end - self.first

    @property
    def size(self) -> float:
        return self.span * (self.low + self.high) / 2

    @property
    def doubt(self) -> float:
        return self.span * abs(self.low - self.high) / 2


class Survey:
    """The samples of one range, and where to take the next ones. `total` is the size of the range, if known."""

    def __init__(self, start: int, stop: int, split_bytes: float) -> None:
        self.total: int | None = None
        self.next = sorted({start, stop - 1})  # offsets to sample in the next round; empty when done
        self._start, self._stop = start, stop
        self._split_bytes = split_bytes
        self._found: dict[int, Sample] = {}  # by base: the one that saw most of the gap before it

    def covers(self, first: int, end: int) -> bool:
        return self._start <= first and self._stop >= end

    def add(self, samples: Iterable[Sample]) -> None:
        for sample in samples:
            known = self._found.get(sample.base)
            if known is None or sample.offset < known.offset:
                self._found[sample.base] = sample
        read = sum(sample.size for sample in self._found.values())
        size = self.profile().size
        self.next = self._choose_offsets(size) if read * SHARE < max(size, self.total or 0) else []

    def profile(self) -> Profile:
        """Bytes by offset, as far as known."""
        offsets, sizes = [self._start], [0.0]

        def line(offset: int, size: float) -> None:
            """Extend the line to this offset, over this many bytes."""
            if offset > offsets[-1]:
                offsets.append(offset)
                sizes.append(sizes[-1] + size)

        unknown = {interval.end: interval for interval in self._unknown()}
        for sample in self._samples():
            if interval := unknown.get(sample.left):
                line(interval.end, interval.size)
            line(min(sample.base, self._stop), 0.0)
            first, end = max(sample.base, self._start), min(sample.after, self._stop)
            line(end, sample.size * (end - first) / (sample.after - sample.base))
        if interval := unknown.get(self._stop):
            line(interval.end, interval.size)
        if offsets[-1] < self._stop:
            return even(self._start, self._stop, self.total or 0.0)
        return Profile(offsets, sizes)

    def _samples(self) -> list[Sample]:
        """In order. Where one overlaps the next, only the part before that."""
        found = [sample for sample in sorted(self._found.values()) if sample.left < self._stop]
        ends = [*(sample.left for sample in found), self._stop][1:]
        return [sample.until(end) for sample, end in zip(found, ends, strict=True)]

    def _unknown(self) -> list[UnknownSpan]:
        samples = self._samples()
        found = [UnknownSpan(one.after, two.left, one.density, two.density) for one, two in pairwise(samples)]
        if samples and samples[-1].after < self._stop:
            found.append(UnknownSpan(samples[-1].after, self._stop, samples[-1].density, samples[-1].density))
        return [interval for interval in found if interval.span > 0]

    def _choose_offsets(self, size: float) -> list[int]:
        unknown = self._unknown()
        chosen = [one for one in unknown if one.doubt > self._split_bytes / 8 or one.size > 2 * self._split_bytes]
        if not chosen and self.total is not None and self.total - size > self._split_bytes:
            widest = max((one.span for one in unknown), default=0)
            chosen = [one for one in unknown if one.span > widest / 2]
        return [(one.first + one.end) // 2 for one in chosen]


class Sampler:
    """Makes profiles of ranges. It remembers how large records were, so that small ranges of a known partition, such as
    the micro-batches of a stream, need no request."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._densities: dict[TopicPartition, float] = {}

    def profiles(
        self, ranges: Sequence[Range], *, split_bytes: int, least: int | None = None
    ) -> dict[TopicPartition, Profile]:
        """Bytes by offset of each range that is not empty, as exact as cuts of `split_bytes`, or into `least` splits,
        need."""
        found, unknown = {}, []
        for one in ranges:
            size = (one.stop - one.start) * self._densities.get(one.where, float("inf"))
            if one.start < one.stop and size * SURE <= split_bytes:
                found[one.where] = even(one.start, one.stop, size)
            elif one.start < one.stop:
                unknown.append(one)
        if least is not None and least > len(found) + len(unknown):
            unknown, found = [one for one in ranges if one.start < one.stop], {}
        found |= self._survey(unknown, split_bytes, least or 1)
        for one in unknown:
            self._densities[one.where] = found[one.where].size / (one.stop - one.start)
        return found

    def _survey(self, ranges: list[Range], split_bytes: int, least: int) -> dict[TopicPartition, Profile]:
        sizes = self._sizes([one.where for one in ranges])
        target = split_bytes
        if least > len(ranges):
            target = min(split_bytes, max(sum(sizes.values()) // least, PIECE_MIN))
        found: dict[TopicPartition, Profile] = {}
        surveys: dict[TopicPartition, Survey] = {}
        for one in ranges:
            if one.where in sizes and sizes[one.where] <= target:
                found[one.where] = even(one.start, one.stop, float(sizes[one.where]))
            else:
                surveys[one.where] = Survey(one.start, one.stop, target)
        while asked := [(where, offset) for where, survey in surveys.items() for offset in survey.next]:
            seen: dict[TopicPartition, list[Sample]] = {}
            for where, sample, whole in self._sample(asked, sample_bytes(target)):
                seen.setdefault(where, []).append(sample)
                first, end = whole
                if surveys[where].covers(first, end):
                    surveys[where].total = sizes.get(where)
            for where, survey in surveys.items():
                if len(seen.get(where, ())) < len(survey.next):
                    survey.next = []
                elif survey.next:
                    survey.add(seen[where])
        return found | {where: survey.profile() for where, survey in surveys.items()}

    def _sizes(self, wheres: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The bytes of each partition at its leader, as far as brokers report them."""
        found = {}
        for connection, mine in self._by_leader(wheres):
            topics: dict[str, list[int]] = {}
            for topic, index in mine:
                topics.setdefault(topic, []).append(index)
            request = DescribeLogDirsRequest(
                topics=[DescribableLogDirTopic(topic=topic, partitions=some) for topic, some in topics.items()]
            )
            try:
                answer = connection.ask(request, DescribeLogDirsResponse)
            except Failed:
                continue
            for folder in answer.results:
                for one in folder.topics:
                    for partition in one.partitions:
                        if not partition.is_future_key:
                            found[TopicPartition(one.name, partition.partition_index)] = partition.partition_size
        return found

    def _sample(self, asked: list[Place], size: int) -> Iterator[tuple[TopicPartition, Sample, tuple[int, int]]]:
        """A sample at each of these offsets, with the log's start and end; nothing where that fails."""
        places: dict[TopicPartition, list[int]] = {}
        for where, offset in asked:
            places.setdefault(where, []).append(offset)
        for _, mine in self._by_leader(places):
            queue = [(where, offset) for where in mine for offset in places[where]]
            sent: deque[Place] = deque()
            try:
                connection = self._cluster.lease(mine[0])
            except Failed:
                continue
            try:
                while queue or sent:
                    while queue and len(sent) < TOGETHER:
                        sent.append(queue.pop())
                        self._send(connection, *sent[-1], size)
                    where, offset = sent.popleft()
                    answer = connection.receive(FetchResponse)
                    for one in (partition for topic in answer.responses for partition in topic.partitions):
                        if (sample := understood(one, offset)) is not None:
                            yield where, sample, (one.log_start_offset, one.high_watermark)
            except Failed:
                continue
            finally:
                self._cluster.release(connection)

    def _send(self, connection: Connection, where: TopicPartition, offset: int, size: int) -> None:
        identity = self._cluster.topic(where.topic).id
        partition = FetchPartition(partition=where.partition, fetch_offset=offset, partition_max_bytes=size)
        topic = FetchTopic(
            topic=where.topic, topic_id=identity.bytes if identity else ZERO_UUID, partitions=[partition]
        )
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=size, isolation_level=0, topics=[topic])
        connection.send(request, newest=None if identity else IDS_SINCE - 1)

    def _by_leader(self, wheres: Iterable[TopicPartition]) -> Iterator[tuple[Connection, list[TopicPartition]]]:
        found: dict[Connection, list[TopicPartition]] = {}
        for where in wheres:
            try:
                found.setdefault(self._cluster.leader(where), []).append(where)
            except Failed:
                continue
        yield from found.items()


def sample_bytes(split_bytes: int) -> int:
    """Enough for several batches, where they are small: a single one may not be typical."""
    return min(max(split_bytes // 64, 1), SAMPLE_BYTES_MAX)


def understood(answer: PartitionData, offset: int) -> Sample | None:
    """The sample in a Fetch response; None if it has no whole batch."""
    data = answer.records
    if answer.error_code or not isinstance(data, memoryview) or len(data) < OVERHEAD + BATCH_LENGTH_MIN:
        return None
    position, base, after = 0, None, offset
    while position + OVERHEAD + BATCH_LENGTH_MIN <= len(data):
        first, length, magic = HEAD.unpack_from(data, position)
        if length < (BATCH_LENGTH_MIN if magic >= MAGIC else LENGTH_MIN) or position + OVERHEAD + length > len(data):
            break
        delta = LAST_DELTA.unpack_from(data, position + LAST_DELTA_POSITION)[0] if magic >= MAGIC else 0
        base, after = first if base is None else base, first + delta + 1
        position += OVERHEAD + length
    return Sample(base, after, position, offset) if base is not None and after > max(base, offset) else None
