"""Which columns of a plan are written to a topic, and which types they may have. Checked on the driver, before any
task.

Names, types and meanings are those of Spark's Kafka sink; `timestamp` is Ottla's addition. Other columns are ignored,
as in Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ottla.client.failure import Failed

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


class ColumnKind(Protocol):
    def __call__(self, kind: DataType) -> bool: ...


def _text(kind: DataType) -> bool:
    return isinstance(kind, StringType | BinaryType)


def _headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    return [(field.name, type(field.dataType)) for field in kind.elementType] == [
        ("key", StringType),
        ("value", BinaryType),
    ]


# Column → check of its type, the names of the allowed types, and how to convert to them.
KINDS: Final[dict[str, tuple[ColumnKind, str, str]]] = {
    "topic": (lambda kind: isinstance(kind, StringType), "string", "cast it to string"),
    "key": (_text, "string or binary", "cast it to string, or encode it"),
    "value": (_text, "string or binary", "cast it to string, or combine several columns with to_json(struct(...))"),
    "headers": (
        _headers,
        "array<struct<key:string,value:binary>>",
        "build it by array(struct(lit('name') as key, cast(... as binary) as value))",
    ),
    "partition": (lambda kind: isinstance(kind, IntegerType), "int", "cast it to int"),
    "timestamp": (
        lambda kind: isinstance(kind, TimestampType | TimestampNTZType | LongType),
        "timestamp, or bigint with milliseconds",
        "cast it to timestamp, or drop it, and records get the time at which they are written",
    ),
}


def columns(schema: StructType, topic: str | None) -> frozenset[str]:
    """The columns of a plan that are written. Raises Failed, with the fix, if the plan cannot be written."""
    found = {field.name: field.dataType for field in schema}
    if "value" not in found:
        raise Failed(
            f"there is no column value, only {', '.join(found) or 'none'}: name the one to write with "
            "selectExpr('... AS value'), or combine several with to_json(struct(*)) AS value"
        )
    if topic is None and "topic" not in found:
        raise Failed("no topic to write to: set option topic, or add a column topic")
    for name, (fits, kinds, fix) in KINDS.items():
        if name in found and not fits(found[name]) and not (name == "topic" and topic is not None):
            raise Failed(f"column {name} is {found[name].simpleString()}, but must be {kinds}: {fix}")
    return frozenset(KINDS.keys() & found.keys()) - ({"topic"} if topic is not None else set())
