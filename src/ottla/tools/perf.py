"""`ottla perf`: measure produce and consume throughput, and end-to-end latency."""

import os
import sys
import time
from array import array
from collections.abc import Callable
from typing import Annotated

import typer
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ottla.tools.moment import BEGINNING, End
from ottla.tools.output import document, table
from ottla.tools.reader import Reader, choose_partitions, new_consumer
from ottla.tools.session import BOOTSTRAP, TIMEOUT_S, Bootstrap, Failed, Json, Properties, client

app = typer.Typer(no_args_is_help=True, help="Measure produce and consume throughput, and end-to-end latency.")

MEGABYTE = 1_000_000
STEP = 1000  # records between checks of the clock and the progress bar

Records = Annotated[int, typer.Option("--records", "-n", min=1, help="Number of records")]
Size = Annotated[int, typer.Option("--size", "-s", min=0, help="Bytes per value")]
Acks = Annotated[str, typer.Option("--acks", help="Required acknowledgements: 0, 1 or all")]


@app.command("produce")
def measure_produce(
    topic: str,
    records: Records = 100_000,
    size: Size = 1000,
    throughput: Annotated[int, typer.Option("--throughput", help="Maximum records per second; 0: no limit")] = 0,
    acks: Acks = "all",
    compression: Annotated[str, typer.Option("--compression", "-z", help="none, gzip, snappy, lz4 or zstd")] = "none",
    batch_size: Annotated[int, typer.Option("--batch-size", help="Maximum bytes per batch")] = 131_072,
    linger_ms: Annotated[float, typer.Option("--linger-ms", help="Maximum wait for a batch to fill")] = 5.0,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006 - Typer reads the default and hands out a new list
) -> None:
    """Send records as fast as the cluster accepts them. Latency is measured from send to acknowledgement."""
    options = {"acks": acks, "compression.type": compression, "batch.size": batch_size, "linger.ms": linger_ms}
    producer = Producer(client(bootstrap, properties, **options))
    latencies, errors = array("d"), list[KafkaError]()

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is None:
            latencies.append((message.latency() or 0.0) * 1000)
        else:
            errors.append(error)

    value = os.urandom(size)  # incompressible: the worst case for the network
    producer.list_topics(timeout=TIMEOUT_S)  # connect before the clock starts
    started = time.perf_counter()
    with bar() as progress:
        task = progress.add_task("produce", total=records)
        for number in range(records):
            hand_over(producer, topic, value, on_delivery)
            if number % STEP == 0:
                progress.update(task, completed=len(latencies))
                hold_back(producer, number, throughput, started)
        while left := producer.flush(0.5):
            progress.update(task, completed=records - left)
        progress.update(task, completed=records)
    elapsed = time.perf_counter() - started
    if errors:
        raise KafkaException(errors[0])
    report("produce", rates(records, records * size, elapsed) | percentiles(latencies), json=json)


def hand_over(
    producer: Producer, topic: str, value: bytes, on_delivery: Callable[[KafkaError | None, Message], None]
) -> None:
    while True:
        try:
            producer.produce(topic, value, on_delivery=on_delivery)
        except BufferError:
            producer.poll(0.01)
        else:
            producer.poll(0)
            return


def hold_back(producer: Producer, sent: int, throughput: int, started: float) -> None:
    while throughput and (early := started + sent / throughput - time.perf_counter()) > 0:
        producer.poll(min(early, 0.1))


@app.command("consume")
def measure_consume(
    topic: str,
    records: Annotated[int, typer.Option("--records", "-n", min=0, help="Number of records; 0: all")] = 0,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Read records from the beginning as fast as possible."""
    consumer = new_consumer(bootstrap, properties, "read_uncommitted")
    try:
        reader = Reader(consumer, topic, choose_partitions(consumer, topic, []), BEGINNING)
        count = size = 0
        started = time.perf_counter()
        with bar() as progress:
            task = progress.add_task("consume", total=records or None)
            while reader.pending and (not records or count < records):
                batch = reader.batch(records - count if records else sys.maxsize, follow=False)
                count += len(batch)
                size += sum(len(message.value() or b"") + len(message.key() or b"") for message in batch)
                progress.update(task, completed=count)
        elapsed = time.perf_counter() - started
    finally:
        consumer.close()
    report("consume", rates(count, size, elapsed), json=json)


@app.command("latency")
def measure_latency(
    topic: str,
    records: Records = 1000,
    size: Size = 100,
    acks: Acks = "all",
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Send one record at a time and wait until a consumer receives it."""
    producer = Producer(client(bootstrap, properties, acks=acks, **{"linger.ms": 0}))
    consumer = new_consumer(bootstrap, properties, "read_uncommitted")
    value, latencies = os.urandom(size), array("d")
    try:
        Reader(consumer, topic, choose_partitions(consumer, topic, []), End())
        pass_one_on(producer, consumer.poll, topic, value)  # not measured: opens the connections
        started = time.perf_counter()
        with bar() as progress:
            task = progress.add_task("latency", total=records)
            for _ in range(records):
                latencies.append(pass_one_on(producer, consumer.poll, topic, value))
                progress.advance(task)
        elapsed = time.perf_counter() - started
    finally:
        consumer.close()
    report("latency", rates(records, records * size, elapsed) | percentiles(latencies), json=json)


def pass_one_on(producer: Producer, poll: Callable[[float], Message | None], topic: str, value: bytes) -> float:
    """Milliseconds from `produce` until the consumer has the record."""
    sent = time.perf_counter()
    producer.produce(topic, value)
    while time.perf_counter() - sent < TIMEOUT_S:
        message = poll(TIMEOUT_S)
        if message is not None and message.error() is None:
            arrived = time.perf_counter()
            producer.poll(0)
            return (arrived - sent) * 1000
    raise Failed(f"a record did not arrive within {TIMEOUT_S:.0f} seconds")


def bar() -> Progress:
    """Shown on a terminal only, so that log files contain just the result."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(show_speed=True),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )


def rates(records: int, size: int, elapsed_s: float) -> dict[str, int | float]:
    elapsed = max(elapsed_s, 1e-9)
    return {
        "records": records,
        "seconds": round(elapsed, 3),
        "records_per_second": round(records / elapsed, 1),
        "megabytes_per_second": round(size / elapsed / MEGABYTE, 2),
    }


def percentiles(latencies_ms: "array[float]") -> dict[str, int | float]:
    ordered = sorted(latencies_ms)
    if not ordered:
        return {}
    chosen_ones = {f"p{rank}_ms": ordered[min(len(ordered) - 1, len(ordered) * rank // 100)] for rank in (50, 95, 99)}
    return {name: round(value, 3) for name, value in {**chosen_ones, "max_ms": ordered[-1]}.items()}


def report(what: str, numbers: dict[str, int | float], *, json: bool) -> None:
    if json:
        document({"measured": what, **numbers})
    else:
        table([name.replace("_", " ") for name in numbers], [list(numbers.values())], title=what)
