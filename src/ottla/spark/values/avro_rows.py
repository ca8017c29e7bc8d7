"""Between Python values as fastavro has them and Arrow columns as Spark has them.

Decoded records become one Arrow array in one call, dates and timestamps still as numbers; the numbers become dates and
timestamps a column at a time. On the way back columns become lists first and rows last: a row is a dict made by zip.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ottla.client.failure import Failed
from ottla.spark.values.avro_schema import TIMESTAMPS_BY_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.spark.values.avro_schema import Node

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


def raw_type(node: Node) -> pa.DataType:
    """What decoded values become first: as they lie in the bytes, but for decimals."""
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


def inner(node: Node) -> Node:
    assert node.items, "an array or a map has items"
    return node.items


def refined(values: pa.Array, node: Node) -> pa.Array:
    """Numbers that are dates or timestamps, as those, wherever they are in the column."""
    node = node.value
    if not has_moments(node):
        return values
    if node.kind in ("record", "union"):
        parts = [field for _, field, _ in node.fields] or list(node.branches)
        names = [field.name for field in values.type]
        arrays = [refined(values.field(at), part) for at, part in enumerate(parts)]
        return pa.StructArray.from_arrays(arrays, names=names, mask=values.is_null())
    if node.kind == "array":
        items = refined(values.values, inner(node))
        kind = pa.list_(pa.field("element", items.type))
        return pa.ListArray.from_arrays(values.offsets, items, type=kind, mask=values.is_null())
    if node.kind == "map":
        items = refined(values.items, inner(node))
        kind = pa.map_(pa.string(), items.type)
        return pa.MapArray.from_arrays(values.offsets, values.keys, items, type=kind, mask=values.is_null())
    if node.logical == "date":
        return values.cast(pa.date32())
    times, divisor = TIMESTAMPS_BY_NAME[node.logical]
    if times > 1:
        values = pc.multiply_checked(values, times)
    if divisor > 1:
        values = floored(values, divisor)
    return values.cast(pa.timestamp("us", None if node.logical.startswith("local") else "UTC"))


def floored(values: pa.Array, divisor: int) -> pa.Array:
    """Division towards the past, as a moment before 1970 needs it."""
    quotient = pc.divide(values, divisor)
    behind = pc.less(pc.subtract(values, pc.multiply(quotient, divisor)), 0)
    return pc.subtract(quotient, behind.cast(pa.int64()))


def has_moments(node: Node) -> bool:
    node = node.value
    parts = [field for _, field, _ in node.fields] + list(node.branches) + ([node.items] if node.items else [])
    return node.logical in TIMESTAMPS_BY_NAME or node.logical == "date" or any(has_moments(part) for part in parts)


def has_choice(node: Node) -> bool:
    """Is there a union within that is more than a nullable type? Its values must be told apart one by one."""
    node = node.value
    parts = [field for _, field, _ in node.fields] + ([node.items] if node.items else [])
    return node.kind == "union" or any(has_choice(part) for part in parts)


def members(node: Node) -> Callable[[Any], Any]:
    """A function that puts each value of a union under the name of its branch, however deep it lies."""
    node = node.value
    if not has_choice(node):
        return lambda value: value[1] if type(value) is tuple else value
    if node.kind == "record":
        parts = [(name, members(field)) for name, field, _ in node.fields]

        def record(value: Any) -> Any:
            value = value[1] if type(value) is tuple else value
            return None if value is None else {name: part(value[name]) for name, part in parts}

        return record
    if node.kind == "array":
        item = members(inner(node))
        return lambda value: None if value is None else [item(each) for each in value]
    if node.kind == "map":
        item = members(inner(node))
        return lambda value: None if value is None else {key: item(each) for key, each in value.items()}
    branches = [(at, branch, members(branch)) for at, branch in enumerate(node.branches)]

    def union(value: Any) -> Any:
        if value is None:
            return None
        for at, branch, part in branches:
            if is_of(value, branch):
                return {f"member{at}": part(value)}
        raise ValueError(f"{value!r} is of no branch of its union")

    return union


PYTHON: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (float,),
    "double": (float,),
    "bytes": (bytes,),
    "string": (str,),
    "array": (list,),
    "map": (dict,),
}


def is_of(value: Any, branch: Node) -> bool:
    """fastavro gives named types of a union as (name, value), all others by their Python type alone."""
    if type(value) is tuple:
        return bool(branch.name == value[0])
    if branch.logical == "decimal" and not branch.name:
        return type(value).__name__ == "Decimal"
    return not branch.name and type(value) in PYTHON[branch.kind]


# --- columns to rows -------------------------------------------------------------------------------------------------


def rows(values: pa.Array, node: Node, path: str) -> list[Any]:
    """Python values as fastavro writes them; a column that does not fit the schema is a sentence."""
    node = node.value
    kind = values.type
    if node.kind == "record":
        return records(values, node, path)
    if node.kind == "union":
        return chosen(values, node, path)
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


def records(values: pa.Array, node: Node, path: str) -> list[Any]:
    if not pa.types.is_struct(values.type):
        raise misfit(path, values.type, f"a struct ({node.name})")
    given = [field.name for field in values.type]
    wanted = {name for name, _, _ in node.fields}
    if unknown := [name for name in given if name not in wanted]:
        raise Failed(f"{path}.{unknown[0]} is no field of {node.name}: leave it out, or add it to the schema")
    names, columns = [], []
    for name, field, has_default in node.fields:
        if name in given:
            names.append(name)
            columns.append(rows(values.field(given.index(name)), field, f"{path}.{name}"))
        elif not has_default:
            raise Failed(
                f"{path} has no field {name}, which {node.name} needs: add it, or give it a default in the schema"
            )
    if not columns:
        return [{} if there else None for there in values.is_valid().to_pylist()]
    made = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return hidden(made, values)


def chosen(values: pa.Array, node: Node, path: str) -> list[Any]:
    """member0, member1, ... back to the one that is set."""
    expected = [f"member{at}" for at in range(len(node.branches))]
    if not pa.types.is_struct(values.type) or [field.name for field in values.type] != expected:
        raise misfit(path, values.type, f"a struct of {', '.join(expected)}, with one of them set")
    columns = [rows(values.field(at), branch, f"{path}.{expected[at]}") for at, branch in enumerate(node.branches)]
    labels = [branch.label for branch in node.branches]
    made = [
        next(((label, value) for label, value in zip(labels, row, strict=True) if value is not None), None)
        for row in zip(*columns, strict=True)
    ]
    return hidden(made, values)


def leaves(values: pa.Array, node: Node, path: str) -> list[Any]:
    kind = values.type
    if node.logical in TIMESTAMPS_BY_NAME:
        if not pa.types.is_timestamp(kind):
            raise misfit(path, kind, "a timestamp")
        times, divisor = TIMESTAMPS_BY_NAME[node.logical]
        values = values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
        values = floored(values, times) if times > 1 else pc.multiply_checked(values, divisor)
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
    """to_pylist, for numbers without nulls at the speed of numpy."""
    if not values.null_count and (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        return values.to_numpy().tolist()  # type: ignore[no-any-return]
    return values.to_pylist()  # type: ignore[no-any-return]


def pieces(values: pa.Array, items: list[Any]) -> list[Any]:
    made = [items[start:stop] for start, stop in pairwise(values.offsets.to_numpy().tolist())]
    return hidden(made, values)


def hidden(made: list[Any], values: pa.Array) -> list[Any]:
    """None where the column is null, whatever lies beneath."""
    if not values.null_count:
        return made
    return [row if there else None for row, there in zip(made, values.is_valid().to_pylist(), strict=True)]


def misfit(path: str, kind: pa.DataType, wanted: str) -> Failed:
    return Failed(f"{path} is {kind}, where the schema has {wanted}: cast it, or change the schema")
