"""A second copy of the metadata, as lines of JSON: the database is rebuilt from it when it is lost or damaged.

    {"put":{"/config/topics/orders":"{...}"},"gone":["/config/topics/visits"],"zxid":17}

Every transaction adds a line with its changes, even if there are none. A line that cannot be written is written with
the next one. Lines are not forced to disk: the last transaction number shows at the next start whether any is missing,
and then the file is rewritten from the database. It is also rewritten when most of it is outdated.

Partition states are left out: they change with many starts, and the logs hold the leader epochs.
"""

from __future__ import annotations

import json
import logging
import os
import re
from typing import TYPE_CHECKING

from ottla.cluster import znodes

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger("ottla.cluster")

TAIL_SIZE = 64
GROWTH_MIN = 1 << 20  # a smaller file is not worth rewriting
_NUMBER = re.compile(rb'"zxid":(\d+)}\n$')

PRIVATE_MODE = 0o600
Changes = dict[str, bytes | None]  # None for a deleted node


class Journal:
    def __init__(self, path: str) -> None:
        self.path = path
        self._waiting: Changes = {}  # changes that could not be written yet
        self._torn = False
        self._size = self._begun = 0

    def last(self) -> int:
        """The number of the last transaction in the file; -1 when it is missing or its end is damaged."""
        try:
            with open(self.path, "rb") as file:
                self._size = self._begun = file.seek(0, os.SEEK_END)
                file.seek(max(0, self._size - TAIL_SIZE))
                found = _NUMBER.search(file.read())
        except OSError:
            return -1
        return int(found[1]) if found else -1

    def read(self) -> tuple[int, dict[str, bytes]]:
        """The number of the last transaction, and the nodes after it. Damaged lines are ignored."""
        nodes: dict[str, bytes] = {}
        last, bad = 0, 0
        try:
            with open(self.path, "rb") as file:
                lines = file.read().split(b"\n")
        except OSError:
            return 0, {}
        for line in filter(None, lines):
            try:
                fields = json.loads(line)
                for path in fields["gone"]:
                    nodes.pop(path, None)
                nodes |= {path: text.encode("utf-8", "surrogateescape") for path, text in fields["put"].items()}
                last = max(last, int(fields["zxid"]))
            except (ValueError, KeyError, TypeError, AttributeError):
                bad += 1
        if bad:
            logger.warning("damaged journal lines ignored", extra={"journal": self.path, "lines": bad})
        return last, nodes

    def append(self, zxid: int, changes: Mapping[str, bytes | None]) -> None:
        """Add a transaction. One that cannot be written now is written with the next."""
        changes = {**self._waiting, **{path: data for path, data in changes.items() if not znodes.is_derived(path)}}
        line = (b"\n" if self._torn else b"") + encode_line(zxid, changes)
        try:
            with open(self.path, "ab", buffering=0, opener=open_private) as file:
                whole = file.write(line) == len(line)
        except OSError as error:
            self._keep(changes, str(error))
            return
        if not whole:
            self._torn = True
            self._keep(changes, "the disk is full")
            return
        self._size += len(line)
        self._torn = False
        self._waiting = {}

    def _keep(self, changes: Changes, reason: str) -> None:
        if not self._waiting:
            logger.warning("journal not written, will be tried again", extra={"journal": self.path, "reason": reason})
        self._waiting = changes

    @property
    def is_long(self) -> bool:
        """Whether most of the file is outdated."""
        return self._size - self._begun > max(GROWTH_MIN, self._begun)

    def rewrite(self, zxid: int, nodes: Mapping[str, bytes]) -> None:
        """Rewrite the whole file. A reader sees the old one or the new one."""
        new = f"{self.path}.tmp"
        data = encode_line(zxid, {path: data for path, data in nodes.items() if not znodes.is_derived(path)})
        try:
            with open(new, "wb", buffering=0, opener=open_private) as file:
                if file.write(data) < len(data):
                    raise OSError("the disk is full")
                os.fsync(file.fileno())
            os.replace(new, self.path)
        except OSError as error:
            logger.warning("journal not rewritten", extra={"journal": self.path, "reason": str(error)})
            return
        self._size = self._begun = len(data)
        self._waiting, self._torn = {}, False


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner may read: it holds credentials."""
    return os.open(path, flags | os.O_CLOEXEC, PRIVATE_MODE)


def encode_line(zxid: int, changes: Mapping[str, bytes | None]) -> bytes:
    put = {path: data.decode("utf-8", "surrogateescape") for path, data in changes.items() if data is not None}
    gone = [path for path, data in changes.items() if data is None]
    return json.dumps({"put": put, "gone": gone, "zxid": zxid}, separators=(",", ":")).encode() + b"\n"
