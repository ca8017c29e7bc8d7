"""The header that Confluent's serializers put before a value, and where the value begins after it.

    0            magic byte
    u32          id of the schema in the registry, big-endian
    [varints]    Protobuf only: which message of the schema's file, as zigzag varints: how many, then an index per level
                 of nesting; the single byte 0 stands for the first message of the file

Whole columns are processed in place: the bytes of an Arrow array are contiguous, and numpy reads the five before each
value without creating objects.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy
import pyarrow as pa

from ottla.records import batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ottla.spark.values.outcome import Report

SIZE: Final = 5
FIRST_MESSAGE: Final = (0,)


def header(number: int) -> bytes:
    return struct.pack(">BI", 0, number)


def schema_ids(values: pa.Array) -> NDArray[numpy.int64]:
    """The schema id of each value; -1 where there is no header, and for nulls."""
    offsets, data = spans(values)
    starts = offsets[:-1]
    whole = (offsets[1:] - starts >= SIZE) & numpy.asarray(values.is_valid())
    ids = numpy.full(len(values), -1, numpy.int64)
    at = starts[whole]
    parts = [data[at + place].astype(numpy.int64) for place in range(SIZE)]
    found = (parts[1] << 24) | (parts[2] << 16) | (parts[3] << 8) | parts[4]
    ids[whole] = numpy.where(parts[0] == 0, found, -1)
    return ids


def by_schema(values: pa.Array, report: Report) -> Iterator[tuple[int, list[int]]]:
    """The rows of each schema id; rows without a header are reported."""
    ids = schema_ids(values)
    for number in numpy.unique(ids).tolist():
        where = numpy.flatnonzero(ids == number).tolist()
        if number >= 0:
            yield number, where
            continue
        for row in where:
            if values[row].is_valid:
                report.bad(row, "has no schema header (the byte 0 and a schema id of four bytes)")


def spans(values: pa.Array) -> tuple[NDArray[numpy.int64], NDArray[numpy.uint8]]:
    """Start and end of each value, and all bytes."""
    width = numpy.int64 if pa.types.is_large_binary(values.type) else numpy.int32
    _, places, content = values.buffers()
    if places is None or not len(values):
        return numpy.zeros(len(values) + 1, numpy.int64), numpy.zeros(0, numpy.uint8)
    offsets = numpy.frombuffer(places, width)[values.offset : values.offset + len(values) + 1].astype(numpy.int64)
    data = numpy.frombuffer(content, numpy.uint8) if content is not None else numpy.zeros(0, numpy.uint8)
    return offsets, data


def bodies(values: pa.Array, with_header: bool) -> list[bytes | None]:
    """The values, or what follows their headers. (Arrow's binary_slice fails on short values.)"""
    plain: list[bytes | None] = values.to_pylist()
    return [value and value[SIZE:] for value in plain] if with_header else plain


def message_index(value: bytes) -> tuple[tuple[int, ...], int]:
    """Which message a Protobuf body contains, and where it begins. ValueError if the list is torn or absurd."""
    count, at = varint(value, 0)
    if count == 0:
        return FIRST_MESSAGE, at
    if not 0 < count <= len(value) - at:
        raise ValueError(f"its list of message indexes would have {count} entries")
    indexes = []
    for _ in range(count):
        index, at = varint(value, at)
        indexes.append(index)
    return tuple(indexes), at


def index_bytes(indexes: tuple[int, ...]) -> bytes:
    if indexes == FIRST_MESSAGE:
        return b"\0"
    return b"".join(map(batch.varint, (len(indexes), *indexes)))


def varint(value: bytes, at: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 35, 7):
        if at >= len(value):
            raise ValueError("its list of message indexes is torn")
        byte = value[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), at
    raise ValueError("its list of message indexes is not a list of varints")
