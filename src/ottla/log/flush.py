"""Forcing bytes to disk, apart from the log that asks for it: a plan that a thread can carry out.

Bytes of the log come first, then indexes of closed segments (those of the active one are rebuilt after a crash), then
the names of the files, which are bytes of their folders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.disk import Disk, File


class Flush(NamedTuple):
    """What to force to disk so that a log's recovery point may move to `end`."""

    disk: Disk
    files: tuple[File, ...]
    indexes: tuple[str, ...]
    folders: tuple[str, ...]
    end: int
    cuts: int  # of the log when the plan was made


def carry_out(flush: Flush) -> None:
    """Returns when everything is on disk, else raises OSError. The plan holds the files open."""
    for file in flush.files:
        flush.disk.sync(file.fd)
    for path in flush.indexes:
        try:
            index = flush.disk.open(path)
        except FileNotFoundError:
            continue  # deleted or replaced meanwhile, with its segment
        flush.disk.sync(index.fd)
        index.close()
    sync_folders(flush.disk, flush.folders)


def sync_folders(disk: Disk, folders: Iterable[str]) -> None:
    for folder in folders:
        try:
            disk.sync_folder(folder)
        except FileNotFoundError:
            continue  # the partition was deleted meanwhile
