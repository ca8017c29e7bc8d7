"""Counting records by their lengths, and finding those without a key, against what a full reading says."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records import batch
from ottla.records.batch import HEADER_SIZE, Record
from ottla.records.compress import Codec, CorruptError, InflatedError
from ottla.records.scan import INFLATED_SIZE_MAX, count_records, keyless, packed

RECORDS = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(0, 2**40),
        st.none() | st.binary(max_size=300),
        st.none() | st.binary(max_size=20_000),
        st.just(()),
    ),
    min_size=1,
    max_size=30,
)


def built(records: list[Record], codec: Codec = Codec.NONE) -> memoryview:
    numbered = [record._replace(offset=at) for at, record in enumerate(records)]
    return memoryview(batch.build(numbered, codec=codec))


@given(RECORDS, st.sampled_from(Codec))
def test_what_was_built_is_counted_and_keys_are_found(records: list[Record], codec: Codec) -> None:
    data = built(records, codec)
    assert packed(data, codec, len(records))
    assert not packed(data, codec, len(records) + 1)
    assert not packed(data, codec, len(records) - 1)
    without = [at for at, record in enumerate(records) if record.key is None]
    assert keyless(data, codec, 1 << 30) == (len(records), without)


@pytest.mark.parametrize("seed", range(300))
def test_damaged_lengths_are_noticed_or_harmless_and_never_crash(seed: int) -> None:
    """A flip that leaves the lengths adding up is not ours to notice; every other one is."""
    random = Random(seed)
    records = [Record(0, 5, b"k" * random.randrange(5), b"v" * random.randrange(200), ()) for _ in range(9)]
    data = bytearray(built(records))
    data[random.randrange(HEADER_SIZE, len(data))] ^= 1 << random.randrange(8)
    view = memoryview(bytes(data))
    whole = packed(view, 0, 9)
    try:
        read = [record.offset for record in batch.iterate(view)]
    except CorruptError:
        read = []
    assert whole or len(read) != 9, "what can be read to the end is whole"
    try:
        count, _ = keyless(view, 0, 1 << 30)
    except CorruptError:
        return
    assert not whole or count == 9


@pytest.mark.parametrize(
    "payload",
    [
        b"\x01",
        b"\x02",
        b"\x80",
        b"\xff" * 5,
        b"\xff" * 12,
        b"\x02\0\x02",
        b"\x04\0",
        bytes([0x80, 0x80, 0x80, 0x80, 0x10]),
    ],
)
def test_lengths_that_lead_nowhere(payload: bytes) -> None:
    assert count_records(payload, 100) == -1
    with pytest.raises(CorruptError):
        keyless(memoryview(bytes(HEADER_SIZE) + payload), 0, 1 << 30)


def test_more_records_than_were_announced_are_not_counted_for_ever() -> None:
    assert count_records(b"\x02\0" * 1000, 999) == -1
    assert count_records(b"\x02\0" * 1000, 1000) == 1000


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_what_does_not_inflate_does_not_count(codec: Codec) -> None:
    plain = built([Record(0, 5, b"k", b"v", ())])
    assert not packed(plain, codec, 1)
    with pytest.raises(CorruptError):
        keyless(plain, codec, 1 << 20)


def test_a_batch_that_inflates_to_very_much_is_taken_at_its_word_unless_it_must_be_opened() -> None:
    data = built([Record(0, 5, b"k", bytes(INFLATED_SIZE_MAX + 1), ())], Codec.ZSTD)
    assert len(data) < 100_000
    assert packed(data, Codec.ZSTD, 7)
    with pytest.raises(InflatedError):
        keyless(data, Codec.ZSTD, INFLATED_SIZE_MAX)


@pytest.mark.parametrize("seed", range(200))
def test_runs_of_equal_lengths_are_counted_as_a_walk_would(seed: int) -> None:
    """Lengths of one, two and three bytes, in runs and mixed, whole and damaged."""
    random = Random(seed)

    def record(size: int) -> bytes:
        return batch.varint(size) + random.randbytes(size)

    payload, count = b"", 0
    for _ in range(random.randrange(1, 6)):
        size, times = random.choice((0, 1, 5, 63, 64, 100, 8191, 8192)), random.choice((1, 3, 4, 5, 70, 200))
        payload += b"".join(record(size) for _ in range(times))
        count += times
    assert count_records(payload, count) == count == walked(payload)
    damaged = bytearray(payload)
    damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
    assert count_records(bytes(damaged), 1 << 30) == walked(bytes(damaged))


def walked(payload: bytes) -> int:
    """The plain way."""
    position = count = 0
    while position < len(payload):
        size = shift = 0
        while True:
            if position == len(payload) or shift >= 35:
                return -1
            byte = payload[position]
            position += 1
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        if size & 1:
            return -1
        position += size >> 1
        count += 1
    return count if position == len(payload) else -1
