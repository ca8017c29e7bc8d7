"""Avro values as Spark columns, and back.

    avro.decode("value", registry.latest("orders-value"))     each value by the schema it names, read as this one
    avro.decode("value", "order.avsc", registry=registry)     the same, read as a schema of your own
    avro.decode("value", "order.avsc")                        bare bytes, written with this very schema
    avro.decode("value", "order.avsc", writer="old.avsc")     bare bytes, written with another
    avro.encode(F.struct("id", "total"), registry.register("orders-value", "order.avsc"))      with a header
    avro.encode(F.struct("id", "total"), "order.avsc")        bare bytes
    avro.schema(frame.schema, "shop.Order")                   a schema for the rows of a frame, as text

`avro_schema` maps Avro types to Spark types, `outcome` defines what happens to bytes that cannot be read.
"""

from __future__ import annotations

import io
import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import fastavro
import pyarrow as pa
from fastavro import _read_py as in_python
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException, UnknownType
from fastavro.validation import ValidationError, validate
from pyspark.sql.types import BinaryType

from ottla.client.failure import Failed
from ottla.spark.values import avro_schema
from ottla.spark.values.avro_rows import has_both_widths, members, raw_type, refine, rows, unions
from ottla.spark.values.avro_schema import Schema, has_endless_arrays, is_recursive, leaves_out, load, mark
from ottla.spark.values.header import bodies, by_schema, header
from ottla.spark.values.outcome import PERMISSIVE, Outcome, Report
from ottla.spark.values.registry import InvalidSchema, Missing, Registered, Registry
from ottla.spark.values.udf import binary, over_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import Column, types

# What fastavro and Arrow raise on bytes that are not a value of the schema: torn ones, absurd lengths, text that is not
# UTF-8, indexes without a symbol or a branch, values that the reader's type cannot hold, schemas that do not resolve.
BAD: Final = (
    EOFError, ValueError, LookupError, TypeError, ArithmeticError, MemoryError, StopIteration, RecursionError,
    SchemaResolutionError, pa.ArrowException,
)  # fmt: skip
TORN: Final = "string index out of range"  # what fastavro's compiled reader says where a number is cut off
UNKNOWN: Final = "list index out of range"  # the same for the number of a symbol or of a member
UNPARSED: Final = (
    SchemaParseException, UnknownType, LookupError, TypeError, ValueError, AttributeError, RecursionError,
)  # fmt: skip


def decode(
    column: Column | str,
    schema: Any,
    *,
    registry: Registry | None = None,
    writer: Any = None,
    with_header: bool | None = None,
    mode: str = PERMISSIVE,
    error: str | None = None,
) -> Column:
    """Decode bytes to the Spark type of `schema`: a file, a text, JSON values, or one from a registry."""
    reader = load(schema)
    if isinstance(schema, Registered):
        registry = registry or schema.registry
    if registry and writer is not None:
        raise Failed("writer= is for bare bytes: with a registry each value names the schema it was written with")
    written = load(writer) if writer is not None else reader
    with_header = registry is not None if with_header is None else with_header
    return decoder(reader, written, registry if with_header else None, with_header, Outcome(mode, error))(column)


def encode(column: Column | str, schema: Any) -> Column:
    """Encode a struct as bytes; with the header if `schema` is from a registry. Null stays null: a tombstone."""
    written = load(schema)
    assert written.tree, "refused here, not on a worker"
    prefix = header(schema.id) if isinstance(schema, Registered) else b""
    return encoder(written, prefix)(column)


def schema(kind: types.StructType, name: str) -> str:
    """The text of a schema for the rows of a frame. Nullable fields have null as their default."""
    return json.dumps(avro_schema.from_spark(kind, name))


# --- on the workers --------------------------------------------------------------------------------------------------


def decoder(
    reader: Schema, writer: Schema, registry: Registry | None, with_header: bool, outcome: Outcome
) -> Callable[[Column | str], Column]:
    """The function that Spark calls with whole columns."""

    def from_avro(values: pa.Array) -> pa.Array:
        return decode_values(values, reader, writer, registry, with_header, outcome)

    return over_columns(from_avro, outcome.spark_type(reader.tree.spark_type()))


def encoder(schema: Schema, prefix: bytes) -> Callable[[Column | str], Column]:
    def to_avro(values: pa.Array) -> pa.Array:
        return encode_values(values, schema, prefix)

    return over_columns(to_avro, BinaryType())


def decode_values(
    values: pa.Array, reader: Schema, writer: Schema, registry: Registry | None, with_header: bool, outcome: Outcome
) -> pa.Array:
    values = binary(values)
    report = Report(values, outcome)
    made: list[Any] = [None] * len(values)
    contents = bodies(values, with_header)
    for written, where in batches(values, writer, registry, with_header, report):
        read = reading(written, reader)
        for row in where:
            content = contents[row]
            if content is None:
                continue
            try:
                made[row] = read(content)
            except BAD as error:
                report.bad(row, f"is not a valid {reader.tree.value.label} of {written.what}: {reason(error)}")
    return report.finish(columns(made, reader, report))


