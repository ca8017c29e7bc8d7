"""One log directory of a broker, with the partitions in it.

When its disk fails, the directory and its partitions go offline; the rest of the broker keeps running. A full disk is
not a failed one: it refuses appends, serves reads, and accepts appends again when there is space.

    orders-0                                 a partition
    orders-0.<32 hex digits>-delete          deleted; its files are removed after a delay
    orders-0.<32 hex digits>-future          being copied here from another directory
    orders-0.<32 hex digits>-stray           set aside: the cluster does not assign it to this broker
"""

from __future__ import annotations

import errno
import logging
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import BrokerError, ErrorCode
from ottla.log.ledger import Ledger

if TYPE_CHECKING:
    from ottla.disk import Disk
    from ottla.log.log import Log

DELETE = "delete"
FUTURE = "future"
STRAY = "stray"
QUORUM = "__cluster_metadata-0"  # the log of a KRaft quorum: only read, see `quorum.py`

# Errors that mean that the device has failed, not only this operation.
FATAL = frozenset(
    {errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE} | {getattr(errno, "EUCLEAN", errno.EIO)}
)
# Errors of a single file, or of the whole directory if that is unmounted or removed.
DOUBTFUL = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENOTCONN})
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# Temporary errors: the process lacks descriptors or memory.
WANTING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR})
# A full directory has space again when this many bytes are free, and no write failed during a few checks.
FREE_MIN = 1 << 20
QUIET_LOOKS = 3
MENTIONED_MAX = 1000

_NAME = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<index>\d{1,10})")
_ASIDE = re.compile(r"(?P<topic>[a-zA-Z0-9._-]*)-(?P<index>\d{1,10})\.[0-9a-f]{32}-(?P<kind>delete|future|stray)")

logger = logging.getLogger("ottla.log")


class Name(NamedTuple):
    """The parsed name of a partition's folder. `kind` is empty for one in use."""

    topic: str
    partition: int
    kind: str = ""


class Directory:
    def __init__(self, path: str, disk: Disk) -> None:
        self.path = path
        self.disk = disk
        self.error: OSError | None = None
        self.ledger = Ledger(path, disk)
        self.retired = self.retired_size = 0  # segments that retention has removed, and their bytes
        self.logs: set[Log] = set()
        self.unforced: dict[Log, None] = {}  # logs that may need a flush, by time or after a roll
        self.shrunk: dict[Log, None] = {}  # logs with segments whose files are to be removed
        self.full = False
        self._quiet = 0  # how many checks for space since a write last failed
        self._mentioned: set[tuple[int | None, str]] = set()  # errors that were logged
        self.id = bytes(16)  # the directory id in AssignReplicasToDirs and meta.properties

    def __str__(self) -> str:
        return self.path

    @property
    def online(self) -> bool:
        return self.error is None

    def fail(self, error: OSError) -> None:
        """Take the directory offline. Its partitions answer KAFKA_STORAGE_ERROR from now on."""
        if self.error is None:
            self.error = error
            logger.error("log directory offline", extra={"directory": self.path, "reason": str(error)})
            for log in self.logs:
                log.fault = f"log directory {self.path} is offline: {error}"

    def note_failure(self, error: OSError) -> None:
        """An operation has failed. A broken device takes the directory offline, a full one refuses appends."""
        if error.errno in FATAL or (error.errno in DOUBTFUL and not self.disk.exists(self.path)):
            self.fail(error)
        elif error.errno in FULL:
            self._quiet = 0
            if not self.full:
                self.full = True
                logger.error("disk full", extra={"directory": self.path, "reason": str(error)})
        else:
            self._mention(error)

    def storage_error(self, error: OSError) -> BrokerError:
        """The error to answer with for an operation that failed with `error`."""
        return BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path}: {error}")

    def _mention(self, error: OSError) -> None:
        """Log each kind of error once for each folder, until `look_again`."""
        path = error.filename if isinstance(error.filename, str) else self.path
        trouble = error.errno, os.path.dirname(path)
        if trouble not in self._mentioned:
            if len(self._mentioned) >= MENTIONED_MAX:
                self._mentioned.clear()
            self._mentioned.add(trouble)
            logger.error("disk operation failed", extra={"directory": self.path, "reason": str(error)})

    def look_again(self) -> None:
        """Allow known errors to be logged again."""
        self._mentioned.clear()

    def look_for_space(self) -> None:
        """Notice when a full disk has space again."""
        self._quiet += 1
        if self.full and self._quiet >= QUIET_LOOKS and self.disk.space(self.path)[1] >= FREE_MIN:
            self.full = False
            logger.info("disk has space again", extra={"directory": self.path})


def parse(folder: str) -> Name | None:
    """The partition of a folder name, None for folders that are not ours."""
    if match := _ASIDE.fullmatch(folder):
        return Name(match["topic"], int(match["index"]), match["kind"])
    if folder == QUORUM:
        return None
    if match := _NAME.fullmatch(folder):
        return Name(match["topic"], int(match["index"]))
    return None


def aside(topic: str, index: int, unique: str, kind: str) -> str:
    """A folder name for a partition that is not in use. The topic is shortened so that the name fits 255 characters."""
    suffix = f"-{index}.{unique}-{kind}"
    return topic[: 255 - len(suffix)] + suffix
