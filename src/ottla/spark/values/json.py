"""JSON values as Spark columns, and back: Spark's own from_json and to_json with a schema and the registry's header.

    json.decode("value", registry.latest("orders-value"))      with a header
    json.decode("value", "order.json")                         bare JSON, by a file with a JSON Schema
    json.decode("value", StructType([...]))                    bare JSON, by a Spark type
    json.encode(F.struct("id", "total"), registry.register("orders-value", "order.json", kind="JSON"))
    json.encode(F.struct("id", "total"))                       bare JSON
    json.schema(frame.schema, "Order")                         a schema for the rows of a frame, as text

Everything runs in the JVM. `json_schema` maps the types, `outcome` defines what happens to values that are not JSON.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql import types

from ottla.spark.values import json_schema
from ottla.spark.values.header import SIZE, header
from ottla.spark.values.outcome import FAILFAST, PERMISSIVE, SHOWN, Outcome
from ottla.spark.values.registry import Registered

if TYPE_CHECKING:
    from pyspark.sql import Column

CORRUPT: Final = "_ottla_corrupt"
MICROSECONDS: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"


def decode(
    column: Column | str,
    schema: Any,
    *,
    with_header: bool | None = None,
    mode: str = PERMISSIVE,
    error: str | None = None,
) -> Column:
    """Decode bytes, or a string, to the Spark type of a JSON Schema: a file, a text, JSON values, or one from a
    registry."""
    kind, what = json_schema.load(schema)
    outcome = Outcome(mode, error)
    outcome.spark_type(kind)  # fails if the name for errors is invalid
    if with_header is None:
        with_header = isinstance(schema, Registered)
    value = (F.col(column) if isinstance(column, str) else column).cast("binary")
    text = (F.substring(value, SIZE + 1, 2**31 - 1) if with_header else value).cast("string")
    # Through a lambda, so that the text is parsed once, however often `judge` uses it.
    parsed = F.from_json(text, with_corrupt(kind).json(), {"mode": PERMISSIVE, "columnNameOfCorruptRecord": CORRUPT})
    judged = F.transform(F.array(parsed), lambda row: judge(value, row, kind, what, with_header, outcome))
    return F.element_at(judged, 1)


def encode(column: Column | str, schema: Registered | None = None) -> Column:
    """Encode a struct, array or map as JSON bytes; with the header of a registered schema. Null stays null: a
    tombstone."""
    text = F.encode(F.to_json(column, {"timestampFormat": MICROSECONDS}), "UTF-8")
    return text if schema is None else F.concat(F.lit(bytearray(header(schema.id))), text)


def schema(kind: types.StructType, name: str) -> str:
    """The text of a JSON Schema for the rows of a frame."""
    return json.dumps({"title": name, **json_schema.from_spark(kind, name)})


def with_corrupt(kind: types.DataType) -> types.DataType:
    """Only a struct can have a field for errors."""
    if not isinstance(kind, types.StructType):
        return kind
    return types.StructType([*kind.fields, types.StructField(CORRUPT, types.StringType())])


def judge(value: Column, row: Column, kind: types.DataType, what: str, with_header: bool, outcome: Outcome) -> Column:
    """The decoded row, or what `outcome` makes of one that could not be read."""
    is_struct = isinstance(kind, types.StructType)
    bad = row.isNull() | (row[CORRUPT].isNotNull() if is_struct else F.lit(False))
    why = F.lit(f"is not valid JSON for {what}")
    if with_header:
        headless = (F.length(value) < SIZE) | (F.substring(value, 1, 1) != F.lit(bytearray(1)))
        bad = headless | bad
        why = F.when(headless, F.lit("has no schema header (the byte 0 and a schema id of four bytes)")).otherwise(why)
    reason = F.concat(F.lit("a value of "), F.length(value), F.lit(" bytes ("), start(value), F.lit(") "), why)
    if outcome.mode == FAILFAST:
        advice = F.lit("; decode with mode='PERMISSIVE' and error='...' to set such records aside")
        failure = F.raise_error(F.concat(reason, advice))
    else:
        failure = F.lit(None)
    good = row.dropFields(CORRUPT) if is_struct else row
    if outcome.error is not None:
        assert isinstance(kind, types.StructType)
        good = good.withField(outcome.error, F.lit(None).cast("string"))
        empty = [F.lit(None).cast(field.dataType).alias(field.name) for field in kind.fields]
        if outcome.mode == PERMISSIVE:
            failure = F.struct(*empty, reason.alias(outcome.error))
    return F.when(value.isNull(), F.lit(None)).when(bad, failure).otherwise(good)


def start(value: Column) -> Column:
    more = F.when(F.length(value) > SHOWN, F.lit("...")).otherwise(F.lit(""))
    return F.concat(F.lower(F.hex(F.substring(value, 1, SHOWN))), more)
