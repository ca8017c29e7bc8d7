"""The metadata store of one node: a SQLite file with a write-ahead log, flushed after each transaction.

    node    path, parent, data, version, born (czxid), ephemeral, sequence (next number for a sequential child)
    clock   one row: the last transaction's number

Calls run on one worker thread, in the order they were made, so that the flush never blocks the loop. A completed
transaction survives kill -9; SQLite applies any other entirely or not at all. The file belongs to one process (an
exclusive lock), and a session lasts as long as the process has it open. So ephemeral nodes found on opening belong to a
session that has ended, and are removed.

There are two files beside it. `-reserve` is disk space that is released when the disk is full, so that topics can be
deleted and a broker can start, and reserved again later. A lost, damaged or outdated file is rebuilt from the journal
(`journal.py`); the damaged or outdated one is set aside.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.cluster.journal import PRIVATE_MODE, Journal, open_private
from ottla.cluster.metadata_store import (
    ANY,
    BadVersion,
    Create,
    Delete,
    Event,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    SessionEvent,
    Set,
    Stat,
    Unavailable,
    VersionCheck,
    Znode,
    add_subscriber,
)
from ottla.disk import claim

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

logger = logging.getLogger("ottla.cluster")

MEMORY = ":memory:"
SESSION = 1  # a file has one session at a time
SCHEMA = """
CREATE TABLE IF NOT EXISTS node (
    path TEXT PRIMARY KEY, parent TEXT NOT NULL, data BLOB NOT NULL, version INTEGER NOT NULL,
    born INTEGER NOT NULL, ephemeral INTEGER NOT NULL, sequence INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS node_parent ON node (parent);
CREATE TABLE IF NOT EXISTS clock (zxid INTEGER NOT NULL);
INSERT INTO clock SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM clock);
INSERT OR IGNORE INTO node VALUES ('/', '', x'', 0, 0, 0, 0);
DELETE FROM node WHERE ephemeral;
"""
RESERVE_SIZE = 1 << 20  # what SQLite needs to open and to write at start
RESERVE_RETRY_S = 10.0  # how often to try to reserve it again
DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
LOCK_WAIT_S = 0.2  # waiting longer does not help: another process holds the file as long as it runs

Answer = TypeVar("Answer")
Row = tuple[Any, ...]  # column types depend on the query


class SqliteStore:
    """`MetadataStore` on a file, or in memory."""

    def __init__(self, path: str, journal: str | None = None) -> None:
        self._file = Database(path, journal)
        self._worker = ThreadPoolExecutor(1, "metadata-store")
        self._watches: dict[str, list[Callable[[Event], None]]] = {}
        self._subscribers: list[Callable[[SessionEvent], None]] = []
        self._open = False
        self._reserving: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._open = True
        try:
            await self._run(self._file.open)
        except BaseException:
            self._open = False
            self._worker.shutdown()
            raise
        for callback in tuple(self._subscribers):
            callback(SessionEvent.CONNECTED)

    @property
    def connected(self) -> bool:
        return self._open

    @property
    def session(self) -> int:
        return SESSION if self._open else 0

    @property
    def rebuilt(self) -> bool:
        """Whether the tree was rebuilt from the journal: then nodes with `znodes.is_derived` are missing."""
        return self._file.rebuilt

    async def get(self, path: str) -> Znode:
        return await self._run(self._file.get, path)

    async def set(self, path: str, data: bytes, version: int = ANY) -> Stat:
        op = Set(path, data, version)
        stat = await self._run(self._file.set, op)
        self._tell(op, path)
        return stat

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        return (await self.multi([Create(path, data, ephemeral, sequential)]))[0]

    async def delete(self, path: str, version: int = ANY) -> None:
        await self.multi([Delete(path, version)])

    async def children(self, path: str) -> list[str]:
        return await self._run(self._file.children, path)

    async def tree(self, path: str) -> dict[str, Znode]:
        return await self._run(self._file.tree, path)

    async def multi(self, ops: Sequence[Op]) -> list[str]:
        paths = await self._run(self._file.multi, ops)
        for op, path in zip(ops, paths, strict=True):
            self._tell(op, path)
        return paths

    def watch(self, path: str, callback: Callable[[Event], None]) -> Callable[[], None]:
        self._watches.setdefault(path, []).append(callback)

        def cancel() -> None:
            callbacks = self._watches.get(path, [])
            if callback in callbacks:
                callbacks.remove(callback)
            if not callbacks:
                self._watches.pop(path, None)

        return cancel

    def subscribe(self, callback: Callable[[SessionEvent], None]) -> Callable[[], None]:
        """The session lasts as long as the file is open, so the only event is CONNECTED."""
        return add_subscriber(self._subscribers, callback)

    async def close(self) -> None:
        if self._open:
            if self._reserving is not None:
                self._reserving.cancel()
            try:
                await self._run(self._file.close)
            finally:
                self._open = False
                self._worker.shutdown()

    async def _run(self, call: Callable[..., Answer], *arguments: object) -> Answer:
        if not self._open:
            raise Unavailable("the store is closed")
        answer = await asyncio.get_running_loop().run_in_executor(self._worker, call, *arguments)
        if self._file.lacks_reserve and self._reserving is None:
            self._reserving = asyncio.get_running_loop().create_task(self._reserve_again())
        return answer

    async def _reserve_again(self) -> None:
        """Reserve space again as soon as the disk has it: the broker may be killed on the next full disk."""
        while self._file.lacks_reserve:
            await asyncio.sleep(RESERVE_RETRY_S)
            await asyncio.get_running_loop().run_in_executor(self._worker, self._file.reserve)
        self._reserving = None

    def _tell(self, op: Op, path: str) -> None:
        if not self._watches or isinstance(op, VersionCheck):
            return
        kind = "changed" if isinstance(op, Set) else "created" if isinstance(op, Create) else "deleted"
        for callback in tuple(self._watches.get(path, ())):
            callback(Event(kind, path))
        if kind != "changed":
            parent = _parent(path)
            for callback in tuple(self._watches.get(parent, ())):
                callback(Event("children", parent))


class Database:
    """The tree as rows. Used only by the worker thread."""

    def __init__(self, path: str, journal: str | None = None) -> None:
        self.rebuilt = False
        self._path = path
        self._journal = None if journal is None else Journal(journal)
        self._reserve = f"{path}-reserve"
        self.lacks_reserve = False  # whether it was released, or there was no space for it
        self._full = False
        self._database: sqlite3.Connection | None = None
        self._zxid = 0

    def open(self) -> None:
        """Open the file; when the disk is full, release the reserve first."""
        try:
            self._connect()
        except Unavailable as error:
            if _code(error.__cause__) in DAMAGED:
                self._set_damaged_aside(error)
            elif self._path == MEMORY or not os.path.exists(self._reserve):
                raise
            else:
                self._release()
            self._connect()
        else:
            if self._path != MEMORY:
                self.reserve()
        if self._journal is not None:
            self._compare(self._journal)

    def _set_damaged_aside(self, damage: Unavailable) -> None:
        """Rename a damaged file, if there is a journal to rebuild it from."""
        if self._journal is None or not self._journal.read()[1]:
            reason = "move it away to start with the topics in the log folders and default settings"
            raise Unavailable(f"{damage}; {reason}") from damage.__cause__
        self._set_aside("damaged", str(damage))

    def _set_aside(self, state: str, reason: str) -> None:
        number = 1
        while os.path.exists(aside := f"{self._path}.{state}{number}"):
            number += 1
        os.rename(self._path, aside)
        with suppress(FileNotFoundError):
            os.rename(f"{self._path}-wal", f"{aside}-wal")
        logger.warning("the metadata is %s, set aside", state, extra={"file": aside, "reason": reason})

    def _compare(self, journal: Journal) -> None:
        """Rebuild an empty or outdated tree from the journal, or bring the journal up to date.

        A line is written after its transaction is on disk. So if the journal is ahead, the file is an old copy, or its
        write-ahead log is gone: topics of the newer state would lose their settings and their logs.
        """
        if journal.last() == self._zxid:
            return
        last, nodes = journal.read()
        if last <= self._zxid or not nodes:
            if self._zxid:
                journal.rewrite(self._zxid, self._read_kept())
            return
        if self._zxid:
            reason = f"it ends with transaction {self._zxid}, {journal.path} with {last}"
            self._connection().close()
            self._set_aside("outdated", reason)
            self._connect()
        logger.warning("the metadata was lost: rebuilt", extra={"file": self._path, "journal": journal.path})
        self.rebuilt = True
        self._zxid = last
        for path in tuple(nodes):
            while (path := _parent(path)) not in nodes:  # the line that created it may have been unreadable
                nodes[path] = b""
        self.multi([Create(path, nodes[path]) for path in sorted(nodes) if path != "/"])

    def _read_kept(self) -> dict[str, bytes]:
        return dict(self._all("SELECT path, data FROM node WHERE NOT ephemeral"))

    def reserve(self) -> bool:
        """Reserve disk space, so that on a full disk a broker can still start and topics can be deleted."""
        try:
            descriptor = os.open(self._reserve, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
            try:
                claim(descriptor, 0, RESERVE_SIZE)
            finally:
                os.close(descriptor)
        except OSError:
            self._release()
            return False
        self.lacks_reserve = False
        return True

    def _release(self) -> None:
        self.lacks_reserve = True
        with suppress(OSError):
            os.unlink(self._reserve)

    def _make_private(self) -> None:
        """Make the file private to its owner. Do not open an existing one: closing it would drop SQLite's locks."""
        with suppress(OSError):  # SQLite will report the problem
            if os.path.exists(self._path):
                os.chmod(self._path, PRIVATE_MODE)
            else:
                os.close(open_private(self._path, os.O_CREAT | os.O_RDWR))

    def _connect(self) -> None:
        database = None
        try:
            if self._path != MEMORY:
                self._make_private()
            database = sqlite3.connect(self._path, timeout=LOCK_WAIT_S, isolation_level=None, check_same_thread=False)
            database.execute("PRAGMA locking_mode=EXCLUSIVE")
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=FULL")
            database.executescript(f"BEGIN IMMEDIATE;{SCHEMA}COMMIT;")
            self._zxid = database.execute("SELECT zxid FROM clock").fetchone()[0]
            damage = database.execute("PRAGMA quick_check(1)").fetchone()[0]
            if damage != "ok":
                raise damage_error(damage)
        except sqlite3.Error as error:
            if database is not None:
                database.close()
            raise Unavailable(f"{self._path}: {error}") from error
        self._database = database

    def close(self) -> None:
        assert self._database is not None, "closed once"
        database, self._database = self._database, None
        try:
            database.execute("DELETE FROM node WHERE ephemeral")
        except sqlite3.Error as error:  # the next start deletes them too
            logger.warning("ephemeral metadata could not be deleted", extra={"reason": str(error)})
        with suppress(sqlite3.Error):
            database.close()

    def get(self, path: str) -> Znode:
        row = self._one("SELECT data, version, born, ephemeral FROM node WHERE path = ?", path)
        if row is None:
            raise NoNode(path)
        return _node(*row)

    def children(self, path: str) -> list[str]:
        self.get(path)
        start = len(path.rstrip("/")) + 1
        rows = self._all("SELECT path FROM node WHERE parent = ? ORDER BY path", path)
        return [row[0][start:] for row in rows]

    def tree(self, path: str) -> dict[str, Znode]:
        # "0" is the character after "/": the range holds what starts with "path/" and nothing else.
        low, high = ("/", "0") if path == "/" else (path + "/", path + "0")
        rows = self._all(
            "SELECT path, data, version, born, ephemeral FROM node WHERE path = ? OR (path >= ? AND path < ?)",
            path,
            low,
            high,
        )
        return {row[0]: _node(*row[1:]) for row in rows}

    def set(self, op: Set) -> Stat:
        """The stat after the write, before anybody else writes the node."""
        self.multi([op])
        return self.get(op.path).stat

    def multi(self, ops: Sequence[Op]) -> list[str]:
        try:
            paths = self._transact(ops)
        except sqlite3.Error as error:
            if _code(error) != sqlite3.SQLITE_FULL or not self._make_room(ops):
                raise Unavailable(f"{self._path}: {error}") from error
            try:
                paths = self._transact(ops)
            except sqlite3.Error as again:
                raise Unavailable(f"{self._path}: {again}") from again
        if self._full and self.reserve() and not _frees(ops):
            self._full = False
            logger.warning("the disk has room again for metadata", extra={"file": self._path})
        if self._journal is not None:
            data = {path: getattr(op, "data", None) for op, path in zip(ops, paths, strict=True) if _is_kept(op)}
            self._journal.append(self._zxid, data)
            if self._journal.is_long:
                self._journal.rewrite(self._zxid, self._read_kept())
        return paths

    def _make_room(self, ops: Sequence[Op]) -> bool:
        """The disk is full: release the reserve for writes that free space, or for a start. False if there is none."""
        if not self._full:
            self._full = True
            logger.error("the disk is full: no metadata but deletions can be written", extra={"file": self._path})
        if not _frees(ops) and not any(isinstance(op, Create) and op.ephemeral for op in ops):
            return False
        self._release()
        with suppress(sqlite3.Error):  # write back and shrink the write-ahead log
            self._connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return True

    def _transact(self, ops: Sequence[Op]) -> list[str]:
        database = self._connection()
        database.execute("BEGIN IMMEDIATE")
        try:
            zxid = self._zxid + 1
            paths = [self._apply(op, zxid) for op in ops]
            database.execute("UPDATE clock SET zxid = ?", (zxid,))
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
        self._zxid = zxid
        return paths

    def _apply(self, op: Op, zxid: int) -> str:
        if isinstance(op, Create):
            return self._create(op, zxid)
        if isinstance(op, Set):
            self._demand(op.path, op.version)
            self._write("UPDATE node SET data = ?, version = version + 1 WHERE path = ?", op.data, op.path)
        elif isinstance(op, Delete):
            self._demand(op.path, op.version)
            if self._one("SELECT 1 FROM node WHERE parent = ? LIMIT 1", op.path):
                raise NotEmpty(op.path)
            self._write("DELETE FROM node WHERE path = ?", op.path)
        else:
            self._demand(op.path, op.version)
        return op.path

    def _create(self, op: Create, zxid: int) -> str:
        parent, path = _parent(op.path), op.path
        above = self._one("SELECT sequence FROM node WHERE path = ?", parent)
        if above is None:
            raise NoNode(parent)
        if op.sequential:
            path = f"{op.path}{above[0]:010d}"
            self._write("UPDATE node SET sequence = sequence + 1 WHERE path = ?", parent)
        try:
            self._write("INSERT INTO node VALUES (?, ?, ?, 0, ?, ?, 0)", path, parent, op.data, zxid, op.ephemeral)
        except sqlite3.IntegrityError:
            raise NodeExists(path) from None
        return path

    def _demand(self, path: str, version: int) -> None:
        row = self._one("SELECT version FROM node WHERE path = ?", path)
        if row is None:
            raise NoNode(path)
        if version not in (ANY, row[0]):
            raise BadVersion(path)

    def _connection(self) -> sqlite3.Connection:
        assert self._database is not None, "opened first"
        return self._database

    def _one(self, query: str, *values: object) -> Row | None:
        rows = self._all(query, *values)
        return rows[0] if rows else None

    def _all(self, query: str, *values: object) -> list[Row]:
        try:
            return self._connection().execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise Unavailable(f"{self._path}: {error}") from error

    def _write(self, query: str, *values: object) -> None:
        self._connection().execute(query, values)


def _node(data: bytes, version: int, born: int, ephemeral: int) -> Znode:
    return Znode(data, Stat(version, born, bool(ephemeral), SESSION if ephemeral else 0))


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _frees(ops: Sequence[Op]) -> bool:
    return all(isinstance(op, Delete | VersionCheck) for op in ops)


def _is_kept(op: Op) -> bool:
    return isinstance(op, Set | Delete) or (isinstance(op, Create) and not op.ephemeral)


def _code(error: BaseException | None) -> int:
    """SQLite's primary error code."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def damage_error(reason: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(f"the database is damaged: {reason}")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error