def batches(
    values: pa.Array, writer: Schema, registry: Registry | None, with_header: bool, report: Report
) -> Iterator[tuple[Schema, Sequence[int]]]:
    """The rows by the schema that they were written with. Rows that name none are reported."""
    if not with_header:
        yield writer, range(len(values))
        return
    for number, where in by_schema(values, report):
        try:
            written = load(registry.by_id(number)) if registry else writer
            parse_schema(written)
        except (Missing, InvalidSchema) as error:
            for row in where:
                report.bad(row, f"names schema {number}, but {error}")
        else:
            yield written, where


@lru_cache(256)
def reading(writer: Schema, reader: Schema) -> Callable[[bytes], Any]:
    """Decode one value to Python; all of its bytes must be used."""
    wrote, wants = parse_schema(writer), None if writer.text == reader.text else parse_schema(reader)
    shape = None
    if choices := list(unions(reader.tree)):
        numbers = any(map(has_both_widths, choices))
        wrote, shape = fastavro.parse_schema(mark(writer.plain, numbers)), members(reader.tree, numbers)

    around, reads = io.BytesIO, fastavro.schemaless_reader
    if wants is not None and leaves_out(wants, wrote):
        # fastavro skips without checking where the bytes end, and in C, where a deeply nested value crashes the
        # process. Guarding against both costs a quarter of the speed or more, so it is only done where needed.
        around, reads = Whole, in_python.schemaless_reader if is_recursive(wrote, ()) else reads

    def read(content: bytes) -> Any:
        stream = around(content)
        value = reads(stream, wrote, wants)
        if stream.tell() != len(content):
            raise ValueError(f"{len(content) - stream.tell()} bytes are left over")
        return shape(value) if shape else value

    return read


class Whole(io.BytesIO):
    """Bytes that raise if fewer are left than requested: otherwise an absurd count of items to skip would be tried to
    the last."""

    def read(self, size: int | None = -1, /, take: Callable[..., bytes] = io.BytesIO.read) -> bytes:
        found = take(self, size)
        if len(found) != size:
            raise EOFError
        return found


@lru_cache(256)
def parse_schema(schema: Schema) -> Any:
    try:
        made = fastavro.parse_schema(schema.plain)
        endless = has_endless_arrays(made)
    except UNPARSED as error:
        raise InvalidSchema(f"{schema.what} is not an Avro schema: {reason(error)}") from None
    if endless:
        raise InvalidSchema(
            f"{schema.what} has an array whose items take no bytes, so five bytes could mean billions of them: "
            f"give its items some content"
        )
    return made


def columns(made: list[Any], reader: Schema, report: Report) -> pa.Array:
    """Decoded values as an Arrow array. If one of them does not fit its type, each is tried alone to find it."""
    kind = raw_type(reader.tree)
    try:
        return refine(pa.array(made, kind), reader.tree)
    except BAD:
        for row, value in enumerate(made):
            try:
                refine(pa.array([value], kind), reader.tree)
            except BAD as error:
                made[row] = None
                report.bad(row, f"does not fit the Spark type of {reader.what}: {reason(error)}")
        return refine(pa.array(made, kind), reader.tree)


def encode_values(values: pa.Array, schema: Schema, prefix: bytes) -> pa.Array:
    wrote = parse_schema(schema)
    made: list[bytes | None] = []
    stream = io.BytesIO()
    for row in rows(values, schema.tree, "the column"):
        if row is None:
            made.append(None)
            continue
        stream.seek(0)
        stream.truncate()
        stream.write(prefix)
        try:
            fastavro.schemaless_writer(stream, wrote, row)
        except BAD as error:
            why = find_null(row, wrote) or reason(error)
            raise Failed(f"{str(row)[:200]} cannot be written as {schema.what}: {why}") from None
        made.append(stream.getvalue())
    return pa.array(made, pa.binary())


def find_null(row: Any, wrote: Any) -> str:
    """The field that is null although the schema does not allow it: writers only name a Python type. Or nothing."""
    try:
        validate(row, wrote)
    except ValidationError as error:
        return next(
            (f"{one.field} is null, but the schema needs a value" for one in error.errors if one.datum is None), ""
        )
    except BAD:
        pass
    return ""


def reason(error: BaseException) -> str:
    if isinstance(error, EOFError) or TORN in str(error):
        return "its bytes end too early"
    if UNKNOWN in str(error):
        return "it has a symbol, or a member of a union, that the schema does not have"
    return " ".join(str(error).split()) or type(error).__name__
