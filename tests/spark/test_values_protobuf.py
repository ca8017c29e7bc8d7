"""Protobuf values: types, evolution, which message it is, bad bytes, and Confluent's own serializer across."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from spark import registries

from ottla.client.failure import Failed
from ottla.spark.values import Registry, protobuf
from ottla.spark.values.outcome import FAILFAST, Outcome
from ottla.spark.values.protobuf_schema import load, spark_type
from ottla.spark.values.registry import PROTOBUF, Reference

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ottla.spark.values.protobuf_schema import Schema

EVERYTHING = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
enum Colour { NONE = 0; RED = 1; }
message Other { string word = 1; }
message Everything {
  message Part { string name = 1; repeated int32 sizes = 2; }
  int32 small = 1; sint64 large = 2; uint32 positive = 3; fixed64 huge = 4;
  float single = 5; double twice = 6; bool flag = 7; string word = 8; bytes blob = 9;
  Colour colour = 10; optional string maybe = 11;
  repeated Part parts = 12; map<string, Part> by_name = 13; map<int32, double> marks = 14;
  google.protobuf.Timestamp at = 15; google.protobuf.Duration took = 16; google.protobuf.Int64Value wrapped = 17;
  oneof choice { string text = 18; Part part = 19; }
  repeated Colour colours = 20;
}
"""
ROW: dict[str, Any] = {
    "small": -7,
    "large": -(1 << 40),
    "positive": (1 << 32) - 1,
    "huge": Decimal((1 << 64) - 1),
    "single": 0.5,
    "twice": 0.1,
    "flag": True,
    "word": "žlutý",
    "blob": b"\0\1",
    "colour": "RED",
    "maybe": None,
    "parts": [{"name": "a", "sizes": [1, 2]}, {"name": "", "sizes": []}],
    "by_name": [("k", {"name": "b", "sizes": []})],
    "marks": [(7, 0.5)],
    "at": dt.datetime(1969, 7, 20, 20, 17, 40, 123456, dt.UTC),
    "took": dt.timedelta(seconds=-2, microseconds=500_000),
    "wrapped": 0,
    "text": None,
    "part": {"name": "c", "sizes": [3]},
    "colours": ["RED", "NONE"],
}
EMPTY = {
    **dict.fromkeys(ROW),
    **{"small": 0, "large": 0, "positive": 0, "huge": Decimal(0), "single": 0.0, "twice": 0.0, "flag": False},
    **{"word": "", "blob": b"", "colour": "NONE", "parts": [], "by_name": [], "marks": [], "colours": []},
}


def source(folder: Path, text: str, name: str = "shop.proto") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def read(values: list[bytes | None], schema: Schema, outcome: Outcome | None = None) -> list[Any]:
    outcome = outcome or Outcome(FAILFAST)
    column = protobuf.decoded(pa.array(values, pa.binary()), schema, None, False, outcome)
    assert column.type == to_arrow_type(outcome.spark_type(spark_type(schema.descriptor)), timezone="UTC")
    return column.to_pylist()  # type: ignore[no-any-return]


def test_every_type_is_read_as_spark_has_it_and_written_back(tmp_path: Path) -> None:
    schema = load(source(tmp_path, EVERYTHING), "Everything")
    kind = to_arrow_type(spark_type(schema.descriptor), timezone="UTC")
    values = protobuf.encoded(pa.array([ROW, None, {}], kind), schema, b"").to_pylist()
    message = schema.message.FromString(values[0])
    assert (message.at.seconds, message.at.nanos) == (-14182940, 123456000)  # type: ignore[attr-defined]
    assert (message.took.seconds, message.took.nanos) == (-1, -500_000_000)  # type: ignore[attr-defined]
    assert message.HasField("wrapped")
    assert message.WhichOneof("choice") == "part"
    assert values[1:] == [None, b""]
    assert read(values, schema) == [ROW, None, EMPTY]


def test_only_numbers_lie_in_the_bytes_so_schemas_may_grow(tmp_path: Path) -> None:
    grown = "message A { int64 id = 1; string title = 2; bool more = 4; Kind k = 3; } enum Kind { X = 0; }"
    small = "message A { int32 id = 1; string name = 2; Kind k = 3; } enum Kind { X = 0; Y = 1; }"
    old, new = (load(source(tmp_path, f'syntax = "proto3"; {text}')) for text in (small, grown))
    (value,) = protobuf.encoded(pa.array([{"id": 7, "name": "tea", "k": "Y"}]), old, b"").to_pylist()
    assert read([value], new) == [{"id": 7, "title": "tea", "more": False, "k": "1"}]


def test_bad_bytes_become_null_with_a_reason_or_fail_the_query(tmp_path: Path) -> None:
    schema = load(source(tmp_path, 'syntax = "proto3"; message A { int32 id = 1; string name = 2; }'))
    values = [b"\x08\x07", b"\x08", None, b"\x12\x01\xff", b"\xff\xff"]
    rows = read(values, schema, Outcome(error="why"))
    assert rows[0] == {"id": 7, "name": "", "why": None}
    assert rows[2] is None, "a tombstone is no error"
    assert [row["id"] for row in rows if row] == [7, None, None, None]
    assert rows[1]["why"].startswith("a value of 1 bytes (08) is no A: ")
    with pytest.raises(Failed, match=r"is no A: .*; decode with mode='PERMISSIVE'"):
        read(values, schema)


