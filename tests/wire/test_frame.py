"""Headers, held to the schemas that Apache Kafka defines for them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.apis import BY_KEY
from ottla.wire.codec import DecodeError, decoder, encode
from ottla.wire.frame import parse_header, parse_response_header, request_header, response_header
from ottla.wire.messages.headers import RequestHeader, ResponseHeader

EVERY = [(api.key, version) for api in BY_KEY.values() for version in range(api.versions[0], api.versions[1] + 1)]
SHUTDOWN = (7, 0)
API_VERSIONS = 18
START = struct.Struct(">hhih").pack


def header_version(key: int, version: int) -> int:
    """Which header a request has, by the protocol's rules."""
    return 0 if (key, version) == SHUTDOWN else 2 if version >= BY_KEY[key].flexible else 1


@pytest.mark.parametrize("client", ["", "rdkafka", "Åre", None])
def test_request_headers_are_as_declared(client: str | None) -> None:
    for key, version in EVERY:
        kind = header_version(key, version)
        declared = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=77, client_id=client)
        data = encode(declared, kind)
        assert request_header(key, version, 77, client) == data
        expected = (key, version, 77, client if kind else None, len(data))
        for frame in (data, memoryview(data + b"body"), bytearray(data)):
            assert tuple(parse_header(frame)) == expected


def test_response_headers_are_as_declared() -> None:
    for key, version in EVERY:
        flexible = version >= BY_KEY[key].flexible and key != API_VERSIONS
        data = encode(ResponseHeader(correlation_id=-5), int(flexible))
        assert response_header(key, version, -5) == data
        assert parse_response_header(key, version, data + b"body") == (-5, len(data))


def test_tagged_fields_in_a_header_are_skipped() -> None:
    data = request_header(0, 9, 1, "c")[:-1] + b"\x01\x03\x02xy"
    assert parse_header(data).body_position == len(data)
    decoded, end = decoder(RequestHeader, 2)(data, 0)
    assert (decoded.client_id, end) == ("c", len(data))
    assert parse_response_header(0, 9, b"\0\0\0\x07\x01\x03\x02xy") == (7, 9)


def test_an_unknown_api_still_has_a_correlation_id() -> None:
    """So that whoever sent it can be told about; its body is not looked at."""
    header = parse_header(START(999, 5, 42, 1) + b"c" + b"whatever")
    assert header == (999, 5, 42, "c", 11)


def test_a_version_yet_to_come_is_flexible() -> None:
    frame = START(API_VERSIONS, 90, 42, -1) + b"\x00rest"
    assert parse_header(frame) == (API_VERSIONS, 90, 42, None, 11)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        bytes(7),
        bytes(9),
        START(0, 3, 1, 5) + b"abcd",
        START(0, 3, 1, 2) + b"\xff\xfe",
        START(0, 9, 1, 0),
        START(0, 9, 1, -1) + b"\x01\x00\x7f",
        START(7, 1, 1, 0)[:8],
    ],
)
def test_broken_headers(frame: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_header(frame)


def test_controlled_shutdown_zero_has_no_client_id() -> None:
    assert parse_header(struct.pack(">hhi", 7, 0, 3)) == (7, 0, 3, None, 8)
    assert parse_header(struct.pack(">hhii", 7, 0, 3, 1)) == (7, 0, 3, None, 8)


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\x01", b"\0\0\0\x01\x01\x00\x7f"])
def test_broken_response_headers(frame: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_response_header(0, 9, frame)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_header_or_an_error(frame: bytes) -> None:
    try:
        header = parse_header(frame)
    except DecodeError:
        return
    assert 8 <= header.body_position <= len(frame)
