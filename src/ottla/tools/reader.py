"""Read a topic from a given position, in order of arrival, without joining a group or committing.

Reading ends at the offsets where the partitions ended at the start, so it ends even while others produce.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ottla.tools.moment import End, Last, Moment, Offset, Time
from ottla.tools.output import warn
from ottla.tools.session import TIMEOUT_S, Failed, client, explain

BATCH = 500  # records per call to the client, and per flush of stdout
WAIT_S = 0.5


class Reader:
    """Reads partitions of one topic. `pending` holds those that have not reached their end."""

    def __init__(self, consumer: Consumer, topic: str, partitions: Sequence[int], start: Moment) -> None:
        self._consumer = consumer
        bounds = {index: watermarks(consumer, topic, index) for index in partitions}
        starts = positions(consumer, topic, bounds, start)
        if isinstance(start, Offset):
            for index, (_, high) in bounds.items():
                if start.value > high:
                    warn(f"--from {start.value} is beyond the end of partition {index}, which is {high}")
        self._ends = {index: high for index, (_, high) in bounds.items()}
        self.pending = {index for index in partitions if starts[index] < self._ends[index]}
        consumer.assign([TopicPartition(topic, index, starts[index]) for index in partitions])

    def batch(self, size_max: int, *, follow: bool) -> list[Message]:
        """Records that have arrived, possibly none. Without `follow`, none beyond the ends."""
        taken: list[Message] = []
        for index, offset, message in take_batch(self._consumer, size_max):
            if message is None or offset >= self._ends[index] - 1:
                self.pending.discard(index)
            if message is not None and (follow or offset < self._ends[index]):
                taken.append(message)
        return taken

    def note_printed(self, batch: Sequence[Message]) -> None:
        """Nothing to do: no offsets are committed."""


class RecordSource(Protocol):
    """Where records come from: a `Reader`, or a group `Member`."""

    @property
    def pending(self) -> object: ...  # true while more records are expected

    def batch(self, size_max: int, *, follow: bool) -> list[Message]: ...

    def note_printed(self, batch: Sequence[Message]) -> None: ...


def take_batch(consumer: Consumer, size_max: int) -> Iterator[tuple[int, int, Message | None]]:
    """Partition, offset and record; the record is None at the end of a partition.

    Polls for one record, then takes those that are already there: `consume(n)` would wait for all n.
    """
    first = consumer.poll(WAIT_S)
    for message in [] if first is None else [first, *consumer.consume(min(size_max, BATCH) - 1, timeout=0)]:
        index, offset, error = message.partition(), message.offset(), message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        assert index is not None
        assert offset is not None
        yield index, offset, message if error is None else None


def new_consumer(bootstrap: str, properties: Sequence[str], isolation: str = "read_committed", **more: Any) -> Consumer:
    options = {
        "group.id": "ottla-consume",  # the library requires one; it is neither joined nor committed to
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "isolation.level": isolation,
        **more,
    }
    return Consumer(client(bootstrap, properties, **options))


def choose_partitions(consumer: Consumer, topic: str, wanted: Sequence[int]) -> list[int]:
    found = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    if found.error:
        raise Failed(f"topic {topic}: {explain(KafkaException(found.error))}")
    if missing := set(wanted) - found.partitions.keys():
        raise Failed(f"{topic} has no partition {', '.join(map(str, sorted(missing)))}")
    return sorted(wanted or found.partitions)


def watermarks(consumer: Consumer, topic: str, index: int) -> tuple[int, int]:
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=TIMEOUT_S)
    return low, high


def positions(consumer: Consumer, topic: str, bounds: dict[int, tuple[int, int]], start: Moment) -> dict[int, int]:
    """The first offset to read in each partition, clamped to its start and end."""
    match start:
        case Offset(value):
            return {index: min(max(value, low), high) for index, (low, high) in bounds.items()}
        case Last(records):
            return {index: max(low, high - records) for index, (low, high) in bounds.items()}
        case End():
            return {index: high for index, (_, high) in bounds.items()}
        case Time(milliseconds):
            asked = [TopicPartition(topic, index, milliseconds) for index in bounds]
            found = {part.partition: part.offset for part in consumer.offsets_for_times(asked, timeout=TIMEOUT_S)}
            # A negative offset means no record is that recent: start at the end.
            return {index: found[index] if found[index] >= 0 else high for index, (_, high) in bounds.items()}
