"""A cache of open log files, shared by all logs of the process. Other files are opened on demand.

The number of descriptors is limited per process: a broker with ten thousand partitions and a limit of 1024 must serve
them all. A holder (a segment) opens its file at the first use and keeps it. When too many are open, `let_go` is called
on holders that have not used their file since the last check. Whoever uses a file holds the `File` object, so the
descriptor is closed only when the last user is done.
"""

from __future__ import annotations

import errno
import resource
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Protocol
from weakref import ref

if TYPE_CHECKING:
    from ottla.disk import Disk, File

KEPT_MAX = 32_768
SHARE = 2  # half of the descriptors may be log files: connections need the others
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE})


class Holder(Protocol):
    used: bool

    def let_go(self) -> None:
        """Drop the reference to the file. It closes when nobody uses it any more."""


class OpenFiles:
    def __init__(self, kept_max: int | None = None) -> None:
        self._kept_max = kept_max
        self._holders: OrderedDict[ref[Holder], None] = OrderedDict()  # least recently checked first
        self._lock = Lock()  # recovery and compaction open files in threads

    def __len__(self) -> int:
        return len(self._holders)

    def open(self, disk: Disk, path: str, *, create: bool = False) -> File:
        """Open a file. When the process has no descriptor left, half of the kept files are closed first."""
        try:
            return disk.open(path, create=create)
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
        with self._lock:
            self._shrink(len(self._holders) // 2)
        return disk.open(path, create=create)

    def keep(self, holder: Holder) -> None:
        """Register a holder that has opened its file. It keeps the file until `let_go` is called."""
        with self._lock:
            self._holders[ref(holder, self._forget)] = None
            if len(self._holders) > self._limit():
                self._shrink(self._limit())

    def _limit(self) -> int:
        if self._kept_max is not None:
            return self._kept_max
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return min(soft // SHARE, KEPT_MAX) if soft >= 0 else KEPT_MAX

    def _shrink(self, count: int) -> None:
        """Close all but `count` files: first those not used since the last call, then any."""
        for _ in range(2 * len(self._holders)):
            if len(self._holders) <= count:
                return
            reference, _ = self._holders.popitem(last=False)
            holder = reference()
            if holder is None:
                continue
            if holder.used:
                holder.used = False
                self._holders[reference] = None
            else:
                holder.let_go()

    def _forget(self, reference: ref[Holder]) -> None:
        self._holders.pop(reference, None)


OPEN_FILES = OpenFiles()
