"""Blocks of the disk that are reserved for the end of a growing log file.

ext4 sets a block aside for each new page of a file when it is written. That is a third of what a large append costs,
and much cheaper for many pages at once. So blocks are allocated ahead of the writes. The size of the file stays the
same: readers and copies notice nothing, and other programs only see it in the blocks that the file uses.

Laws:
- A file that has grown to `GROWN_SIZE` gets a reservation as large as itself, then the next, each at most
  `RESERVED_SIZE_MAX` and none beyond the segment's largest size, as long as the disk has `FREE_MIN` bytes left. So many
  small partitions reserve nothing, and a disk that gets full is left to the writes.
- A reservation is a help. If it fails or takes long, writes go on without one.
- What is not used is freed when the segment is closed, when the broker stops, or starts again after a crash, when
  nothing was appended for an interval of the retention check, and when the disk is full.
- Freeing it does not change the file's time, which retention may use.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ottla.records.native import block_reserver

if TYPE_CHECKING:
    from ottla.disk import Disk, File

GROWN_SIZE = 4 << 20
RESERVED_SIZE_MAX = 64 << 20
FREE_MIN = 64 * RESERVED_SIZE_MAX
# The next reservation is made when less than this is left of the last one: room for a batch of usual size.
LEFT_MIN = 1 << 20
BLOCK_SIZE = 512  # unit of `st_blocks`, whatever the file system's blocks are


def reserve(disk: Disk, file: File, end: int, size_max: int) -> int:
    """Reserve blocks for what will follow the end of a file, which is to grow to `size_max` at most. Returns for how
    many bytes: 0 if none were reserved."""
    native, size = block_reserver(), min(end, RESERVED_SIZE_MAX, size_max - end)
    if native is None or disk.writev is not os.pwritev or size <= LEFT_MIN:
        return 0
    return size if native(file.fd, end, size, FREE_MIN) else 0


def free_leftovers(disk: Disk, file: File, size: int) -> None:
    """Free what a process had reserved that was killed. A small rest may be bookkeeping of the file system."""
    found = disk.stat(file.path)
    if found.st_blocks * BLOCK_SIZE - size >= LEFT_MIN:
        disk.cut(file.fd, size)
        disk.set_modified(file.path, int(found.st_mtime * 1000))
