"""Sends lines of growing files to a topic exactly once, even if the shipper is killed or a file is rotated.

A transaction contains some lines and, in a second topic that is compacted, how far they go in their file:

    logs             key host                {"host": "web-1", "file": "/var/log/app.log", "line": "..."}
    logs.positions   key host/device:inode   {"device": 2049, "inode": 4711, "file": ..., "position": 90210,
                                              "head": 64, "print": "5d41...", "at": 1769860800.0}

So lines and positions always agree. A new shipper for the same host ends the open transaction of the old one before it
reads the positions. A file is identified by its device and inode, and by a hash of its first bytes, since inodes are
reused. However many links of a file match, it is read once. A renamed (rotated) file is read to its end under its new
name; one that became shorter (copied and truncated) is read from its start. A line without an end is not sent yet. The
position of a file that has been gone for a week is removed.

Device numbers may change when a machine restarts, and positions of older releases (key host/inode) have none. Such a
position applies to the file with this inode and hash in the same folder, and is replaced when more of the file is sent.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import stat
import threading
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ottla.client import offsets
from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed
from ottla.client.security import security
from ottla.spark.runner import UsageError
from ottla.spark.runner.generating import librdkafka
from ottla.spark.source import reading
from ottla.spark.source.options import SourceOptions
from ottla.spark.source.planning import Split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

    from ottla.spark.runner import Run

CHUNK: Final = 1 << 20
HEAD_MAX: Final = 256
PAUSE_S: Final = 0.25
TRANSACTION_S: Final = 60.0
KEPT_S: Final = 7 * 86_400.0  # positions of files that are gone

Key = tuple[int, int]  # device and inode


@dataclass(frozen=True)
class SentPosition:
    """How far a file was sent."""

    inode: int
    file: str
    position: int = 0
    head: int = 0  # this many of its first bytes ...
    print: str = ""  # ... have this hash
    device: int = 0  # 0: written by an older release
    at: float = 0.0  # when it was sent, in seconds since 1970

    @property
    def key(self) -> Key:
        return self.device, self.inode

    @property
    def name(self) -> str:
        """The end of its key in the topic."""
        return f"{self.device}:{self.inode}" if self.device else str(self.inode)

    def continues(self, file: BinaryIO) -> bool:
        """Does this file still begin with what was sent?"""
        return os.fstat(file.fileno()).st_size >= self.position and fingerprint(file, self.head) == self.print


def places(host: str, records: Iterable[tuple[bytes, bytes | None]]) -> dict[Key, SentPosition]:
    """The positions of a host in these records; the last one of each key counts."""
    found: dict[str, SentPosition] = {}
    for key, value in records:
        owner, _, name = key.decode().rpartition("/")
        if owner == host and value is not None:
            found[name] = SentPosition(**json.loads(value))
        elif owner == host:
            found.pop(name, None)
    return {place.key: place for place in found.values()}


def identifier(topic: str, host: str) -> str:
    """The transactional id of a shipper. Topic names have no slash, so it is unique."""
    return f"ottla-ship-{topic}/{host}"


def lines(data: bytes) -> tuple[list[str], int]:
    """The complete lines at the start of some bytes, and their length in bytes."""
    end = data.rfind(b"\n") + 1
    text = data[:end].decode("utf-8", "replace")
    return [line.removesuffix("\r") for line in text.split("\n")[:-1]], end


def fingerprint(file: BinaryIO, size: int) -> str:
    file.seek(0)
    return hashlib.sha256(file.read(size)).hexdigest()[:16]


def identify(path: str) -> Key | None:
    """Device and inode of a file; None if it is not a regular file, or gone."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def files_by_inode(folder: str) -> dict[int, str]:
    """The files of a folder by inode; none if the folder cannot be read, and then renamed files there are not found."""
    try:
        with os.scandir(folder) as entries:
            return {one.inode(): one.path for one in entries if one.is_file(follow_symlinks=False)}
    except OSError:
        return {}


def is_removed(place: SentPosition) -> bool:
    """Is the device still there, now that the file is not? A file system may be unmounted for a while."""
    path = place.file
    while True:
        try:
            return os.stat(path).st_dev == place.device
        except FileNotFoundError:
            path = os.path.dirname(path) or os.curdir
        except OSError:
            return False


