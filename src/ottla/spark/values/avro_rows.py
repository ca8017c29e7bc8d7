"""Converts between Python values as fastavro has them and Arrow columns as Spark has them.

Decoded records become one Arrow array in one call, with dates and timestamps still as numbers. The numbers are then
converted a column at a time. On the way back, columns become lists first and rows last: a row is a dict made by zip.

If a schema has unions, fastavro is given the writer's schema with marks, and returns marked values as (label, value).
The label is that of the reader's type as which the value was read, and so of its branch.
"""

from __future__ import annotations

from decimal import Decimal
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from fastavro.read import LOGICAL_READERS

from ottla.client.failure import Failed
from ottla.spark.values.avro_schema import MARK, NAMED, NUMBERS, TIMESTAMPS_BY_NAME, WIDER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.spark.values.avro_schema import SchemaNode

RAW = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}


def raw_type(node: SchemaNode) -> pa.DataType:
    """The first Arrow type of decoded values: as encoded in the bytes, except for decimals."""
    node = node.value
    if node.kind == "record":
        return pa.struct([(name, raw_type(field)) for name, field, _ in node.fields])
    if node.kind == "union":
        return pa.struct([(f"member{at}", raw_type(branch)) for at, branch in enumerate(node.branches)])
    if node.kind == "array":
        return pa.list_(pa.field("element", raw_type(inner(node))))
    if node.kind == "map":
        return pa.map_(pa.string(), raw_type(inner(node)))
    if node.logical == "decimal":
        return pa.decimal128(node.precision, node.scale)
    return RAW[node.kind]


def inner(node: SchemaNode) -> SchemaNode:
    assert node.items, "an array or a map has items"
    return node.items


def refine(values: pa.Array, node: SchemaNode) -> pa.Array:
    """Convert numbers that are dates or timestamps, at any depth of the column."""
    node = node.value
    if not has_moments(node):
        return values
    if node.kind in ("record", "union"):
        parts = [field for _, field, _ in node.fields] or list(node.branches)
        names = [field.name for field in values.type]
        arrays = [refine(values.field(at), part) for at, part in enumerate(parts)]
        return pa.StructArray.from_arrays(arrays, names=names, mask=values.is_null())
    if node.kind == "array":
        items = refine(values.values, inner(node))
        kind = pa.list_(pa.field("element", items.type))
        return pa.ListArray.from_arrays(values.offsets, items, type=kind, mask=values.is_null())
    if node.kind == "map":
        items = refine(values.items, inner(node))
        kind = pa.map_(pa.string(), items.type)
        return pa.MapArray.from_arrays(values.offsets, values.keys, items, type=kind, mask=values.is_null())
    if node.logical == "date":
        return values.cast(pa.date32())
    times, divisor = TIMESTAMPS_BY_NAME[node.logical]
    if times > 1:
        values = pc.multiply_checked(values, times)
    if divisor > 1:
        values = floor_divide(values, divisor)
    return values.cast(pa.timestamp("us", None if node.logical.startswith("local") else "UTC"))


def floor_divide(values: pa.Array, divisor: int) -> pa.Array:
    """Division rounding down, as times before 1970 need it."""
    quotient = pc.divide(values, divisor)
    behind = pc.less(pc.subtract(values, pc.multiply(quotient, divisor)), 0)
    return pc.subtract(quotient, behind.cast(pa.int64()))


def has_moments(node: SchemaNode) -> bool:
    node = node.value
    return node.logical in TIMESTAMPS_BY_NAME or node.logical == "date" or any(map(has_moments, node.parts))


def unions(node: SchemaNode) -> Iterator[SchemaNode]:
    """Every nested union that is more than a nullable type: its values must be distinguished one by one."""
    node = node.value
    if node.kind == "union":
        yield node
    for part in node.parts:
        yield from unions(part)


def has_both_widths(union: SchemaNode) -> bool:
    """Has it numeric types that are the same in Python? The first that matches would truncate them, or not hold
    them."""
    kinds = {branch.kind for branch in union.branches}
    return any(widths <= kinds for widths in WIDER)


