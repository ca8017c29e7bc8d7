"""The marker that ends a transaction, byte by byte."""

from __future__ import annotations

import struct

import pytest

from ottla.records.markers import ABORT, COMMIT, EndMarker, encode_marker, read_marker, read_type


@pytest.mark.parametrize(("commit", "kind"), [(True, COMMIT), (False, ABORT)])
def test_a_marker_is_what_kafka_writes(commit: bool, kind: int) -> None:
    key, value = encode_marker(EndMarker(commit, 12))
    assert (key, value) == (struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 12))
    assert read_marker(key, value) == EndMarker(commit, 12)
    assert read_type(key) == kind


def test_other_control_records_are_no_markers() -> None:
    assert read_marker(struct.pack(">hh", 0, 2), struct.pack(">hi", 0, 12)) is None
    assert read_type(struct.pack(">hh", 0, 2)) == 2


@pytest.mark.parametrize(("key", "value"), [(None, b""), (b"\0", b"\0"), (struct.pack(">hh", 0, 1), b"\0\0")])
def test_what_is_too_short_is_no_marker(key: bytes | None, value: bytes) -> None:
    assert read_marker(key, value) is None
