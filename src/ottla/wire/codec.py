"""Compiles a decoder and an encoder for a declared message and a version, at first use.

    decode = decoder(ProduceRequest, 9)          encode = encoder(ProduceResponse, 9)
    request, end = decode(frame, position)       parts = encode(response)

A decoder accepts any bytes: it returns a message or raises `DecodeError`, and allocates no more than the bytes can fill
(a declared count is compared with the remaining bytes before a list is made). Record bytes are returned as a view of
the frame. An encoder returns a list, usually of one `bytes`. For a record field that holds a `Region` (a slice of a
file) it writes the length and puts the region itself in the list, for the connection to send.

`slicing_decoder` and `slicing_encoder` are generators that yield after each element of a list, and return what the
plain functions return: for messages that take longer than one turn of the loop.
"""

from __future__ import annotations

import linecache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.wire import decoding, encoding
from ottla.wire.decoding import DecodeError
from ottla.wire.schema import spec

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from ottla.wire.schema import Region

__all__ = ["Buffer", "DecodeError", "decode", "decoder", "encode", "encoder"]

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")

_MADE: Final[dict[tuple[str, type, int, bool], Any]] = {}


def decoder(cls: type[T], version: int) -> Callable[..., tuple[T, int]]:
    """The function that decodes one `cls` at a position. It returns the message and the position after it. Its source
    is in `.source`.

    A third argument limits the elements of all its lists.
    """
    return _make("decode", cls, version, sliced=False)  # type: ignore[no-any-return]


def slicing_decoder(cls: type[T], version: int) -> Callable[..., Generator[None, None, tuple[T, int]]]:
    return _make("decode", cls, version, sliced=True)  # type: ignore[no-any-return]


def encoder(cls: type[T], version: int) -> Callable[[T], list[bytes | Region]]:
    """The function that encodes one `cls`. Fields that the version does not have are left out."""
    return _make("encode", cls, version, sliced=False)  # type: ignore[no-any-return]


def slicing_encoder(cls: type[T], version: int) -> Callable[[T], Generator[None, None, list[bytes | Region]]]:
    return _make("encode", cls, version, sliced=True)  # type: ignore[no-any-return]


def decode(cls: type[T], version: int, data: Buffer) -> T:
    """Decode one message that fills `data` completely."""
    found, end = decoder(cls, version)(data, 0)
    if end != len(data):
        raise DecodeError(f"{len(data) - end} bytes are left after {cls.__name__} v{version}")
    return found


def encode(value: object, version: int) -> bytes:
    """Encode one message that contains no regions."""
    parts = encoder(type(value), version)(value)
    return b"".join(parts)  # type: ignore[arg-type]


def _check(cls: type, version: int) -> type:
    low, high = spec(cls).versions
    if not low <= version <= high:
        raise ValueError(f"{cls.__name__} has versions {low} to {high}, not {version}")
    return cls


def _make(verb: str, cls: type, version: int, *, sliced: bool) -> Any:
    key = verb, cls, version, sliced
    made = _MADE.get(key)
    if made is None:
        writer = decoding if verb == "decode" else encoding
        source, space = writer.source(_check(cls, version), version, sliced=sliced)
        made = _MADE[key] = _compile(verb, cls, version, source, space, sliced=sliced)
    return made


def _compile(verb: str, cls: type, version: int, source: str, space: dict[str, Any], *, sliced: bool) -> Any:
    """Compile the function, and let tracebacks show its source."""
    name = f"<{verb} {cls.__name__} v{version}{' sliced' if sliced else ''}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), space)  # nosec B102 # the text is made of our own schemas
    made = space[verb]
    made.source = source
    return made
