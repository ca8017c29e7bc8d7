"""Every option of the sink, one row each. `source.options` explains how rows are read and how other names are treated.

The names are those of Spark's Kafka sink and, after `kafka.`, of Kafka's producer. Producer options that tune by
waiting (linger, buffers, retries) have no effect: a task has all its rows and an end.
"""

# ruff: noqa: RUF009 (a call that makes a field, once for the class)

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from ottla.client.failure import Failed
from ottla.records.compress import Codec
from ottla.spark.dead_letter import OPTION
from ottla.spark.source.options import Options, option
from ottla.spark.source.parsing import INT_MAX, boolean, choice, integer, string

if TYPE_CHECKING:
    from collections.abc import Mapping

CODECS: Final = {"none": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}
LEVELLED: Final = (Codec.GZIP, Codec.LZ4, Codec.ZSTD)


def acknowledgements(text: str) -> int:
    return {"all": -1, "-1": -1, "1": 1, "0": 0}[choice("all", "-1", "1", "0")(text)]


def codec(text: str) -> Codec:
    return CODECS[choice(*CODECS)(text)]


def write_id(text: str) -> str:
    if "/" in string(text):
        raise ValueError("a name without /")
    return string(text)


@dataclass(frozen=True, kw_only=True)
class SinkOptions(Options):
    REFUSED: ClassVar[Mapping[str, str]] = {
        "kafka.key.serializer": "write key as string or binary; cast or encode the column",
        "kafka.value.serializer": "write value as string or binary; cast or encode the column",
        "kafka.interceptor.classes": "there is no Java producer here; transform the columns instead",
        "kafka.partitioner.class": (
            "there is no Java here; add a column partition, or set ottla.partitioner to module:function, which gets a "
            "pyarrow.RecordBatch and the number of partitions, and returns an int32 array"
        ),
        "kafka.transactional.id": "set exactly.once to true, and the sink makes its own transactional ids",
        "subscribe": "it is for reading; to write, set topic",
    }
    # Kafka producer options, or options that Spark passes for its own use.
    WITHOUT_EFFECT: ClassVar[frozenset[str]] = frozenset(
        {
            "includeheaders",
            "path",
            "queryname",
            *(
                f"kafka.{name}"
                for name in (
                    "auto.include.jmx.reporter",
                    "buffer.memory",
                    "client.dns.lookup",
                    "connections.max.idle.ms",
                    "enable.metrics.push",
                    "linger.ms",
                    "max.block.ms",
                    "metadata.max.age.ms",
                    "metadata.max.idle.ms",
                    "metadata.recovery.rebootstrap.trigger.ms",
                    "metadata.recovery.strategy",
                    "metric.reporters",
                    "metrics.num.samples",
                    "metrics.recording.level",
                    "metrics.sample.window.ms",
                    "partitioner.adaptive.partitioning.enable",
                    "partitioner.availability.timeout.ms",
                    "partitioner.ignore.keys",
                    "receive.buffer.bytes",
                    "reconnect.backoff.max.ms",
                    "reconnect.backoff.ms",
                    "retries",
                    "retry.backoff.max.ms",
                    "retry.backoff.ms",
                    "send.buffer.bytes",
                    "socket.connection.setup.timeout.max.ms",
                    "socket.connection.setup.timeout.ms",
                )
            ),
        }
    )

    topic: str | None = option(
        "topic", string, "The topic to write to; by default, the column `topic` names it for each row."
    )
    exactly_once: bool = option(
        "exactly.once", boolean,
        "Whether read_committed consumers see each row exactly once, whatever fails and is retried.", False,
    )  # fmt: skip
    partitioner: str | None = option(
        "ottla.partitioner", string,
        "`module:function` that chooses partitions: it gets a `pyarrow.RecordBatch` of the rows and the number of "
        "partitions, and returns an int32 array, null where the key decides.",
        None, "(murmur2 of the key)",
    )  # fmt: skip
    codec: Codec = option(
        "kafka.compression.type", codec, "`none`, `gzip`, `snappy`, `lz4` or `zstd`.", Codec.NONE, "none"
    )
    gzip_level: int | None = option("kafka.compression.gzip.level", integer(-1, 9), "Compression level of gzip.")
    lz4_level: int | None = option("kafka.compression.lz4.level", integer(1, 17), "Compression level of lz4.")
    zstd_level: int | None = option("kafka.compression.zstd.level", integer(-131072, 22), "Compression level of zstd.")
    batch_bytes: int = option(
        "kafka.batch.size", integer(1, 64 << 20),
        "The largest record batch, before compression; never larger than the topic's `max.message.bytes`.", 512 << 10,
    )  # fmt: skip
    request_bytes: int = option(
        "kafka.max.request.size", integer(1, 1 << 30),
        "About how many bytes one request carries; a larger record cannot be written.", 1 << 20,
    )  # fmt: skip
    in_flight: int = option(
        "kafka.max.in.flight.requests.per.connection", integer(1, 1000), "Requests in flight to a broker.", 5
    )
    acks: int = option(
        "kafka.acks", acknowledgements, "`all`, `1` or `0`: the replicas that must have a batch.", -1, "all"
    )
    idempotence: bool | None = option(
        "kafka.enable.idempotence", boolean,
        "Whether brokers drop batches that a task sends twice because a response was lost.",
        None, "`true` with acks=all",
    )  # fmt: skip
    delivery_timeout_ms: int = option(
        "kafka.delivery.timeout.ms", integer(1, INT_MAX),
        "How long a task waits for an unreachable broker before it fails.", 120_000,
    )  # fmt: skip
    transaction_timeout_ms: int = option(
        "kafka.transaction.timeout.ms", integer(1, INT_MAX),
        "With `exactly.once`: how long the rows of a batch may wait for the driver to commit them. The brokers' "
        "`transaction.max.timeout.ms` is the maximum.", 900_000,
    )  # fmt: skip
    two_phase: bool = option(
        "ottla.two.phase", boolean,
        "With `exactly.once`: transactions that never time out. The brokers must allow it "
        "(`transaction.two.phase.commit.enable`). Somebody must abort the transactions of a query that never restarts.",
        False,
    )  # fmt: skip
    lost_batch: int | None = option(
        "ottla.lost.batch", integer(0),
        "With `exactly.once`: continue after this batch, although the query stopped because part of it was lost.",
    )  # fmt: skip
    kept_batch: int | None = option(
        "ottla.kept.batch", integer(0),
        "With `exactly.once`: continue after this batch, although the query stopped because the topic has it with "
        "other rows than it has now. The rows in the topic stay; the new ones are not written.",
    )  # fmt: skip
    dead_letter: str | None = option(
        OPTION, string,
        "The topic for rows that cannot be written, with the reason in headers; by default, they stop the write.",
    )  # fmt: skip
    checkpoint: str | None = option(
        "checkpointLocation", string,
        "Spark's own. With `exactly.once`, and if it is a path on this machine, the sink reads there what Spark has "
        "planned for a batch.",
    )  # fmt: skip
    write_id: str | None = option(
        "ottla.write.id", write_id,
        "Batch writes with `exactly.once`: an id of the write; repeating a write with the same id writes nothing.",
        None, "(a new one)",
    )  # fmt: skip
    write_epoch: int = option(
        "ottla.write.epoch", integer(0),
        "With `ottla.write.id`: which part of the write this is; in `foreachBatch`, the number of the batch.", 0,
    )  # fmt: skip

    @property
    def level(self) -> int | None:
        return {Codec.GZIP: self.gzip_level, Codec.LZ4: self.lz4_level, Codec.ZSTD: self.zstd_level}.get(self.codec)

    @property
    def idempotent(self) -> bool:
        return self.acks == -1 if self.idempotence is None else self.idempotence

    def check(self) -> None:
        if self.idempotence and self.acks != -1:
            raise Failed("kafka.enable.idempotence needs kafka.acks=all: remove one of the two")
        if self.idempotent and self.in_flight > 5:
            raise Failed(
                "kafka.max.in.flight.requests.per.connection is at most 5 with idempotence, since brokers remember no "
                "more batches: lower it, or set kafka.enable.idempotence to false"
            )
        if self.exactly_once and not self.idempotent:
            raise Failed(
                "exactly.once needs kafka.acks=all and idempotence: remove kafka.acks and kafka.enable.idempotence"
            )
        if self.two_phase and not self.exactly_once:
            raise Failed("ottla.two.phase needs transactions: set exactly.once to true, or remove it")
        for name, value in (
            ("ottla.write.id", self.write_id),
            ("ottla.lost.batch", self.lost_batch),
            ("ottla.kept.batch", self.kept_batch),
        ):
            if value is not None and not self.exactly_once:
                raise Failed(f"{name} needs exactly.once: set exactly.once to true")
        if self.write_epoch and self.write_id is None:
            raise Failed("ottla.write.epoch counts parts of one write: set ottla.write.id too")