def label_value(value: Any, writer: Any, reader: Any) -> tuple[str, Any]:
    """What fastavro calls with each value of a marked type: returns the label of the type it was read as, and the
    value."""
    seen = writer if reader is None else reader
    label = seen if isinstance(seen, str) else seen.get("name") or seen["type"]
    # Widening integers is left to us: fastavro does it only for types without a logical type.
    return label, float(value) if label in ("float", "double") else value


def label_decimal(value: Any, writer: Any, reader: Any) -> tuple[str, Any]:
    return label_value(LOGICAL_READERS["fixed-decimal"](value, writer, reader), writer, reader)


LOGICAL_READERS.update({f"{kind}-{MARK}": label_value for kind in (*NAMED, *NUMBERS)})
LOGICAL_READERS[f"fixed-{MARK}-decimal"] = label_decimal


def members(node: SchemaNode, numbers: bool) -> Callable[[Any], Any]:
    """A function that removes all marks, and puts each value of a union under the name of its branch."""
    node = node.value
    if node.kind == "record":
        parts = [(name, members(field, numbers)) for name, field, _ in node.fields]

        def record(value: Any) -> Any:
            value = bare(value)
            return None if value is None else {name: part(value[name]) for name, part in parts}

        return record
    if node.kind == "union":
        return member(node, numbers)
    if node.kind in ("array", "map") and is_marked(inner(node), numbers):
        item = members(inner(node), numbers)
        if node.kind == "array":
            return lambda value: None if value is None else [item(each) for each in value]
        return lambda value: None if value is None else {key: item(each) for key, each in value.items()}
    return bare


def member(node: SchemaNode, numbers: bool) -> Callable[[Any], Any]:
    branches = [(branch, f"member{at}", members(branch, numbers)) for at, branch in enumerate(node.branches)]
    branches.sort(key=lambda each: bool(each[0].name))  # a map is a dict too: named types have a mark

    def union(value: Any) -> Any:
        if value is None:
            return None
        for branch, name, part in branches:
            if is_of(value, branch):
                return {name: part(value)}
        raise ValueError(f"{value!r} matches no branch of its union")

    return union


def bare(value: Any) -> Any:
    return value[1] if type(value) is tuple else value


def is_marked(node: SchemaNode, numbers: bool) -> bool:
    node = node.value
    return (
        bool(node.name)
        or node.kind == "union"
        or (numbers and node.kind in NUMBERS)
        or any(is_marked(part, numbers) for part in node.parts)
    )


PYTHON: dict[str, type] = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "string": str,
    "array": list,
    "map": dict,
    "record": dict,
    "enum": str,
    "fixed": bytes,
}


def is_of(value: Any, branch: SchemaNode) -> bool:
    """By its mark. A value without one is the only one of its Python type in the union, or a default, which is never
    marked."""
    if type(value) is tuple:
        return bool(branch.label == value[0])
    return type(value) is (Decimal if branch.logical == "decimal" else PYTHON[branch.kind])


# --- columns to rows -------------------------------------------------------------------------------------------------


def rows(values: pa.Array, node: SchemaNode, path: str) -> list[Any]:
    """Python values as fastavro writes them. A column that does not fit the schema raises Failed."""
    node = node.value
    kind = values.type
    if node.kind == "record":
        return records(values, node, path)
    if node.kind == "union":
        return choose_members(values, node, path)
    if node.kind == "array":
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            raise misfit(path, kind, "an array")
        items = rows(values.values, inner(node), f"{path}[]")
        return pieces(values, items)
    if node.kind == "map":
        if not pa.types.is_map(kind):
            raise misfit(path, kind, "a map")
        keys, items = values.keys.to_pylist(), rows(values.items, inner(node), f"{path}{{}}")
        pairs = pieces(values, list(zip(keys, items, strict=True)))
        return [None if each is None else dict(each) for each in pairs]
    return leaves(values, node, path)


def records(values: pa.Array, node: SchemaNode, path: str) -> list[Any]:
    if not pa.types.is_struct(values.type):
        raise misfit(path, values.type, f"a struct ({node.name})")
    given = [field.name for field in values.type]
    wanted = {name for name, _, _ in node.fields}
    if unknown := [name for name in given if name not in wanted]:
        raise Failed(f"{path}.{unknown[0]} is not a field of {node.name}: remove it, or add it to the schema")
    names, columns = [], []
    parts = values.flatten()  # null where the struct is null, otherwise hidden values would be checked too
    for name, field, has_default in node.fields:
        if name in given:
            names.append(name)
            columns.append(rows(parts[given.index(name)], field, f"{path}.{name}"))
        elif not has_default:
            raise Failed(
                f"{path} has no field {name}, which {node.name} needs: add it, or give it a default in the schema"
            )
    if not columns:
        return [{} if there else None for there in values.is_valid().to_pylist()]
    made = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return hidden(made, values)


