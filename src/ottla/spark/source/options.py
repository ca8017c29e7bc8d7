"""Every option of the source, one row each: name, default, what it does. The checks and the docs read these rows. The
options of the sink are in `sink.options`, in the same form.

The names are those of Spark's own Kafka source and sink, so that a job moves here by changing the format. Names that
begin with `ottla.` are Ottla's own. Spark passes names in lower case. No option is silently ignored: it has a row, or
it is a Kafka consumer option that has no effect here (`WITHOUT_EFFECT`), or it is refused with a message that says what
to set instead. The table in docs/spark.md is made by `table`, and a test compares them.
"""

# ruff: noqa: RUF009 (a call that makes a field, once for the class)

from __future__ import annotations

import difflib
import logging
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self

from ottla.client.cluster import Cluster
from ottla.client.failure import Failed
from ottla.client.security import PLAIN, Security, security
from ottla.spark import secrets as hiding
from ottla.spark.source.parsing import (
    EARLIEST,
    EARLIEST_OFFSET,
    INT_MAX,
    LATEST,
    LATEST_OFFSET,
    Bound,
    Offsets,
    Time,
    Times,
    boolean,
    choice,
    duration_ms,
    integer,
    isolation,
    moment,
    offsets,
    partitions,
    pattern,
    string,
    times,
    topics,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.client.cluster import TopicPartition


class OptionRow(NamedTuple):
    name: str
    text: str
    parse: Callable[[str], Any]
    default: str  # as shown in the docs


def option(name: str, parse: Callable[[str], Any], text: str, default: Any = None, shown: str | None = None) -> Any:
    """A field with an option's row. `shown` is the default as the docs show it, if its value does not explain
    itself."""
    said = shown if shown is not None else "" if default is None else _text(default)
    return field(default=default, metadata={"row": OptionRow(name, text, parse, said)})


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


log = logging.getLogger("ottla.spark")

SECURITY: Final = ("kafka.security.", "kafka.ssl.", "kafka.sasl.")
# Options that a job may have set for both batch and stream. Spark's own source warns about them too.
STREAM_ONLY: Final = ("max_offsets_per_trigger", "min_offsets_per_trigger", "group", "group_id", "group_id_prefix")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What source and sink share: parsing and checking options, and connecting to the cluster."""

    REFUSED: ClassVar[Mapping[str, str]] = {}  # option of Kafka's client: why it is refused, and what to set instead
    WITHOUT_EFFECT: ClassVar[frozenset[str]] = frozenset()

    bootstrap: str = option(
        "kafka.bootstrap.servers",
        string,
        "Brokers to connect to first: host:port, separated by commas.",
        "",
        "(required)",
    )
    client_id: str = option("kafka.client.id", string, "The client id that brokers log.", "ottla-spark")
    request_timeout_ms: int = option(
        "kafka.request.timeout.ms",
        integer(1, INT_MAX),
        "How long a broker may take to answer before it counts as unreachable.",
        30_000,
    )
    security: Security = PLAIN  # parsed from kafka.security.*, kafka.ssl.* and kafka.sasl.*

    @classmethod
    def rows(cls) -> dict[str, OptionRow]:
        """Attribute → row."""
        return {one.name: one.metadata["row"] for one in fields(cls) if "row" in one.metadata}

    @classmethod
    def load(cls, given: Mapping[str, str]) -> Self:
        """Parse and check the options. Raises Failed, with the fix, for the first wrong one."""
        known = {row.name.lower(): (attribute, row) for attribute, row in cls.rows().items()}
        values: dict[str, Any] = {}
        secrets: dict[str, str] = {}
        for name, text in given.items():
            name = name.lower()
            if name in known:
                attribute, row = known[name]
                values[attribute] = _parse(row, text)
            elif name.startswith(SECURITY):
                secrets[name.removeprefix("kafka.")] = text
            elif name in cls.REFUSED:
                raise Failed(f"option {name} is not supported: {cls.REFUSED[name]}")
            elif name not in cls.WITHOUT_EFFECT:
                raise Failed(cls._unknown(name))
        if not values.get("bootstrap"):
            raise Failed('option kafka.bootstrap.servers is missing: set it to host:port, such as "localhost:9092"')
        hiding.check({f"kafka.{name}": text for name, text in secrets.items()})
        made = cls(**values, security=security(secrets))
        made.check()
        return made

    @classmethod
    def _unknown(cls, name: str) -> str:
        names = {row.name.lower(): row.name for row in cls.rows().values()}
        near = difflib.get_close_matches(name, [*names, *cls.WITHOUT_EFFECT], n=1)
        instead = f"did you mean {names.get(near[0], near[0])}?" if near else "docs/spark.md lists them all"
        return f"there is no option {name}: {instead}"

    def check(self) -> None:
        """Checks that involve more than one option."""

    def cluster(self, *, patience_ms: int = 0) -> Cluster:
        """The cluster that the options name. If it is unreachable, now or later, requests wait for it that long."""
        return Cluster(
            self.bootstrap,
            security=self.security,
            client_id=self.client_id,
            timeout_s=self.request_timeout_ms / 1000,
            patience_s=patience_ms / 1000,
        )


def _parse(row: OptionRow, text: str) -> Any:
    try:
        return row.parse(text)
    except ValueError as error:
        raise Failed(f'option {row.name} is "{text}", but should be {error}') from None


def table(options: type[Options]) -> str:
    """The rows as a table in Markdown."""
    lines = ["| option | default | what it does |", "| --- | --- | --- |"]
    for row in options.rows().values():
        plain = not row.default or row.default.startswith("(") or "`" in row.default  # not code
        default = row.default if plain else f"`{row.default}`"
        lines.append(f"| `{row.name}` | {default} | {row.text} |")
    return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class SourceOptions(Options):
    REFUSED: ClassVar[Mapping[str, str]] = {
        "kafka.auto.offset.reset": "set startingOffsets to earliest or latest",
        "kafka.key.deserializer": "keys come as binary; cast or parse the column key",
        "kafka.value.deserializer": "values come as binary; cast or parse the column value",
        "kafka.enable.auto.commit": "offsets are committed to ottla.group after each batch of a streaming query",
        "kafka.interceptor.classes": "there is no Java consumer here; transform the columns instead",
        "topic": "it is for writing; to read, set subscribe",
    }
    # Kafka consumer options that do not apply: there is no such consumer here, or the value is tuned automatically.
    WITHOUT_EFFECT: ClassVar[frozenset[str]] = frozenset(
        f"kafka.{name}"
        for name in (
            "allow.auto.create.topics",
            "auto.commit.interval.ms",
            "auto.include.jmx.reporter",
            "client.dns.lookup",
            "client.rack",
            "connections.max.idle.ms",
            "default.api.timeout.ms",
            "enable.metrics.push",
            "exclude.internal.topics",
            "fetch.max.bytes",
            "fetch.min.bytes",
            "group.instance.id",
            "group.protocol",
            "group.remote.assignor",
            "heartbeat.interval.ms",
            "max.poll.interval.ms",
            "max.poll.records",
            "metadata.max.age.ms",
            "metadata.recovery.rebootstrap.trigger.ms",
            "metadata.recovery.strategy",
            "metric.reporters",
            "metrics.num.samples",
            "metrics.recording.level",
            "metrics.sample.window.ms",
            "partition.assignment.strategy",
            "receive.buffer.bytes",
            "reconnect.backoff.max.ms",
            "reconnect.backoff.ms",
            "retry.backoff.max.ms",
            "retry.backoff.ms",
            "send.buffer.bytes",
            "session.timeout.ms",
            "socket.connection.setup.timeout.max.ms",
            "socket.connection.setup.timeout.ms",
        )
    )

    subscribe: tuple[str, ...] | None = option(
        "subscribe", topics,
        "The topics to read, separated by commas. Set one of `subscribe`, `subscribePattern`, `assign`.",
        None, "(one of three)",
    )  # fmt: skip
    subscribe_pattern: str | None = option(
        "subscribePattern", pattern,
        "Read every topic whose name contains a match of this regular expression; `^` and `$` anchor it.",
        None, "(one of three)",
    )  # fmt: skip
    assign: tuple[TopicPartition, ...] | None = option(
        "assign", partitions, 'Read these partitions: `{"visits":[0,1]}`.', None, "(one of three)"
    )
    starting_offsets: Bound | None = option(
        "startingOffsets", offsets,
        'Where to start: `earliest`, `latest`, or `{"visits":{"0":23,"1":-2}}` (-2: earliest, -1: latest) for every '
        "partition. A streaming query with a checkpoint continues from that instead.",
        None, "`earliest` (batch), `latest` (stream)",
    )  # fmt: skip
    starting_timestamp: Time | None = option(
        "startingTimestamp",
        moment,
        "Start at the first record with this timestamp (ms) or a later one. Overrides the other two.",
    )
    starting_offsets_by_timestamp: Times | None = option(
        "startingOffsetsByTimestamp", times, "The same for each partition. Overrides `startingOffsets`."
    )
    starting_strategy: str = option(
        "startingOffsetsByTimestampStrategy", choice("error", "latest"),
        "If there is no such record: fail (`error`), or start at the `latest` offset.", "error",
    )  # fmt: skip
    ending_offsets: Bound | None = option(
        "endingOffsets", offsets, "Batch only: where to end (exclusive).", None, "`latest`"
    )
    ending_timestamp: Time | None = option(
        "endingTimestamp", moment, "Batch only: end before the first record with this timestamp or a later one."
    )
    ending_offsets_by_timestamp: Times | None = option(
        "endingOffsetsByTimestamp", times, "Batch only: the same for each partition."
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss", boolean,
        "Whether to fail when records that should be read are gone; `false` logs a warning and reads what is left.",
        True,
    )  # fmt: skip
    include_headers: bool = option("includeHeaders", boolean, "Whether to add a column `headers`.", False)
    min_partitions: int | None = option(
        "minPartitions", integer(1, INT_MAX), "Split the work into at least about this many tasks."
    )
    max_records_per_partition: int | None = option(
        "maxRecordsPerPartition", integer(1), "At most this many offsets in one task."
    )
    split_bytes: int | None = option(
        "ottla.split.bytes", integer(1),
        "About this many bytes of the log in one task. A stream is only split if this or `minPartitions` is set: "
        "records keep their order only within a task.",
        None, "`134217728` (batch), no split (stream)",
    )  # fmt: skip
    max_offsets_per_trigger: int | None = option(
        "maxOffsetsPerTrigger",
        integer(1),
        "Stream only: at most this many offsets in a micro-batch, divided in proportion to what each partition has.",
    )
    min_offsets_per_trigger: int | None = option(
        "minOffsetsPerTrigger",
        integer(1),
        "Stream only: wait for this many offsets before a micro-batch, but no longer than `maxTriggerDelay`.",
    )
    max_trigger_delay_ms: int = option(
        "maxTriggerDelay", duration_ms, "Stream only: see `minOffsetsPerTrigger`.", 900_000, "15m"
    )
    committed: bool = option(
        "kafka.isolation.level", isolation,
        "`read_committed` skips records of open and aborted transactions.", False, "read_uncommitted",
    )  # fmt: skip
    group: str | None = option(
        "ottla.group", string,
        "Stream only: the group to which each micro-batch commits its offsets, for monitors to see the lag. If "
        "others use the group, it is left alone and a warning is logged.",
        None, "`ottla-spark-` and the query's name",
    )  # fmt: skip
    group_id: str | None = option("kafka.group.id", string, "The same as `ottla.group`, by Kafka's name.")
    group_id_prefix: str | None = option(
        "groupIdPrefix",
        string,
        "Name the group with this, a dash and the query's name, instead of `ottla-spark-` and the name.",
    )
    retention_warning_ms: int = option(
        "ottla.retention.warning", duration_ms,
        "Stream only: warn, in the log and in the group's metadata, when retention may delete unread records within "
        "this time, or within a quarter of the topic's `retention.ms` if that is less.", 3_600_000, "1h",
    )  # fmt: skip
    fetch_bytes: int = option(
        "kafka.max.partition.fetch.bytes", integer(1, 64 << 20), "How many bytes one fetch asks for.", 2 << 20
    )
    fetch_wait_ms: int = option(
        "kafka.fetch.max.wait.ms", integer(0, INT_MAX), "How long a broker may wait for data before it answers.", 500
    )
    check_crcs: bool = option("kafka.check.crcs", boolean, "Whether the checksum of each batch is verified.", True)
    poll_timeout_ms: int = option(
        "kafkaConsumer.pollTimeoutMs", integer(1, INT_MAX),
        "How long a task waits for a partition whose broker is unreachable before it fails.", 120_000,
    )  # fmt: skip
    retries: int = option(
        "fetchOffset.numRetries", integer(0, INT_MAX),
        "With `fetchOffset.retryIntervalMs`: the driver waits for an unreachable cluster for the product of both; a "
        "stream for `kafka.request.timeout.ms` if that is longer.", 3,
    )  # fmt: skip
    retry_interval_ms: int = option(
        "fetchOffset.retryIntervalMs", integer(0, INT_MAX), "See `fetchOffset.numRetries`.", 1_000
    )

    @property
    def starting(self) -> Bound:
        return self.starting_timestamp or self.starting_offsets_by_timestamp or self.starting_offsets or EARLIEST

    @property
    def ending(self) -> Bound:
        return self.ending_timestamp or self.ending_offsets_by_timestamp or self.ending_offsets or LATEST

    @property
    def driver_patience_ms(self) -> int:
        return self.retries * self.retry_interval_ms

    def check(self) -> None:
        given = [
            name
            for name, value in (
                ("subscribe", self.subscribe),
                ("subscribePattern", self.subscribe_pattern),
                ("assign", self.assign),
            )
            if value is not None
        ]
        if not given:
            raise Failed("no topics are selected: set option subscribe to a topic, or subscribePattern or assign")
        if len(given) > 1:
            raise Failed(f"{' and '.join(given)} are both set: keep one of them")
        least, most = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if least and most and least > most:
            raise Failed(
                f"minOffsetsPerTrigger is {least} and maxOffsetsPerTrigger {most}: the first must not be higher"
            )
        if self.group and self.group_id and self.group != self.group_id:
            raise Failed("ottla.group and kafka.group.id name different groups: keep one of them")

    def for_batch(self) -> Self:
        """These options, checked for a batch."""
        if self.starting == LATEST:
            raise Failed("a batch that starts at latest would be empty: set startingOffsets to earliest or to offsets")
        if self.ending == EARLIEST:
            raise Failed("a batch that ends at earliest would be empty: set endingOffsets to latest or to offsets")
        for name, bound, never in (
            ("startingOffsets", self.starting, LATEST_OFFSET),
            ("endingOffsets", self.ending, EARLIEST_OFFSET),
        ):
            for where, offset in bound.at.items() if isinstance(bound, Offsets) else ():
                if offset == never:
                    word = "latest (-1)" if never == LATEST_OFFSET else "earliest (-2)"
                    raise Failed(
                        f"{name} of {where.topic} partition {where.partition} is {word}, which leaves nothing to "
                        "read: name another offset"
                    )
        self._check_order()
        for name in STREAM_ONLY:
            if getattr(self, name) is not None:
                log.warning("option %s has no effect on a batch, only on a stream", self.rows()[name].name)
        return self

    def _check_order(self) -> None:
        start, end = self.starting, self.ending
        if not (isinstance(start, Offsets) and isinstance(end, Offsets)) and not (
            isinstance(start, Times) and isinstance(end, Times)
        ):
            return
        if start.at.keys() != end.at.keys():
            (topic, partition), *_ = sorted(start.at.keys() ^ end.at.keys())
            raise Failed(
                f"only one of start and end names {topic} partition {partition}: name the same partitions in both"
            )
        for where, first in start.at.items():
            if 0 <= end.at[where] < first:
                raise Failed(
                    f"{where.topic} partition {where.partition} would start at {first} and end before that, at "
                    f"{end.at[where]}: set a start at or before the end"
                )

    def for_stream(self) -> Self:
        """These options, checked for a stream. By default a stream starts at `latest`."""
        if self.ending != LATEST or self.ending_offsets is not None:
            raise Failed(
                "a stream has no end: leave out endingOffsets, endingTimestamp and endingOffsetsByTimestamp, or use "
                "spark.read; trigger(availableNow=True) ends by itself"
            )
        unset = self.starting_offsets or self.starting_timestamp or self.starting_offsets_by_timestamp
        return self if unset is not None else replace(self, starting_offsets=LATEST)
