"""Apache Kafka as the judge: its dump tool accepts our folders, and each broker continues where the other stopped."""

from __future__ import annotations

import asyncio
import re
from random import Random
from typing import TYPE_CHECKING

import judge
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from log.making import (
    NOW_MS,
    TOPIC_ID,
    a_store,
    append,
    end_transaction,
    from_producer,
    in_transaction,
    produced,
    records,
)

from ottla.config import load, topic_config
from ottla.disk import RealDisk
from ottla.log.truncation import truncate
from ottla.records import batch
from ottla.records.compress import Codec

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.log.log import Log

OPTIONS = {"segment.bytes": "20000", "index.interval.bytes": "500"}
DUMP = "org.apache.kafka.tools.DumpLogSegments"
# The tool starts to count at -1 in every file, also in those of Kafka, whose first offset is another one.
HARMLESS = re.compile(r"Non-consecutive offsets in \S+\n(  -1 is followed by \d+\n)")


def varied(log: Log, seed: int = 1) -> None:
    """All codecs, sizes and kinds of producers, times that jump back and forth, several epochs."""
    random = Random(seed)
    for at in range(300):
        made = records(
            random.randrange(1, 6), timestamp=NOW_MS + at + random.randrange(-40, 40), size=random.randrange(300)
        )
        append(
            log,
            memoryview(batch.build(made, codec=random.choice(list(Codec)))),
            epoch=log.latest_epoch + at % 100 // 99,
        )
        append(log, from_producer(at, producer_id=1000 + seed), epoch=log.latest_epoch)
        if at % 20 == 0:
            append(log, in_transaction(at // 20 * 2, 2000 + seed), epoch=log.latest_epoch)
            end_transaction(log, commit=at % 40 == 0, producer_id=2000 + seed, epoch=log.latest_epoch)


def dumped(folder: Path, active: str = "") -> str:
    """The output of the tool for all files, after a check for errors.

    Files of the `active` segment are longer than their entries, as Kafka's own are: no sanity check passes those.
    """
    files = sorted(folder.glob("0*"))
    assert files
    listing = judge.tool(DUMP, "--deep-iteration", "--files", ",".join(map(str, files))).out
    indexes = ",".join(str(path) for path in files if path.suffix in (".index", ".timeindex"))
    listing += judge.tool(DUMP, "--verify-index-only", "--files", indexes).out
    closed = [path for path in indexes.split(",") if not active or not path.startswith(active)]
    sane = judge.tool(DUMP, "--index-sanity-check", "--files", ",".join(closed)).out
    assert sane.count("passed sanity check.") == len(closed) > 0
    complaints = HARMLESS.sub("", listing)
    for word in (
        "Mismatch",
        "mismatch",
        "Non-consecutive",
        "should",
        "Error",
        "corrupt",
        "Found timestamp",
        "isvalid: false",
    ):
        assert word not in complaints, complaints[:3000]
    return listing


def offsets_in(listing: str) -> list[int]:
    return [int(found) for found in re.findall(r"^\| offset: (\d+)", listing, re.MULTILINE)]


@pytest.mark.parametrize("story", ["clean stop", "crash", "torn tail", "truncation", "still open"])
def test_the_dump_tool_accepts_our_folder(tmp_path: Path, story: str) -> None:
    store = a_store(tmp_path, topic=OPTIONS)
    log = store.create("orders", 0, TOPIC_ID, topic_config(load({}), OPTIONS), 0)
    varied(log)
    end = log.end
    if story == "torn tail":
        path = log.active.stem + ".log"
        RealDisk().append(path, b"\0" * 100)
    if story in ("crash", "torn tail"):
        store = a_store(tmp_path, topic=OPTIONS)
    if story == "truncation":
        end = log.segments[1].base + 50
        truncate(log, end, now_ms=NOW_MS)
        end = log.end
        append(log, produced(3))
        end += 3
    if story != "still open":
        asyncio.run(store.close())
    listing = dumped(log.folder, log.active.stem if story == "still open" else "")
    assert offsets_in(listing) == list(range(end))
    assert listing.count("producerId: 1001") >= 1


def consumed(bootstrap: str) -> list[tuple[int | None, bytes | None]]:
    """Every record of orders-0, as a consumer reads it."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    found: list[tuple[int | None, bytes | None]] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None, f"no answer after {len(found)} records"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            found.append((message.offset(), message.value()))
    finally:
        consumer.close()


def held(log: Log) -> list[tuple[int | None, bytes | None]]:
    """The same, read from our files."""
    found: list[tuple[int | None, bytes | None]] = []
    offset = log.start
    while read := log.read(offset, 1 << 20, offset_max=log.end):
        data = read.read()
        for entry in batch.entries(data):
            if not batch.header(data, entry.position).control:
                found += [(record.offset, record.value) for record in batch.iterate(data, entry.position)]
            offset = entry.last_offset + 1
    return found


def produce(bootstrap: str, count: int, name: str) -> list[bytes]:
    values = [f"{name} {at}".encode() for at in range(count)]
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "batch.size": 500})
    for value in values:
        producer.produce("orders", value, partition=0)
    assert producer.flush(30) == 0
    return values


def test_kafka_and_ottla_take_turns_in_one_folder(tmp_path: Path) -> None:
    """Clean stops and crashes of both: each finds every record of the other, at its offset."""
    settings = {"log.segment.bytes": "20000", "log.index.interval.bytes": "500", "log.retention.ms": "-1"}
    kafka = judge.Kafka(tmp_path, version=judge.ZOOKEEPER, settings=settings)
    try:
        kafka.start()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
        produce(kafka.bootstrap, 100, "first")
        kafka.stop()

        store = a_store(kafka.log_dir, topic=OPTIONS)
        log = store.logs["orders", 0]
        assert [value for _, value in held(log)] == [f"first {at}".encode() for at in range(100)]
        varied(log, seed=1)
        expected = held(log)
        asyncio.run(store.close())

        kafka.start()
        assert consumed(kafka.bootstrap) == expected
        values = produce(kafka.bootstrap, 300, "second")
        expected = consumed(kafka.bootstrap)
        assert [value for _, value in expected[-300:]] == values
        kafka.stop()
        (kafka.log_dir / ".kafka_cleanshutdown").unlink()  # as if it had crashed: everything is to be recovered
        (kafka.log_dir / "recovery-point-offset-checkpoint").unlink()

        store = a_store(kafka.log_dir, topic=OPTIONS)
        log = store.logs["orders", 0]
        assert held(log) == expected
        varied(log, seed=2)
        expected = held(log)
        # No clean stop: Kafka has to recover what we left, torn tail included.
        RealDisk().append(log.active.stem + ".log", b"\0\0\0\0torn")

        kafka.start()
        assert consumed(kafka.bootstrap) == expected
    finally:
        kafka.close()
    assert "orders-0" in {path.name for path in kafka.log_dir.iterdir()}
