"""All logs of one broker: opens, creates, deletes, maintains and closes them.

A broker has one or more log directories. A new partition goes to the one with the fewest logs. Each directory has its
own checkpoints and a clean shutdown marker, which exists only while no broker uses the directory and the last one
stopped cleanly. Without the marker, its logs are recovered, several at a time.

One event loop owns all of this. Work that waits for the disk runs in threads, on values that the loop hands out:
recovery before anything else runs, and flushes.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.clock import steady_ms
from ottla.errors import BrokerError, ErrorCode
from ottla.log import recovery
from ottla.log.checkpoints import (
    CLEAN_MARKER,
    COMPACTED,
    HIGH_WATERMARKS,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    CorruptCheckpointError,
    Meta,
    read_meta,
    read_topic_id,
    take_clean_marker,
    write_clean_marker,
    write_meta,
)
from ottla.log.cleaner import Cleaner
from ottla.log.directory import DELETE, FULL, FUTURE, STRAY, WANTING, Directory, Name, aside, parse
from ottla.log.flush import Flusher, sync_folders
from ottla.log.housekeeping import Housekeeping
from ottla.log.ledger import SAYS
from ottla.log.log import Log
from ottla.log.move import PIECES_MAX, STEP_SIZE, LogMove, count_bytes
from ottla.log.truncation import truncate
from ottla.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from ottla.clock import Clock
    from ottla.config import BrokerConfig, TopicConfig
    from ottla.disk import Disk, FolderEntry
    from ottla.log.checkpoints import Offsets
    from ottla.log.recovery import Loaded

    Key = tuple[str, int]
    Folder = tuple[str, Name]  # the path of a log's folder, and its parsed name

MOVE_REST_MS = 10_000  # pause after a failed move
DAWDLE_MS = 60_000  # time for a thread to notice that its move was cancelled

FILES = frozenset({RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, COMPACTED, CLEAN_MARKER, META_PROPERTIES})

logger = logging.getLogger("ottla.log")


class Usage(NamedTuple):
    """One log directory as DescribeLogDirs shows it."""

    path: str
    error: OSError | None
    total: int
    free: int
    sizes: Mapping[tuple[str, int], int]
    futures: Mapping[tuple[str, int], int]  # partitions being moved here: bytes copied so far


class Opening(NamedTuple):
    """What opening any log of a directory needs. `said` is the content of the directory's checkpoints."""

    directory: Directory
    clean: bool
    said: Mapping[str, Offsets]
    now_ms: int
    config_for: Callable[[str], TopicConfig]


class Unopened(NamedTuple):
    """A log that could not be opened at the start, and how to try again."""

    directory: Directory
    folder: str
    clean: bool
    load: Callable[[], Loaded]  # in a thread
    adopt: Callable[[Loaded], None]
    passes: bool = False  # whether the cause is temporary


