"""Collectors of log folders: size, free space, and what retention and compaction have removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.metrics import catalogue
from ottla.metrics.family import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.log.store import LogStore
    from ottla.metrics.sources import Sources


def spaces(store: LogStore) -> list[Sample]:
    """Runs in a thread, so that a hanging disk does not block the loop."""
    samples = []
    for directory in store.directories:
        if directory.online:
            try:
                total, free = store.disk.space(directory.path)
            except OSError:  # the next write to this disk reports it
                continue
            samples += [
                Sample(catalogue.DISK_TOTAL, (directory.path,), total),
                Sample(catalogue.DISK_FREE, (directory.path,), free),
            ]
    return samples


def disks(sources: Sources) -> Iterator[Sample | None]:
    """Yields None as a pause point."""
    store = sources.store
    for directory in store.directories:
        yield Sample(catalogue.FOLDER_ONLINE, (directory.path,), int(directory.online))
        size = 0
        for log in list(directory.logs):
            size += log.size
            yield None
        yield Sample(catalogue.LOG_TOTAL, (directory.path,), size)
    yield Sample(catalogue.RETIRED_SEGMENTS, (), sum(one.retired for one in store.directories))
    yield Sample(catalogue.RETIRED_BYTES, (), sum(one.retired_size for one in store.directories))
    cleaner = store.cleaner
    yield Sample(catalogue.COMPACTIONS, (), cleaner.compactions)
    yield Sample(catalogue.COMPACTION_FAILURES, (), cleaner.failures)
    yield Sample(catalogue.COMPACTED_BYTES, (), cleaner.removed_size)
