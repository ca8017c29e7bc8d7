"""The suite's temporary files are kept in memory where there is room for them.

The tests create hundreds of thousands of files, and each costs a disk's file system ten times as much of a processor.
What tests ask of files is the same in memory: what a killed process has written stays. Set TMPDIR to use a disk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
PREFIX = "ottla-tests-"
ROOM_MIN = 8 << 30  # a whole run takes about a quarter of it at a time
FREE_MIN = 12 << 30  # of the machine's memory: JVMs and a browser need the rest


def use_memory() -> Path | None:
    """Make a folder in memory for the temporary files of this process and of those that it starts.

    None if there is no room, or if TMPDIR says where they belong.
    """
    if "TMPDIR" in os.environ or not has_room():
        return None
    remove_abandoned()
    folder = MEMORY / f"{PREFIX}{os.getpid()}"  # short, because the path of a socket has at most 107 bytes
    folder.mkdir(mode=0o700)
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None  # it may have been looked up before
    return folder


def has_room() -> bool:
    try:
        shared, lines = os.statvfs(MEMORY), Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return False
    free_kb = next((int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), 0)
    return os.access(MEMORY, os.W_OK) and shared.f_bavail * shared.f_frsize >= ROOM_MIN and free_kb << 10 >= FREE_MIN


def remove_abandoned() -> None:
    """Remove the folders of earlier runs: those with a failure, and those that were killed."""
    for folder in MEMORY.glob(f"{PREFIX}[0-9]*"):
        process = int(folder.name.removeprefix(PREFIX))
        if process == os.getpid() or not Path(f"/proc/{process}").exists():
            shutil.rmtree(folder, ignore_errors=True)
