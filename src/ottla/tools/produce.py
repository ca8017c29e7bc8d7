"""`ottla produce`: send records to a topic, from arguments, a file or standard input (one per line)."""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ottla.tools.moment import milliseconds
from ottla.tools.output import document, warn
from ottla.tools.record import Record, from_json
from ottla.tools.session import BOOTSTRAP, Bootstrap, Failed, Properties, client, explain, pairs

SHOWN_MAX = 5  # delivery errors to print; thousands more would hide the first


class Deliveries:
    """Counts delivered and refused records, keeps their offsets per partition, and prints the first errors."""

    def __init__(self) -> None:
        self.count = 0
        self.refused = 0
        self.spans: dict[int, list[int]] = {}  # partition → first and last offset

    def note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused += 1
            if self.refused <= SHOWN_MAX:
                warn(f"record not accepted: {explain(KafkaException(error))}")
            return
        self.count += 1
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        if offset is not None and offset >= 0:  # unknown with acks=0
            span = self.spans.setdefault(partition, [offset, offset])
            span[:] = min(span[0], offset), max(span[1], offset)


def produce(
    topic: str,
    values: Annotated[
        list[str] | None, typer.Argument(help="Record values (default: lines of --file or stdin)")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of every record")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Split each record into key and value at this text")
    ] = None,
    header: Annotated[
        list[str], typer.Option("--header", "-H", metavar="NAME=VALUE", help="Header of every record; repeatable")
    ] = [],  # noqa: B006
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="Send to this partition (default: by key, else spread)")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option("--timestamp", help="Record timestamp: milliseconds, an ISO time, or -5m")
    ] = None,
    null_value: Annotated[
        bool, typer.Option("--null-value", help="Send one record with a null value (a tombstone)")
    ] = False,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the records from this file")] = None,
    json: Annotated[bool, typer.Option("--json", help="Read records as JSON, print the report as JSON")] = False,
    acks: Annotated[str, typer.Option("--acks", help="Required acknowledgements: 0, 1 or all")] = "all",
    compression: Annotated[str, typer.Option("--compression", "-z", help="none, gzip, snappy, lz4 or zstd")] = "none",
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait for a record's delivery")] = 30.0,
    transactional_id: Annotated[
        str | None, typer.Option("--transactional-id", help="Send all records in one transaction: all or nothing")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors")] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Send records to a topic."""
    shared = Record(
        key=None if key is None else key.encode(),
        value=None,
        headers=[(name, value.encode()) for name, value in pairs(header).items()],
        partition=partition,
        timestamp=when(timestamp),
    )
    options = {"acks": acks, "compression.type": compression, "message.timeout.ms": int(timeout * 1000)}
    if transactional_id is not None:
        # The transaction must not time out before the delivery of its last record does.
        options |= {"transactional.id": transactional_id, "transaction.timeout.ms": max(60_000, int(timeout * 1000))}
    producer = Producer(client(bootstrap, properties, **options))
    deliveries = Deliveries()
    broken: Failed | KafkaException | None = None
    with source(file) as lines, nullcontext() if transactional_id is None else transaction(producer, timeout):
        if null_value:
            records: Iterable[Record] = [shared]
        else:
            given = (value.encode() for value in values) if values else (line.removesuffix(b"\n") for line in lines)
            records = parse_lines(given, shared, key_separator, json=json)
        try:
            for record in records:
                send(producer, topic, record, deliveries)
        except (Failed, KafkaException) as error:  # the records before this one were sent
            if transactional_id is not None:
                raise
            broken = error
        finally:
            lost = producer.flush(timeout + 1) + deliveries.refused
        refusal = Failed(f"{lost} of {lost + deliveries.count} records not accepted")
        if lost and transactional_id is not None:
            raise refusal
    report(topic, deliveries, json=json, quiet=quiet)
    if broken is not None:
        raise broken
    if lost:
        raise refusal


@contextmanager
def transaction(producer: Producer, timeout: float) -> Iterator[None]:
    """Commit at the end; abort on an error."""
    producer.init_transactions(timeout)
    producer.begin_transaction()
    try:
        yield
        producer.commit_transaction(timeout)
    except BaseException:
        with suppress(KafkaException):  # fenced, or cluster unreachable: it aborts when it times out
            producer.abort_transaction(timeout)
        raise


def when(text: str | None) -> int | None:
    try:
        return None if text is None else milliseconds(text, int(time.time() * 1000))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def source(file: Path | None) -> Any:
    try:
        return file.open("rb") if file else nullcontext(sys.stdin.buffer)
    except OSError as error:
        raise Failed(f"{file}: {error.strerror}") from None


def parse_lines(lines: Iterable[bytes], shared: Record, separator: str | None, *, json: bool) -> Iterator[Record]:
    for number, line in enumerate(lines, 1):
        if json:
            if not line.strip():
                continue
            try:
                yield merge(from_json(line.decode()), shared)
            except ValueError as error:
                raise Failed(f"record {number}: {error}") from None
        elif separator is not None:
            key, found, value = line.partition(separator.encode())
            if not found:
                raise Failed(f"record {number}: no {separator!r} between key and value")
            yield shared._replace(key=key, value=value)
        else:
            yield shared._replace(value=line)


def merge(record: Record, shared: Record) -> Record:
    """Fields of the record override those of the command line; headers are combined."""
    return Record(
        shared.key if record.key is None else record.key,
        record.value,
        shared.headers + record.headers,
        shared.partition if record.partition is None else record.partition,
        shared.timestamp if record.timestamp is None else record.timestamp,
    )


def send(producer: Producer, topic: str, record: Record, deliveries: Deliveries) -> None:
    place: dict[str, Any] = {}
    if record.partition is not None:
        place["partition"] = record.partition
    if record.timestamp is not None:
        place["timestamp"] = record.timestamp
    headers: list[tuple[str, str | bytes | None]] | None = [*record.headers] or None
    while True:
        try:
            producer.produce(
                topic, value=record.value, key=record.key, headers=headers, on_delivery=deliveries.note, **place
            )
        except BufferError:  # the queue of the client is full: let it drain
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def report(topic: str, deliveries: Deliveries, *, json: bool, quiet: bool) -> None:
    if quiet:
        return
    if json:
        spans = [{"partition": p, "first": s[0], "last": s[1]} for p, s in sorted(deliveries.spans.items())]
        document({"topic": topic, "records": deliveries.count, "refused": deliveries.refused, "partitions": spans})
        return
    places = ", ".join(
        f"partition {partition} offset {first}" + (f" to {last}" if last > first else "")
        for partition, (first, last) in sorted(deliveries.spans.items())
    )
    records = "1 record" if deliveries.count == 1 else f"{deliveries.count} records"
    warn(f"{records} to {topic}" + (f": {places}" if places else ""))
