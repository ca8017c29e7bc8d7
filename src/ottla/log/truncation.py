"""Truncate a log, so that it matches its leader's: remove its end, or everything.

Offsets that were removed are used again. So no file is kept for a while, producers and leader epochs go back to where
they were, and the truncation must be on disk before anything else is written (see `durability`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.recovery import replay
from ottla.log.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.log.log import Log


def truncate(log: Log, offset: int, *, now_ms: int) -> None:
    """Remove everything at or above `offset`, as a follower does to match its leader.

    The caller may force that to disk in a thread with `Flusher.force_cut`; if not, the next write does it.
    """
    if offset >= log.end:
        log.epochs.cut_end(offset)  # the leader may not know an epoch in which nothing was written
        return
    try:
        if offset < log.segments[0].base:
            restart(log, offset, now_ms=now_ms)
            return
        gone = log.segments_from(offset)[1:]
        _remove(log, gone)
        del log.segments[len(log.segments) - len(gone) :]
        log.active = log.segments[-1]
        log.active.truncate(offset)
        log.end = log.active.end
        _settle(log, now_ms)
    except OSError as error:
        log.directory.note_failure(error)
        raise log.directory.storage_error(error) from error
    log.durability.owes_cut = True


def restart(log: Log, offset: int, *, now_ms: int) -> None:
    """Delete everything and start empty at `offset`, as a follower does whose leader has no older records."""
    try:
        _restart(log, offset, now_ms)
    except OSError as error:
        log.directory.note_failure(error)
        raise log.directory.storage_error(error) from error
    log.durability.owes_cut = True


def _restart(log: Log, offset: int, now_ms: int) -> None:
    _remove(log, log.segments)
    log.active = Segment.create(log.path, offset, log.disk, log.config, now_ms=now_ms)
    log.segments = [log.active]
    log.start = log.end = offset
    if log.high_set is not None:
        log.high_set = offset
    log.epochs.clear()
    log.producers.reset()
    _settle(log, now_ms)


def _remove(log: Log, segments: Sequence[Segment]) -> None:
    """Remove files without the usual delay: their names may be needed again before it is over."""
    for segment in segments:
        segment.close()
        segment.remove()
        log.producers.remove(segment.base)


def _settle(log: Log, now_ms: int) -> None:
    """Bring all derived state in line with the new end of the log."""
    log.start = min(log.start, log.end)
    log.durability.note_cut()
    log.epochs.cut_end(log.end)
    log.epochs.flush()
    replay(log.segments, log.producers, start=log.start, end=log.end, now_ms=now_ms)
    if log.high_set is not None:
        log.high_set = min(log.high_set, log.end)
