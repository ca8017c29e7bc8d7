"""`ottla consume`: records of a topic on standard output, from a chosen moment, up to the end or for ever.

Without a group: the command says where to begin and nothing is committed. The end is where the partitions ended when
the command began, so that it returns even while others produce; `--follow` goes on.
"""

import os
import sys
import time
from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ottla.tools.moment import End, Last, Moment, Offset, Time, moment
from ottla.tools.record import Headers, Record, to_json
from ottla.tools.session import BOOTSTRAP, TIMEOUT_S, Bootstrap, Failed, Properties, client

BATCH = 500  # records taken from the client at once: one call, one flush of stdout
WAIT_S = 0.5

Pairs = list[tuple[str, str | bytes | None]]


class Reader:
    """Partitions of one topic, read from a moment on. `pending` are those that have not reached their end."""

    def __init__(self, consumer: Consumer, topic: str, partitions: Sequence[int], start: Moment) -> None:
        self._consumer = consumer
        bounds = {index: watermarks(consumer, topic, index) for index in partitions}
        starts = positions(consumer, topic, bounds, start)
        self._ends = {index: high for index, (_, high) in bounds.items()}
        self.pending = {index for index in partitions if starts[index] < self._ends[index]}
        consumer.assign([TopicPartition(topic, index, starts[index]) for index in partitions])

    def batch(self, size_max: int, *, follow: bool) -> list[Message]:
        """What has come in, possibly nothing. Unless following, nothing beyond the ends."""
        taken: list[Message] = []
        for message in self._arrived(min(size_max, BATCH)):
            index, offset = message.partition(), message.offset()
            assert index is not None
            if error := message.error():
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                self.pending.discard(index)
                continue
            assert offset is not None
            if offset >= self._ends[index] - 1:
                self.pending.discard(index)
            if follow or offset < self._ends[index]:
                taken.append(message)
        return taken

    def _arrived(self, size_max: int) -> list[Message]:
        """Wait for one, then take what came with it: asked for many, the library waits until it has as many."""
        first = self._consumer.poll(WAIT_S)
        return [] if first is None else [first, *self._consumer.consume(size_max - 1, timeout=0)]


def consume(
    topic: str,
    start: Annotated[
        str, typer.Option("--from", help="beginning, end, an offset, -N (the last N), -5m, an ISO time")
    ] = "beginning",
    partition: Annotated[list[int], typer.Option("--partition", "-p", help="Default: all; repeatable")] = [],  # noqa: B006
    max_records: Annotated[int, typer.Option("--max", "-n", min=0, help="Stop after so many; 0: no limit")] = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more at the end")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a record")] = False,
    keys: Annotated[bool, typer.Option("--keys", help="Print the key before the value")] = False,
    headers: Annotated[bool, typer.Option("--headers", help="Print the headers before the value")] = False,
    template: Annotated[
        str | None,
        typer.Option("--format", help="{topic} {partition} {offset} {timestamp} {key} {value} {headers}, \\t and \\n"),
    ] = None,
    isolation: Annotated[
        str, typer.Option("--isolation", help="read_committed or read_uncommitted")
    ] = "read_committed",
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Print records of a topic."""
    try:
        begin = moment(start, int(time.time() * 1000))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    form = layout(template, keys=keys, headers=headers)
    consumer = new_consumer(bootstrap, properties, isolation)
    try:
        reader = Reader(consumer, topic, chosen(consumer, topic, partition), begin)
        copy(reader, form if not json else None, max_records or sys.maxsize, follow=follow)
    except BrokenPipeError:
        # The reader has seen enough, as in `ottla consume ... | head`. Python flushes stdout once more at exit: let it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        consumer.close()


def copy(reader: Reader, form: str | None, left: int, *, follow: bool) -> None:
    heard = time.monotonic()
    while left and (follow or reader.pending):
        batch = reader.batch(left, follow=follow)
        for message in batch:
            sys.stdout.buffer.write(line(message, form))
        sys.stdout.buffer.flush()
        left -= len(batch)
        if batch:
            heard = time.monotonic()
        elif not follow and reader.pending and time.monotonic() - heard > TIMEOUT_S:
            raise Failed(f"nothing heard from the cluster for {TIMEOUT_S:.0f} seconds")


def new_consumer(bootstrap: str, properties: Sequence[str], isolation: str = "read_committed", **more: Any) -> Consumer:
    options = {
        "group.id": "ottla-consume",  # the library wants one; nothing joins or commits
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "isolation.level": isolation,
    }
    return Consumer(client(bootstrap, properties, **options, **more))


def chosen(consumer: Consumer, topic: str, wanted: Sequence[int]) -> list[int]:
    found = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    if found.error:
        raise KafkaException(found.error)
    if missing := set(wanted) - found.partitions.keys():
        raise Failed(f"{topic} has no partition {', '.join(map(str, sorted(missing)))}")
    return sorted(wanted or found.partitions)


def watermarks(consumer: Consumer, topic: str, index: int) -> tuple[int, int]:
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=TIMEOUT_S)
    return low, high


def positions(consumer: Consumer, topic: str, bounds: dict[int, tuple[int, int]], start: Moment) -> dict[int, int]:
    """The first offset to read in each partition, always between its start and its end."""
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
            # A negative offset says that nothing is that young: begin at the end.
            return {index: found[index] if found[index] >= 0 else high for index, (_, high) in bounds.items()}


def layout(template: str | None, *, keys: bool, headers: bool) -> str:
    form = template
    if form is None:
        form = "{headers}\t" * headers + "{key}\t" * keys + "{value}\n"
    form = form.replace("\\n", "\n").replace("\\t", "\t")
    try:
        form.format(topic="", partition=0, offset=0, timestamp=0, key="", value="", headers="")
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise typer.BadParameter(f"--format {template}: no such field {error}") from None
    return form


def line(message: Message, form: str | None) -> bytes:
    """A record as it is printed: by the form, or as JSON when there is none. Bytes of the record pass unchanged."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    _, timestamp = message.timestamp()
    pairs: Headers = [(name, raw(content)) for name, content in cast("Pairs", message.headers() or [])]
    key, value = raw(message.key()), raw(message.value())
    if form is None:
        return to_json(topic, partition, offset, timestamp, Record(key, value, pairs)).encode() + b"\n"
    shown = form.format(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp=timestamp,
        key=text(key),
        value=text(value),
        headers=",".join(f"{name}={text(content)}" for name, content in pairs),
    )
    return shown.encode(errors="surrogateescape")


def raw(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def text(content: bytes | None) -> str:
    return "null" if content is None else content.decode(errors="surrogateescape")
