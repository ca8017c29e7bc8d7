"""JSON values: JSON Schema as a Spark type, bad text, and Confluent's own serializer on the other side."""

from __future__ import annotations

import datetime as dt
import json as plain
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import functions as F
from spark import registries
from spark.mutating import mutated

from ottla.client.failure import Failed
from ottla.spark.values import Registry, json
from ottla.spark.values.json_schema import load
from ottla.spark.values.registry import JSON

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ORDER: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "at": {"type": "string", "format": "date-time"},
        "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/Line"}},
    },
    "required": ["id"],
    "definitions": {"Line": {"type": "object", "properties": {"sku": {"type": "string"}, "price": {"type": "number"}}}},
}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (ORDER, "struct<id:bigint,at:timestamp,note:string,lines:array<struct<sku:string,price:double>>>"),
        ({"type": ["null", "boolean"]}, "boolean"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "map<string,bigint>"),
        ({"type": "object"}, "map<string,string>"),
        ({"properties": {"day": {"type": "string", "format": "date"}}}, "struct<day:date>"),
        ({"type": "string", "contentEncoding": "base64"}, "binary"),
        (
            {"allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {}}}]},
            "struct<a:string,b:string>",
        ),
        ({"anyOf": [{"type": "integer"}, {"type": "object"}]}, "string"),
        ({"enum": ["A", "B"]}, "string"),
    ],
)
def test_a_json_schema_is_a_spark_type(schema: Any, expected: str) -> None:
    assert load(schema)[0].simpleString() == expected


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ({"type": "object", "properties": {"next": {"$ref": "#"}}}, "is recursive"),
        ({"properties": {"x": {"$ref": "#/definitions/None"}}}, "refers to #/definitions/None, which neither"),
        ("{no", "is not a JSON Schema, since it is not JSON"),
    ],
)
def test_a_schema_that_cannot_be_is_refused_in_a_sentence(schema: Any, sentence: str) -> None:
    with pytest.raises(Failed, match=sentence):
        load(schema)


def test_text_is_read_by_a_file_and_written_back(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "order.json"
    file.write_text(plain.dumps(ORDER))
    texts = [
        '{"id":1,"at":"2024-02-29T12:00:00.123456Z","lines":[{"sku":"a","price":1.5}]}',
        None,
        '{"id":"x"}',
        "{",
        "",
    ]
    frame = spark.createDataFrame([(text,) for text in texts], "value string")
    rows = [row[0] for row in frame.select(json.decode("value", file, error="why")).collect()]
    assert rows[0].at.astimezone(dt.UTC) == dt.datetime(2024, 2, 29, 12, 0, 0, 123456, dt.UTC)
    assert (rows[0].id, rows[0].note, rows[0].lines[0].price, rows[0].why) == (1, None, 1.5, None)
    assert rows[1] is None, "a tombstone is no error"
    assert rows[3].why == f"a value of 1 bytes (7b) is not valid JSON for the schema {file}"
    assert [(row.id, bool(row.why)) for row in rows[2:]] == [(None, True)] * 3
    assert [row[0] is None for row in frame.select(json.decode("value", file)).collect()] == [False] + [True] * 4
    with pytest.raises(Exception, match=r"is not valid JSON for the schema .*; decode with mode='PERMISSIVE'"):
        frame.select(json.decode("value", file, mode="FAILFAST")).collect()
    back = frame.limit(1).select(json.encode(json.decode("value", file)).alias("value")).first()
    assert back is not None
    assert plain.loads(back.value) == plain.loads(texts[0] or "")


@pytest.mark.parametrize("with_header", [False, True])
def test_no_bytes_fail_a_permissive_query(spark: SparkSession, with_header: bool) -> None:
    order = {"id": 1 << 40, "at": "2024-02-29T12:00:00Z", "note": "žlutý", "lines": [{"sku": "a", "price": 1.5}]}
    prefix = b"\0\0\0\0\7" if with_header else b""
    tokens = [
        b"[" * 2000,
        b'{"id":' * 2000,
        b"1e999999999",
        b"-" * 99,
        b'"\\ud800"',
        b'"+999999999-01-01T00:00:00Z"',
        b"9" * 99,
    ]
    shapes = [b'{"id":%b}', b'{"at":%b}', b'{"lines":[{"price":%b}]}', b'{"note":%b}', b"%b"]
    crafted = [prefix + shape % token for shape in shapes for token in tokens]
    values = [*mutated([prefix + plain.dumps(order).encode(), *crafted], 400, seed=5), *crafted]
    frame = spark.createDataFrame([(value,) for value in values], "value binary").coalesce(1)
    judged = frame.select(
        json.decode("value", ORDER, with_header=with_header, error="why").alias("o"),
        json.decode("value", ORDER, with_header=with_header).alias("n"),
    )
    rows = judged.select("o.why", F.to_json("o").alias("all"), F.isnull("n").alias("null")).collect()
    assert len(rows) == len(values)
    assert [row.null for row in rows] == [row.why is not None for row in rows]
    assert any(row.null for row in rows)
    bad = values[next(at for at, row in enumerate(rows) if row.null)]
    with pytest.raises(Exception, match=r"a value of .*; decode with mode='PERMISSIVE'"):
        spark.createDataFrame([(bad,)], "value binary").select(
            json.decode("value", ORDER, with_header=with_header, mode="FAILFAST")
        ).collect()


def test_confluents_serializer_and_ours_read_each_other(spark: SparkSession) -> None:
    registry, client = Registry(registries.url()), SchemaRegistryClient({"url": registries.url()})
    topic = registries.fresh("orders")
    where = SerializationContext(topic, MessageField.VALUE)
    rows = [{"id": number, "note": f"n{number}", "lines": [{"sku": "a", "price": number / 2}]} for number in range(20)]
    serializer = JSONSerializer(plain.dumps(ORDER), client)
    values = [serializer(row, where) for row in rows] + [None, b"{}", b"\0\0\0"]
    frame = spark.createDataFrame([(value,) for value in values], "value binary").coalesce(1)
    schema = registry.topic(topic)
    found = [row[0] for row in frame.select(json.decode("value", schema, error="why")).collect()]
    seen = [(row.id, row.note, row.lines[0].price, row.why) for row in found[:20]]
    assert seen == [(number, f"n{number}", number / 2, None) for number in range(20)]
    assert found[20] is None
    assert ["no schema header" in row.why for row in found[21:]] == [True, True]

    ours = frame.limit(20).select(json.encode(json.decode("value", schema), schema).alias("value")).collect()
    assert {bytes(row.value)[:5] for row in ours} == {(values[0] or b"")[:5]}
    deserializer = JSONDeserializer(plain.dumps(ORDER), schema_registry_client=client)
    assert [deserializer(bytes(row.value), where) for row in ours] == rows


def test_a_schema_made_from_a_frame_is_taken_by_the_registry(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], "id long not null, at timestamp, tags array<string>, m map<string,double>")
    made = Registry(registries.url()).register(registries.fresh("rows"), json.schema(frame.schema, "Row"), kind=JSON)
    frame = spark.range(1).select(F.struct("id").alias("row")).select(json.encode("row", made).alias("value"))
    assert load(made)[0].simpleString() == "struct<id:bigint,at:timestamp,tags:array<string>,m:map<string,double>>"
    assert [bytes(row.value) for row in frame.collect()] == [b"\0" + made.id.to_bytes(4, "big") + b'{"id":0}']
