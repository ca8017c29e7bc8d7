"""A number that identifies a set of rows, in any order and any pieces: the sum of a hash of each row.

Two sets with the same number of rows and the same digest are equal, except for a chance of one in 2**64. A writer that
repeats its work uses it to tell whether the rows are the same as the first time, however they are spread over tasks.
Values that are not given, such as a timestamp that is left to the writer, are not part of it. It protects against
mistakes, not against forged rows: it uses no secret.

The Python version of `tally.rs` in the native crate, used where that is not built; `records.native` chooses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

    from ottla.records.columns import Rows

MASK: Final = 2**64 - 1
FIRST: Final = 0x9E37_79B9_7F4A_7C15
SECOND: Final = 0xD6E8_FEB8_6659_FD93
NULL: Final = MASK  # in place of a length
CHUNK: Final = 16


def digest(topics: pa.BinaryArray | None, rows: Rows) -> int:
    nothing: list[None] = [None] * len(rows.keys)
    columns = [nothing if column is None else column.to_pylist() for column in (topics, *rows)]
    total = 0
    for topic, key, value, headers, timestamp, partition in zip(*columns, strict=True):
        found = _blob(_blob(_blob(FIRST, topic), key), value)
        for header in headers or ():
            found = _blob(_blob(found, header["key"].encode()), header["value"])
        total += _number(_number(found, timestamp), partition)
    return total & MASK


def _fold(one: int, other: int) -> int:
    wide = one * other
    return wide >> 64 ^ wide & MASK


def _number(found: int, number: int | None) -> int:
    return _fold(found ^ FIRST, SECOND) if number is None else _fold(found ^ SECOND, number & MASK ^ FIRST)


def _blob(found: int, blob: bytes | None) -> int:
    if blob is None:
        return _fold(found ^ SECOND, NULL ^ FIRST)
    for start in range(0, len(blob), CHUNK):
        wide = int.from_bytes(blob[start : start + CHUNK], "little")
        found = _fold(wide & MASK ^ FIRST, wide >> 64 ^ found)
    return _fold(found ^ SECOND, len(blob) ^ FIRST)
