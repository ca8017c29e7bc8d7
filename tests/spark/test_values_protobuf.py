"""Protobuf values: types, evolution, which message it is, bad bytes, and Confluent's own serializer across."""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from spark import registries
from spark.mutating import mutated

from ottla.client.failure import Failed
from ottla.spark.values import Registry, protobuf
from ottla.spark.values.header import header, index_bytes
from ottla.spark.values.outcome import FAILFAST, Outcome
from ottla.spark.values.protobuf_schema import add_known, load, spark_type
from ottla.spark.values.registry import PROTOBUF, REFERENCES_MAX, InvalidSchema, Reference, Registered

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
    column = protobuf.decode_values(pa.array(values, pa.binary()), schema, None, False, outcome)
    assert column.type == to_arrow_type(outcome.spark_type(spark_type(schema.descriptor)), timezone="UTC")
    return column.to_pylist()  # type: ignore[no-any-return]


def test_every_type_is_read_as_spark_has_it_and_written_back(tmp_path: Path) -> None:
    schema = load(source(tmp_path, EVERYTHING), "Everything")
    kind = to_arrow_type(spark_type(schema.descriptor), timezone="UTC")
    values = protobuf.encode_values(pa.array([ROW, None, {}], kind), schema, b"").to_pylist()
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
    (value,) = protobuf.encode_values(pa.array([{"id": 7, "name": "tea", "k": "Y"}]), old, b"").to_pylist()
    assert read([value], new) == [{"id": 7, "title": "tea", "more": False, "k": "1"}]


def test_bad_bytes_become_null_with_a_reason_or_fail_the_query(tmp_path: Path) -> None:
    schema = load(source(tmp_path, 'syntax = "proto3"; message A { int32 id = 1; string name = 2; }'))
    values = [b"\x08\x07", b"\x08", None, b"\x12\x01\xff", b"\xff\xff"]
    rows = read(values, schema, Outcome(error="why"))
    assert rows[0] == {"id": 7, "name": "", "why": None}
    assert rows[2] is None, "a tombstone is no error"
    assert [row["id"] for row in rows if row] == [7, None, None, None]
    assert rows[1]["why"].startswith("a value of 1 bytes (08) is not a valid A: ")
    with pytest.raises(Failed, match=r"is not a valid A: .*; decode with mode='PERMISSIVE'"):
        read(values, schema)


OLD = """
syntax = "proto2";
message Old { optional string word = 1; repeated string words = 2; map<string, string> by_name = 3; }
"""


def test_what_the_spark_type_cannot_hold_is_bad_and_its_neighbours_are_not(tmp_path: Path) -> None:
    new = load(source(tmp_path, EVERYTHING), "Everything")
    at, took, part = new.message(), new.message(), new.message()
    at.at.seconds = took.took.seconds = 1_700_000_000_000_000  # type: ignore[attr-defined]
    part.by_name["k"].name = "tea"  # type: ignore[attr-defined]
    messages = [part, at, took, new.message(small=7)]
    rows = read([each.SerializeToString() for each in messages], new, Outcome(error="why"))
    assert [(row["small"], bool(row["why"])) for row in rows] == [(0, False), (None, True), (None, True), (7, False)]
    sentence = "does not fit the Spark type of shop.Everything: a google.protobuf.Timestamp is beyond"
    assert sentence in rows[1]["why"]
    with pytest.raises(Failed, match=f"{sentence}.*; decode with mode='PERMISSIVE'"):
        read([at.SerializeToString()], new)
    assert read([b"\x50\x63"], new)[0]["colour"] == "99", "a number that the schema does not know is no error"


@pytest.mark.parametrize("value", [b"\x0a\x03\xed\xa0\x80", b"\x12\x01\xff", b"\x1a\x05\x0a\x03\xed\xa0\x80"])
def test_text_that_is_none_is_bad_though_old_schemas_let_it_pass(tmp_path: Path, value: bytes) -> None:
    old = load(source(tmp_path, OLD))
    rows = read([b"\x0a\x03tea", value, b""], old, Outcome(error="why"))
    assert [row["word"] for row in rows] == ["tea", None, None]
    assert [bool(row["why"]) for row in rows] == [False, True, False]
    with pytest.raises(Failed, match=r"Old: .*; decode with mode='PERMISSIVE'"):
        read([value], old)


