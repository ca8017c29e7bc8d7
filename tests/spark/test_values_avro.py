"""Avro values: types, evolution, bad bytes, and Confluent's own serializer on the other side."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from spark import registries
from spark.mutating import mutated

from ottla.client.failure import Failed
from ottla.spark.values import Registry, avro
from ottla.spark.values.avro_schema import leaves_out, load
from ottla.spark.values.header import header
from ottla.spark.values.outcome import FAILFAST, Outcome
from ottla.spark.values.registry import InvalidSchema, Reference

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

EVERYTHING: dict[str, Any] = {
    "type": "record",
    "name": "Everything",
    "namespace": "shop",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "large", "type": "long"},
        {"name": "single", "type": "float"},
        {"name": "twice", "type": "double"},
        {"name": "blob", "type": "bytes"},
        {"name": "word", "type": "string"},
        {"name": "maybe", "type": ["null", "string"], "default": None},
        {"name": "wide", "type": ["int", "long"]},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "again", "type": ["null", "Colour"], "default": None},
        {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "millis", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "micros", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "here", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "days", "type": {"type": "array", "items": {"type": "int", "logicalType": "date"}}},
        {
            "name": "stock",
            "type": {
                "type": "map",
                "values": {
                    "type": "record",
                    "name": "Place",
                    "fields": [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}],
                },
            },
        },
        {"name": "choice", "type": ["null", "string", "long", "Place", "Colour"]},
    ],
}
BEFORE_1970 = dt.datetime(1969, 7, 20, 20, 17, 40, 123000, dt.UTC)
ROW: dict[str, Any] = {
    "flag": True,
    "small": -7,
    "large": 1 << 40,
    "single": 0.5,
    "twice": 0.1,
    "blob": b"\0\1\2",
    "word": "žlutý",
    "maybe": None,
    "wide": 1 << 33,
    "colour": "BLUE",
    "again": "RED",
    "four": b"abcd",
    "day": dt.date(1969, 12, 31),
    "millis": BEFORE_1970,
    "micros": BEFORE_1970.replace(microsecond=123456),
    "here": dt.datetime(2024, 2, 29, 12),
    "price": Decimal("-1234.50"),
    "days": [dt.date(2024, 1, 1), dt.date(1900, 1, 1)],
    "stock": {"a": {"at": BEFORE_1970}},
    "choice": ("shop.Place", {"at": BEFORE_1970}),
}
AS_COLUMNS = {
    **ROW,
    "stock": [("a", {"at": BEFORE_1970})],
    "choice": {"member0": None, "member1": None, "member2": {"at": BEFORE_1970}, "member3": None},
}
V1 = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "old", "type": "string"}, {"name": "name", "type": "string"}],
}
V2 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "title", "aliases": ["name"], "type": "string"},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        {"name": "size", "type": "string", "default": "M"},
    ],
}


def written(schema: Any, row: Any) -> bytes:
    """By fastavro alone, with logical types as it knows them."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()


def read(values: list[bytes | None], schema: Any, writer: Any = None, outcome: Outcome | None = None) -> list[Any]:
    outcome = outcome or Outcome(FAILFAST)
    reader = load(schema)
    column = avro.decode_values(pa.array(values, pa.binary()), reader, load(writer or schema), None, False, outcome)
    assert column.type == to_arrow_type(outcome.spark_type(reader.tree.spark_type()), timezone="UTC")
    return column.to_pylist()  # type: ignore[no-any-return]


def test_every_type_is_read_as_spark_has_it_and_written_back_byte_for_byte() -> None:
    for choice, at in ((ROW["choice"], 2), ("a word", 0), (1 << 50, 1), (("shop.Colour", "RED"), 3), (None, None)):
        row = {**ROW, "choice": choice}
        value = written(EVERYTHING, row)
        plain = choice[1] if isinstance(choice, tuple) else choice
        members = {f"member{each}": plain if each == at else None for each in range(4)} if at is not None else None
        assert read([value, None], EVERYTHING) == [{**AS_COLUMNS, "choice": members}, None]
        reader = load(EVERYTHING)
        column = avro.decode_values(pa.array([value, None], pa.binary()), reader, reader, None, False, Outcome())
        assert avro.encode_values(column, reader, b"").to_pylist() == [value, None]


def test_a_value_is_seen_through_the_readers_schema() -> None:
    value = written(V1, {"id": 7, "old": "gone", "name": "tea"})
    assert read([value], V2, V1) == [{"id": 7, "title": "tea", "at": None, "size": "M"}]


