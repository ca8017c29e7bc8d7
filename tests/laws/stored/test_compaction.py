"""Compaction of a log with a batch that cannot be opened: older releases stored such batches."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from log.making import NOW_MS, a_log, append, everything
from records.malformed import record, wrap

from ottla.config import load
from ottla.log import sieve
from ottla.log.cleaner import survey, swap
from ottla.log.compaction import Compaction, plan
from ottla.log.replicate import replicate
from ottla.records import batch
from ottla.records.batch import Record, varint
from ottla.records.compress import Codec, compress

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.log.log import Log

UNREADABLE = {
    "key beyond the record": wrap(record(key=varint(100) + b"k"), NOW_MS, base_offset=2),
    "many headers": wrap(record(headers=varint(2**31 - 1)), NOW_MS, base_offset=2),
    "no frame": wrap(b"garbage", NOW_MS, codec=Codec.LZ4, base_offset=2),
    "too many records": wrap(
        compress(Codec.GZIP, record() * 300_000), NOW_MS, codec=Codec.GZIP, count=300_000, base_offset=2
    ),
}


def keyed(key: bytes, value: bytes) -> memoryview:
    return memoryview(batch.build([Record(0, NOW_MS, key, value)]))


def compact(log: Log) -> None:
    """One run, as the cleaner does it."""
    segments = log.segments[:-1]
    run = Compaction(plan(*survey(log, 0, NOW_MS)[:3], load({}), NOW_MS), log.disk)
    run.map_keys()
    for sources in run.groups:
        assert swap(log, segments, run.clean(sources))


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_opened_stays_and_the_rest_is_compacted(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = a_log(tmp_path, cleanup_policy="compact")
    append(log, keyed(b"k", b"one"))
    append(log, keyed(b"other", b"stays"))
    replicate(log, memoryview(UNREADABLE[name]), now_ms=NOW_MS)
    append(log, keyed(b"k", b"two"))
    log.roll(now_ms=NOW_MS)
    append(log, keyed(b"k", b"not closed yet"))
    with caplog.at_level(logging.WARNING):
        compact(log)
    data = everything(log)
    found = [data[entry.position : entry.position + entry.size] for entry in batch.entries(data)]
    values = [record.value for one in found if one != UNREADABLE[name] for record in batch.iterate(one)]
    assert values == [b"stays", b"two", b"not closed yet"]
    assert UNREADABLE[name] in found, "as it was, byte by byte"
    said = [entry.message for entry in caplog.records if "the batch at offset 2 is kept as it is" in entry.message]
    assert len(said) == 1


def test_an_unreadable_marker_ends_nothing() -> None:
    data = wrap(b"garbage", NOW_MS, attributes=batch.CONTROL | Codec.GZIP)
    assert sieve.control_type(memoryview(data)) == -1
