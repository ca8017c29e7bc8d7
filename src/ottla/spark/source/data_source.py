"""The data source "ottla" as PySpark sees it: its name, its columns, its readers and writers.

    spark.read.format("ottla").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "visits").load()

The names and types of the columns are those of Spark's own Kafka source. PySpark makes one of these objects for each
`load` or `save`, pickles it, and asks it for a reader or writer in other Python processes. So it holds the options as
given, and imports readers and writers only when they are needed. Options are checked here, so that a wrong one fails at
`load()`, not when the first job runs. What depends on batch or stream is checked by the reader.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.client.failure import Failed
from ottla.spark.sink.options import SinkOptions
from ottla.spark.source.options import SourceOptions

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )

NAME: Final = "ottla"
SPARK_LEAST: Final = (4, 2)  # the first version whose Python sources can limit a micro-batch
COLUMNS: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
HEADERS: Final = StructField(
    "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
)


def columns(*, headers: bool) -> StructType:
    """The columns of a read; `includeHeaders` adds one."""
    return StructType([*COLUMNS.fields, HEADERS]) if headers else COLUMNS


class OttlaDataSource(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        require_spark()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return columns(headers=SourceOptions.load(self.options).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        from ottla.spark.source.batch import OttlaReader, PushingReader
        from ottla.spark.source.filters import is_pushdown

        options = SourceOptions.load(self.options).for_batch()
        reader = PushingReader if is_pushdown() else OttlaReader
        return reader(options, check_schema(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from ottla.spark.source.stream import OttlaStreamReader

        return OttlaStreamReader(SourceOptions.load(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from ottla.spark.sink.writers import OttlaWriter

        return OttlaWriter(SinkOptions.load(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from ottla.spark.sink.writers import OttlaStreamWriter

        return OttlaStreamWriter(SinkOptions.load(self.options), schema, overwrite)


def require_spark() -> None:
    """Fail early with a clear message. pip enforces the version, but a cluster may bring its own PySpark."""
    major, minor = re.findall(r"\d+", pyspark.__version__)[:2]
    if (int(major), int(minor)) < SPARK_LEAST:
        raise Failed(f"PySpark {pyspark.__version__} is too old: Ottla's source and sink need 4.2 or newer")


def check_schema(schema: StructType, options: SourceOptions) -> StructType:
    own = columns(headers=options.include_headers)
    if [(field.name, field.dataType) for field in schema] != [(field.name, field.dataType) for field in own]:
        raise Failed(
            "the columns of a topic are fixed: omit .schema(...), and cast or parse key and value after the read"
        )
    return own
