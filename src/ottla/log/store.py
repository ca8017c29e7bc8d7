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
from ottla.log.directory import DELETE, STRAY, Directory, Name, aside, parse
from ottla.log.flush import Flush, carry_out
from ottla.log.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from ottla.clock import Clock
    from ottla.config import BrokerConfig, TopicConfig
    from ottla.disk import Disk
    from ottla.log.checkpoints import Offsets

TICK_S = 1.0  # how often to look for something to do; every interval below is a multiple of it in effect

logger = logging.getLogger("ottla.log")


class Usage(NamedTuple):
    """One log directory as DescribeLogDirs shows it."""

    path: str
    error: OSError | None
    total: int
    free: int
    sizes: Mapping[tuple[str, int], int]


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
        self.highs: Offsets = {}  # high watermarks as last written or told
        self.recovered_s = 0.0  # how long opening took
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
        self.recovered_s = self.clock.monotonic() - begin

    def _open_directory(self, directory: Directory, config_for: Callable[[str], TopicConfig]) -> None:
        clean = take_clean_marker(self.disk, directory.path)
        points = self._read_checkpoint(directory, RECOVERY_POINTS)
        starts = self._read_checkpoint(directory, LOG_STARTS)
        self.highs |= self._read_checkpoint(directory, HIGH_WATERMARKS)
        names = [(entry.path, name) for entry in self.disk.scan(directory.path) if (name := parse(entry.name))]
        folders = [(path, name) for path, name in names if not name.kind and name[:2] not in self.logs]
        now_ms = self.clock.now_ms()
        self._doomed += [
            Doomed(now_ms + self.config.log_segment_delete_delay_ms, path, directory)
            for path, name in names
            if name.kind == DELETE
        ]

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
        chosen = directory or self._emptiest()
        folder = os.path.join(chosen.path, f"{topic}-{index}")
        try:
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
            raise chosen.refusal(error) from error
        log = self.logs[topic, index] = Log(chosen, folder, topic, index, config, loaded)
        self.highs.pop((topic, index), None)
        return log

    def _emptiest(self) -> Directory:
        online = [directory for directory in self.directories if directory.online]
        if not online:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "every log directory is offline")
        return min(online, key=lambda directory: len(directory.logs))

    def delete(self, log: Log) -> None:
        """Delete a partition: gone at once under its name, its files after `file.delete.delay.ms`."""
        del self.logs[log.topic, log.index]
        self.highs.pop((log.topic, log.index), None)
        directory = log.directory
        log.drop()
        now_ms = self.clock.now_ms()
        path = os.path.join(directory.path, aside(log.topic, log.index, self._unique(now_ms), DELETE))
        try:
            self.disk.rename(log.folder, path)
        except OSError as error:
            raise directory.refusal(error) from error
        self._doomed.append(Doomed(now_ms + log.config.file_delete_delay_ms, path, directory))

    def set_aside(self, logs: Iterable[Log]) -> None:
        """Close logs that the cluster does not want here and rename their folders, for a person to look at."""
        for log in list(logs):
            del self.logs[log.topic, log.index]
            log.drop()
            path = os.path.join(
                log.directory.path, aside(log.topic, log.index, self._unique(self.clock.now_ms()), STRAY)
            )
            logger.warning("log is not part of the cluster, set aside", extra={"log": repr(log), "folder": path})
            try:
                self.disk.rename(log.folder, path)
            except OSError as error:
                raise log.directory.refusal(error) from error

    def _unique(self, now_ms: int) -> str:
        self._count += 1
        return f"{now_ms:016x}{self._count:016x}"

    def set_highs(self, highs: Mapping[tuple[str, int], int]) -> None:
        """High watermarks of the partitions hosted here, for the checkpoint."""
        self.highs = dict(highs)

    def usage(self) -> list[Usage]:
        found = []
        for directory in self.directories:
            total, free = self.disk.space(directory.path) if directory.online else (-1, -1)
            sizes = {(log.topic, log.index): log.size for log in directory.logs}
            found.append(Usage(directory.path, directory.error, total, free, sizes))
        return found

    # Looking after them.

    async def run(self) -> None:
        """Retention, flushing, checkpoints and late removals, until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            for log, flush in self.tick(self.clock.now_ms()):
                await self._flush(log, flush)

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
            self._checkpoint(HIGH_WATERMARKS, self.highs)
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
        """Remove the files and folders whose delay is over."""
        for log in self.logs.values():
            if log.doomed:
                try:
                    log.sweep(now_ms)
                except OSError as error:
                    log.directory.refusal(error)
        due = [doomed for doomed in self._doomed if doomed.due_ms <= now_ms]
        self._doomed = [doomed for doomed in self._doomed if doomed.due_ms > now_ms]
        for doomed in due:
            try:
                self.disk.remove_folder(doomed.path)
            except OSError as error:
                logger.warning("folder not removed", extra={"folder": doomed.path, "reason": str(error)})
                doomed.directory.refusal(error)

    async def _flush(self, log: Log, flush: Flush) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(None, carry_out, flush)
        except OSError as error:
            log.directory.fail(error)
        else:
            log.flushed(flush.end, self.clock.now_ms())

    async def close(self) -> None:
        """Stop in good order: everything on disk, then the checkpoints, then the marker that says so."""
        flushes = [(log, flush) for log in self.logs.values() if log.fault is None and (flush := log.unflushed())]
        await asyncio.gather(*(self._flush(log, flush) for log, flush in flushes))
        points = {key: log.recovery_point for key, log in self.logs.items()}
        starts = self._starts()
        self._checkpoint(RECOVERY_POINTS, points, sync=True)
        self._checkpoint(LOG_STARTS, starts, sync=True)
        self._checkpoint(HIGH_WATERMARKS, self.highs, sync=True)
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
