"""Topics with every kind of content that a reader may meet. A table read from them must equal what was written here.

plain(broker, topic)             all codecs, null and empty keys and values, headers, times out of order
compacted(broker, topic)         holes where older values of keys were
transactional(broker, topic)     committed, aborted, one between the other
open_transaction(broker, topic)  and one that nobody ends
legacy(broker, topic)            messages of magic 0 and 1, put into the folder of a stopped broker
timeless(broker, topic)          records without a timestamp
large(broker, topic, records)    many, by the native encoder
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from compat.clients import CODECS, Record
from compat.confluent import Confluent
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from waiting import wait_until

from ottla.client.cluster import Cluster
from ottla.client.cluster import TopicPartition as Where
from ottla.client.producing import Sender
from ottla.records import legacy as messages
from ottla.records import native
from ottla.records.batch import Record as Stored
from ottla.records.batch import build
from ottla.records.compress import Codec

if TYPE_CHECKING:
    from judge import Kafka
    from process import Ottla

    Broker = Ottla | Kafka

NOW_MS: Final = 1_700_000_000_000
WAIT_S: Final = 60.0
PARTITIONS: Final = 3
KEEP: Final = {"retention.ms": "-1"}  # the records are older than any broker would keep
# Whole bytes and none, null and empty, names that repeat, values that are missing, text that is not ASCII.
KEYS: Final = (b"key", None, b"", b"\x00\xff", "Schlüssel".encode())
VALUES: Final = (b"value", None, b"", b"\x00" * 10, b"long " * 2000)
HEADERS: Final = (
    (),
    (("one", b"1"),),
    (("twice", b"first"), ("twice", b"second")),
    (("null", None), ("empty", b"")),
    (("", b"no name"), ("Größe", "größer".encode())),
)


def create(broker: Broker, topic: str, partitions: int = PARTITIONS, **configs: str) -> None:
    """A topic that is there when this returns, with options in Python's spelling: cleanup_policy="compact"."""
    named = {**KEEP, **{name.replace("_", "."): value for name, value in configs.items()}}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    futures = admin.create_topics([NewTopic(topic, partitions, 1, config=named)])
    futures[topic].result(WAIT_S)
    places = {TopicPartition(topic, index): OffsetSpec.latest() for index in range(partitions)}

    def led() -> bool:
        """Apache Kafka reports a leader a moment before the leader itself knows."""
        futures = admin.list_offsets(places, request_timeout=WAIT_S).values()
        return all(future.exception(WAIT_S) is None for future in futures)

    wait_until(led, f"leaders of {topic}")


