"""The marker that ends a transaction: a control batch of one record.

key     int16 version 0, int16 type: 0 abort, 1 commit; other types are KRaft's
value   int16 version 0, int32 epoch of the coordinator
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

ABORT, COMMIT = 0, 1

KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")


class EndMarker(NamedTuple):
    """The content of a control batch that ends a transaction."""

    commit: bool
    coordinator_epoch: int


def read_type(key: bytes | None) -> int | None:
    """The type of a control record; None if the key is too short."""
    if key is None or len(key) < KEY.size:
        return None
    kind: int = KEY.unpack_from(key)[1]
    return kind


def read_marker(key: bytes | None, value: bytes | None) -> EndMarker | None:
    """The end marker in a control record, None for other control records and malformed ones."""
    kind = read_type(key)
    if kind not in (ABORT, COMMIT) or value is None or len(value) < _VALUE.size:
        return None
    return EndMarker(kind == COMMIT, _VALUE.unpack_from(value)[1])


def encode_marker(marker: EndMarker) -> tuple[bytes, bytes]:
    """Key and value of the control record."""
    return KEY.pack(0, COMMIT if marker.commit else ABORT), _VALUE.pack(0, marker.coordinator_epoch)