def test_logical_types_are_the_readers() -> None:
    plain = {"type": "record", "name": "R", "fields": [{"name": "at", "type": "long"}]}
    moment = {
        **plain,
        "fields": [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}],
    }
    value = written(plain, {"at": 86_400_000})
    assert read([value], moment, plain) == [{"at": dt.datetime(1970, 1, 2, tzinfo=dt.UTC)}]
    assert read([value], plain, moment) == [{"at": 86_400_000}]


def of(kind: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """A record with one field, x."""
    return {"type": "record", "name": name, "fields": [{"name": "x", "type": kind, **more}]}


INTS, FLOATS = ["null", "int", "long", "string"], ["float", "double", "string"]
MOMENTS: list[Any] = [{"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-millis"}]
MONEY = {"type": "fixed", "size": 4, "logicalType": "decimal", "precision": 6, "scale": 2}
PLACE, AREA = of("string", "Place"), of("string", "Area")


@pytest.mark.parametrize(
    ("union", "choice", "member", "seen"),
    [
        (INTS, ("long", 5_000_000_000), 1, 5_000_000_000),
        (INTS, ("long", 7), 1, 7),
        (INTS, ("int", 7), 0, 7),
        (FLOATS, ("double", 0.1), 1, 0.1),
        (FLOATS, ("double", 0.5), 1, 0.5),
        (FLOATS, ("float", 0.5), 0, 0.5),
        (["double", "long", "int"], ("int", 7), 2, 7),
        (MOMENTS, ("long", BEFORE_1970), 1, BEFORE_1970),
        (MOMENTS, ("int", dt.date(1970, 1, 2)), 0, dt.date(1970, 1, 2)),
        ([PLACE, AREA, "string"], ("Area", {"x": "Brno"}), 1, {"x": "Brno"}),
        ([PLACE, {"type": "map", "values": "string"}], {"y": "Brno"}, 1, [("y", "Brno")]),
        (
            [{**MONEY, "name": "A"}, {**MONEY, "name": "B", "scale": 1}, "bytes"],
            ("B", Decimal("-1.5")),
            1,
            Decimal("-1.5"),
        ),
    ],
)
def test_a_value_of_a_union_is_of_the_branch_it_was_written_as(union: Any, choice: Any, member: int, seen: Any) -> None:
    schema = of({"type": "array", "items": union})
    value = written(schema, {"x": [choice]})
    (row,) = read([value], schema)
    assert {name: each for name, each in row["x"][0].items() if each is not None} == {f"member{member}": seen}
    reader = load(schema)
    column = avro.decode_values(pa.array([value], pa.binary()), reader, reader, None, False, Outcome(FAILFAST))
    assert avro.encode_values(column, reader, b"").to_pylist() == [value]


@pytest.mark.parametrize(
    ("wrote", "wants", "value", "member", "seen"),
    [
        ("long", INTS, 7, 1, 7),
        (["null", "long"], INTS, 7, 1, 7),
        (["string", "int"], ["string", "int", "long"], ("int", 7), 1, 7),
        (["string", "int"], ["string", "float", "double"], ("int", 7), 1, 7.0),
        ("float", ["string", "double", "float"], 0.5, 1, 0.5),
        ("string", ["long", "bytes"], "tea", 1, b"tea"),
        (PLACE, [AREA, PLACE], {"x": "Brno"}, 1, {"x": "Brno"}),
        ([AREA, PLACE], [PLACE, "string", AREA], ("Area", {"x": "Brno"}), 2, {"x": "Brno"}),
    ],
)
def test_a_value_is_of_the_branch_that_the_readers_schema_resolves_it_to(
    wrote: Any, wants: Any, value: Any, member: int, seen: Any
) -> None:
    (row,) = read([written(of(wrote), {"x": value})], of(wants), of(wrote))
    assert {name: each for name, each in row["x"].items() if each is not None} == {f"member{member}": seen}


def test_beside_a_union_all_else_is_as_without_one() -> None:
    both = {"type": "array", "items": ["null", PLACE]}
    fields = [{"name": "x", "type": both}, {"name": "y", "type": INTS}, {"name": "z", "type": ["int", "long"]}]
    schema = {"type": "record", "name": "R", "fields": [*fields, {"name": "n", "type": "float"}]}
    value = written(schema, {"x": [{"x": "Brno"}, None], "y": "tea", "z": 7, "n": 0.5})
    expected = {
        "x": [{"x": "Brno"}, None],
        "y": {"member0": None, "member1": None, "member2": "tea"},
        "z": 7,
        "n": 0.5,
    }
    assert read([value], schema) == [expected]
    moved = {**schema, "fields": [{"name": "first", "type": ["null", PLACE], "default": None}, *schema["fields"]]}
    moved["fields"][1] = {"name": "x", "type": {"type": "array", "items": ["null", "Place"]}}
    assert read([value], moved, schema) == [{"first": None, **expected}]


def test_the_default_of_a_union_is_of_its_first_branch() -> None:
    old, new = of("string"), of("string")
    new["fields"].append({"name": "n", "type": ["long", "int", "string"], "default": 5})
    (row,) = read([written(old, {"x": "tea"})], new, old)
    assert row["n"] == {"member0": 5, "member1": None, "member2": None}


@pytest.mark.parametrize(
    ("union", "given", "sentence"),
    [
        (
            INTS,
            {"member0": 1, "member1": None, "member2": "x"},
            "the column.x has more than one of member0, member1, member2 set",
        ),
        (
            FLOATS,
            {"member0": 0.1, "member1": None, "member2": None},
            "the column.x.member0 has numbers that float of the schema cannot",
        ),
        (INTS, {"member0": 1 << 40, "member1": None, "member2": None}, "the column.x.member0 does not fit int"),
    ],
)
def test_a_member_is_written_as_it_is_or_refused(union: Any, given: Any, sentence: str) -> None:
    with pytest.raises(Failed, match=sentence):
        avro.encode_values(pa.array([{"x": given}]), load(of(union)), b"")


def test_a_double_that_a_float_holds_is_written_as_one() -> None:
    kind = pa.struct(
        [("x", pa.struct([("member0", pa.float64()), ("member1", pa.float64()), ("member2", pa.string())]))]
    )
    rows = [{"x": {"member0": each}} for each in (0.5, float("nan"), float("inf"))] + [{"x": {"member1": 0.1}}]
    values = avro.encode_values(pa.array(rows, kind), load(of(FLOATS)), b"").to_pylist()
    assert [value[0] for value in values] == [0, 0, 0, 2]
    assert values[3] == written(of(FLOATS), {"x": ("double", 0.1)})


@pytest.mark.parametrize("with_header", [False, True])
@pytest.mark.parametrize(("wants", "wrote"), [(EVERYTHING, EVERYTHING), (V2, V1), (of(INTS), of(["null", "long"]))])
def test_no_bytes_fail_a_permissive_query(wants: Any, wrote: Any, with_header: bool) -> None:
    good = {"x": 1 << 40} if wrote["name"] == "R" else {"id": 7, "old": "gone", "name": "tea"} if wants is V2 else ROW
    value = (header(7) if with_header else b"") + written(wrote, good)
    reader, writer = load(wants), load(wrote)
    values = mutated([value], 1000, seed=5)
    column = pa.array(values, pa.binary())
    rows = avro.decode_values(column, reader, writer, None, with_header, Outcome(error="why"))
    assert rows.type == to_arrow_type(Outcome(error="why").spark_type(reader.tree.spark_type()), timezone="UTC")
    reasons = rows.field("why").to_pylist()
    assert any(reasons)
    nulls = avro.decode_values(column, reader, writer, None, with_header, Outcome()).is_null().to_pylist()
    assert nulls == [why is not None for why in reasons]
    for value, why in list(zip(values, reasons, strict=True))[:100]:
        alone = pa.array([value], pa.binary())
        if why is None:
            avro.decode_values(alone, reader, writer, None, with_header, Outcome(FAILFAST))
        else:
            with pytest.raises(Failed, match=f"{re.escape(why)}; decode with mode"):
                avro.decode_values(alone, reader, writer, None, with_header, Outcome(FAILFAST))


@pytest.mark.parametrize(
    "items",
    ["null", {"type": "null"}, {**PLACE, "fields": []}, of("null", "N"), {"type": "fixed", "name": "F", "size": 0}],
)
def test_an_array_without_end_is_refused(items: Any) -> None:
    assert avro.parse_schema(load(of(items)))
    for kind in ({"type": "array", "items": items}, ["null", {"type": "array", "items": items}]):
        with pytest.raises(InvalidSchema, match="has an array whose items take no bytes"):
            read([b"\xfe\xff\xff\xff\x7f"], of("int"), of(kind), Outcome())


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        (V2, V1, True),
        (V1, V2, True),
        (V1, V1, False),
        ({**V1, "fields": [*V1["fields"], {"name": "x", "type": "int", "default": 0}]}, V1, False),
        (of("string", aliases=["y"]), {**of("string"), "fields": [{"name": "y", "type": "string"}]}, False),
        ({**of("string", "a.B"), "aliases": ["c.R"]}, of("string"), False),
        (of("string", "Other"), of("string"), True),
        (of(["null", PLACE]), of(PLACE), False),
        (of(["null", "string"]), of(["string", PLACE]), True),
        ("long", "int", False),
    ],
)
def test_a_reader_may_leave_something_out(reader: Any, writer: Any, expected: bool) -> None:
    assert leaves_out(fastavro.parse_schema(reader), fastavro.parse_schema(writer)) is expected