class Files:
    """The files that match some patterns, and what is new in them."""

    def __init__(
        self, patterns: list[str], known: dict[Key, SentPosition], now: Callable[[], float] = time.time
    ) -> None:
        self._patterns = patterns
        self._known = known
        self._now = now
        self._here = set(known)  # at the last look

    def new(self, sizes: dict[Key, int] | None = None) -> Iterator[tuple[SentPosition, list[str]]]:
        """Lines that were not sent yet, with the place after them, a few of each file at a time. With sizes: only of
        these files, and only up to these sizes."""
        paths = self._paths()
        self._here = set(paths)
        for key, path in paths.items():
            try:
                with open(path, "rb") as file:  # from here on, its name does not matter
                    before = self._place(file, path)
                    if before.key != key:
                        continue  # its name was given to another file meanwhile: the next look finds both
                    size = CHUNK if sizes is None else min(CHUNK, sizes.get(key, 0) - before.position)
                    file.seek(before.position)
                    data = file.read(max(0, size))
                    found, size = lines(data)
                    if not size and len(data) == CHUNK:
                        raise Failed(f"a line in {path} is longer than {CHUNK} bytes: leave this file out of ship")
                    position = before.position + size
                    head = min(HEAD_MAX, position)
                    mark = before.print if head == before.head else fingerprint(file, head)
            except FileNotFoundError:
                continue  # it has just disappeared
            except OSError as error:
                raise Failed(f"{path} cannot be read ({error.strerror}): correct ship, or its permissions") from None
            if found:
                yield replace(before, position=position, head=head, print=mark, at=self._now()), found

    def note_sent(self, place: SentPosition) -> None:
        self._known[place.key] = place

    def sizes(self) -> dict[Key, int]:
        """How long the files are now."""
        found = {}
        for key, path in self._paths().items():
            try:
                found[key] = os.path.getsize(path)
            except OSError:
                continue  # it has just disappeared
        return found

    def gone(self) -> list[SentPosition]:
        """Places no longer needed: of files that are long gone, or since known under another device."""
        old = [place for place in self._known.values() if self._now() - place.at > KEPT_S]
        return [place for place in old if place.key not in self._here and (self._again(place) or is_removed(place))]

    def forget(self, place: SentPosition) -> None:
        del self._known[place.key]

    def _again(self, place: SentPosition) -> bool:
        """Is there a later place of its file? A folder is on one device, whatever its number."""
        here = os.path.dirname(place.file)
        later = [one for one in self._known.values() if one.inode == place.inode and one.at > place.at]
        return any(os.path.dirname(one.file) == here for one in later)

    def _paths(self) -> dict[Key, str]:
        """A path of each file that matches now, after those that matched once and were renamed."""
        names = {path for pattern in self._patterns for path in glob.glob(pattern)}
        matching: dict[Key, str] = {}
        for path in sorted(names, key=lambda path: (os.path.islink(path), path)):
            if key := identify(path):
                matching.setdefault(key, path)
        renamed: dict[Key, str] = {}
        folders: dict[str, dict[int, str]] = {}
        for place in self._known.values():
            if place.key in matching:
                continue
            folder = os.path.dirname(place.file)
            if folder not in folders:
                folders[folder] = files_by_inode(folder or os.curdir)
            found = folders[folder].get(place.inode)
            if found and (key := identify(found)) and key not in matching and self._is(found, place):
                renamed[key] = found
        return renamed | matching

    def _is(self, path: str, place: SentPosition) -> bool:
        try:
            with open(path, "rb") as file:
                return place.continues(file)
        except OSError:
            return False

    def _place(self, file: BinaryIO, path: str) -> SentPosition:
        """Where to continue in a file; at its start if it is a different file now."""
        found = os.fstat(file.fileno())
        here = SentPosition(found.st_ino, path, device=found.st_dev)
        known = self._known.get(here.key)
        if known is None or not known.continues(file):
            known = next((place for place in self._others(here) if place.continues(file)), here)
        return replace(known, file=path, device=here.device)

    def _others(self, here: SentPosition) -> Iterator[SentPosition]:
        """Places that may belong to this file, with another or an unknown device number."""
        folder = os.path.dirname(here.file)
        for place in self._known.values():
            if place.inode == here.inode and (not place.device or os.path.dirname(place.file) == folder):
                yield place


