"""What the broker itself appends: the log ends up as if the batch had been validated like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from log.making import NOW_MS, a_log, append, everything, produced

from ottla.errors import BrokerError, ErrorCode
from ottla.records import batch
from ottla.records.markers import EndMarker, encode_marker

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.log.log import Log

RECORDS = [(b"key", b"value"), (b"gone", None)]
EPOCH = 3
CONFIGS = [
    {},
    {"compression_type": "uncompressed"},
    {"compression_type": "gzip"},
    {"message_timestamp_type": "LogAppendTime"},
    {"cleanup_policy": "compact"},
]


def append_validated(log: Log, records: list[tuple[bytes, bytes | None]], producer: tuple[int, int] | None) -> None:
    """The long way: build, then let the log check and stamp it."""
    producer_id, producer_epoch = producer or (-1, -1)
    data = batch.build(
        [batch.Record(at, NOW_MS, key, value) for at, (key, value) in enumerate(records)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=producer is not None,
    )
    log.append(memoryview(data), epoch=EPOCH, now_ms=NOW_MS, produce_version=11, client=False)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("producer", [None, (7, 1)])
def test_the_log_is_the_same_as_after_validation(
    tmp_path: Path, config: dict[str, object], producer: tuple[int, int] | None
) -> None:
    short, long = a_log(tmp_path / "short", **config), a_log(tmp_path / "long", **config)
    for log in (short, long):
        append(log, produced(2), epoch=EPOCH)
    for _ in range(2):
        assert short.append_own(RECORDS, EPOCH, NOW_MS, producer)[0] == long.end
        append_validated(long, RECORDS, producer)
    assert everything(short) == everything(long)
    assert (short.end, short.size, short.active.max_timestamp) == (long.end, long.size, long.active.max_timestamp)
    assert short.producers.last_stable(99) == long.producers.last_stable(99) == (99 if producer is None else 2)


def test_a_marker_ends_the_transaction(tmp_path: Path) -> None:
    log, end = a_log(tmp_path), EndMarker(False, 5)
    log.append_own(RECORDS, EPOCH, NOW_MS, (7, 1))
    assert log.producers.last_stable(log.end) == 0
    base, size = log.append_own([encode_marker(end)], EPOCH, NOW_MS, (7, 1), end)
    assert base == 2
    assert log.producers.last_stable(log.end) == log.end == 3
    assert [(one.first, one.last) for one in log.active.transactions.entries] == [(0, 2)]
    assert batch.header(everything(log), log.size - size).control


def test_a_fenced_producer_is_refused(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    log.append_own(RECORDS, EPOCH, NOW_MS, (7, 2))
    before = log.end, log.size
    late = EndMarker(True, 0)
    for records, marker in ((RECORDS, None), ([encode_marker(late)], late)):
        with pytest.raises(BrokerError) as failure:
            log.append_own(records, EPOCH, NOW_MS, (7, 1), marker)
        assert failure.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert (log.end, log.size) == before


def test_what_is_too_large_is_refused(tmp_path: Path) -> None:
    log = a_log(tmp_path, max_message_bytes=100)
    with pytest.raises(BrokerError) as failure:
        log.append_own([(b"key", bytes(100))], EPOCH, NOW_MS)
    assert failure.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert (log.end, log.size) == (0, 0)
    assert log.append_own([(b"key", b"")], EPOCH, NOW_MS)[0] == 0


def test_a_log_with_a_fault_takes_nothing(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    log.fault = "gone"
    with pytest.raises(BrokerError) as failure:
        log.append_own(RECORDS, EPOCH, NOW_MS)
    assert failure.value.code is ErrorCode.KAFKA_STORAGE_ERROR
