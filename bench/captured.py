"""Replay of captured batches: from the Java client, librdkafka and franz-go in every codec.

Clients write the same codec differently (lz4 in blocks of 64 KiB or 4 MiB, snappy framed or not, zstd with or without
its content size), and a broker has to open all of them. Each client sends lines of text to the first broker of the run;
the log then has the batches as sent, except for the base offset and the leader epoch. Both brokers then get those
bytes, four different batches over four connections.

The size in a row's name is the client's setting: the Java client counts compressed bytes, the others uncompressed ones.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from bench import pump
from bench.rows import Sample, Setting, WritingRow, batched, per_gb
from bench.wire import BenchError, fetch_frame, fetched, produce_frame, produce_shape, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.brokers import Broker

KB = 1024
CLIENTS = ("java", "librdkafka", "franz-go")
CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
CONNECTIONS = 4
WINDOW = 5
CAPTURED_MAX = 16 << 20
SEND_S = 30
LINES = 4096
SHAPES = ((16, 100), (128, 1000))  # kilobytes of a batch, bytes of a value


class Captured(NamedTuple):
    """One batch as captured, with base offset 0."""

    data: bytes
    records: int
    codec: int


@dataclass
class CapturedRow(WritingRow):
    client: str = field(kw_only=True)
    codec: str = field(kw_only=True)
    batch: int = field(kw_only=True)
    size: int = field(kw_only=True)
    batches: list[Captured] = field(default_factory=list, init=False)

    def prepare(self, broker: Broker, setting: Setting) -> None:
        super().prepare(broker, setting)
        if not self.batches:
            self.batches = self.capture(broker, setting)
        with broker.connect() as connection:
            for frame in self.frames():
                connection.call(frame)

    def run(self, broker: Broker, setting: Setting) -> Sample:
        value_bytes = [batch.records * self.size for batch in self.batches]
        shape = produce_shape(self.topic)
        answer = pump.produce(broker, self.frames(), shape, setting.stretch, value_bytes=value_bytes, window=WINDOW)
        return per_gb(answer)

    def frames(self) -> list[bytes]:
        return [produce_frame(self.topic, {0: batch.data}, 1) for batch in self.batches]

    def capture(self, broker: Broker, setting: Setting) -> list[Captured]:
        """The fullest batches that the client wrote to its topic."""
        topic = f"{self.topic}-captured"
        with broker.connect() as connection:
            connection.create_topic(topic)
            connection.wait_led(topic, 1)
            SENDERS[self.client](self, broker, setting, topic)
            data = fetched(connection.call(fetch_frame(topic, 0, 0, CAPTURED_MAX)), topic)
            connection.delete_topic(topic)
        found = sorted(split(data), key=lambda batch: -batch.records)[:CONNECTIONS]
        if len(found) < CONNECTIONS or {batch.codec for batch in found} != {CODECS[self.codec]}:
            raise BenchError(f"{self.client} sent {len(found)} batches with codecs {[each.codec for each in found]}")
        return found

    def per_batch(self) -> int:
        return max(1, self.batch // (self.size + 8))  # a record has about eight bytes besides its value


def split(data: bytes) -> Iterator[Captured]:
    """The complete batches in a fetch response, ready to be sent again: the changed fields lie before the checksum."""
    position = 0
    while position + 61 <= len(data):
        end = position + 12 + int(struct.unpack_from(">i", data, position + 8)[0])
        if end > len(data):
            return
        one = bytearray(data[position:end])
        struct.pack_into(">q", one, 0, 0)
        struct.pack_into(">i", one, 12, -1)
        (attributes,) = struct.unpack_from(">h", one, 21)
        (records,) = struct.unpack_from(">i", one, 57)
        yield Captured(bytes(one), records, attributes & 7)
        position = end


def send_java(row: CapturedRow, broker: Broker, setting: Setting, topic: str) -> None:
    assert setting.client is not None
    options = {"topic": topic, "size": row.size, "batch": row.batch, "acks": 1, "codec": row.codec}
    setting.client.run("produce", broker, seconds=0.5, **options)


def send_librdkafka(row: CapturedRow, broker: Broker, setting: Setting, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "acks": 1,
            "batch.size": row.batch,
            "compression.codec": row.codec,
            "linger.ms": 100,
        }
    )
    for index in range(row.per_batch() * (CONNECTIONS + 2)):
        producer.produce(topic, text(row.size, index % LINES), partition=0)
    if producer.flush(SEND_S):
        raise BenchError("librdkafka did not send everything")


def send_franz_go(row: CapturedRow, broker: Broker, setting: Setting, topic: str) -> None:
    """The compatibility suite's program makes one batch of each call."""
    from compat.clients import Record
    from compat.families import opened

    agent = opened("franz-go", broker.bootstrap)
    try:
        for number in range(CONNECTIONS):
            lines = range(number * row.per_batch(), (number + 1) * row.per_batch())
            records = [Record(None, None, text(row.size, index % LINES)) for index in lines]
            agent.produce(topic, records, codec=row.codec, acks="1")
    finally:
        agent.close()


SENDERS = {"java": send_java, "librdkafka": send_librdkafka, "franz-go": send_franz_go}


def rows() -> list[CapturedRow]:
    return [
        CapturedRow(
            f"client batches: {client}, {codec}, {batch} kB of {size} B",
            batched(codec),
            client=client,
            codec=codec,
            batch=batch * KB,
            size=size,
        )
        for client, codec, (batch, size) in product(CLIENTS, CODECS, SHAPES)
    ]
