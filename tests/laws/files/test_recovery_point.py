"""A recovery point older than the log's first segment: retention removed the segments before it, then came a crash."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from log.making import NOW_MS, a_log, a_store, append, produced

from ottla.log.retention import retain

if TYPE_CHECKING:
    from pathlib import Path


def test_it_does_no_harm(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    append(log, produced())
    log.roll(NOW_MS)
    append(log, produced())
    log.delete_before(1)
    assert retain(log, NOW_MS) == 1
    (log,) = a_store(tmp_path).logs.values()  # no checkpoint was written
    assert [segment.base for segment in log.segments] == [1]
    append(log, produced())
    assert log.durability.flush_due(NOW_MS) is None
    assert log.durability.plan_flush() is not None


def test_a_flush_that_began_before_another_failed_does_not_count(tmp_path: Path) -> None:
    """The kernel reports a failed write-back once, to the first fsync; the next fsync succeeds."""
    log = a_log(tmp_path)
    append(log, produced())
    first, second = log.durability.plan_flush(), log.durability.plan_flush()
    assert first is not None
    assert second is not None
    log.durability.fail_sync(OSError(errno.ENOSPC, "No space left on device"))
    log.durability.finish_flush(second, NOW_MS)
    assert log.durability.recovery_point == 0
    again = log.durability.plan_flush()
    assert again is not None
    assert again.sizes, "everything is written again"
    log.durability.finish_flush(again, NOW_MS)
    assert log.durability.recovery_point == log.end
