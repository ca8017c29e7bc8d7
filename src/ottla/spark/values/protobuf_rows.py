"""Converts between Protobuf messages and Arrow columns.

Messages become columns field by field: all values of one field in one list, the messages of a nested field in another
list, so that no row is ever made. Columns become messages through the keyword arguments of message constructors.
"""

from __future__ import annotations

from decimal import Decimal
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ottla.client.failure import Failed
from ottla.spark.values.protobuf_schema import BYTES, DURATION, TIMESTAMP, WRAPPERS, is_map, is_repeated

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

ARROW = {  # by FieldDescriptor.cpp_type
    1: pa.int32(),
    2: pa.int64(),
    3: pa.int64(),
    4: pa.decimal128(20, 0),
    5: pa.float64(),
    6: pa.float32(),
    7: pa.bool_(),
    8: pa.string(),
    9: pa.string(),
}
UINT64, ENUM = 4, 8
MOMENTS = {TIMESTAMP: pa.timestamp("us", "UTC"), DURATION: pa.duration("us")}


def column(messages: list[Message | None], kind: Descriptor) -> pa.Array:
    """Messages of one type as an array of its Spark type; None is null."""
    if kind.full_name in MOMENTS:
        micros = [None if each is None else each.seconds * 1_000_000 + each.nanos // 1000 for each in messages]
        try:
            return pa.array(micros, pa.int64()).cast(MOMENTS[kind.full_name])
        except OverflowError:
            raise ValueError(f"a {kind.full_name} is beyond the range of microseconds in 64 bits") from None
    if kind.full_name in WRAPPERS:
        return scalars([None if each is None else each.value for each in messages], kind.fields_by_name["value"])
    there = messages
    if None in messages:
        blank = next((type(each)() for each in messages if each is not None), None)
        if blank is None:
            return pa.nulls(len(messages), column([], kind).type)
        there = [blank if each is None else each for each in messages]
    mask = None if there is messages else pa.array([each is None for each in messages])
    if not kind.fields:
        return pa.array([None if each is None else {} for each in messages], pa.struct([]))
    arrays = [values(there, field) for field in kind.fields]
    return pa.StructArray.from_arrays(arrays, names=[field.name for field in kind.fields], mask=mask)


def values(messages: list[Any], field: FieldDescriptor) -> pa.Array:
    """One field of all messages."""
    raw = list(map(attrgetter(field.name), messages))
    if is_map(field):
        key, item = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        offsets = pa.array([0, *accumulate(map(len, raw))], pa.int32())
        keys = scalars([each for entries in raw for each in entries], key)
        items = inner([each for entries in raw for each in entries.values()], item)
        return pa.MapArray.from_arrays(offsets, keys, items)
    if is_repeated(field):
        offsets = pa.array([0, *accumulate(map(len, raw))], pa.int32())
        items = inner([each for entries in raw for each in entries], field)
        return pa.ListArray.from_arrays(offsets, items, type=pa.list_(pa.field("element", items.type)))
    if field.has_presence:
        name = field.name
        raw = [value if message.HasField(name) else None for message, value in zip(messages, raw, strict=True)]
    return inner(raw, field)


def inner(raw: list[Any], field: FieldDescriptor) -> pa.Array:
    return column(raw, field.message_type) if field.message_type is not None else scalars(raw, field)


def scalars(raw: list[Any], field: FieldDescriptor) -> pa.Array:
    if field.cpp_type == ENUM:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        raw = [None if each is None else names.get(each) or str(each) for each in raw]
    elif field.cpp_type == UINT64:
        raw = [None if each is None else Decimal(each) for each in raw]
    return pa.array(raw, pa.binary() if field.type == BYTES else ARROW[field.cpp_type])


# --- columns to messages ---------------------------------------------------------------------------------------------


def arguments(array: pa.Array, kind: Descriptor, path: str) -> list[Any]:
    """Arguments of the messages of a type, row by row: dicts of what is set; None where the column is null."""
    if kind.full_name in MOMENTS:
        wanted = "a timestamp" if kind.full_name == TIMESTAMP else "an interval day to second"
        if not (pa.types.is_timestamp(array.type) or pa.types.is_duration(array.type)):
            raise misfit(path, array.type, wanted)
        micros = array.cast(
            MOMENTS[kind.full_name] if kind.full_name == DURATION else pa.timestamp("us", array.type.tz)
        )
        return [None if each is None else moment(each, kind.full_name) for each in micros.cast(pa.int64()).to_pylist()]
    if kind.full_name in WRAPPERS:
        field = kind.fields_by_name["value"]
        return [None if each is None else {"value": each} for each in leaves(array, field, path)]
    if not pa.types.is_struct(array.type):
        raise misfit(path, array.type, f"a struct ({kind.full_name})")
    given = [field.name for field in array.type]
    if unknown := [name for name in given if name not in kind.fields_by_name]:
        raise Failed(f"{path}.{unknown[0]} is not a field of {kind.full_name}: remove it, or add it to the schema")
    columns = [
        field_arguments(array.field(at), kind.fields_by_name[name], f"{path}.{name}") for at, name in enumerate(given)
    ]
    rows: list[Any] = [
        {name: value for name, value in zip(given, row, strict=True) if value is not None}
        for row in zip(*columns, strict=True)
    ]
    return hidden(rows or [{}] * len(array), array)


def moment(micros: int, name: str) -> dict[str, int]:
    seconds, rest = divmod(micros, 1_000_000)
    if name == DURATION and seconds < 0 and rest:  # both parts of a duration have the same sign
        seconds, rest = seconds + 1, rest - 1_000_000
    return {"seconds": seconds, "nanos": rest * 1000}


def field_arguments(array: pa.Array, field: FieldDescriptor, path: str) -> list[Any]:
    if is_map(field):
        if not pa.types.is_map(array.type):
            raise misfit(path, array.type, "a map")
        key, item = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        keys, items = leaves(array.keys, key, path), inner_arguments(array.items, item, f"{path}{{}}")
        return pieces(array, list(zip(keys, items, strict=True)), dict)
    if is_repeated(field):
        if not pa.types.is_list(array.type):
            raise misfit(path, array.type, "an array")
        return pieces(array, inner_arguments(array.values, field, f"{path}[]"), list)
    return inner_arguments(array, field, path)


def inner_arguments(array: pa.Array, field: FieldDescriptor, path: str) -> list[Any]:
    if field.message_type is not None:
        return arguments(array, field.message_type, path)
    return leaves(array, field, path)


def leaves(array: pa.Array, field: FieldDescriptor, path: str) -> list[Any]:
    wanted = pa.binary() if field.type == BYTES else ARROW[field.cpp_type]
    kind = array.type
    textual = pa.types.is_string(wanted)
    if pa.types.is_temporal(kind) or pa.types.is_nested(kind) or (pa.types.is_string(kind) is not textual):
        raise misfit(path, kind, "a string" if textual else str(wanted))
    try:
        array = array if kind == wanted else array.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Failed(f"{path} does not fit {wanted} of the schema: {error}") from None
    if field.cpp_type == UINT64:
        return [None if each is None else int(each) for each in array.to_pylist()]
    return array.to_pylist()  # type: ignore[no-any-return]


def pieces(array: pa.Array, items: list[Any], make: type) -> list[Any]:
    return hidden([make(items[start:stop]) for start, stop in pairwise(array.offsets.to_pylist())], array)


def hidden(rows: list[Any], array: pa.Array) -> list[Any]:
    """None where the column is null, whatever the array holds there."""
    if not array.null_count:
        return rows
    there = pc.is_valid(array).to_pylist()
    return [row if valid else None for row, valid in zip(rows, there, strict=True)]


def misfit(path: str, kind: pa.DataType, wanted: str) -> Failed:
    return Failed(f"{path} is {kind}, where the schema has {wanted}: cast it, or change the schema")
