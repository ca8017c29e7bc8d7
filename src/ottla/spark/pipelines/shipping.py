"""Lines of files that grow, sent to a topic exactly once: also when the shipper is killed, or a file is rotated.

A transaction holds some lines and, in a second topic that is compacted, how far they go in their file:

    logs             key host      {"host": "web-1", "file": "/var/log/app.log", "line": "..."}
    logs.positions   key inode     {"inode": 4711, "file": ..., "position": 90210, "head": 64, "print": "5d41..."}

So what was sent and what is remembered are the same thing. A new shipper for the same host ends the transaction of the
old one, wherever it was, before it reads the positions. A file is known by its inode, and by a print of its first
bytes, since inodes are used again. A file that was renamed (rotated) is read to its end under its new name; one that
became shorter (copied and truncated) is read from its start. A line without an end is not a line yet.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.client import offsets
from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed
from ottla.spark.pipeline import Wrong
from ottla.spark.source import reading
from ottla.spark.source.options import SourceOptions
from ottla.spark.source.planning import Split

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.spark.pipeline import Run

CHUNK: Final = 1 << 20
HEAD_MAX: Final = 256
PAUSE_S: Final = 0.25
TRANSACTION_S: Final = 60.0


@dataclass(frozen=True)
class Place:
    """How far a file was sent."""

    inode: int
    file: str
    position: int = 0
    head: int = 0  # so many of its first bytes ...
    print: str = ""  # ... have this print

    @classmethod
    def of(cls, path: str) -> Place:
        return cls(os.stat(path).st_ino, path)


def lines(data: bytes) -> tuple[list[str], int]:
    """The whole lines at the start of some bytes, and how many bytes they are."""
    end = data.rfind(b"\n") + 1
    text = data[:end].decode("utf-8", "replace")
    return [line.removesuffix("\r") for line in text.split("\n")[:-1]], end


def printed(path: str, size: int) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read(size)).hexdigest()[:16]


class Files:
    """The files that match some patterns, and what is new in them."""

    def __init__(self, patterns: list[str], known: dict[int, Place]) -> None:
        self._patterns = patterns
        self._known = known

    def new(self) -> Iterator[tuple[Place, list[str]]]:
        """Lines that were not sent yet, with the place after them; a few of each file at a time."""
        for path in self._paths():
            try:
                before = self._place(path)
                with open(path, "rb") as file:
                    file.seek(before.position)
                    found, size = lines(file.read(CHUNK))
                    if not size and file.tell() - before.position == CHUNK:
                        raise Failed(f"a line in {path} is longer than {CHUNK} bytes: leave this file out of ship")
            except FileNotFoundError:
                continue  # it was here a moment ago
            except OSError as error:
                raise Failed(f"{path} cannot be read ({error.strerror}): correct ship, or the rights of it") from None
            if found:
                head = before.head or min(HEAD_MAX, size)
                yield replace(before, position=before.position + size, head=head, print=printed(path, head)), found

    def sent(self, place: Place) -> None:
        self._known[place.inode] = place

    def _paths(self) -> list[str]:
        """What matches now, and before it what matched once and was renamed."""
        matching = sorted({path for pattern in self._patterns for path in glob.glob(pattern) if os.path.isfile(path)})
        inodes = {os.stat(path).st_ino for path in matching if os.path.exists(path)}
        renamed = []
        for place in self._known.values():
            if place.inode not in inodes:
                folder = Path(place.file).parent
                siblings = [one for one in os.scandir(folder) if one.is_file()] if folder.is_dir() else []
                renamed += [one.path for one in siblings if one.inode() == place.inode]
        return [*renamed, *matching]

    def _place(self, path: str) -> Place:
        """Where to go on in a file; at its start if it is not the one that it was."""
        here = Place.of(path)
        known = self._known.get(here.inode)
        if known is None or os.path.getsize(path) < known.position or printed(path, known.head) != known.print:
            return here
        return replace(known, file=path)


class Shipper(threading.Thread):
    """Sends what the files have, and then what they get, until the run is told to stop."""

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
            raise Wrong("ship names no files: give patterns such as /var/log/*.log, with commas between them")
        self._producer = self._begun()
        self._files = Files(chosen, self._read())

    def all(self) -> int:
        """Send until nothing is new; how many lines it were."""
        total = 0
        while not self._run.stopping and (sent := self.round()):
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

    def round(self) -> int:
        """One transaction, if anything is new."""
        new = list(self._files.new())
        if new:
            self._send(new)
        for place, _ in new:
            self._files.sent(place)
        return sum(len(found) for _, found in new)

    def _send(self, new: list[tuple[Place, list[str]]]) -> None:
        from confluent_kafka import KafkaException

        try:
            self._producer.begin_transaction()
            for place, found in new:
                for line in found:
                    value = json.dumps({"host": self._host, "file": place.file, "line": line}, ensure_ascii=False)
                    self._put(self._topic, self._host, value)
                self._put(self._positions, f"{self._host}/{place.inode}", json.dumps(asdict(place)))
            self._producer.commit_transaction(TRANSACTION_S)
        except KafkaException as error:
            raise Failed(
                f"lines could not be sent to {self._topic} ({error.args[0].str()}): start again when the cluster is "
                "back, it goes on where it was"
            ) from None

    def _put(self, topic: str, key: str, value: str) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _begun(self) -> Any:
        try:
            from confluent_kafka import KafkaException, Producer
        except ModuleNotFoundError:
            raise Failed("ship needs confluent_kafka: pip install 'ottla[tools]'") from None
        name = f"ottla-ship-{self._topic}-{self._host}"
        producer = Producer(
            {
                "bootstrap.servers": self._run.bootstrap,
                "transactional.id": name,
                "client.id": name,
                "linger.ms": 5,
                "log_level": 0,
                **self._run.properties,
            }
        )
        try:
            producer.init_transactions(TRANSACTION_S)
        except KafkaException as error:
            raise Failed(f"nothing can be shipped to {self._run.bootstrap}: {error.args[0].str()}") from None
        return producer

    def _read(self) -> dict[int, Place]:
        """What this host has sent, as far as it was committed."""
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
        found = {}
        for rows in reading.batches(Split(self._positions, 0, start, stop), options):
            for key, value in zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True):
                if key.decode().rpartition("/")[0] == self._host:
                    place = Place(**json.loads(value))
                    found[place.inode] = place
        return found
