"""How Ottla scales: `python bench/sizes.py [--partitions N] [--batches MB]`. Takes a minute or two.

    create one more     broker CPU for one topic of one partition, when many topics exist
    clean start         CPU and time from exec to the first response, after a clean shutdown
    start after kill    the same over one log of small batches that has to be read completely
    open files          of the process for each partition: created, and after a record was written to each

Compare the CPU numbers: they are the broker's own (user and system, all threads), and other load changes them little.
"""

from __future__ import annotations

import argparse
import os
import struct
import sys
import time
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from bench.brokers import Ottla  # noqa: E402
from bench.wire import CREATE_TOPICS, Connection, batch, frame, produce_frame, produce_shape, string  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPICS_PER_REQUEST = 250
ONE_BY_ONE = 20
BATCH_VALUE = 100  # with headers about 170 bytes per batch


def main(arguments: list[str]) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--partitions", type=int, default=10_000, help="the largest number of topics (default: 10000)")
    options.add_argument("--batches", type=int, default=64, metavar="MB", help="of small batches to recover")
    chosen = options.parse_args(arguments)
    print("| what | measured |\n| --- | --- |")
    for what, measured in chain(many_topics(chosen.partitions), small_batches(chosen.batches)):
        print(f"| {what} | {measured} |", flush=True)


def many_topics(partitions: int) -> Iterator[tuple[str, str]]:
    sizes = [size for size in (100, 1000, 10_000) if size <= partitions]
    with Ottla() as broker:
        broker.start()
        files = open_files(broker)
        made = 0
        for size in sizes:
            with broker.connect() as connection:
                made = create(connection, made, size)
                before = broker.cpu_s()
                for number in range(ONE_BY_ONE):
                    connection.create_topic(f"one.more-{size}-{number}")
                cost_ms = (broker.cpu_s() - before) / ONE_BY_ONE * 1000
                for number in range(ONE_BY_ONE):
                    connection.delete_topic(f"one.more-{size}-{number}")
            yield f"create one more topic, {size:,} existing", f"{cost_ms:.2f} ms CPU"
        time.sleep(3)  # the files of deleted topics are removed after a second, in the background
        yield f"open files per partition, {made:,} created", f"{(open_files(broker) - files) / made:.2f}"
        with broker.connect() as connection:
            record = batch(BATCH_VALUE, 1).data
            used = min(made, 1000)
            for number in range(used):
                assert produced(connection, f"topic-{number}", record) == 0
        yield f"open files, {used:,} of them written to", f"{open_files(broker) - files:,}"
        broker.stop()
        yield f"clean start, {made:,} partitions", started(broker)


def small_batches(megabytes: int) -> Iterator[tuple[str, str]]:
    with Ottla() as broker:
        broker.start()
        with broker.connect() as connection:
            connection.create_topic("small")
        broker.stop()
        folder = broker.folder / "data"
        size = fill(folder / "small-0" / f"{0:020d}.log", megabytes)
        for name in (".kafka_cleanshutdown", f"small-0/{0:020d}.index", f"small-0/{0:020d}.timeindex"):
            (folder / name).unlink(missing_ok=True)
        yield f"start after kill, {size / 1e6:.0f} MB of batches of 170 bytes", started(broker, size)


def create(connection: Connection, made: int, wanted: int) -> int:
    while made < wanted:
        names = [f"topic-{number}" for number in range(made, min(wanted, made + TOPICS_PER_REQUEST))]
        entries = b"".join(string(name) + struct.pack(">ihii", 1, 1, 0, 0) for name in names)
        body = struct.pack(">i", len(names)) + entries + struct.pack(">ib", 60_000, 0)
        connection.call(frame(CREATE_TOPICS, 4, body, flexible=False))
        made += len(names)
    assert connection.led(f"topic-{wanted - 1}") == 1
    return made


def produced(connection: Connection, topic: str, record: bytes) -> int:
    answer = connection.call(produce_frame(topic, {0: record}, 1))
    return int(struct.unpack_from(">h", answer, produce_shape(topic).error_at - 8)[0])


def fill(path: Path, megabytes: int) -> int:
    """Write a log that repeats one batch; only the offset differs, which the checksum does not cover."""
    rest = memoryview(batch(BATCH_VALUE, 1).data)[8:]
    count = megabytes * 10**6 // (len(rest) + 8)
    with path.open("wb") as file:
        for offset in range(count):
            file.write(struct.pack(">q", offset))
            file.write(rest)
    return path.stat().st_size


def started(broker: Ottla, size: int = 0) -> str:
    begin = time.monotonic()
    broker.spawn()
    broker.first_produce(seconds=600)
    cpu_s, wall_s = broker.cpu_s(), time.monotonic() - begin
    speed = f", {size / 1e6 / cpu_s:.0f} MB per second of CPU" if size else ""
    return f"{cpu_s:.2f} s CPU, {wall_s:.1f} s{speed}"


def open_files(broker: Ottla) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


if __name__ == "__main__":
    main(sys.argv[1:])
