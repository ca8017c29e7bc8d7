"""Dead letters of a pipeline: records that it could not use, as rows for a separate topic.

The option `dead.letter` of a pipeline names that topic. `ottla.spark.dead_letter` defines what a letter looks like.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ottla.spark import dead_letter

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HEADERS: Final = "array<struct<key string, value binary>>"
NO_HEADERS: Final = f"cast(null as {HEADERS})"  # for rows that share a query with letters


def letter_rows(rows: DataFrame, reason: Column, source: str, topic: str) -> DataFrame:
    """The original records, for a sink whose rows name their topic. They keep their `headers` if these were read."""
    headers = letter_headers(reason, source, F.col("headers") if "headers" in rows.columns else None)
    return rows.select(F.lit(topic).alias("topic"), "key", "value", headers.alias("headers"))


def letter_headers(reason: Column, source: str, given: Column | None) -> Column:
    """The headers of the record, followed by Ottla's: why it is here, and where it came from."""
    ours = {
        dead_letter.REASON: reason,
        dead_letter.STAGE: F.lit(dead_letter.DECODE),
        dead_letter.TOPIC: F.lit(source),
        dead_letter.PARTITION: F.col("partition"),
        dead_letter.OFFSET: F.col("offset"),
    }
    pairs = [
        F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
        for name, value in ours.items()
    ]
    told = F.array(*pairs).cast(HEADERS)
    return told if given is None else F.concat(F.coalesce(given, F.array().cast(HEADERS)), told)
