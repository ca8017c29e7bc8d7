"""The headers in front of requests and responses, read and written by hand because every frame has one.

A frame here is what follows the four bytes of length. A request begins with

    key: int16, version: int16, correlation id: int32, client id: int16 length (-1: null) and UTF-8,
    tagged fields (from the API's first flexible version on)

and a response with its correlation id, and tagged fields again. Three exceptions: the client id keeps its old form in
flexible headers; version 0 of ControlledShutdown has no client id at all; a response to ApiVersions never has tagged
fields, because the client does not know the broker's versions yet.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.wire.apis import BY_KEY
from ottla.wire.decoding import DecodeError, has_records, skip_tags
from ottla.wire.schema import LAST

if TYPE_CHECKING:
    from ottla.wire.codec import Buffer

_CONTROLLED_SHUTDOWN: Final = 7
_API_VERSIONS: Final = 18

_new = tuple.__new__  # every request has a header, and calling the class takes three times as long
_unpack_start = struct.Struct(">hhi").unpack_from
_unpack_client = struct.Struct(">hhih").unpack_from
_pack_start = struct.Struct(">hhih").pack
_unpack_correlation = struct.Struct(">i").unpack_from
_pack_correlation = struct.Struct(">i").pack
_pack_correlation_tags = struct.Struct(">ix").pack


class Header(NamedTuple):
    key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_position: int


class _Flexible(dict[int, int]):
    """Key → first flexible version. An unknown key has none: its body cannot be read anyway."""

    def __missing__(self, key: int) -> int:
        self[key] = found = BY_KEY[key].flexible if key in BY_KEY else LAST + 1
        return found


_FLEXIBLE: Final = _Flexible()


def parse_header(frame: Buffer) -> Header:
    """The header of a request. DecodeError if the frame is too short or the client id is not UTF-8."""
    try:
        key, version, correlation, length = _unpack_client(frame, 0)
        if key == _CONTROLLED_SHUTDOWN and version == 0:
            return Header(key, version, correlation, None, 8)
        position = 10
        client = None
        if length >= 0:
            position += length
            client = str(frame[10:position], "utf-8")
        if version >= _FLEXIBLE[key]:
            position = position + 1 if frame[position] == 0 else skip_tags(frame, position)[0]
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        return _bare(frame, error)
    if position > len(frame):
        raise DecodeError("the request header reaches past the end of the frame")
    return _new(Header, (key, version, correlation, client, position))


def carries_records(key: int) -> bool:
    """Whether requests of this API carry records. Others are lists of names and numbers, and much smaller."""
    return key in BY_KEY and has_records(BY_KEY[key].request, BY_KEY[key].versions[1])


def request_header(key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The header that a client, or a broker as a client, puts before a request."""
    if key == _CONTROLLED_SHUTDOWN and version == 0:
        return _pack_start(key, version, correlation_id, 0)[:8]
    tags = b"\0" if version >= _FLEXIBLE[key] else b""
    if client_id is None:
        return _pack_start(key, version, correlation_id, -1) + tags
    name = client_id.encode()
    return _pack_start(key, version, correlation_id, len(name)) + name + tags


def response_header(key: int, version: int, correlation_id: int) -> bytes:
    if version >= _FLEXIBLE[key] and key != _API_VERSIONS:
        return _pack_correlation_tags(correlation_id)
    return _pack_correlation(correlation_id)


def parse_response_header(key: int, version: int, frame: Buffer) -> tuple[int, int]:
    """The correlation id of a response to that key and version, and the position of its body."""
    try:
        (correlation,) = _unpack_correlation(frame, 0)
        if version >= _FLEXIBLE[key] and key != _API_VERSIONS:
            return correlation, skip_tags(frame, 4)[0]
    except (struct.error, IndexError) as error:
        raise DecodeError(f"response header: {error}") from None
    return correlation, 4


def _bare(frame: Buffer, error: Exception) -> Header:
    """ControlledShutdown v0 has a header of eight bytes; any other short header is an error."""
    if len(frame) >= 8:
        key, version, correlation = _unpack_start(frame, 0)
        if key == _CONTROLLED_SHUTDOWN and version == 0:
            return Header(key, version, correlation, None, 8)
    raise DecodeError(f"request header: {error}") from None