def test_what_the_reader_leaves_out_does_not_end_or_hold_up_the_process() -> None:
    listed = of("long")
    listed["fields"].append({"name": "next", "type": ["null", "R"]})
    rows = read(
        [b"\x02" + b"\x02\x02" * deep + b"\0" for deep in (0, 100, 100_000)], of("long"), listed, Outcome(error="why")
    )
    assert [row["x"] for row in rows] == [1, 1, None]
    assert "recursion" in rows[2]["why"]
    floats = of("long")
    floats["fields"].append({"name": "many", "type": {"type": "array", "items": "float"}})
    wild = b"\x02" + b"\xfe" + b"\xff" * 7 + b"\x7f"
    rows = read([b"\x02\x02\0\0\0\0\0", wild, b"\x02\x02\0\0"], of("long"), floats, Outcome(error="why"))
    assert [(row["x"], row["why"] and "end too early" in row["why"]) for row in rows] == [
        (1, None),
        *[(None, True)] * 2,
    ]


def test_a_symbol_that_the_schema_does_not_have_is_named_as_such() -> None:
    colour = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
    schema = {"type": "record", "name": "Paint", "fields": [{"name": "colour", "type": colour}]}
    good, bad = read([b"\x02", b"\x08"], schema, outcome=Outcome(error="why"))
    assert good == {"colour": "BLUE", "why": None}
    assert "that the schema does not have" in bad["why"]


