"""The data folder of a broker: the default folder, the folder in memory, and the lock that keeps out a second broker.

    default   $OTTLA_DATA, else $XDG_DATA_HOME/ottla, else ~/.local/share/ottla
    memory    a new folder in shared memory where the system has it, else on disk; removed when the broker stops
    .lock     in every folder in use, a POSIX record lock as in Apache Kafka: each of the two respects the other's

A killed process cannot remove its folder in memory, so the next broker in memory does: a folder whose process is gone
and whose lock is free is removed.
"""

import fcntl
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

# A memory file system on every Linux; absent elsewhere. A folder there has a random name and only its owner's access.
SHARED_MEMORY = Path("/dev/shm")  # nosec B108 # see above
PREFIX = "ottla-memory-"
LOCK = ".lock"


class FolderInUse(Exception):
    """Another broker, of Ottla or Apache Kafka, uses this folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"the folder {folder} is in use by another broker")
        self.folder = folder


def default_folder(environment: Mapping[str, str]) -> Path:
    if chosen := environment.get("OTTLA_DATA"):
        return Path(chosen).expanduser()
    share = environment.get("XDG_DATA_HOME")
    return (Path(share) if share else Path.home() / ".local" / "share") / "ottla"


class FolderLocks:
    """The locks of one broker. POSIX releases them when the process ends, however it ends.

    Such a lock belongs to the process and not to the descriptor, so `taken` keeps two brokers of one process apart.
    """

    taken: set[Path] = set()  # noqa: RUF012 - shared on purpose: one set for the whole process

    def __init__(self, folders: Sequence[Path]) -> None:
        """OSError only if none of the folders can be used: a broken one among several goes offline later."""
        self._held: list[tuple[Path, int]] = []
        broken: list[OSError] = []
        for folder in folders:
            try:
                self._take(folder)
            except OSError as error:
                broken.append(error)
            except FolderInUse:
                self.release()
                raise
        if broken and not self._held:
            raise broken[0]

    def _take(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder.resolve()
        if path in self.taken:
            raise FolderInUse(folder)
        descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise FolderInUse(folder) from error
        self.taken.add(path)
        self._held.append((path, descriptor))

    def release(self) -> None:
        while self._held:
            path, descriptor = self._held.pop()
            self.taken.discard(path)
            os.close(descriptor)


def memory_folder() -> Path:
    import tempfile  # slow to import, and not needed by a broker with a data folder

    parent = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    for old in parent.glob(f"{PREFIX}*"):
        if is_abandoned(old):
            remove(old)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))


def is_memory(folder: Path) -> bool:
    """Whether `memory_folder` made it: then only the brokers that it was made for use it."""
    return folder.name.startswith(PREFIX)


def is_abandoned(folder: Path) -> bool:
    process = folder.name.removeprefix(PREFIX).split("-")[0]
    if not process.isdecimal() or is_alive(int(process)):
        return False
    try:
        FolderLocks([folder]).release()
    except (FolderInUse, OSError):  # a folder of another user, or of a process in another container
        return False
    return True


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
