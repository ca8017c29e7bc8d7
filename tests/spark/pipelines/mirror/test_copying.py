"""Batches rewritten for another cluster pass the broker's own validation, reader and sequence check."""

import random
from itertools import pairwise

import pytest

from ottla.config import load, topic_config
from ottla.records import batch, legacy
from ottla.records.batch import NO_TIMESTAMP, Record
from ottla.records.compress import Codec
from ottla.records.native import decode_columns
from ottla.records.validate import validate
from ottla.spark.pipelines.mirror.copying import BATCH_SIZE, Copied, Copier, DamagedError, writable

PRODUCER, EPOCH = 4711, 3
NOW = 1_700_000_000_000


def test_a_batch_keeps_its_records_byte_for_byte() -> None:
    for codec in Codec:
        data = batch.build(records(100, at=7000), codec=codec, producer_id=9, producer_epoch=1, base_sequence=55)
        (copied,) = copy(data, start=7000, aborted=None)
        assert bytes(copied.data)[61:] == data[61:]
        head = batch.header(copied.data)
        assert (head.base_offset, head.leader_epoch, head.codec) == (0, -1, codec)
        assert (head.producer_id, head.producer_epoch, head.base_sequence) == (PRODUCER, EPOCH, 0)
        assert head.transactional
        assert (copied.first, copied.next, copied.count) == (7000, 7100, 100)
        assert content(copied) == [record[1:] for record in records(100, at=7000)]


def test_sequences_count_records_over_all_that_is_copied() -> None:
    copier = Copier(PRODUCER, EPOCH)
    given = batch.build(records(3, at=0)) + batch.build(records(5, at=3))
    first = copier.copy(memoryview(bytearray(given)), start=0, aborted=None)
    then = copier.copy(memoryview(bytearray(batch.build(records(2, at=8)))), start=8, aborted=None)
    assert [batch.header(one.data).base_sequence for one in first + then] == [0, 3, 8]
    copier.sequence = 0x7FFFFFFF
    copier.copy(memoryview(bytearray(batch.build(records(2, at=10)))), start=10, aborted=None)
    assert copier.sequence == 1, "0 follows the largest"


@pytest.mark.parametrize("codec", Codec)
def test_gaps_of_compaction_are_closed(codec: Codec) -> None:
    kept = [record for record in records(50, at=1000) if record.offset % 3]
    data = batch.build(kept, base_offset=1000, last_offset=1049, codec=codec)
    (copied,) = copy(data, start=1000, aborted=None)
    assert content(copied) == [record[1:] for record in kept]
    assert (copied.first, copied.next, copied.count) == (kept[0].offset, 1050, len(kept))
    assert batch.header(copied.data).codec == codec


def test_a_start_in_the_middle_of_a_batch() -> None:
    (copied,) = copy(batch.build(records(10, at=20)), start=24, aborted=None)
    assert content(copied) == [record[1:] for record in records(10, at=20)[4:]]
    assert (copied.first, copied.next) == (24, 30)


def test_what_compaction_emptied_and_what_lies_before_gives_nothing() -> None:
    empty = batch.build([], base_offset=5, last_offset=9)
    assert not copy(batch.build(records(5, at=0)) + empty, start=5, aborted=None)


def test_append_times_become_the_records_own() -> None:
    data = batch.build(records(4, at=0), append_time=NOW + 5)
    (copied,) = copy(data, start=0, aborted=None)
    assert not batch.header(copied.data).log_append_time
    assert [record.timestamp for record in opened(copied)] == [NOW + 5] * 4


def test_a_delete_horizon_does_not_travel() -> None:
    data = batch.build(records(4, at=0), delete_horizon=NOW + 1000)
    (copied,) = copy(data, start=0, aborted=None)
    assert batch.header(copied.data).delete_horizon is None
    assert content(copied) == [record[1:] for record in records(4, at=0)]