def test_bad_bytes_become_null_with_a_reason_or_fail_the_query() -> None:
    good = written(V1, {"id": 7, "old": "", "name": "tea"})
    torn, long, wild, text = good[:-1], good + b"\0", b"\xff" * 12, b"\x0e\x00\x02\xff"
    values = [good, torn, None, long, wild, text, b""]
    rows = read(values, V1, outcome=Outcome(error="why"))
    assert rows[0] == {"id": 7, "old": "", "name": "tea", "why": None}
    assert rows[2] is None, "a tombstone is no error"
    for row, value in ((1, torn), (3, long), (4, wild), (5, text), (6, b"")):
        assert {name: rows[row][name] for name in ("id", "old", "name")} == {"id": None, "old": None, "name": None}
        assert rows[row]["why"].startswith(f"a value of {len(value)} bytes")
    assert "end too early" in rows[1]["why"]
    assert "end too early" in rows[6]["why"]
    assert "1 bytes are left over" in rows[3]["why"]
    assert [row is not None for row in read(values, V1, outcome=Outcome())] == [True] + [False] * 6
    sentence = (
        "a value of 5 bytes (0e00067465) is not a valid Order of the schema: its bytes end too early; decode with mode"
    )
    with pytest.raises(Failed, match=re.escape(sentence)):
        read(values, V1)


def test_a_value_too_large_for_its_spark_type_is_bad_and_its_neighbours_are_not() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}],
    }
    raw = {**schema, "fields": [{"name": "at", "type": "long"}]}
    rows = read([written(raw, {"at": each}) for each in (0, 1 << 62, 1000)], schema, outcome=Outcome(error="why"))
    assert [row["at"] and row["at"].second for row in rows] == [0, None, 1]
    assert "does not fit the Spark type" in rows[1]["why"]


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (
            {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]},
            "is recursive .L within",
        ),
        ({"type": "record", "name": "L", "fields": [{"name": "x", "type": "Unknown"}]}, "uses the type Unknown"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}, "Spark's go up to 38 digits"),
        ("{not json", "is not an Avro schema, since it is not JSON"),
        ("missing.avsc", "cannot read the schema missing.avsc"),
        (5, "a schema is a file, a text or a registered one, not int"),
    ],
)
def test_a_schema_that_cannot_be_is_refused_in_a_sentence(schema: Any, sentence: str) -> None:
    with pytest.raises(Failed, match=sentence):
        load(schema).tree.spark_type()


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (pa.array([{"id": 1, "old": "", "name": "", "new": 1}]), r"the column.new is not a field of Order: remove it"),
        (pa.array([{"id": 1, "old": ""}]), "the column has no field name, which Order needs"),
        (pa.array([{"id": "x", "old": "", "name": ""}]), "the column.id is string, where the schema has int: cast it"),
        (pa.array([{"id": 1 << 40, "old": "", "name": ""}]), "the column.id does not fit int of the schema"),
        (pa.array([{"id": None, "old": "", "name": ""}]), "Order.id is null, but the schema needs a value"),
        (pa.array([1]), "the column is int64, where the schema has a struct .Order."),
    ],
)
def test_a_column_that_does_not_fit_is_refused_in_a_sentence(column: pa.Array, sentence: str) -> None:
    with pytest.raises(Failed, match=sentence):
        avro.encode_values(column, load(V1), b"")


