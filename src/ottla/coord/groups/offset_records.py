"""The records of committed offsets.

    key     int16 1, group, topic, int32 partition
    value   int16 3, int64 offset, int32 leader epoch, metadata, int64 commit time

Version 1 of the value has an expiry time in place of the leader epoch, for clients that send a retention time. The
format is declared in `formats`. Here it is packed and read by hand, for speed: a coordinator writes more of these
records than of all others.
"""

from __future__ import annotations

from struct import Struct, error
from typing import TYPE_CHECKING

from ottla.coord.formats import OffsetCommitKey, encode_record
from ottla.coord.groups.offsets import NO_EXPIRY, CommittedOffset
from ottla.errors import BrokerError, ErrorCode
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from ottla.coord.machine import Record

LENGTH_MAX = 0x7FFF

_KEY, _LENGTH, _INDEX = Struct(">hh"), Struct(">h"), Struct(">i")
_VALUE, _VALUE_WITH_EXPIRY = Struct(">hqih"), Struct(">hqh")
_TIME, _TIMES = Struct(">q"), Struct(">qq")
_OFFSET, _NEWEST = b"\0\1", b"\0\3"  # how the key and the value begin
_new = tuple.__new__
pack_index = _INDEX.pack


def key_start(group: str, topic: str) -> bytes:
    """The key of a committed offset, up to the partition."""
    name, part = group.encode(), topic.encode()
    if len(name) > LENGTH_MAX or len(part) > LENGTH_MAX:
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "too long for the record of a commit")
    return b"%b%b%b%b" % (_KEY.pack(1, len(name)), name, _LENGTH.pack(len(part)), part)


def content(offset: int, epoch: int, metadata: str, time_ms: int, expires_ms: int) -> bytes:
    """The value of a committed offset."""
    text = metadata.encode()
    if len(text) > LENGTH_MAX:
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "too long for the record of a commit")
    if expires_ms == NO_EXPIRY:
        return _VALUE.pack(3, offset, epoch, len(text)) + text + _TIME.pack(time_ms)
    return _VALUE_WITH_EXPIRY.pack(1, offset, len(text)) + text + _TIMES.pack(time_ms, expires_ms)


def read_commit(key: bytes, value: bytes | None, at: int) -> tuple[str, str, int, CommittedOffset] | None:
    """Group, topic, partition and content of a commit as `record` writes it without an expiry time.

    None for every other record, also a malformed one: `formats.decode_record` reads them all.
    """
    if value is None or not (key.startswith(_OFFSET) and value.startswith(_NEWEST)):
        return None
    try:
        middle = 4 + _LENGTH.unpack_from(key, 2)[0]
        end = middle + 2 + _LENGTH.unpack_from(key, middle)[0]
        _, offset, epoch, size = _VALUE.unpack_from(value)
        if len(key) != end + 4 or len(value) != _VALUE.size + size + 8 or not 4 <= middle <= end - 2 or size < 0:
            return None
        group, topic = key[4:middle].decode(), key[middle + 2 : end].decode()
        text = value[_VALUE.size : -8].decode()
    except (UnicodeDecodeError, error):
        return None
    time_ms = _TIME.unpack_from(value, len(value) - 8)[0]
    one = _new(CommittedOffset, (offset, epoch, text, time_ms, NO_EXPIRY, ZERO_UUID, at))
    return group, topic, _INDEX.unpack_from(key, end)[0], one


def tombstone(group: str, topic: str, index: int) -> Record:
    return encode_record(OffsetCommitKey(group=group, topic=topic, partition=index), None)