class LogStore:
    def __init__(self, dirs: Sequence[str | Path], disk: Disk, clock: Clock, config: BrokerConfig) -> None:
        self.disk = disk
        self.clock = clock
        self.config = config
        self.directories = [Directory(os.path.abspath(path), disk) for path in dirs]
        self.logs: dict[tuple[str, int], Log] = {}
        self.broken: dict[tuple[str, int], str] = {}  # logs that could not be opened, and why
        self._unopened: dict[Key, Unopened] = {}
        self.on_opened: Callable[[Log], None] | None = None  # called with a log that was opened at a later try
        self.moves: dict[tuple[str, int], LogMove] = {}
        self.preferred: dict[tuple[str, int], Directory] = {}  # directory to create a future partition in
        self.recovered_s = 0.0  # how long opening took
        self._opened = False
        self.replicated = False
        self._id_for: Callable[[str], bytes | None] = lambda topic: None
        self.cleaner = Cleaner(self)
        self.flusher = Flusher(clock)
        self.housekeeping = Housekeeping(self)
        self._steps = Steps("ottla.log")
        self._leftovers: dict[Key, tuple[str, Directory]] = {}  # folders of deleted logs that could not be renamed
        self._count = 0

    # Opening.

    def open(
        self,
        config_for: Callable[[str], TopicConfig],
        *,
        replicated: bool = False,
        id_for: Callable[[str], bytes | None] = lambda topic: None,
    ) -> None:
        """Load every log of every directory; a directory that cannot be read goes offline.

        `replicated`: other brokers have replicas, so only records below the high watermark are committed. `id_for`: the
        id of the current topic of a name, if it is known.
        """
        begin = self.clock.monotonic()
        self.replicated = replicated
        self._id_for = id_for
        for directory in self.directories:
            try:
                self.disk.make_folder(directory.path, parents=True)
                self._open_directory(directory, config_for)
            except OSError as error:
                directory.fail(error)
        if not any(directory.online for directory in self.directories):
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory can be used")
        for (topic, index), directory in list(self.preferred.items()):
            if (topic, index) in self.logs:
                self.move(topic, index, directory.path)
        self.preferred.clear()  # not meant for a partition created later under that name
        self.recovered_s = self.clock.monotonic() - begin
        self._opened = True

    def _open_directory(self, directory: Directory, config_for: Callable[[str], TopicConfig]) -> None:
        entries = self.disk.scan(directory.path)
        refuse_folders(entries)
        clean = take_clean_marker(self.disk, directory.path)
        said = directory.ledger.read()
        opening = Opening(directory, clean, said, self.clock.now_ms(), cache(config_for))
        folders = self._sort_folders(directory, entries)
        load = partial(self._try_to_load, opening)
        if clean or len(folders) < 2:
            found = [load(folder) for folder in folders]
        else:
            with ThreadPoolExecutor(self.config.num_recovery_threads_per_data_dir) as threads:
                found = list(threads.map(load, folders))
        for folder, loaded in zip(folders, found, strict=True):
            if loaded is not None:
                self._adopt(opening, folder, loaded)

    def _sort_folders(self, directory: Directory, entries: Iterable[FolderEntry]) -> list[Folder]:
        """The folders of logs to open. Cleans up unfinished deletions and moves of an earlier run."""
        folders: list[Folder] = []
        for entry in entries:
            name = parse(entry.name)
            if name is None or not entry.is_dir():
                continue
            if name.kind == DELETE:
                self.housekeeping.doom_folder(entry.path, directory, self.config.log_segment_delete_delay_ms)
            elif name.kind == FUTURE:
                self.disk.remove_folder(entry.path)  # an unfinished copy: started again once all logs are open
                self.preferred[name.topic, name.partition] = directory
            elif name.kind:
                continue
            elif name[:2] in self.logs and not self._supersedes(entry.path, self.logs[name[:2]]):
                # A move stopped between its last two steps: both copies are complete, and one is in use already.
                self.disk.rename(entry.path, os.path.join(directory.path, aside(*name[:2], self._unique(), STRAY)))
            else:
                folders.append((entry.path, name))
        return folders

    def _supersedes(self, folder: str, log: Log) -> bool:
        """Whether this folder is the current topic's, and the log of the same name, now set aside, a former topic's.

        The former topic was deleted while the directory of its log was offline.
        """
        current = self._id_for(log.topic)
        if current is None or log.topic_id == current:
            return False
        try:
            if read_topic_id(self.disk, folder) != current:
                return False
        except CorruptCheckpointError:
            return False
        self.set_aside([log])
        return True

    def _try_to_load(self, opening: Opening, folder: Folder) -> Loaded | None:
        """None if the log cannot be opened now. May run in any thread."""
        try:
            return self._load(opening, folder)
        except Exception as error:  # any error affects only this log
            load, adopt = partial(self._load, opening, folder), partial(self._adopt, opening, folder)
            unopened = Unopened(opening.directory, folder[0], opening.clean, load, adopt)
            self._give_up(unopened, folder[1][:2], error)
            opening.directory.ledger.keep(folder[1][:2], opening.said)
            return None

    def _load(self, opening: Opening, folder: Folder) -> Loaded:
        path, (topic, partition, _) = folder
        config, said, key = opening.config_for(topic), opening.said, (topic, partition)
        # Without both of these, the holes that compaction has left look like those of a power cut.
        lost = config.compacts and all(map(opening.directory.ledger.has_lost, (COMPACTED, RECOVERY_POINTS)))
        loaded = recovery.load(
            path,
            self.disk,
            config,
            clean=opening.clean,
            recovery_point=said[RECOVERY_POINTS].get(key, 0),
            start=said[LOG_STARTS].get(key, 0),
            now_ms=opening.now_ms,
            expiration_ms=self.config.producer_id_expiration_ms,
            whole_from=said[COMPACTED].get(key, 0) if self.replicated and not lost else None,
        )
        if loaded.end - loaded.recovery_point >= config.flush_messages:
            recovery.force(loaded, self.disk, path)
        return loaded

    def _adopt(self, opening: Opening, folder: Folder, loaded: Loaded) -> None:
        path, (topic, partition, _) = folder
        log = Log(opening.directory, path, topic, partition, opening.config_for(topic), loaded)
        log.compacted = opening.said[COMPACTED].get((topic, partition))
        if self.replicated:
            log.high = max(opening.said[HIGH_WATERMARKS].get((topic, partition), 0), log.start)
        log.durability.flushed_ms = steady_ms(self.clock)
        self.logs[topic, partition] = log

    def _give_up(self, unopened: Unopened, key: Key, error: Exception) -> None:
        """Mark a log that cannot be opened as offline. A failed device takes the whole directory offline."""
        if isinstance(error, OSError):
            unopened.directory.note_failure(error)
            if not unopened.directory.online:
                raise error
        reason = str(error) if isinstance(error, (OSError, recovery.UnusableError)) else repr(error)
        passes = isinstance(error, OSError) and error.errno in FULL | WANTING
        self.broken[key] = reason
        self._unopened[key] = unopened._replace(passes=passes)
        logger.error("log offline", extra={"folder": unopened.folder, "reason": reason})

    async def open_again(self) -> None:
        """Try again to open the logs for which there was no disk space or file descriptor at start."""
        for key, unopened in list(self._unopened.items()):
            directory = unopened.directory
            if not unopened.passes or directory.full or not directory.online:
                continue
            try:
                loaded = await asyncio.get_running_loop().run_in_executor(None, unopened.load)
            except OSError as error:
                if error.errno not in FULL | WANTING:
                    self._unopened[key] = unopened._replace(passes=False)
                directory.note_failure(error)
                continue
            unopened.adopt(loaded)
            directory.ledger.let_go(key)
            del self.broken[key], self._unopened[key]
            logger.info("log online", extra={"folder": unopened.folder})
            if self.on_opened is not None:
                self.on_opened(self.logs[key])

    # Whose directories these are.

    def read_meta(self) -> Meta | None:
        """The content of meta.properties, which must be the same in all directories. A damaged one is ignored."""
        found: Meta | None = None
        for at, directory in enumerate(self.directories):
            try:
                meta = read_meta(self.disk, directory.path) if directory.online else None
            except OSError:
                if at == 0:  # the first directory is required
                    raise
                continue  # the directory goes offline when its logs are opened
            if meta is None or not meta.says_whose:
                continue
            found = found or meta
            if (meta.node_id, meta.cluster_id) != (found.node_id, found.cluster_id):
                whose = f"node {meta.node_id} of cluster {meta.cluster_id}"
                others = f"node {found.node_id} of cluster {found.cluster_id}"
                raise CorruptCheckpointError(f"{directory.path} belongs to {whose}, and other log folders to {others}")
        return found

    def write_meta(self, meta: Meta) -> None:
        """Write meta.properties into every directory that does not name its owner yet."""
        for directory in self.directories:
            if directory.online:
                self.disk.make_folder(directory.path, parents=True)
                present = read_meta(self.disk, directory.path)
                if present is None or not present.says_whose:
                    write_meta(self.disk, directory.path, meta)

    # Partitions.

    def create(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        config: TopicConfig,
        epoch: int,
        *,
        directory: Directory | None = None,
    ) -> Log:
        """A new, empty log, in the directory with the fewest logs unless one is given."""
        key = topic, index
        assert key not in self.logs, "a partition has one log"
        chosen = directory or self.preferred.pop(key, None) or self._emptiest()
        folder = os.path.join(chosen.path, f"{topic}-{index}")
        try:
            self._clear_name(key, folder, chosen)
            chosen.ledger.make_way(key, chosen.logs)
            loaded = recovery.create(
                folder,
                self.disk,
                config,
                topic_id=topic_id,
                epoch=epoch,
                now_ms=self.clock.now_ms(),
                expiration_ms=self.config.producer_id_expiration_ms,
            )
        except OSError as error:
            # Cleaning up may itself need a file descriptor. Usually there is nothing to clean up.
            with suppress(OSError):
                self._put_away(key, folder, chosen, DELETE, 0)
            chosen.note_failure(error)
            raise chosen.storage_error(error) from error
        log = self.logs[key] = Log(chosen, folder, topic, index, config, loaded)
        log.durability.flushed_ms = steady_ms(self.clock)
        return log

    async def make_way(self, keys: Collection[Key]) -> None:
        """Remove stale checkpoint lines before logs of these names are created: in a thread, for all names at once.

        Failures are ignored: `create` will run into them again.
        """
        for directory in self.directories:
            if directory.online:
                for write in directory.ledger.plan_way(keys, directory.logs):
                    try:
                        await asyncio.get_running_loop().run_in_executor(None, write.carry_out)
                    except OSError as error:
                        directory.note_failure(error)
                        return
                    write.page.confirm(write)

    def _clear_name(self, key: Key, folder: str, directory: Directory) -> None:
        """Rename whatever exists under the name of a log to be created. OSError if that fails."""
        if key in self._leftovers:
            path, where = self._leftovers[key]
            if self.housekeeping.is_doomed(path):  # a thread may be deleting it; it must not see a new log's files
                raise OSError(errno.EBUSY, "the folder of a deleted log is being removed", path)
            if self.disk.exists(path):
                self._put_away(key, path, where, DELETE, 0)
            del self._leftovers[key]
        if self.disk.exists(folder):  # unknown folder: keep it, do not delete it
            path = os.path.join(directory.path, aside(*key, self._unique(), STRAY))
            self.disk.rename(folder, path)
            logger.warning("folder in the way, set aside", extra={"folder": path})

    def _emptiest(self) -> Directory:
        online = [directory for directory in self.directories if directory.online]
        if not online:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "every log directory is offline")
        return min(online, key=lambda directory: len(directory.logs))

    def _forget(self, log: Log) -> None:
        """Drop all state kept under the log's name: a recreated name starts empty."""
        key = log.topic, log.index
        del self.logs[key]
        self._forget_move(*key)
        self.preferred.pop(key, None)
        log.drop()

    def delete(self, log: Log) -> None:
        """Delete a partition: its name is free at once, its files are removed after `file.delete.delay.ms`."""
        key, directory, folder = (log.topic, log.index), log.directory, log.path
        self._forget(log)
        try:
            self._put_away(key, folder, directory, DELETE, log.config.file_delete_delay_ms)
        except FileNotFoundError as error:
            directory.note_failure(error)  # already removed by someone else
        except OSError as error:
            self._leftovers[key] = folder, directory
            directory.note_failure(error)
            if error.errno not in FULL:
                raise directory.storage_error(error) from error
            # A full disk may have no room for a new name. Deleting frees space.
            self.housekeeping.doom_folder(folder, directory, 0)

    def _put_away(self, key: Key, folder: str, directory: Directory, kind: str, delay_ms: int) -> str:
        """Rename a partition's folder; with kind DELETE also schedule its removal. Returns the new path."""
        path = os.path.join(directory.path, aside(*key, self._unique(), kind))
        self.disk.rename(folder, path)
        if kind == DELETE:
            self.housekeeping.doom_folder(path, directory, delay_ms)
        return path

    def _unique(self) -> str:
        self._count += 1
        return f"{self.clock.now_ms():016x}{self._count:016x}"

    def truncate(self, log: Log, offset: int) -> None:
        """Remove everything at or above `offset`, and lower the compaction checkpoint to match."""
        truncate(log, offset, now_ms=self.clock.now_ms())
        self.cleaner.note_truncation(log)

    def set_aside(self, logs: Iterable[Log]) -> None:
        """Close logs that the cluster does not assign to this broker. Rename their folders, for manual inspection."""
        for log in list(logs):
            with suppress(OSError):
                log.active.free_reserved()
            self._forget(log)
            try:
                path = self._put_away((log.topic, log.index), log.path, log.directory, STRAY, 0)
            except OSError as error:
                log.directory.note_failure(error)
                raise log.directory.storage_error(error) from error
            logger.warning("log is not part of the cluster, set aside", extra={"log": repr(log), "folder": path})

    def _space(self, directory: Directory) -> tuple[int, int]:
        if directory.online:
            try:
                return self.disk.space(directory.path)
            except OSError as error:
                directory.note_failure(error)
        return -1, -1

    def usage(self) -> list[Usage]:
        found = []
        for directory in self.directories:
            total, free = self._space(directory)
            sizes = {(log.topic, log.index): log.size for log in directory.logs}
            futures = {key: move.size for key, move in self.moves.items() if move.directory is directory}
            found.append(Usage(directory.path, directory.error, total, free, sizes, futures))
        return found

    # Moving between directories.

    def move(self, topic: str, index: int, path: str) -> None:
        """AlterReplicaLogDirs: schedule the move of a partition, or remember where to create it.

        BrokerError(LOG_DIR_NOT_FOUND) if there is no such directory. `run` carries out the move.
        """
        directory = next((known for known in self.directories if known.path == os.path.abspath(path)), None)
        if directory is None:
            raise BrokerError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is no log directory of this broker")
        if not directory.online:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline")
        log = self.logs.get((topic, index))
        if log is None:
            self.preferred[topic, index] = directory
            return
        self.preferred.pop((topic, index), None)
        if (topic, index) in self.moves and self.moves[topic, index].directory is directory:
            return
        self._forget_move(topic, index)
        if log.directory is not directory:
            name = aside(topic, index, self._unique(), FUTURE)
            self.moves[topic, index] = LogMove(log, directory, os.path.join(directory.path, name))

    def _forget_move(self, topic: str, index: int) -> None:
        """Cancel a move; its copy is removed after the copying thread has stopped."""
        move = self.moves.pop((topic, index), None)
        if move is not None:
            self.housekeeping.doom_folder(move.folder, move.directory, DAWDLE_MS)

    async def carry_out(self, move: LogMove) -> None:
        """Copy a partition and switch to the copy. On failure the partition stays where it is.

        The move is tried again later, unless a disk is full or broken.
        """
        log, key = move.log, (move.log.topic, move.log.index)
        if steady_ms(self.clock) < move.rests_until_ms:
            return
        move.begin()
        try:
            if not self.disk.exists(move.folder):
                self.disk.make_folder(move.folder)
            while True:
                pieces, indexes = move.pieces(), move.indexes()
                if not indexes and len(pieces) < PIECES_MAX and count_bytes(pieces) <= STEP_SIZE:
                    break
                await asyncio.get_running_loop().run_in_executor(None, move.copy, pieces)
                await asyncio.get_running_loop().run_in_executor(None, move.copy_indexes, indexes)
                if self.moves.get(key) is not move:
                    return
            move.copy(pieces)
            self._switch(move)
        except OSError as error:
            logger.warning("move failed", extra={"log": repr(log), "to": move.directory.path, "reason": str(error)})
            within = str(error.filename or "").startswith(log.directory.path + os.sep)
            (log.directory if within else move.directory).note_failure(error)
            if error.errno in FULL or not (move.directory.online and log.directory.online):
                self._forget_move(*key)
            move.rests_until_ms = steady_ms(self.clock) + MOVE_REST_MS

    def _switch(self, move: LogMove) -> None:
        """Runs in one step of the loop, so nothing is appended in between. On failure the log stays where it was."""
        log, directory, old = move.log, move.directory, move.log.directory
        key = log.topic, log.index
        log.durability.seal()
        move.finish()
        said = {
            name: offset for name in (LOG_STARTS, HIGH_WATERMARKS, COMPACTED) if (offset := SAYS[name](log)) is not None
        }
        directory.ledger.make_way(key, directory.logs, said)
        folder, old_folder = os.path.join(directory.path, log.folder.name), log.path
        self.disk.rename(move.folder, folder)
        try:
            loaded = recovery.load(
                folder,
                self.disk,
                log.config,
                clean=True,
                recovery_point=0,
                start=log.start,
                now_ms=self.clock.now_ms(),
                expiration_ms=self.config.producer_id_expiration_ms,
            )
            self._put_away(key, old_folder, old, DELETE, log.config.file_delete_delay_ms)
        except BaseException:
            # Both folders have the name now. The next start must not find both: appends go to only one of them.
            self.disk.rename(folder, move.folder)
            raise
        for segment in log.segments:
            segment.close()
        old.logs.discard(log)
        old.unforced.pop(log, None)
        log.settle_in(directory, folder, loaded._replace(recovery_point=loaded.start))
        log.durability.note_move()
        del self.moves[key]

    # Maintenance.

    async def run(self) -> None:
        """Retention, flushing, checkpoints, delayed removals and moves, until cancelled. Compaction: `cleaner.run`."""
        await self.housekeeping.run()

    async def _flush_all(self) -> set[Directory]:
        """Force every log to disk, all files before any folder: most folders are on disk by then, and cost nothing.

        Returns the directories where that failed.
        """
        unforced: set[Directory] = set()
        folders: dict[str, Directory] = {}

        async def flush(log: Log) -> None:
            with self._steps.attempt("flush", log):
                plan = log.durability.plan_flush()
                if plan is not None:
                    folders.update((folder, log.directory) for folder in plan.folders)
                    await self.flusher.flush(log, plan._replace(folders=()))

        await asyncio.gather(*(flush(log) for log in self.logs.values() if log.fault is None))
        for folder, directory in folders.items():
            if directory.online:
                try:
                    await asyncio.get_running_loop().run_in_executor(None, sync_folders, self.disk, [folder])
                except OSError as error:
                    if error.errno not in FULL | WANTING:
                        directory.fail(error)
                    directory.note_failure(error)
                    unforced.add(directory)
        return unforced | {
            log.directory
            for log in self.logs.values()
            if log.fault is not None or log.durability.recovery_point < log.end
        }

    async def close(self) -> None:
        """Stop cleanly: flush everything, then write the checkpoints, then the clean shutdown marker.

        A directory where something fails gets no marker. Nothing is lost: the next start just has to read more.
        """
        if not self._opened:  # leave the folders as the last broker left them
            return
        unforced = await self._flush_all()
        unforced |= {one.directory for one in self._unopened.values() if not one.clean}  # they still need recovery
        for directory in self.directories:
            with self._steps.attempt("clean stop", directory) as attempt:
                for name in SAYS if directory.online else ():
                    directory.ledger.write(name, directory.logs)
            for log in list(directory.logs):
                with self._steps.attempt("clean stop", log) as closing:
                    log.close()
                attempt.failed |= closing.failed
            if directory.online and directory not in unforced and not attempt.failed:
                with self._steps.attempt("clean stop", directory):
                    write_clean_marker(self.disk, directory.path)
        self.logs.clear()


def refuse_folders(entries: Iterable[FolderEntry]) -> None:
    """Fail early when a folder exists under the name of a file that must be written."""
    for entry in entries:
        if entry.name in FILES and entry.is_dir():
            advice = "this is a folder but must be a file: move or remove it, then restart"
            raise OSError(errno.EISDIR, advice, entry.path)