def test_a_schema_made_from_a_frame_holds_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(
        [(1, "tea", Decimal("1.50"), dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC), ["a", None], {"k": 1.5}, (True,)),
         (2, None, None, None, None, None, None)],
        "id long not null, name string, price decimal(9,2), at timestamp, tags array<string>, marks map<string,double>,"
        " more struct<deep boolean>",
    )  # fmt: skip
    file = tmp_path / "row.avsc"
    file.write_text(avro.schema(frame.schema, "shop.Row"))
    value = avro.encode(F.struct(*frame.columns), str(file))
    back = frame.select(avro.decode(value, file, mode=FAILFAST).alias("row")).select("row.*")
    assert back.collect() == frame.collect()


def test_confluents_serializer_and_ours_read_each_other(spark: SparkSession) -> None:
    registry, client = Registry(registries.url()), SchemaRegistryClient({"url": registries.url()})
    topic = registries.fresh("orders")
    where = SerializationContext(topic, MessageField.VALUE)
    rows = [{"id": number, "old": "", "name": f"n{number}"} for number in range(50)]
    old = AvroSerializer(client, json.dumps(V1))
    values = [old(row, where) for row in rows] + [None, b"{}", b"\0\0\0\0"]
    first = registry.topic(topic)
    frame = spark.createDataFrame([(value,) for value in values], "value binary").coalesce(1)

    # Values of the first schema, seen as the second.
    renamed = {**V2, "fields": [field for field in V2["fields"] if field["name"] != "title"]}
    seen = frame.select(avro.decode("value", renamed, registry=registry, error="why").alias("o")).select("o.*")
    found = seen.collect()
    assert [(row.id, row.at, row.size, row.why) for row in found[:50]] == [(n, None, "M", None) for n in range(50)]
    assert [row.why and "no schema header" in row.why for row in found[50:]] == [None, True, True]
    with pytest.raises(Exception, match="has no schema header"):
        frame.select(avro.decode("value", first, mode=FAILFAST)).collect()

    # Ours, read by theirs; the id is that of the schema as theirs registered it.
    again = registry.register(first.subject or "", V1)
    assert again.id == first.id
    column = F.struct(
        F.col("id").cast("int").alias("id"), F.lit("").alias("old"), F.concat(F.lit("n"), F.col("id")).alias("name")
    )
    ours = spark.range(50).coalesce(1).select(avro.encode(column, again).alias("value")).collect()
    assert [bytes(row.value) for row in ours] == values[:50]
    theirs = AvroDeserializer(client)
    assert [theirs(bytes(row.value), where) for row in ours] == rows


def test_schemas_may_refer_to_others() -> None:
    with registries.Gate() as gate:
        check_references(Registry(gate.url))
        assert len([asked for asked in gate.asked if asked.startswith("GET /schemas/ids/")]) == 1
        assert len([asked for asked in gate.asked if "place" in asked and asked.startswith("GET")]) <= 2


def check_references(registry: Registry) -> None:
    place = {"type": "record", "name": "Place", "namespace": "geo", "fields": [{"name": "city", "type": "string"}]}
    subject = registries.fresh("place")
    registry.register(subject, place)
    trip = {
        "type": "record",
        "name": "Trip",
        "namespace": "shop",
        "fields": [{"name": "start", "type": "geo.Place"}, {"name": "stop", "type": ["null", "geo.Place"]}],
    }
    made = registry.register(registries.fresh("trip"), trip, references=(Reference("geo.Place", subject, 1),))
    schema = load(registry.latest(made.subject or ""))
    row = {"start": {"city": "Brno"}, "stop": {"city": "Praha"}}
    (value,) = avro.encode_values(pa.array([row]), schema, b"").to_pylist()
    assert value == b"\x08Brno\x02\x0aPraha"
    assert read([value], schema) == [row]
    column = pa.array([header(made.id) + value], pa.binary())
    for _ in range(3):
        assert avro.decode_values(column, schema, schema, registry, True, Outcome(FAILFAST)).to_pylist() == [row]
