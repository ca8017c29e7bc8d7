"""All partitions' logs of one broker: opened at start, created, deleted, looked after, closed.

A broker has one or more log directories. A new partition goes where the fewest are. Every directory has checkpoints of
its own and a marker that is there only while no broker works in it and the last one stopped in good order: without
it, its logs are recovered, several at a time.

One loop owns all of this. Threads are used for what waits for the disk, on values the owner handed out: recovery before
anything runs, and forcing bytes to disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import BrokerError, ErrorCode
from ottla.log import recovery
from ottla.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    CorruptCheckpointError,
    Meta,
    read_meta,
    read_offsets,
    take_clean_marker,
    write_clean_marker,
    write_meta,
    write_offsets,
)
from ottla.log.cleaner import Cleaner
from ottla.log.directory import DELETE, FUTURE, STRAY, Directory, Name, aside, parse
from ottla.log.flush import Flush, carry_out, sync_folders
from ottla.log.log import Log
from ottla.log.move import STEP_SIZE, Move, left

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from ottla.clock import Clock
    from ottla.config import BrokerConfig, TopicConfig
    from ottla.disk import Disk
    from ottla.log.checkpoints import Offsets

DAWDLE_MS = 60_000  # time for a thread to notice that its move was called off
TICK_S = 1.0  # how often to look for something to do; every interval below is a multiple of it in effect

logger = logging.getLogger("ottla.log")


class Usage(NamedTuple):
    """One log directory as DescribeLogDirs shows it."""

    path: str
    error: OSError | None
    total: int
    free: int
    sizes: Mapping[tuple[str, int], int]
    futures: Mapping[tuple[str, int], int]  # of partitions that are being moved here, as far as they are copied


class Doomed(NamedTuple):
    due_ms: int
    path: str
    directory: Directory


class Store:
    def __init__(self, dirs: Sequence[str | Path], disk: Disk, clock: Clock, config: BrokerConfig) -> None:
        self.disk = disk
        self.clock = clock
        self.config = config
        self.directories = [Directory(os.path.abspath(path), disk) for path in dirs]
        self.logs: dict[tuple[str, int], Log] = {}
        self.highs: Offsets = {}  # high watermarks as they were when the logs were opened
        self.moves: dict[tuple[str, int], Move] = {}
        self.preferred: dict[tuple[str, int], Directory] = {}  # where partitions go that are not here yet
        self.recovered_s = 0.0  # how long opening took
        self._opened = False
        self.cleaner = Cleaner(self)
        self._doomed: list[Doomed] = []
        self._count = 0
        self._due: dict[str, int] = {}

    # Opening.

    def open(self, config_for: Callable[[str], TopicConfig]) -> None:
        """Load every log of every directory; a directory that cannot be read goes offline."""
        begin = self.clock.monotonic()
        for directory in self.directories:
            try:
                self.disk.make_folder(directory.path, parents=True)
                self._open_directory(directory, config_for)
            except OSError as error:
                directory.fail(error)
        if not any(directory.online for directory in self.directories):
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory can be used")
        for (topic, index), directory in list(self.preferred.items()):
            self.move(topic, index, directory.path)
        self.recovered_s = self.clock.monotonic() - begin
        self._opened = True

    def _open_directory(self, directory: Directory, config_for: Callable[[str], TopicConfig]) -> None:
        clean = take_clean_marker(self.disk, directory.path)
        points = self._read_checkpoint(directory, RECOVERY_POINTS)
        starts = self._read_checkpoint(directory, LOG_STARTS)
        self.highs |= self._read_checkpoint(directory, HIGH_WATERMARKS)
        entries = self.disk.scan(directory.path)
        names = [(entry.path, name) for entry in entries if (name := parse(entry.name)) and entry.is_dir()]
        folders = [(path, name) for path, name in names if not name.kind]
        now_ms = self.clock.now_ms()
        for path, name in names:
            if name.kind == DELETE:
                self._doom(path, directory, self.config.log_segment_delete_delay_ms)
            elif name.kind == FUTURE:
                self.disk.remove_folder(path)  # an unfinished copy; to be made anew once every log is known
                self.preferred[name.topic, name.partition] = directory
            elif name[:2] in self.logs:
                # A move ended between its two last steps: both copies are whole, and one of them is in use already.
                self.disk.rename(path, os.path.join(directory.path, aside(*name[:2], self._unique(), STRAY)))
                folders.remove((path, name))

        def load(folder: tuple[str, Name]) -> Log:
            path, (topic, partition, _) = folder
            config, key = config_for(topic), (topic, partition)
            loaded = recovery.load(
                path,
                self.disk,
                config,
                clean=clean,
                recovery_point=points.get(key, 0),
                start=starts.get(key, 0),
                now_ms=now_ms,
                expiration_ms=self.config.producer_id_expiration_ms,
            )
            return Log(directory, path, topic, partition, config, loaded)

        if clean or len(folders) < 2:
            logs = [load(folder) for folder in folders]
        else:
            with ThreadPoolExecutor(self.config.num_recovery_threads_per_data_dir) as threads:
                logs = list(threads.map(load, folders))
        for log in logs:
            self.logs[log.topic, log.index] = log

    def _read_checkpoint(self, directory: Directory, name: str) -> Offsets:
        try:
            return read_offsets(self.disk, os.path.join(directory.path, name))
        except CorruptCheckpointError as error:
            # Zero is always right for these: more is read at recovery, or less is hidden.
            logger.warning("checkpoint ignored", extra={"reason": str(error)})
            return {}

    # Whose directories these are.

    def read_meta(self) -> Meta | None:
        """meta.properties of the first directory that has one."""
        for directory in self.directories:
            if directory.online and (meta := read_meta(self.disk, directory.path)):
                return meta
        return None

    def write_meta(self, meta: Meta) -> None:
        """Say whose they are, in every directory where nothing says so yet."""
        for directory in self.directories:
            if directory.online:
                self.disk.make_folder(directory.path, parents=True)
                if read_meta(self.disk, directory.path) is None:
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
        """A new, empty log, in the directory with the fewest unless one is named."""
        assert (topic, index) not in self.logs, "a partition has one log"
        chosen = directory or self.preferred.pop((topic, index), None) or self._emptiest()
        folder = os.path.join(chosen.path, f"{topic}-{index}")
        try:
            if self.disk.exists(folder):  # left by a topic that could not be made, or not be deleted
                stray = os.path.join(chosen.path, aside(topic, index, self._unique(), STRAY))
                self.disk.rename(folder, stray)
                logger.warning("folder is in the way, set aside", extra={"folder": stray})
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
            self._discard(folder, aside(topic, index, self._unique(), DELETE), chosen)
            raise chosen.refusal(error) from error
        log = self.logs[topic, index] = Log(chosen, folder, topic, index, config, loaded)
        self.highs.pop((topic, index), None)
        return log

    def _discard(self, folder: str, name: str, directory: Directory) -> None:
        """Have the rest of a log that could not be made removed later: that may need a file, and there are none now."""
        path = os.path.join(directory.path, name)
        try:
            self.disk.rename(folder, path)
        except OSError:  # mostly it is gone already; if not, it is set aside when it is in the way
            return
        self._doom(path, directory, 0)

    def _emptiest(self) -> Directory:
        online = [directory for directory in self.directories if directory.online]
        if not online:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "every log directory is offline")
        return min(online, key=lambda directory: len(directory.logs))

    def delete(self, log: Log) -> None:
        """Delete a partition: gone at once under its name, its files after `file.delete.delay.ms`."""
        del self.logs[log.topic, log.index]
        self._forget_move(log.topic, log.index)
        self.highs.pop((log.topic, log.index), None)
        directory = log.directory
        log.drop()
        try:
            path = self._put_aside(log, str(log.folder), directory, DELETE)
        except OSError as error:
            raise directory.refusal(error) from error
        self._doom(path, directory, log.config.file_delete_delay_ms)

    def _put_aside(self, log: Log, folder: str, directory: Directory, kind: str) -> str:
        """Rename a partition's folder; returns the new path."""
        path = os.path.join(directory.path, aside(log.topic, log.index, self._unique(), kind))
        self.disk.rename(folder, path)
        return path

    def _doom(self, path: str, directory: Directory, delay_ms: int) -> None:
        self._doomed.append(Doomed(self.clock.now_ms() + delay_ms, path, directory))

    def _unique(self) -> str:
        self._count += 1
        return f"{self.clock.now_ms():016x}{self._count:016x}"

    def truncate(self, log: Log, offset: int) -> None:
        """Cut off everything at or above `offset`, and have it compacted again when it has been written again."""
        log.truncate(offset, now_ms=self.clock.now_ms())
        self.cleaner.truncated(log, log.end)

    def set_aside(self, logs: Iterable[Log]) -> None:
        """Close logs that the cluster does not want here and rename their folders, for a person to look at."""
        for log in list(logs):
            del self.logs[log.topic, log.index]
            log.drop()
            try:
                path = self._put_aside(log, str(log.folder), log.directory, STRAY)
            except OSError as error:
                raise log.directory.refusal(error) from error
            logger.warning("log is not part of the cluster, set aside", extra={"log": repr(log), "folder": path})

    def _space(self, directory: Directory) -> tuple[int, int]:
        if directory.online:
            try:
                return self.disk.space(directory.path)
            except OSError as error:
                directory.refusal(error)
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
        """AlterReplicaLogDirs: have a partition moved, or remember where it is to be created.

        BrokerError(LOG_DIR_NOT_FOUND) if there is no such directory. The move itself is done by `run`.
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
            self.moves[topic, index] = Move(log, directory, os.path.join(directory.path, name))

    def _forget_move(self, topic: str, index: int) -> None:
        """End a move that has begun; its copy is removed once nobody writes it."""
        move = self.moves.pop((topic, index), None)
        if move is not None:
            self._doom(move.folder, move.directory, DAWDLE_MS)

    async def carry_out(self, move: Move) -> None:
        """Copy a partition and put the copy in its place. A failure leaves the partition where it is."""
        log, key = move.log, (move.log.topic, move.log.index)
        try:
            self.disk.make_folder(move.folder)
            while left(pieces := move.pieces()) > STEP_SIZE:
                await asyncio.get_running_loop().run_in_executor(None, move.copy, pieces)
                if self.moves.get(key) is not move:
                    return
            move.copy(pieces)
            self._switch(move)
        except OSError as error:
            logger.warning("move failed", extra={"log": repr(log), "to": move.directory.path, "reason": str(error)})
            move.directory.refusal(error)
            self._forget_move(*key)

    def _switch(self, move: Move) -> None:
        """All of it in one step of the loop, so nobody appends in between."""
        log, directory, old = move.log, move.directory, move.log.directory
        log.seal()
        move.finish()
        folder, old_folder = os.path.join(directory.path, log.folder.name), str(log.folder)
        self.disk.rename(move.folder, folder)
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
        for segment in log.segments:
            segment.close()
        old.logs.discard(log)
        log.settle_in(directory, folder, loaded._replace(recovery_point=loaded.start))  # nothing is forced to disk yet
        del self.moves[log.topic, log.index]
        aside_now = self._put_aside(log, old_folder, old, DELETE)
        self._doom(aside_now, old, log.config.file_delete_delay_ms)

    # Looking after them.

    async def run(self) -> None:
        """Retention, flushing, checkpoints, late removals and moves, until cancelled. Compaction is `cleaner.run`."""
        while True:
            await asyncio.sleep(TICK_S)
            for log, flush in self.tick(self.clock.now_ms()):
                await self.flush(log, flush)
            await self.remove_folders(self.clock.now_ms())
            for move in list(self.moves.values()):
                await self.carry_out(move)

    def tick(self, now_ms: int) -> list[tuple[Log, Flush]]:
        """Do what is due, and name what has to be forced to disk."""
        config = self.config
        if self._is_due("retention", now_ms, config.log_retention_check_interval_ms):
            self._retain(now_ms)
        if self._is_due("recovery points", now_ms, config.log_flush_offset_checkpoint_interval_ms):
            self._checkpoint(RECOVERY_POINTS, {key: log.recovery_point for key, log in self.logs.items()})
        if self._is_due("log starts", now_ms, config.log_flush_start_offset_checkpoint_interval_ms):
            self._checkpoint(LOG_STARTS, self._starts())
        if self._is_due("high watermarks", now_ms, config.replica_high_watermark_checkpoint_interval_ms):
            self._checkpoint(HIGH_WATERMARKS, self._highs())
        self._sweep(now_ms)
        return [(log, flush) for log in self.logs.values() if (flush := log.flush_due(now_ms)) is not None]

    def _is_due(self, work: str, now_ms: int, interval_ms: int) -> bool:
        """Whether the interval since the last time is over; the first one begins with the first question."""
        if now_ms < self._due.setdefault(work, now_ms + interval_ms):
            return False
        self._due[work] = now_ms + interval_ms
        return True

    def _retain(self, now_ms: int) -> None:
        for log in self.logs.values():
            log.producers.expire(now_ms)
            try:
                log.retain(now_ms)
            except BrokerError as error:
                logger.warning("retention failed", extra={"log": repr(log), "reason": error.message})

    def _highs(self) -> Offsets:
        return {key: log.high for key, log in self.logs.items()}

    def _starts(self) -> Offsets:
        """Only what the name of the first segment does not say, as Apache Kafka keeps it."""
        return {key: log.start for key, log in self.logs.items() if log.start > log.segments[0].base}

    def _checkpoint(self, name: str, offsets: Mapping[tuple[str, int], int], *, sync: bool = False) -> None:
        for directory in self.directories:
            if directory.online:
                own = {
                    (log.topic, log.index): offsets[log.topic, log.index]
                    for log in directory.logs
                    if (log.topic, log.index) in offsets
                }
                try:
                    write_offsets(self.disk, os.path.join(directory.path, name), own, sync=sync)
                except OSError as error:
                    logger.warning("checkpoint not written", extra={"checkpoint": name, "reason": str(error)})
                    directory.refusal(error)

    def _sweep(self, now_ms: int) -> None:
        """Remove the files whose delay is over."""
        for log in self.logs.values():
            if log.doomed:
                try:
                    log.sweep(now_ms)
                except OSError as error:
                    log.directory.refusal(error)

    async def remove_folders(self, now_ms: int) -> None:
        """Remove the folders of deleted partitions whose delay is over, in a thread: there may be many, and large."""
        due = [doomed for doomed in self._doomed if doomed.due_ms <= now_ms]
        self._doomed = [doomed for doomed in self._doomed if doomed.due_ms > now_ms]
        for doomed in due:
            try:
                await asyncio.get_running_loop().run_in_executor(None, self.disk.remove_folder, doomed.path)
            except OSError as error:
                logger.warning("folder not removed", extra={"folder": doomed.path, "reason": str(error)})
                doomed.directory.refusal(error)

    async def flush(self, log: Log, flush: Flush) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(None, carry_out, flush)
        except OSError as error:
            log.directory.fail(error)
        else:
            log.flushed(flush, self.clock.now_ms())

    async def _flush_all(self) -> None:
        """Force every log to disk, all files before any folder: most folders are on disk by then, and cost nothing."""
        flushes = [(log, flush) for log in self.logs.values() if log.fault is None and (flush := log.unflushed())]
        folders = {folder: log.directory for log, flush in flushes for folder in flush.folders}
        await asyncio.gather(*(self.flush(log, flush._replace(folders=())) for log, flush in flushes))
        for folder, directory in folders.items():
            if directory.online:
                try:
                    await asyncio.get_running_loop().run_in_executor(None, sync_folders, self.disk, [folder])
                except OSError as error:
                    directory.fail(error)

    async def close(self) -> None:
        """Stop in good order: everything on disk, then the checkpoints, then the marker that says so."""
        if not self._opened:  # then nothing here is ours to say: the folders are as whoever was here before left them
            return
        await self._flush_all()
        points = {key: log.recovery_point for key, log in self.logs.items()}
        starts = self._starts()
        self._checkpoint(RECOVERY_POINTS, points, sync=True)
        self._checkpoint(LOG_STARTS, starts, sync=True)
        self._checkpoint(HIGH_WATERMARKS, self._highs(), sync=True)
        whole = {directory for directory in self.directories if directory.online}
        for log in list(self.logs.values()):
            try:
                log.close()
            except OSError as error:
                log.directory.refusal(error)
                whole.discard(log.directory)
        for directory in whole:
            if directory.online:
                try:
                    write_clean_marker(self.disk, directory.path)
                except OSError as error:
                    # Nothing is lost: the next start reads more than it would have to.
                    logger.warning("no clean stop", extra={"directory": directory.path, "reason": str(error)})
        self.logs.clear()
