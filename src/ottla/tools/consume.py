"""`ottla consume`: print records of a topic from a chosen position, up to the end or forever.

Without a group, `--from` sets the start and nothing is committed (`reader.py`). With `--group`, the group's committed
offsets set the start, and printed records are committed (`member.py`).
"""

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, cast

import typer
from confluent_kafka import Message

from ottla.tools.member import GroupMember
from ottla.tools.moment import BEGINNING, End, Moment, moment
from ottla.tools.output import until_reader_leaves
from ottla.tools.reader import Reader, RecordSource, choose_partitions, new_consumer
from ottla.tools.record import Headers, Record, to_json
from ottla.tools.session import BOOTSTRAP, TIMEOUT_S, Bootstrap, Failed, Properties

Pairs = list[tuple[str, str | bytes | None]]


def consume(
    topic: str,
    start: Annotated[
        str,
        typer.Option(
            "--from", help="Start at: beginning, end, an offset, -N (the last N of each partition), -5m, or an ISO time"
        ),
    ] = "beginning",
    partition: Annotated[
        list[int], typer.Option("--partition", "-p", help="Only this partition; repeatable (default: all)")
    ] = [],  # noqa: B006
    max_records: Annotated[
        int, typer.Option("--max", "-n", min=0, help="Stop after this many records; 0: no limit")
    ] = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="At the end, wait for new records")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per record")] = False,
    keys: Annotated[bool, typer.Option("--keys", help="Print the key before the value")] = False,
    headers: Annotated[bool, typer.Option("--headers", help="Print the headers before the value")] = False,
    template: Annotated[
        str | None,
        typer.Option(
            "--format", help="Template: {topic} {partition} {offset} {timestamp} {key} {value} {headers} \\t \\n"
        ),
    ] = None,
    isolation: Annotated[
        str, typer.Option("--isolation", help="read_committed or read_uncommitted")
    ] = "read_committed",
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", help="Join this group, continue at its offsets, commit what was printed"),
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Print records of a topic."""
    try:
        begin = moment(start, int(time.time() * 1000))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    form = layout(template, keys=keys, headers=headers)
    more = {} if group is None else membership(group, begin, partition)
    consumer = new_consumer(bootstrap, properties, isolation, **more)
    try:
        indexes = choose_partitions(consumer, topic, partition)
        source: RecordSource = (
            Reader(consumer, topic, indexes, begin) if group is None else GroupMember(consumer, topic)
        )
        with until_reader_leaves(), until_told_to_end():
            copy(source, form if not json else None, max_records or sys.maxsize, follow=follow)
    finally:
        consumer.close()


def membership(group: str, begin: Moment, partitions: Sequence[int]) -> dict[str, Any]:
    """Client options of a group member. `begin` applies only to partitions without a committed offset."""
    if not group:  # librdkafka ends the process
        raise typer.BadParameter("--group: the name of a group cannot be empty")
    if partitions:
        raise typer.BadParameter("--partition cannot be combined with --group: the group assigns the partitions")
    if begin not in (BEGINNING, End()):
        raise typer.BadParameter("with --group, --from must be beginning or end; `ottla groups reset` moves a group")
    return {"group.id": group, "auto.offset.reset": "earliest" if begin == BEGINNING else "latest"}


@contextmanager
def until_told_to_end() -> Iterator[None]:
    """Close the consumer after a signal, too: a member that does not leave its group holds its partitions for the rest
    of its session, 45 seconds.
    """

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    # SIGHUP: the terminal is closed. Who started us may ignore it (`nohup`).
    heeded = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]
    before = {number: signal.signal(number, leave) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def copy(source: RecordSource, form: str | None, left: int, *, follow: bool) -> None:
    heard = time.monotonic()
    while left and (follow or source.pending):
        batch = source.batch(left, follow=follow)
        for message in batch:
            sys.stdout.buffer.write(line(message, form))
        sys.stdout.buffer.flush()
        source.note_printed(batch)
        left -= len(batch)
        if batch:
            heard = time.monotonic()
        elif not follow and source.pending and time.monotonic() - heard > TIMEOUT_S:
            raise Failed(f"no response from the cluster for {TIMEOUT_S:.0f} seconds")


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
    """One record as printed: by the template `form`, or as JSON if it is None. Record bytes pass unchanged."""
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
