"""The data source as PySpark finds, makes and pickles it; what it reads and writes is tested beside its parts."""

from __future__ import annotations

import pickle
import pkgutil
from importlib import import_module
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from ottla.client.failure import Failed
from ottla.spark.source.data_source import OttlaDataSource, check_schema, columns
from ottla.spark.source.options import SourceOptions

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "visits"}
WRITTEN = StructType([StructField("value", BinaryType())])


def source(**more: str) -> OttlaDataSource:
    options: Any = CaseInsensitiveDict({**GIVEN, **more})
    return OttlaDataSource(options)


def test_pyspark_finds_the_source_by_the_name_of_its_package() -> None:
    """As its lookup does it: every top-level package whose name begins so, and what is called DefaultSource in it."""
    names = [module.name for module in pkgutil.iter_modules() if module.name.startswith("pyspark_")]
    assert "pyspark_ottla" in names
    found = import_module("pyspark_ottla").DefaultSource
    assert issubclass(found, DataSource)
    assert found.name() == "ottla"
    assert pickle.loads(cloudpickle.dumps(found)) is OttlaDataSource, "by reference: workers have the wheel"


def test_the_columns_are_those_of_sparks_own_source() -> None:
    shown = [f"{field.name} {field.dataType.simpleString()}" for field in source(includeHeaders="TRUE").schema()]
    assert shown == [
        "key binary",
        "value binary",
        "topic string",
        "partition int",
        "offset bigint",
        "timestamp timestamp",
        "timestampType int",
        "headers array<struct<key:string,value:binary>>",
    ]
    assert source().schema().fieldNames() == [line.split()[0] for line in shown[:-1]]


def test_readers_and_writers_are_made_without_a_cluster() -> None:
    """Spark makes them in planning, pickles them, and makes them again; only work needs the cluster."""
    made = source()
    assert isinstance(made.reader(made.schema()), DataSourceReader)
    assert isinstance(made.streamReader(made.schema()), DataSourceStreamReader)
    options: Any = CaseInsensitiveDict({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "visits"})
    assert isinstance(OttlaDataSource(options).writer(WRITTEN, overwrite=False), DataSourceWriter)
    assert isinstance(OttlaDataSource(options).streamWriter(WRITTEN, overwrite=False), DataSourceStreamWriter)
    again = pickle.loads(cloudpickle.dumps((made, made.reader(made.schema()))))
    assert again[0].options == made.options


def test_a_wrong_option_is_found_before_anything_is_planned() -> None:
    with pytest.raises(Failed, match="there is no option nonsense"):
        source(nonsense="1").schema()
    with pytest.raises(Failed, match="starts at latest"):
        source(startingOffsets="latest").reader(columns(headers=False))


@pytest.mark.parametrize(
    ("given", "schema", "sentence"),
    [
        ({"endingOffsets": "latest"}, columns(headers=False), "a stream has no end"),
        ({}, columns(headers=True), "the columns of a topic are fixed"),
    ],
)
def test_a_stream_that_cannot_be_is_refused_when_it_is_planned(
    given: dict[str, str], schema: StructType, sentence: str
) -> None:
    """Not when its reader is made: the error that a user sees would end with one of PySpark's own."""
    made = source(**given).streamReader(schema)
    with pytest.raises(Failed, match=sentence):
        made.initialOffset()
    made.stop()


@pytest.mark.parametrize(
    "schema",
    [
        StructType([]),
        columns(headers=True),
        StructType([StructField("key", StringType()), *columns(headers=False).fields[1:]]),
    ],
)
def test_other_columns_are_refused(schema: StructType) -> None:
    with pytest.raises(Failed, match="the columns of a topic are fixed"):
        check_schema(schema, SourceOptions.load(GIVEN))


def test_a_spark_that_is_too_old_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("4.0.5", "4.1.4", "3.5.9.dev0"):
        monkeypatch.setattr("pyspark.__version__", version)
        with pytest.raises(Failed, match=f"PySpark {version} is too old"):
            OttlaDataSource({})
    monkeypatch.setattr("pyspark.__version__", "4.10.0")
    assert OttlaDataSource({})
