"""The part of Protocol Buffers that OTLP needs: decodes the fields of one message in order.

A message is a sequence of fields: a varint of (number << 3 | wire type), then the value.

    0  varint      1  eight bytes      2  varint size, then bytes: text, bytes or a message      5  four bytes

The input is untrusted: every length is checked against the remaining bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5
VARINT_SIZE_MAX: Final = 10


class MalformedError(ValueError):
    """The bytes are not a valid message."""


def fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Pairs of field number and value: an int for a varint, else the bytes."""
    at, size = 0, len(data)
    while at < size:
        key, at = varint(data, at)
        kind = key & 7
        if kind == VARINT:
            number, at = varint(data, at)
            yield key >> 3, number
            continue
        if kind == BYTES:
            length, at = varint(data, at)
        elif kind in (EIGHT, FOUR):
            length = 8 if kind == EIGHT else 4
        else:
            raise MalformedError(f"wire type {kind}")
        if length > size - at:
            raise MalformedError("a field is longer than its message")
        yield key >> 3, data[at : at + length]
        at += length


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number at this position, and the position after it."""
    number = shift = 0
    for byte in data[at : at + VARINT_SIZE_MAX]:
        number |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if byte < 0x80:
            return number, at
    raise MalformedError("a varint does not end")
