"""The records of committed offsets: packed and read by hand, in the declared format, which is Kafka's."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coord import formats
from ottla.coord.formats import OffsetCommitKey, OffsetCommitValue
from ottla.coord.groups.offset_records import content, key_start, pack_index, read_commit, tombstone
from ottla.coord.groups.offsets import NO_EXPIRY, CommittedOffset
from ottla.errors import BrokerError
from ottla.wire.codec import DecodeError

NAMES = st.text(max_size=40)
I32, I64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)


@pytest.mark.parametrize(("epoch", "expires_ms"), [(7, NO_EXPIRY), (-1, 1234)])
def test_a_record_says_what_was_committed_in_kafka_s_format(epoch: int, expires_ms: int) -> None:
    made = key_start("grüße", "t") + pack_index(3), content(42, epoch, "text", 99, expires_ms)
    key = OffsetCommitKey(group="grüße", topic="t", partition=3)
    value = OffsetCommitValue(
        offset=42, leader_epoch=epoch, metadata="text", commit_timestamp=99, expire_timestamp=expires_ms
    )
    assert formats.decode_record(formats.GROUPS, *made) == (key, value)
    if expires_ms == NO_EXPIRY:
        assert made == formats.encode_record(key, value), "packed by hand, and still the declared format"
    assert tombstone("grüße", "t", 3) == (made[0], None)


def test_what_a_record_cannot_hold_is_refused() -> None:
    for group, topic in (("x" * 32768, "t"), ("g", "t" * 32768)):
        with pytest.raises(BrokerError):
            key_start(group, topic)
    with pytest.raises(BrokerError):
        content(1, -1, "x" * 32768, 0, NO_EXPIRY)


@given(NAMES, NAMES, NAMES, I32, I32, I64, I64)
def test_it_is_read_as_it_was_packed(
    group: str, topic: str, metadata: str, index: int, epoch: int, offset: int, time_ms: int
) -> None:
    key, value = key_start(group, topic) + pack_index(index), content(offset, epoch, metadata, time_ms, NO_EXPIRY)
    one = CommittedOffset(offset, epoch, metadata, time_ms, NO_EXPIRY, bytes(16), 5)
    assert read_commit(key, value, 5) == (group, topic, index, one)


def test_other_records_are_left_to_the_declared_format() -> None:
    key = key_start("g", "t") + pack_index(0)
    assert read_commit(key, None, 0) is None
    assert read_commit(key, content(1, -1, "", 0, 1234), 0) is None
    group = formats.encode_record(formats.GroupMetadataKey(group="g"), None)
    assert read_commit(group.key, content(1, -1, "", 0, NO_EXPIRY), 0) is None


def test_damaged_bytes_are_read_as_declared_or_not_at_all() -> None:
    chance = Random(7)
    whole = key_start("grüße", "topic") + pack_index(3), content(42, 7, "text", 99, NO_EXPIRY)
    for _ in range(3000):
        key, value = (damaged(part, chance) for part in whole)
        found, declared = read_commit(key, value, 5), None
        with suppress(DecodeError):
            declared = formats.decode_record(formats.GROUPS, key, value)
        if found is not None:
            group, topic, index, one = found
            assert declared is not None
            assert declared[0] == OffsetCommitKey(group=group, topic=topic, partition=index)
            assert declared[1] == OffsetCommitValue(
                offset=one.offset,
                leader_epoch=one.leader_epoch,
                metadata=one.metadata,
                commit_timestamp=one.time_ms,
            )


def damaged(data: bytes, chance: Random) -> bytes:
    """The bytes, perhaps with one of them changed, perhaps cut or longer."""
    made = bytearray(data)
    if chance.random() < 0.7:
        made[chance.randrange(len(made))] = chance.choice((0, 1, 3, 4, 127, 128, 255))
    if chance.random() < 0.3:
        return bytes(made[: chance.randrange(len(made))])
    return bytes(made) + bytes(chance.choice((0, 0, 0, 1)))