def test_no_timestamp_stays_none() -> None:
    given = [Record(offset, NO_TIMESTAMP, None, b"v") for offset in (0, 2)]
    (copied,) = copy(batch.build(given, last_offset=3), start=0, aborted=None)
    assert [record.timestamp for record in opened(copied)] == [NO_TIMESTAMP] * 2


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_old_messages_become_batches(magic: int, codec: Codec) -> None:
    given = [record._replace(headers=()) for record in records(30, at=40)]
    data = legacy.build(given, magic=magic, codec=codec, level=None, append_time=None)
    found = copy(data + batch.build(records(2, at=70)), start=45, aborted=None)
    assert [one.count for one in found] == [25, 2]
    assert batch.header(found[0].data).codec == codec
    expected = [(NO_TIMESTAMP if magic == 0 else record.timestamp, *record[2:]) for record in given[5:]]
    assert content(found[0]) == expected
    assert found[0].next == 70


def test_old_messages_fill_batches_that_fit() -> None:
    given = [Record(offset, NOW, b"k", bytes(100_000)) for offset in range(25)]
    data = legacy.build(given, magic=1, codec=Codec.NONE, level=None, append_time=None)
    found = copy(data, start=0, aborted=None)
    assert sum(one.count for one in found) == 25
    assert all(len(one.data) <= BATCH_SIZE for one in found)
    assert [one.first for one in found] == [0, *(one.next for one in found[:-1])]


def test_a_batch_that_would_not_fit_is_cut() -> None:
    """Compressed again at the codec's default level, a batch may be larger than the target accepts."""
    noise = random.Random(1)
    given = [Record(offset, NOW, None, noise.randbytes(1000)) for offset in range(0, 40, 2)]
    data = batch.build(given, last_offset=39)
    found = copy(data, start=0, aborted=None, size_max=8000)
    assert len(found) > 1
    assert all(len(one.data) <= 8000 for one in found)
    assert [record.value for one in found for record in opened(one)] == [record.value for record in given]
    assert [one.next for one in found] == [*(one.first for one in found[1:]), 40]


