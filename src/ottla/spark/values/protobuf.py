"""Protobuf values as Spark columns, and back.

    protobuf.decode("value", registry.latest("orders-value"))                      with a header
    protobuf.decode("value", registry.latest("orders-value"), message="Refund")    another message of the same file
    protobuf.decode("value", "order.proto", registry=registry)                     with a header, read as one's own
    protobuf.decode("value", "order.desc", message="shop.Order")                   bare bytes
    protobuf.encode(F.struct("id", "total"), registry.register("orders-value", "order.proto"))
    protobuf.encode(F.struct("id", "total"), "order.proto")                        bare bytes

`protobuf_schema` maps the types to Spark types, `outcome` defines what happens to bytes that cannot be read. A header
names the message that follows; a value of another message than the requested one is not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from google.protobuf.message import DecodeError, EncodeError
from pyspark.sql.types import BinaryType

from ottla.client.failure import Failed
from ottla.spark.values.header import bodies, by_schema, header, index_bytes, message_index
from ottla.spark.values.outcome import PERMISSIVE, Outcome, Report
from ottla.spark.values.protobuf_rows import arguments
from ottla.spark.values.protobuf_rows import column as arrow
from ottla.spark.values.protobuf_schema import Schema, fetch_files, load, message_at, spark_type
from ottla.spark.values.registry import InvalidSchema, Missing, Registered, Registry
from ottla.spark.values.udf import binary, over_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from google.protobuf.message import Message
    from pyspark.sql import Column

# What Google's runtime and Arrow raise on bytes that are not such a message, or that the Spark type cannot hold: times
# out of range, and text that is not UTF-8, which only newer schemas refuse when they parse it.
BAD: Final = (
    DecodeError, ValueError, LookupError, TypeError, ArithmeticError, MemoryError, RecursionError, pa.ArrowException,
)  # fmt: skip


def decode(
    column: Column | str,
    schema: Any,
    *,
    message: str | None = None,
    registry: Registry | None = None,
    with_header: bool | None = None,
    mode: str = PERMISSIVE,
    error: str | None = None,
) -> Column:
    """Decode bytes to the Spark type of a message: of a .proto file, a descriptor set, or a schema from a registry."""
    reader = load(schema, message)
    if isinstance(schema, Registered):
        registry = registry or schema.registry
    with_header = registry is not None if with_header is None else with_header
    return decoder(reader, registry if with_header else None, with_header, Outcome(mode, error))(column)


def encode(column: Column | str, schema: Any, *, message: str | None = None) -> Column:
    """Encode a struct as bytes; with the header if `schema` is from a registry. Null stays null: a tombstone."""
    written = load(schema, message)
    prefix = header(schema.id) + index_bytes(written.index) if isinstance(schema, Registered) else b""
    return encoder(written, prefix)(column)


# --- on the workers --------------------------------------------------------------------------------------------------


def decoder(
    reader: Schema, registry: Registry | None, with_header: bool, outcome: Outcome
) -> Callable[[Column | str], Column]:
    """The function that Spark calls with whole columns."""

    def from_protobuf(values: pa.Array) -> pa.Array:
        return decode_values(values, reader, registry, with_header, outcome)

    return over_columns(from_protobuf, outcome.spark_type(spark_type(reader.descriptor)))


def encoder(schema: Schema, prefix: bytes) -> Callable[[Column | str], Column]:
    def to_protobuf(values: pa.Array) -> pa.Array:
        return encode_values(values, schema, prefix)

    return over_columns(to_protobuf, BinaryType())


def decode_values(
    values: pa.Array, reader: Schema, registry: Registry | None, with_header: bool, outcome: Outcome
) -> pa.Array:
    values = binary(values)
    report = Report(values, outcome)
    made: list[Message | None] = [None] * len(values)
    parse = reader.message.FromString
    for row, content in contents(values, reader, registry, with_header, report):
        try:
            made[row] = parse(content)
        except BAD as error:
            report.bad(row, f"is not a valid {reader.name}: {error}")
    return report.finish(columns(made, reader, report))


def columns(made: list[Message | None], reader: Schema, report: Report) -> pa.Array:
    """Messages as an Arrow array. If one of them does not fit its type, each is tried alone to find it."""
    try:
        return arrow(made, reader.descriptor)
    except BAD:
        for row, message in enumerate(made):
            try:
                arrow([message], reader.descriptor)
            except BAD as error:
                made[row] = None
                report.bad(row, f"does not fit the Spark type of {reader.name}: {error}")
        return arrow(made, reader.descriptor)


def contents(
    values: pa.Array, reader: Schema, registry: Registry | None, with_header: bool, report: Report
) -> Iterator[tuple[int, bytes]]:
    """The rows that should be the reader's message, without their headers."""
    plain = bodies(values, with_header)
    if not with_header:
        yield from ((row, content) for row, content in enumerate(plain) if content is not None)
        return
    for number, where in by_schema(values, report):
        try:
            files = fetch_files(registry.by_id(number)) if registry else reader.files
        except (Missing, InvalidSchema) as error:
            for row in where:
                report.bad(row, f"names schema {number}, but {error}")
            continue
        names: dict[tuple[int, ...], str | None] = {}
        for row in where:
            content = plain[row]
            assert content is not None, "a value with a header is there"
            try:
                index, start = message_index(content)
            except ValueError as error:
                report.bad(row, f"is not a value of schema {number}: {error}")
                continue
            if index not in names:
                names[index] = message_at(files, index)
            if names[index] == reader.name:
                yield row, content[start:]
            else:
                other = names[index] or f"no message of it ({index})"
                report.bad(row, f"of schema {number} is {other}, not {reader.name}")


def encode_values(values: pa.Array, schema: Schema, prefix: bytes) -> pa.Array:
    message = schema.message
    made: list[bytes | None] = []
    for row in arguments(values, schema.descriptor, "the column"):
        try:
            made.append(None if row is None else prefix + message(**row).SerializeToString())
        except (ValueError, TypeError, EncodeError) as error:
            raise Failed(f"{str(row)[:200]} cannot be written as {schema.name} of {schema.what}: {error}") from None
    return pa.array(made, pa.binary())
