"""Parquet files as a DataFrame, read by the tasks with pyarrow: on any storage, without a JAR.

Columns that are encoded in a file's path (day=2026-01-31/...) are taken from it, as in Spark.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

from ottla.spark.storage.store import Store
from ottla.spark.storage.writing import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from ottla.spark.storage.location import Location

TASKS_MAX: Final = 200
ROWS: Final = 65_536  # in memory at once


def read(spark: SparkSession, location: Location, names: Sequence[str], schema: StructType) -> DataFrame:
    """The rows of these files below a location."""
    tasks = max(1, min(len(names), TASKS_MAX))
    files = spark.createDataFrame([(name,) for name in names], "name string").repartition(tasks)
    return files.mapInArrow(partial(load, location=location, schema=arrow(schema)), schema)


def arrow(schema: StructType) -> pa.Schema:
    """As Spark exchanges rows with Python: timestamps are microseconds in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def load(batches: Iterator[pa.RecordBatch], *, location: Location, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    store = Store(location)
    for batch in batches:
        for name in batch.column("name").to_pylist():
            with store.input(name) as source:
                file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
                told = parse_folders(name)
                for rows in file.iter_batches(ROWS):
                    yield shape_rows(rows, told, schema)


def parse_folders(name: str) -> dict[str, str | None]:
    pairs = (folder.partition("=") for folder in name.split("/")[:-1] if "=" in folder)
    return {column: None if value == NOTHING else unquote(value) for column, _, value in pairs}


def shape_rows(rows: pa.RecordBatch, told: dict[str, str | None], schema: pa.Schema) -> pa.RecordBatch:
    """The requested columns. Columns that a file lacks come from its path, or are null."""
    columns = []
    for field in schema:
        if field.name in rows.schema.names:
            columns.append(rows.column(field.name).cast(field.type))
        else:
            columns.append(pa.repeat(pa.scalar(told.get(field.name), pa.string()), rows.num_rows).cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