def test_aborted_transactions_and_markers_are_left_out() -> None:
    aborts = batch.build([Record(20, NOW, b"\0\0\0\0", bytes(6))], producer_id=9, control=True, transactional=True)
    commits = batch.build([Record(31, NOW, b"\0\0\0\1", bytes(6))], producer_id=9, control=True, transactional=True)
    aborted = batch.build(records(5, at=10), producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    beside = batch.build(records(5, at=15), producer_id=8, producer_epoch=0, base_sequence=0, transactional=True)
    committed = batch.build(records(10, at=21), producer_id=9, producer_epoch=0, base_sequence=5, transactional=True)
    data = aborted + beside + aborts + committed + commits
    found = copy(data, start=10, aborted=[(9, 10)])
    assert [(one.first, one.next) for one in found] == [(15, 20), (21, 31)]


def test_random_runs_agree_with_the_reader_of_columns() -> None:
    """Whatever a piece contains, the copy is what a read_committed reader would see."""
    for seed in range(60):
        chance = random.Random(seed)
        data, aborted, end = piece(chance)
        start = chance.randrange(end)
        copier = Copier(PRODUCER, EPOCH)
        found = copier.copy(writable(memoryview(data)), start=start, aborted=aborted)
        columns = decode_columns(
            data, start=start, stop=end, headers=True, aborted=aborted, size_max=64 << 20
        ).batch.to_pylist()
        seen = [(row["timestamp"], row["key"], row["value"], headers_of(row)) for row in columns]
        assert [one for copied in found for one in content(copied)] == seen, seed
        assert sum(one.count for one in found) == len(seen) == copier.sequence
        for one, after in pairwise(found):
            assert one.first < one.next <= after.first


@pytest.mark.parametrize("at", [18, 30, 61, 150])
def test_damage_at_the_source_is_not_covered_up(at: int) -> None:
    data = bytearray(batch.build(records(10, at=100)))
    data[at] ^= 1
    with pytest.raises(DamagedError, match="offset 100"):
        copy(data, start=100, aborted=None)


def test_a_torn_tail_is_left_for_the_next_fetch() -> None:
    whole = batch.build(records(10, at=0))
    torn = batch.build(records(10, at=10))
    for cut in (1, 17, 40, 61, len(torn) - 1):
        (copied,) = copy(whole + torn[:cut], start=0, aborted=None)
        assert copied.next == 10


def test_a_piece_of_a_buffer_is_written_where_it_lies() -> None:
    whole = batch.build(records(10, at=0))
    buffer = bytearray(b"frame" + whole + b"rest")
    piece = memoryview(buffer)[5 : 5 + len(whole)].toreadonly()
    (copied,) = Copier(PRODUCER, EPOCH).copy(writable(piece), start=0, aborted=None)
    assert content(copied) == [record[1:] for record in records(10, at=0)]
    assert buffer[5 : 5 + len(whole)] == copied.data
    assert (buffer[:5], buffer[-4:]) == (b"frame", b"rest")


# --- what is given and what comes out


def copy(data: bytes | bytearray, *, start: int, aborted: list[tuple[int, int]] | None, **more: int) -> list[Copied]:
    """What is given stays as it is."""
    return Copier(PRODUCER, EPOCH, **more).copy(writable(memoryview(bytes(data))), start=start, aborted=aborted)


def records(count: int, *, at: int) -> list[Record]:
    return [
        Record(
            at + index,
            NOW + index * 7 % 50,
            None if index % 5 == 0 else b"key %d" % index,
            None if index % 7 == 3 else b"value " * (index % 11),
            (("trace", b"%d" % index), ("empty", None)) if index % 4 == 0 else (),
        )
        for index in range(count)
    ]


def piece(chance: random.Random) -> tuple[bytes, list[tuple[int, int]], int]:
    """Batches of plain, committed and aborted producers, compacted and not, as a Fetch might answer them."""
    data, aborted, offset = b"", [], 0
    for _ in range(chance.randrange(2, 8)):
        codec, producer = chance.choice(list(Codec)), chance.choice([-1, 5, 6])
        given = records(chance.randrange(1, 40), at=offset)
        end = given[-1].offset
        if chance.random() < 0.4:
            given = [record for record in given if chance.random() < 0.6]
        transactional = producer > 0
        if transactional and chance.random() < 0.5:
            aborted.append((producer, offset))
            ends = b"\0\0\0\0"
        else:
            ends = b"\0\0\0\1"
        data += batch.build(
            given,
            base_offset=offset,
            last_offset=end,
            codec=codec,
            producer_id=producer,
            producer_epoch=0 if transactional else -1,
            base_sequence=0 if transactional else -1,
            transactional=transactional,
            append_time=NOW + 3 if chance.random() < 0.2 else None,
        )
        offset = end + 1
        if transactional:
            marker = Record(offset, NOW, ends, bytes(6))
            data += batch.build([marker], producer_id=producer, producer_epoch=0, transactional=True, control=True)
            offset += 1
    return data, aborted, offset


def opened(copied: Copied) -> list[Record]:
    """The records of a batch that a leader has taken, as it would take it from a client."""
    data = bytes(copied.data)
    accepted = validate(
        memoryview(data),
        topic_config(load({}), {}),
        base=500,
        epoch=2,
        now_ms=NOW + 60_000,
        produce_version=9,
        client=True,
    )
    assert accepted.header is not None
    assert accepted.last - accepted.base + 1 == copied.count
    stored = b"".join(accepted.parts)
    assert batch.crc_ok(stored, 0, batch.header(stored))
    return list(batch.iterate(stored))


def content(copied: Copied) -> list[tuple[object, ...]]:
    return [record[1:] for record in opened(copied)]


def headers_of(row: dict[str, object]) -> tuple[tuple[str, bytes | None], ...]:
    found = row["headers"] or []
    assert isinstance(found, list)
    return tuple((header["key"], header["value"]) for header in found)