class Shipper(threading.Thread):
    """Sends what the files have, and then what is appended, until the run is stopped."""

    def __init__(self, run: Run, topic: str, patterns: str, host: str) -> None:
        super().__init__(name="ship", daemon=True)
        self._run = run
        self._topic = topic
        self._host = host
        self._positions = f"{topic}.positions"
        self.failure: Failed | None = None
        run.ensure_topic(self._positions, 1, cleanup_policy="compact")
        chosen = [one.strip() for one in patterns.split(",") if one.strip()]
        if not chosen:
            raise UsageError("ship names no files: give patterns such as /var/log/*.log, separated by commas")
        self._producer = self._new_producer()
        self._files = Files(chosen, self._read())

    def all(self) -> int:
        """Send what the files have now, without what is appended meanwhile. Returns the number of lines."""
        total, sizes = 0, self._files.sizes()
        while not self._run.stopping and (sent := self.round(sizes)):
            total += sent
        return total

    def run(self) -> None:
        try:
            while not self._run.stopping:
                if not self.round():
                    self._run.pause(PAUSE_S)
        except Failed as error:
            self.failure = error
            self._run.ask_to_stop()
        except BaseException as error:
            self.failure = Failed(f"shipping failed: {error} ({type(error).__name__})")
            self._run.ask_to_stop()
            raise

    def round(self, sizes: dict[Key, int] | None = None) -> int:
        """One transaction, if anything is new."""
        if new := list(self._files.new(sizes)):
            self._send(new, [])
        for place, _ in new:
            self._files.note_sent(place)
        if gone := self._files.gone():
            self._send([], gone)
        for place in gone:
            self._files.forget(place)
        return sum(len(found) for _, found in new)

    def _send(self, new: list[tuple[SentPosition, list[str]]], gone: list[SentPosition]) -> None:
        from confluent_kafka import KafkaException

        try:
            self._producer.begin_transaction()
            for place, found in new:
                for line in found:
                    value = json.dumps({"host": self._host, "file": place.file, "line": line}, ensure_ascii=False)
                    self._put(
                        self._topic, self._host, value.encode(errors="replace")
                    )  # names of files may be any bytes
                self._put(self._positions, f"{self._host}/{place.name}", json.dumps(asdict(place)).encode())
            for place in gone:
                self._put(self._positions, f"{self._host}/{place.name}", None)
            self._producer.commit_transaction(TRANSACTION_S)
        except KafkaException as error:
            raise Failed(
                f"lines could not be sent to {self._topic} ({error.args[0].str()}): start again when the cluster is "
                "back; it continues where it was"
            ) from None

    def _put(self, topic: str, key: str, value: bytes | None) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _new_producer(self) -> Any:
        try:
            from confluent_kafka import KafkaException, Producer
        except ModuleNotFoundError:
            raise Failed("ship needs confluent_kafka: pip install 'ottla[tools]'") from None
        name = identifier(self._topic, self._host)
        settings = {
            "bootstrap.servers": self._run.bootstrap,
            "transactional.id": name,
            "client.id": name.replace("/", "-"),
            "linger.ms": 5,
            "log_level": 0,
            **librdkafka(security(self._run.properties)),
        }
        try:
            older = Producer({**settings, "transactional.id": f"ottla-ship-{self._topic}-{self._host}"})
            older.init_transactions(TRANSACTION_S)  # the id before 0.1.0: ends an old shipper and its transaction
            producer = Producer(settings)
            producer.init_transactions(TRANSACTION_S)
        except KafkaException as error:
            raise Failed(f"cannot ship to {self._run.bootstrap}: {error.args[0].str()}") from None
        return producer

    def _read(self) -> dict[Key, SentPosition]:
        """What this host has sent, as far as it is committed."""
        properties = {f"kafka.{name}": value for name, value in self._run.properties.items()}
        options = SourceOptions.load(
            {
                **properties,
                "kafka.bootstrap.servers": self._run.bootstrap,
                "kafka.isolation.level": "read_committed",
                "subscribe": self._positions,
            }
        )
        where = TopicPartition(self._positions, 0)
        with options.cluster() as cluster:
            start = offsets.earliest(cluster, [where])[where]
            stop = offsets.latest(cluster, [where], committed=True)[where]
        batches = reading.batches(Split(self._positions, 0, start, stop), options)
        columns = ((rows.column("key").to_pylist(), rows.column("value").to_pylist()) for rows in batches)
        return places(self._host, (record for keys, values in columns for record in zip(keys, values, strict=True)))
