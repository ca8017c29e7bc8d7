"""Truncation takes everything along that is derived from the records, and holds over a power cut."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING
from unittest import mock

from log.making import NOW_MS, a_log, append, everything, from_producer, produced

from ottla.log.retention import retain
from ottla.log.truncation import restart, truncate
from ottla.sim.disk import Device, SimDisk

if TYPE_CHECKING:
    from pathlib import Path


def test_truncation_takes_producers_epochs_and_the_high_watermark_along(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=300)
    append(log, from_producer(0, count=2), epoch=1)
    append(log, from_producer(2, count=2), epoch=2)
    append(log, from_producer(4, count=2), epoch=3)
    log.high = 6
    log.durability.flush(NOW_MS)
    truncate(log, 4, now_ms=NOW_MS)
    assert (log.end, log.high, log.epochs.latest) == (4, 4, 2)
    assert (log.durability.recovery_point, log.durability.cuts) == (4, 1)
    assert append(log, from_producer(4), epoch=5).base == 4, "the producer's next sequence is the one that was cut off"
    truncate(log, 99, now_ms=NOW_MS)
    assert (log.end, log.durability.cuts) == (5, 1)


def test_what_was_cut_off_does_not_come_back_in_place_of_what_was_written_after_it(tmp_path: Path) -> None:
    device = Device(Random(1))
    log = a_log(tmp_path, SimDisk(device))
    append(log, produced(4), epoch=1)
    append(log, produced(4, size=11), epoch=1)
    log.durability.flush(NOW_MS)
    truncate(log, 4, now_ms=NOW_MS)
    kept = everything(log)
    append(log, produced(4, size=12), epoch=2)
    with mock.patch.object(device, "_survivor", lambda safe, now: safe):
        device.cut_power()
    assert (log.folder / "00000000000000000000.log").read_bytes() == kept


def test_truncation_below_the_first_segment_starts_anew(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=200, file_delete_delay_ms=0)
    for _ in range(4):
        append(log, produced(2))
    log.delete_before(6)
    retain(log, NOW_MS)
    truncate(log, 1, now_ms=NOW_MS)
    assert (log.start, log.end, log.size) == (1, 1, 0)
    assert append(log, produced(1)).base == 1
    restart(log, 1000, now_ms=NOW_MS)
    assert (log.start, log.end) == (1000, 1000)
    assert log.epochs.entries == []
    assert append(log, produced(1)).base == 1000
    assert {path.name for path in log.folder.glob("*.log")} == {"00000000000000001000.log"}
