"""Seven days of lag, rates and sizes, and the audit log, in one SQLite file that survives a restart.

    names     cluster, kind (cluster, topic, group) and name; a topic's name includes its id, so a recreated topic
              starts empty
    samples   name, second, three values
                  cluster   records per second, lag of all groups, bytes
                  topic     records per second, records, bytes
                  group     lag in records, lag in seconds, records per second
    audit     time, user, action, target, result

Samples are taken every ten seconds, or less often in a large cluster. After an hour one per minute is kept, after a day
one per ten minutes, after seven days none. Above `ROWS_MAX` rows the oldest are deleted early. A damaged file is
renamed. If the file cannot be written, the console runs without history.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.console.watch.snapshot import Snapshot

log = logging.getLogger("ottla.console")

EVERY_S: Final = 10
KEEP_S: Final = 7 * 86_400
STEPS: Final = ((3_600, 60), (86_400, 600))  # age in seconds, seconds between samples
THIN_EVERY_S: Final = 300
ROWS_MAX: Final = 3_000_000
NAMES_A_SECOND: Final = 200  # maximum samples per second
POINTS_MAX: Final = 400  # per plot
AUDIT_MAX: Final = 10_000
MEMORY: Final = ":memory:"

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS names (id INTEGER PRIMARY KEY, cluster TEXT, kind TEXT, name TEXT, UNIQUE (cluster, kind, name));
CREATE TABLE IF NOT EXISTS samples (name INTEGER, at INTEGER, a REAL, b REAL, c REAL, PRIMARY KEY (name, at)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS samples_at ON samples (at);
CREATE TABLE IF NOT EXISTS audit (id INTEGER PRIMARY KEY, at INTEGER, who TEXT, what TEXT, target TEXT, result TEXT, ok INTEGER);
"""  # noqa: E501


class Point(NamedTuple):
    at: int  # seconds since 1970
    a: float
    b: float | None
    c: float


class AuditEntry(NamedTuple):
    """One entry of the audit log."""

    at: int
    who: str
    what: str
    target: str
    result: str
    ok: bool