def mixed(count: int) -> list[Record]:
    """Records with every combination of keys, values and headers; times go back and forth."""
    return [
        Record(
            NOW_MS + number * 1000 - number % 7 * 5000,
            KEYS[number % 5],
            VALUES[number // 5 % 5],
            HEADERS[number // 25 % 5],
        )
        for number in range(count)
    ]


def plain(broker: Broker, topic: str, **configs: str) -> int:
    """The same 125 records by every codec in every partition."""
    create(broker, topic, **configs)
    client = Confluent(broker.bootstrap)
    records = mixed(125)
    for codec in CODECS:
        for partition in range(PARTITIONS):
            client.produce(topic, records, partition=partition, codec=codec)
    client.close()
    return len(records) * len(CODECS) * PARTITIONS


def compacted(broker: Broker, topic: str) -> None:
    """200 records of ten keys and a few unique ones, compacted until there are gaps."""
    create(broker, topic, 1, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", segment_ms="100")
    client = Confluent(broker.bootstrap)
    for number in range(20):
        moment = int(time.time() * 1000)
        records = [Record(moment, b"key %d" % n, None if n % 9 == 4 else b"%d" % number) for n in range(9)]
        records.insert(number % 9, Record(moment, b"once %d" % number, b"kept", HEADERS[number % 5]))
        client.produce(topic, records, codec=CODECS[number % len(CODECS)])

    def cleaned() -> bool:
        """A segment is compacted after a later one is written to, so every check adds a record."""
        client.produce(topic, [Record(None, b"last", b"one")])
        return len(offsets(broker, topic)) < 100

    wait_until(cleaned, f"{topic} to be compacted")
    client.close()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    change = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


def transactional(broker: Broker, topic: str) -> tuple[int, int]:
    """(all records, committed records below the last stable offset); control records are neither."""
    create(broker, topic, 2)
    client = Confluent(broker.bootstrap)
    total = committed = 0
    makers = [transactor(broker, f"{topic}-{number}") for number in range(2)]
    for number in range(10):
        for maker in makers:
            maker.begin_transaction()
        for index in range(5):
            for which, maker in enumerate(makers):
                maker.produce(topic, b"%d %d" % (number, index), b"%d" % which, partition=index % 2)
                maker.flush(WAIT_S)  # a batch each, so that those of the two lie between one another
            client.produce(topic, [Record(NOW_MS, None, b"no transaction")], partition=index % 2)
        for which, maker in enumerate(makers):
            if (number + which) % 3:
                maker.commit_transaction(WAIT_S)
                committed += 5
            else:
                maker.abort_transaction(WAIT_S)
        total += 15
        committed += 5
    client.close()
    return total, committed


def open_transaction(broker: Broker, topic: str) -> Producer:
    """A transaction with ten records in partition 0 that stays open, and ten records after it that must wait."""
    maker = transactor(broker, f"{topic}-open")
    maker.begin_transaction()
    for number in range(10):
        maker.produce(topic, b"open %d" % number, partition=0)
    assert maker.flush(WAIT_S) == 0
    client = Confluent(broker.bootstrap)
    client.produce(topic, [Record(NOW_MS, None, b"behind it")] * 10, partition=0)
    client.close()
    return maker


def transactor(broker: Broker, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name, "log_level": 2,
                         "linger.ms": 0, "transaction.timeout.ms": 600_000})  # fmt: skip
    producer.init_transactions(WAIT_S)
    return producer


def legacy(broker: Broker, topic: str) -> int:
    """Stop the broker, put a segment of old messages where the topic's empty one is, and start it again."""
    create(broker, topic, 2)
    broker.stop()
    count = 0
    for magic in (0, 1):
        folder = broker.log_dir / f"{topic}-{magic}"
        stored = [
            Stored(offset, NOW_MS + offset if magic else -1, KEYS[offset % 5], VALUES[offset // 5 % 5])
            for offset in range(100)
        ]
        parts = [messages.build(stored[:25], magic=magic)]
        for index, codec in enumerate((Codec.GZIP, Codec.SNAPPY, Codec.LZ4), 1):
            parts.append(messages.build(stored[index * 25 : index * 25 + 25], magic=magic, codec=codec))
        for file in folder.iterdir():
            if file.suffix in (".index", ".timeindex", ".snapshot"):
                file.unlink()
        (folder / f"{0:020}.log").write_bytes(b"".join(parts))
        count += len(stored)
    # Without the mark of a clean end the broker looks into the segment before it serves it.
    (broker.log_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
    broker.start()
    return count


def timeless(broker: Broker, topic: str) -> int:
    """Two batches of records of which some have no time, as some clients write them."""
    create(broker, topic, 1)
    with Cluster(broker.bootstrap) as cluster:
        sender = Sender(cluster)
        for times in ((-1, 1, -1), (-1, 7, -1)):
            records = [Stored(index, time, b"key", b"%d" % time) for index, time in enumerate(times)]
            sender.send(Where(topic, 0), [build(records)])
        sender.flush()
        sender.close()
    return 6


def large(broker: Broker, topic: str, records: int, partitions: int = 4, chunk: int = 50_000) -> int:
    """Records of about 100 B with keys and some headers, each chunk by the next codec; no two are the same."""
    create(broker, topic, partitions)
    with Cluster(broker.bootstrap) as cluster:
        sender = Sender(cluster)
        for index, start in enumerate(range(0, records, chunk)):
            columns = made(np.arange(start, min(start + chunk, records)))
            batches = native.encode_columns(
                *columns,
                None,
                partition_count=partitions,
                codec=list(Codec)[index % len(Codec)],
                level=None,
                batch_bytes=64 * 1024,
                now_ms=NOW_MS + index,
            )
            for partition, pieces in batches.items():
                sender.send(Where(topic, partition), pieces)
        sender.flush()
        sender.close()
    return records


def made(numbers: np.ndarray) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
    """Keys (some null), values (some null, some empty), headers (of every fifth) and times of these records."""
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 20, "0").cast(pa.binary())
    keys = pc.utf8_lpad(pa.array(numbers * 7919).cast(pa.string()), 12, "0").cast(pa.binary())
    values = pc.binary_repeat(digits, pa.array(numbers % 9))
    wearing = numbers % 5 == 0
    starts = pa.array(np.concatenate([[0], np.cumsum(wearing)]).astype(np.int32))
    count = int(wearing.sum())
    pairs = pa.StructArray.from_arrays([pa.repeat("n", count), digits.filter(pa.array(wearing))], ["key", "value"])
    headers = pa.ListArray.from_arrays(starts, pairs, mask=pa.array(~wearing))
    nothing = pa.scalar(None, pa.binary())
    return (
        pc.if_else(pa.array(numbers % 10 == 3), nothing, keys),
        pc.if_else(pa.array(numbers % 50 == 7), nothing, values),
        headers,
        pa.array(NOW_MS + numbers // 3),
    )


def offsets(broker: Broker, topic: str, partition: int = 0) -> list[int]:
    """The offsets in a partition, as another client library reads them."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False,
                         "enable.partition.eof": True, "fetch.wait.max.ms": 50, "log_level": 2})  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[int] = []
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for message in consumer.consume(500, 0.1):
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                consumer.close()
                return found
            found.append(message.offset())
    raise AssertionError(f"no end of {topic} in {WAIT_S} s")