def choose_members(values: pa.Array, node: SchemaNode, path: str) -> list[Any]:
    """member0, member1, ... back to the one that is set."""
    expected = [f"member{at}" for at in range(len(node.branches))]
    if not pa.types.is_struct(values.type) or [field.name for field in values.type] != expected:
        raise misfit(path, values.type, f"a struct of {', '.join(expected)}, with one of them set")
    parts = values.flatten()
    if (pc.max(reduce(pc.add, (part.is_valid().cast(pa.int32()) for part in parts))).as_py() or 0) > 1:
        raise Failed(
            f"{path} has more than one of {', '.join(expected)} set: a union holds one value, so set one of them"
        )
    for at, branch in enumerate(node.branches):
        if branch.kind == "float" and not is_exact(parts[at], pa.float32()):
            raise Failed(
                f"{path}.{expected[at]} has numbers that float of the schema cannot hold: cast it to float first"
            )
    columns = [rows(parts[at], branch, f"{path}.{expected[at]}") for at, branch in enumerate(node.branches)]
    labels = [branch.label for branch in node.branches]
    made = [
        next(((label, value) for label, value in zip(labels, row, strict=True) if value is not None), None)
        for row in zip(*columns, strict=True)
    ]
    return hidden(made, values)


def is_exact(values: pa.Array, kind: pa.DataType) -> bool:
    """Does a narrower floating type hold all values of a column exactly? Arrow rounds silently."""
    if not pa.types.is_float64(values.type):
        return True
    same = pc.equal(values.cast(kind).cast(values.type), values)
    return pc.all(pc.or_(same, pc.is_nan(values))).as_py() is not False


def leaves(values: pa.Array, node: SchemaNode, path: str) -> list[Any]:
    kind = values.type
    if node.logical in TIMESTAMPS_BY_NAME:
        if not pa.types.is_timestamp(kind):
            raise misfit(path, kind, "a timestamp")
        times, divisor = TIMESTAMPS_BY_NAME[node.logical]
        values = values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
        values = floor_divide(values, times) if times > 1 else pc.multiply_checked(values, divisor)
    elif node.logical == "date":
        if not pa.types.is_date(kind):
            raise misfit(path, kind, "a date")
        values = values.cast(pa.int32())
    elif pa.types.is_temporal(kind) or pa.types.is_nested(kind):
        raise misfit(path, kind, node.kind)
    elif node.logical == "decimal" and not (pa.types.is_decimal(kind) or pa.types.is_integer(kind)):
        raise misfit(path, kind, "a decimal")
    elif pa.types.is_string(kind) is not (node.kind in ("string", "enum")) and not pa.types.is_null(kind):
        raise misfit(path, kind, node.kind)
    elif values.type != raw_type(node) and node.kind != "null":
        try:
            values = values.cast(raw_type(node))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise Failed(f"{path} does not fit {node.logical or node.kind} of the schema: {error}") from None
    return python(values)


def python(values: pa.Array) -> list[Any]:
    """Like to_pylist, but at numpy's speed for numbers without nulls."""
    if not values.null_count and (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        return values.to_numpy().tolist()  # type: ignore[no-any-return]
    return values.to_pylist()  # type: ignore[no-any-return]


def pieces(values: pa.Array, items: list[Any]) -> list[Any]:
    made = [items[start:stop] for start, stop in pairwise(values.offsets.to_numpy().tolist())]
    return hidden(made, values)


def hidden(made: list[Any], values: pa.Array) -> list[Any]:
    """None where the column is null, whatever the array holds there."""
    if not values.null_count:
        return made
    return [row if there else None for row, there in zip(made, values.is_valid().to_pylist(), strict=True)]


def misfit(path: str, kind: pa.DataType, wanted: str) -> Failed:
    return Failed(f"{path} is {kind}, where the schema has {wanted}: cast it, or change the schema")