@pytest.mark.parametrize("with_header", [False, True])
@pytest.mark.parametrize(("text", "name"), [(EVERYTHING, "Everything"), (OLD, "Old")], ids=["new", "old"])
def test_no_bytes_fail_a_permissive_query(tmp_path: Path, text: str, name: str, with_header: bool) -> None:
    schema = load(source(tmp_path, text), name)
    kind = to_arrow_type(spark_type(schema.descriptor), timezone="UTC")
    row = ROW if name == "Everything" else {"word": "tea", "words": ["a", "b"], "by_name": [("k", "v")]}
    prefix = header(7) + index_bytes(schema.index) if with_header else b""
    (value,) = protobuf.encode_values(pa.array([row], kind), schema, prefix).to_pylist()
    values = mutated([value], 1000, seed=5)
    column = pa.array(values, pa.binary())
    rows = protobuf.decode_values(column, schema, None, with_header, Outcome(error="why"))
    reasons = rows.field("why").to_pylist()
    assert any(reasons)
    nulls = protobuf.decode_values(column, schema, None, with_header, Outcome()).is_null().to_pylist()
    assert nulls == [why is not None for why in reasons]
    for value, why in list(zip(values, reasons, strict=True))[:100]:
        alone = pa.array([value], pa.binary())
        if why is None:
            protobuf.decode_values(alone, schema, None, with_header, Outcome(FAILFAST))
        else:
            with pytest.raises(Failed, match=f"{re.escape(why)}; decode with mode"):
                protobuf.decode_values(alone, schema, None, with_header, Outcome(FAILFAST))


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
        (pa.array([{"id": 1, "new": 1}]), "the column.new is not a field of A: remove it"),
        (pa.array([{"id": "x"}]), "the column.id is string, where the schema has int32: cast it"),
        (pa.array([{"id": 1 << 40}]), "the column.id does not fit int32 of the schema"),
        (pa.array([{"kind": "Z"}]), "cannot be written as A"),
    ],
)
def test_a_column_that_does_not_fit_is_refused_in_a_sentence(tmp_path: Path, column: pa.Array, sentence: str) -> None:
    schema = load(source(tmp_path, 'syntax = "proto3"; message A { int32 id = 1; K kind = 2; } enum K { X = 0; }'))
    with pytest.raises(Failed, match=sentence):
        protobuf.encode_values(column, schema, b"")


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


A = 'syntax = "proto3"; message A { int32 id = 1; }'


@pytest.mark.parametrize(
    "name",
    [
        "../outside.proto", "/{}/outside.proto", "a/../../outside.proto", "a\\b.proto", "", "a//b", "./a", "a\0b",
        "\ud800", "a" * 300,
    ],
    ids=range(10),
)  # fmt: skip
def test_a_registry_does_not_say_where_files_are_written(tmp_path: Path, name: str) -> None:
    name = name.replace("/{}", str(tmp_path))
    registry = registries.Canned("http://canned")
    registry.answers["/subjects/a/versions/1"] = {"id": 1, "schemaType": PROTOBUF, "schema": A}
    registered = Registered(registry, 2, PROTOBUF, A.replace("A", "B"), (Reference(name, "a", 1),))
    with pytest.raises(InvalidSchema, match=r"schema 2 refers to .*, which is not a valid import name"):
        load(registered)
    assert not list(tmp_path.iterdir())


def test_files_that_cannot_lie_beside_each_other_are_refused() -> None:
    registry = registries.Canned("http://canned")
    registry.answers["/subjects/a/versions/1"] = {"id": 1, "schemaType": PROTOBUF, "schema": A}
    references = (Reference("a", "a", 1), Reference("a/b.proto", "a", 1))
    with pytest.raises(InvalidSchema, match=r"schema 2 cannot be written to files for compiling: .*'a'"):
        load(Registered(registry, 2, PROTOBUF, A, references))


def referring(number: int, *others: tuple[str, int]) -> dict[str, Any]:
    references = [
        {"name": f"{subject}{version}.proto", "subject": subject, "version": version} for subject, version in others
    ]
    return {"id": number, "schemaType": PROTOBUF, "schema": A, "references": references}


def test_references_in_a_circle_or_without_end_are_refused() -> None:
    registry = registries.Canned("http://canned")
    registry.answers["/subjects/a/versions/1"] = referring(1, ("b", 1))
    registry.answers["/subjects/b/versions/1"] = referring(2, ("a", 1))
    with pytest.raises(InvalidSchema, match=r"schema 1 \(a\) needs version 1 of b, which needs itself"):
        load(registry.version("a", 1))
    for version in range(REFERENCES_MAX + 2):
        registry.answers[f"/subjects/long/versions/{version}"] = referring(version, ("long", version + 1))
    with pytest.raises(InvalidSchema, match=f"needs more than {REFERENCES_MAX} other schemas"):
        load(registry.version("long", 0))


def test_a_schema_that_many_need_is_fetched_once() -> None:
    registry = registries.Canned("http://canned")
    for version in range(12):
        registry.answers[f"/subjects/wide/versions/{version}"] = referring(
            version, ("wide", version + 1), ("wide", version + 2)
        )
    registry.answers.update({f"/subjects/wide/versions/{version}": referring(version) for version in (12, 13)})
    assert list(registry.version("wide", 0).collect_references())[-1] == "wide1.proto", "those without needs come first"
    assert len(registry.asked) == 14


def test_compiled_files_that_import_each_other_are_refused() -> None:
    files = [
        descriptor_pb2.FileDescriptorProto(name=name, dependency=[other]).SerializeToString()
        for name, other in (("a.proto", "b.proto"), ("b.proto", "a.proto"))
    ]
    with pytest.raises(InvalidSchema, match=r"the import a\.proto imports itself"):
        add_known(files)
