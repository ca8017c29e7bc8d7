"""The check of a batch: what it says of sound ones, and that the crate and its twin in Python say the same of any.

Without the crate the twin is compared with itself, which says little; wherever Rust is found the crate is built.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records.malformed import all_of_them, record, wrap
from records.oracle import NOW
from records.produce import changed

from ottla.records import batch, check, native, pick
from ottla.records.batch import Record
from ottla.records.check import CHECKSUM, LARGE, OVER, SOUND, WRONG, RecordLimits, Rules
from ottla.records.compress import Codec, compress, decompress

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMITS = RecordLimits(1 << 20, 10_000)
PLAIN = Rules(False, True, NOW, 2**63 - 1, 3_600_000, 100)
STRICT = Rules(True, True, NOW, 1_000, 1_000, 3)
MALFORMED = all_of_them(NOW)

TEXT = st.binary(max_size=40) | st.sampled_from([b"", b"abc" * 50, bytes(300)])
RECORDS = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(NOW - 2_000, NOW + 2_000) | st.just(-1),
        st.none() | TEXT,
        st.none() | TEXT,
        st.lists(st.tuples(st.text(max_size=5), st.none() | TEXT), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=30,
)


def built(records: list[Record], codec: int = Codec.NONE) -> bytes:
    return batch.build([one._replace(offset=at) for at, one in enumerate(records)], codec=codec)


def same(data: bytes, rules: Rules = PLAIN, limits: RecordLimits = LIMITS) -> check.Verdict:
    """What both say. They may find the same fault in different words, or meet a limit before it."""
    ours, theirs = check.check(data, rules, limits), check.Verdict(*native.check(data, rules, limits))
    if SOUND in (ours.state, theirs.state) or CHECKSUM in (ours.state, theirs.state):
        assert ours == theirs, data.hex()
    assert theirs.state in (SOUND, CHECKSUM, WRONG, OVER)
    return theirs


@given(RECORDS, st.sampled_from(Codec), st.sampled_from([PLAIN, STRICT]))
def test_what_was_built_is_sound_and_described(records: list[Record], codec: Codec, rules: Rules) -> None:
    verdict = same(built(records, codec), rules)
    assert verdict.state == SOUND, verdict.detail
    latest = max(record.timestamp for record in records)
    assert verdict.latest == latest
    assert records[verdict.latest_index].timestamp == latest if latest >= 0 else verdict.latest_index == -1
    keyless = [at for at, record in enumerate(records) if record.key is None]
    if rules is STRICT:
        late = [
            at
            for at, record in enumerate(records)
            if record.key is not None and record.timestamp != -1 and abs(NOW - record.timestamp) > 1_000
        ]
        wrong = sorted(keyless + late)
        assert [index for index, _, _ in verdict.errors] == wrong[:3]
        assert (verdict.errors_total, verdict.bad_times) == (len(wrong), bool(late))
    else:
        assert verdict.errors_total == 0


@given(RECORDS, st.sampled_from(Codec), st.sampled_from(Codec))
def test_packed_anew_the_records_are_the_same(records: list[Record], source: Codec, target: Codec) -> None:
    data = built(records, source)
    plain = decompress(source, memoryview(data)[batch.HEADER_SIZE :])
    for found in (
        native.transcode(data, PLAIN, LIMITS, codec=target, level=None, size_max=1 << 20),
        check.transcode(data, PLAIN, LIMITS, target, None, 1 << 20),
    ):
        verdict = check.Verdict(*found[0])
        assert verdict.state == SOUND
        assert decompress(target, found[1]) == plain
        size = len(found[1])
    assert native.transcode(data, PLAIN, LIMITS, codec=0, level=None, size_max=len(plain) - 1)[0][0] == LARGE
    assert check.transcode(data, PLAIN, LIMITS, target, None, size - 1)[0].state == LARGE


@pytest.mark.parametrize("name", MALFORMED)
def test_both_find_what_is_malformed(name: str) -> None:
    verdict = same(MALFORMED[name])
    if "time" not in name and not name.startswith(("epoch", "no ", "control", "Log", "zstd of 17")):
        assert verdict.state == WRONG, verdict


def damaged(seed: int) -> Iterator[bytes]:
    """Batches with bytes changed, inside what is compressed and in the compression; checksums are put right."""
    random = Random(seed)
    for codec in Codec:
        records = [
            Record(0, NOW, random.choice((None, b"key")), random.randbytes(random.randrange(40)) * random.randrange(9))
            for _ in range(random.randrange(1, 20))
        ]
        plain = bytearray(built(records)[batch.HEADER_SIZE :])
        for _ in range(random.randrange(3)):
            plain[random.randrange(len(plain))] = random.choice((0, 1, 2, 127, 128, 255, random.randrange(256)))
        packed = bytearray(compress(codec, plain)) if codec else plain
        for _ in range(random.randrange(2)):
            packed[random.randrange(len(packed))] ^= 1 << random.randrange(8)
        if random.random() < 0.1:
            del packed[random.randrange(len(packed)) :]
        yield wrap(bytes(packed), NOW, codec=codec, count=len(records))


@pytest.mark.parametrize("seed", range(300))
def test_both_say_the_same_of_damaged_batches(seed: int) -> None:
    for data in damaged(seed):
        same(data, STRICT)


@pytest.mark.parametrize("codec", Codec)
def test_the_checksum_comes_first(codec: Codec) -> None:
    data = bytearray(built([Record(0, NOW, b"k", b"v")], codec))
    data[-1] ^= 1
    assert same(bytes(data)).state == CHECKSUM


@pytest.mark.parametrize("codec", Codec)
def test_limits_on_bytes_and_records(codec: Codec) -> None:
    data = built([Record(0, NOW, None, b"v" * 100)] * 50, codec)
    size = check.check(data, PLAIN, LIMITS).inflated
    for found in (check.check, native.check):
        assert found(data, PLAIN, RecordLimits(size, 50))[0] == SOUND
        assert found(data, PLAIN, RecordLimits(size - 1, 50))[0] == OVER
        assert found(data, PLAIN, RecordLimits(size, 49))[0] == OVER


def test_a_record_may_span_windows() -> None:
    """Longer than any window or block of any codec."""
    records = [Record(0, NOW + at, b"k" * (70_000 * at), Random(at).randbytes(200_000)) for at in range(4)]
    for codec in Codec:
        verdict = native.check(built(records, codec), PLAIN, RecordLimits(16 << 20, 10))
        assert (verdict[0], verdict[3], verdict[4]) == (SOUND, NOW + 3, 3)


def test_only_so_many_errors_are_named() -> None:
    data = built([Record(0, NOW, None, b"v")] * 20)
    verdict = same(data, STRICT)
    assert (len(verdict.errors), verdict.errors_total, verdict.bad_times) == (3, 20, False)


def test_timestamps_wrap_as_in_kafka() -> None:
    data = wrap(record(time=2), NOW, base_timestamp=2**63 - 1, max_timestamp=2**63 - 1)
    verdict = same(data, PLAIN)
    assert verdict.errors == [(0, check.BAD_TIME, -(2**63) + 1)]
    assert verdict.negative


@given(RECORDS, st.sampled_from(Codec), st.integers(0, 30), st.integers(NOW - 2_000, NOW + 2_000), st.integers(1, 9))
def test_single_records_are_found(records: list[Record], codec: Codec, start: int, since: int, most: int) -> None:
    data = changed(built(records, codec), base_offset=7)
    placed = [one._replace(offset=at + 7) for at, one in enumerate(records)]
    first = next(((r.offset, r.timestamp) for r in placed if r.timestamp >= since and r.offset >= start), None)
    asked = [(r.offset, r.timestamp, r.key, r.value, len(r.headers)) for r in placed if r.offset >= start][:most]
    for one in (native, pick):
        assert one.since(data, since, start, LIMITS)[::2] == (SOUND, first)
    assert native.portion(data, start, records_max=most, bytes_max=1 << 20, limits=LIMITS)[::2] == (SOUND, asked)
    assert pick.portion(data, start, most, 1 << 20, LIMITS)[::2] == (SOUND, asked)


@pytest.mark.parametrize("seed", range(100))
def test_searching_damaged_batches_gives_an_answer_or_a_reason(seed: int) -> None:
    for data in damaged(seed):
        for one in (native, pick):
            assert one.since(data, 2**62, 0, LIMITS)[0] in (SOUND, WRONG, OVER)
        assert native.portion(data, 0, records_max=50, bytes_max=1 << 20, limits=LIMITS)[0] in (SOUND, WRONG, OVER)
