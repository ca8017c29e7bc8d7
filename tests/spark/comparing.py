"""The same topics read by our source and by Spark's connector, compared row by row or as sums over every column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

OURS, THEIRS = "ottla", "kafka"
PLACE: Final = ("topic", "partition", "offset")
# Times as numbers, because Python's own know no microseconds before 1970 and no zone. No time (-1 ms) is null in ours.
MICROS: Final = "nullif(unix_micros(timestamp), -1000) AS micros"
EXACT: Final = (*PLACE, "key", "value", MICROS, "timestampType", "headers")
# Of every column whether it is null, too: a hash takes null for nothing, so that a key could pass for a value.
HASH: Final = (
    "xxhash64(key, key IS NULL, value, value IS NULL, topic, partition, offset, timestamp, timestampType, "
    "headers, headers IS NULL)"
)


def table(spark: SparkSession, form: str, bootstrap: str, options: Mapping[str, str]) -> DataFrame:
    """A batch read of every column."""
    reader = spark.read.format(form).option("kafka.bootstrap.servers", bootstrap).option("includeHeaders", "true")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def rows(frame: DataFrame) -> list[Row]:
    """All rows in the order of the log."""
    return sorted(frame.selectExpr(*EXACT).collect(), key=lambda row: row[:3])


def sums(frame: DataFrame) -> list[Row]:
    """For each partition: how many rows, from where to where, and two sums of the hashes of all their columns."""
    hashed = frame.selectExpr("topic", "partition", "offset", "length(value) AS size", f"{HASH} AS hash")
    grouped = hashed.groupBy("topic", "partition")
    aggregates = ("count(1)", "min(offset)", "max(offset)", "sum(size)", "bit_xor(hash)", "sum(hash & 4294967295)")
    return sorted(grouped.agg(*map(expression, aggregates)).collect())


def expression(text: str) -> object:
    from pyspark.sql.functions import expr

    return expr(text)


def alike(ours: Sequence[Row], theirs: Sequence[Row]) -> None:
    """Fails with the first rows that differ, unless both lists are equal."""
    for mine, other in zip(ours, theirs, strict=False):
        assert mine == other, f"ours:   {shown(mine)}\ntheirs: {shown(other)}"
    more = (ours if len(ours) > len(theirs) else theirs)[min(len(ours), len(theirs)) :]
    assert len(ours) == len(theirs), f"{len(ours)} rows against {len(theirs)}; the next one is {shown(more[0])}"


def shown(row: Row) -> str:
    return ", ".join(f"{name}={value!r:.80}" for name, value in row.asDict().items())


def compare(spark: SparkSession, bootstrap: str, options: Mapping[str, str], count: int | None = None) -> list[Row]:
    """Read both ways. Schema and rows must be equal, and `count` rows if given. Returns the rows."""
    ours, theirs = (table(spark, form, bootstrap, options) for form in (OURS, THEIRS))
    assert ours.schema == theirs.schema
    found = rows(ours)
    alike(found, rows(theirs))
    if count is not None:
        assert len(found) == count
    return found