class History:
    def __init__(self, path: str) -> None:
        self.path = path
        self.problem: str | None = None
        self._lock = threading.Lock()  # one connection, several threads
        self._names: dict[tuple[str, str, str], int] = {}
        self._sampled = 0
        self._thinned = 0
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="console-history")
        self._work: Future[None] | None = None
        self._base = open_base(path)

    def note(self, snapshot: Snapshot, now: float | None = None) -> None:
        """Store a sample of this snapshot if one is due; written in the background.

        The first snapshot has no rates yet, and would look like a time without traffic.
        """
        second = int(time.time() if now is None else now)
        every = max(EVERY_S, (len(snapshot.topics) + len(snapshot.groups)) // NAMES_A_SECOND)
        if (
            snapshot.problem
            or not snapshot.cluster
            or snapshot.version < 2
            or second // every == self._sampled // every
        ):
            return
        if self._work is not None and not self._work.done():
            return  # the disk is slow: skip this sample
        self._sampled = second
        self._work = self._pool.submit(self._write, snapshot, second)

    def wait(self) -> None:
        """Wait until all samples are written."""
        if self._work is not None:
            self._work.result()

    def _write(self, snapshot: Snapshot, second: int) -> None:
        try:
            with self._lock, self._base:
                rows = [
                    (self._name(snapshot.cluster, kind, name), second, *values)
                    for kind, name, values in list_samples(snapshot)
                ]
                self._base.executemany("INSERT OR REPLACE INTO samples VALUES (?, ?, ?, ?, ?)", rows)
                if second - self._thinned >= THIN_EVERY_S:
                    self._thin(second)
                    self._thinned = second
            self.problem = None
        except sqlite3.Error as error:
            if self.problem is None:
                log.warning("cannot write the history in %s: %s", self.path, error)
            self.problem = str(error)
            self._names.clear()

    def _name(self, cluster: str, kind: str, name: str) -> int:
        key = (cluster, kind, name)
        found = self._names.get(key)
        if found is None:
            self._base.execute("INSERT OR IGNORE INTO names (cluster, kind, name) VALUES (?, ?, ?)", key)
            query = "SELECT id FROM names WHERE cluster = ? AND kind = ? AND name = ?"
            found = self._names[key] = int(self._base.execute(query, key).fetchone()[0])
        return found

    def _thin(self, now: int) -> None:
        execute = self._base.execute
        execute("DELETE FROM samples WHERE at < ?", (now - KEEP_S,))
        for age, every in STEPS:
            until = (now - age) // every * every
            since = max(0, until - 2 * THIN_EVERY_S - 2 * every) if self._thinned else 0
            execute(
                "DELETE FROM samples WHERE at >= ?1 AND at < ?2 AND EXISTS (SELECT 1 FROM samples AS later WHERE "
                "later.name = samples.name AND later.at > samples.at AND later.at < (samples.at / ?3 + 1) * ?3)",
                (since, until, every),
            )
        (rows,) = execute("SELECT count(*) FROM samples").fetchone()
        if rows > ROWS_MAX:
            last = execute("SELECT at FROM samples ORDER BY at LIMIT 1 OFFSET ?", (rows - ROWS_MAX,)).fetchone()
            execute("DELETE FROM samples WHERE at <= ?", last)
        execute("DELETE FROM names WHERE id NOT IN (SELECT DISTINCT name FROM samples)")
        self._names.clear()
        execute("DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?", (AUDIT_MAX,))

    def points(self, cluster: str, kind: str, name: str, since_s: int, now: float | None = None) -> list[Point]:
        """The samples of the last `since_s` seconds: the last of each interval, at most `POINTS_MAX`."""
        second = int(time.time() if now is None else now)
        stretch = max(1, since_s // POINTS_MAX)
        query = (
            "SELECT max(at), a, b, c FROM samples WHERE name = "
            "(SELECT id FROM names WHERE cluster = ? AND kind = ? AND name = ?) AND at >= ? GROUP BY at / ? ORDER BY at"
        )
        try:
            with self._lock:
                found = self._base.execute(query, (cluster, kind, name, second - since_s, stretch)).fetchall()
        except sqlite3.Error:
            return []
        return [Point(*row) for row in found]

    def record(self, who: str, what: str, target: str, result: str, *, ok: bool) -> None:
        """Add to the audit log. Raises if it cannot be written: no change may go unlogged."""
        row = (int(time.time()), who, what, target, result, int(ok))
        with self._lock, self._base:
            self._base.execute("INSERT INTO audit (at, who, what, target, result, ok) VALUES (?, ?, ?, ?, ?, ?)", row)

    def audit(self, count: int = AUDIT_MAX) -> list[AuditEntry]:
        """Newest first."""
        query = "SELECT at, who, what, target, result, ok FROM audit ORDER BY id DESC LIMIT ?"
        with self._lock:
            found = self._base.execute(query, (count,)).fetchall()
        return [AuditEntry(at, who, what, target, result, bool(ok)) for at, who, what, target, result, ok in found]

    def close(self) -> None:
        self._pool.shutdown(wait=True)
        with self._lock:
            self._base.close()


def list_samples(snapshot: Snapshot) -> Iterable[tuple[str, str, tuple[float, float | None, float]]]:
    lag = sum(group.lag for group in snapshot.groups.values())
    yield "cluster", "", (snapshot.rate, lag, snapshot.size)
    for topic in snapshot.topics.values():
        yield "topic", f"{topic.name}/{topic.id}", (topic.rate, topic.records, topic.size)
    for group in snapshot.groups.values():
        yield "group", group.name, (group.lag, group.seconds, group.rate)


def open_base(path: str) -> sqlite3.Connection:
    """Open the file; start a new one if it is damaged, and use memory if it cannot be written."""
    try:
        return prepare_base(path)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):  # no permission, no space, no folder
            log.warning("%s cannot be written (%s): the history is kept in memory only", path, error)
            return prepare_base(MEMORY)
        aside = Path(f"{path}.damaged")
        log.warning("%s is damaged (%s): renamed to %s", path, error, aside)
        with contextlib.suppress(OSError):
            Path(path).replace(aside)
        for more in ("-wal", "-shm"):
            with contextlib.suppress(OSError):
                Path(path + more).unlink()
        return prepare_base(path)


def prepare_base(path: str) -> sqlite3.Connection:
    if path != MEMORY:
        with contextlib.suppress(OSError):
            Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    base = sqlite3.connect(path, check_same_thread=False, timeout=5.0)
    try:
        base.execute("PRAGMA journal_mode=WAL")
        base.execute("PRAGMA synchronous=NORMAL")
        base.executescript(SCHEMA)
        base.execute("SELECT count(*) FROM audit").fetchone()
    except BaseException:
        base.close()
        raise
    return base