def test_schemas_come_from_descriptor_sets_and_sources_with_imports(tmp_path: Path) -> None:
    source(tmp_path, 'syntax = "proto3"; package geo; message Place { string city = 1; }', "place.proto")
    trip = source(
        tmp_path, 'syntax = "proto3"; import "place.proto"; message Trip { geo.Place start = 1; }', "trip.proto"
    )
    compiled = tmp_path / "trip.desc"
    words = ["--include_imports", f"--descriptor_set_out={compiled}", f"-I{tmp_path}", str(trip)]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *words], check=True, timeout=60)
    value = b"\x0a\x06\x0a\x04Brno"
    for file in (trip, compiled):
        assert read([value], load(file)) == [{"start": {"city": "Brno"}}]


@pytest.mark.parametrize(
    ("text", "message", "sentence"),
    [
        ('syntax = "proto3"; message L { L next = 1; }', None, "the message L is recursive"),
        ('syntax = "proto3"; message A { int32 x = 1; }', "B", "has no message B: it has A"),
        ('syntax = "proto3"; enum E { X = 0; }', None, "defines no message"),
        (
            'syntax = "proto3"; message A { Missing x = 1; }',
            None,
            'does not compile: shop.proto:.*"Missing" is not defined',
        ),
    ],
)
def test_a_schema_that_cannot_be_is_refused_in_a_sentence(
    tmp_path: Path, text: str, message: str | None, sentence: str
) -> None:
    with pytest.raises(Failed, match=sentence):
        spark_type(load(source(tmp_path, text), message).descriptor)


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (pa.array([{"id": 1, "new": 1}]), "the column.new is no field of A: leave it out"),
        (pa.array([{"id": "x"}]), "the column.id is string, where the schema has int32: cast it"),
        (pa.array([{"id": 1 << 40}]), "the column.id does not fit int32 of the schema"),
        (pa.array([{"kind": "Z"}]), "cannot be written as A"),
    ],
)
def test_a_column_that_does_not_fit_is_refused_in_a_sentence(tmp_path: Path, column: pa.Array, sentence: str) -> None:
    schema = load(source(tmp_path, 'syntax = "proto3"; message A { int32 id = 1; K kind = 2; } enum K { X = 0; }'))
    with pytest.raises(Failed, match=sentence):
        protobuf.encoded(column, schema, b"")


def test_confluents_serializer_and_ours_read_each_other(spark: SparkSession, tmp_path: Path) -> None:
    registry, client = Registry(registries.url()), SchemaRegistryClient({"url": registries.url()})
    topic = registries.fresh("orders")
    where = SerializationContext(topic, MessageField.VALUE)
    local = load(source(tmp_path, EVERYTHING), "Everything")
    inner = load(source(tmp_path, EVERYTHING), "Everything.Part")
    options = {"use.deprecated.format": False, "skip.known.types": True}
    serializer = ProtobufSerializer(local.message, client, options)
    nested = ProtobufSerializer(inner.message, client, options)
    rows = [local.message(small=number, word=f"n{number}") for number in range(50)]
    values = [serializer(row, where) for row in rows] + [None, nested(inner.message(name="x"), where), b"\0\0\0\0\1\6"]

    schema = registry.topic(topic)
    frame = spark.createDataFrame([(value,) for value in values], "value binary").coalesce(1)
    seen = frame.select(protobuf.decode("value", schema, message="Everything", error="why").alias("o"))
    found = seen.select("o.small", "o.word", "o.why").collect()
    assert [(row.small, row.word, row.why) for row in found[:50]] == [(n, f"n{n}", None) for n in range(50)]
    assert found[50].why is None
    assert "is shop.Everything.Part, not shop.Everything" in found[51].why
    assert found[52].why
    other = frame.filter(F.col("value") == F.lit(bytearray(values[51] or b"")))
    (part,) = other.select(protobuf.decode("value", schema, message="Everything.Part")).collect()
    assert part[0].name == "x"

    column = F.struct(F.col("id").cast("int").alias("small"), F.concat(F.lit("n"), F.col("id")).alias("word"))
    encoded = protobuf.encode(column, schema, message="Everything").alias("value")
    ours = [bytes(row.value) for row in spark.range(50).coalesce(1).select(encoded).collect()]
    assert ours == values[:50]
    deserializer = ProtobufDeserializer(local.message, {"use.deprecated.format": False}, client)
    assert [deserializer(value, where) for value in ours] == rows


def test_schemas_may_refer_to_others() -> None:
    registry, subject = Registry(registries.url()), registries.fresh("place")
    registry.register(subject, 'syntax = "proto3"; package geo; message Place { string city = 1; }', kind=PROTOBUF)
    made = registry.register(
        registries.fresh("trip"),
        'syntax = "proto3"; import "place.proto"; message Trip { geo.Place start = 1; }',
        kind=PROTOBUF,
        references=(Reference("place.proto", subject, 1),),
    )
    schema = load(registry.latest(made.subject or ""))
    assert read([b"\x0a\x06\x0a\x04Brno"], schema) == [{"start": {"city": "Brno"}}]
