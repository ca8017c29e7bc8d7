"""Spark's micro-batches without Spark: the same checkpoint, tasks in processes of their own, and the sink's own writer.

Spark does little around a sink, and a JVM takes long to start; so hundreds of attacks run on this. A
checkpoint has Spark's files (metadata, offsets/N, commits/N) and its rule: a batch that is planned and not committed is
run again as it was planned. The source is a list of values; the rows of a batch are spread over tasks at random.

Everything can be killed: a task when it has written and before it reports; the driver or the broker before any call of
its commit. Each driver is a process made by fork, so that a kill is a kill.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import signal
import sys
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

from ottla.client.failure import Failed
from ottla.spark.sink import producers, tally, writers, writing
from ottla.spark.sink.coordination import ClusterPort
from ottla.spark.sink.options import SinkOptions
from ottla.spark.sink.writers import OttlaStreamWriter
from ottla.spark.worker import at_work

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql.datasource import WriterCommitMessage

TASKS: Final = 2
ATTEMPTS_MAX: Final = 4
KILLED: Final = 9
SCHEMA: Final = StructType().add("value", StringType())
CALLS: Final = ("identify", "last", "open", "states", "append", "end", "ongoing")


@dataclass(frozen=True)
class Kill:
    """Who is killed: a task of each batch once, or somebody before this call of the commit of this batch."""

    victim: str  # task, driver, broker
    call: int = 0
    batch: int = 0


# Once here, and not again in every process that is forked.
PRELOADED: Final = (producers, tally, writing)
with at_work():
    pass


class Context:
    """The context of a task, as Spark gives it."""

    def __init__(self, query: str, batch: int, index: int, attempt: int) -> None:
        self.properties = {writers.QUERY_ID: query, writers.BATCH_ID: str(batch)}
        self.index, self.attempt = index, attempt

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name)

    def partitionId(self) -> int:
        return self.index

    def taskAttemptId(self) -> int:
        return self.attempt


class Driver:
    def __init__(self, bootstrap: str, checkpoint: Path, topic: str, source: list[str]) -> None:
        self.checkpoint, self.source = checkpoint, source
        for name in ("offsets", "commits"):
            (checkpoint / name).mkdir(parents=True, exist_ok=True)
        given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "exactly.once": "true"}
        options = SinkOptions.load({**given, "checkpointLocation": str(checkpoint)})
        self.writer = OttlaStreamWriter(options, SCHEMA, False)
        self.kill: Kill | None = None
        self.twins = False
        self.restart_broker: Callable[[], None] = lambda: None
        self.wrote_twice = 0

    @property
    def query(self) -> str:
        path = self.checkpoint / "metadata"
        if not path.exists():
            path.write_text(json.dumps({"id": str(uuid.uuid4())}))
        found: str = json.loads(path.read_text())["id"]
        return found

    def run(self) -> None:
        """Run batches until there is nothing left to read. Raises Failed if the sink refuses."""
        batch = upcoming(self.checkpoint)
        while True:
            start, plan = self._end(batch - 1), self.checkpoint / "offsets" / str(batch)
            if not plan.exists():
                end = len(self.source)
                if end == start:
                    return
                put(plan, f'v1\n{{"batchTimestampMs":{random.getrandbits(40)}}}\n{{"end":{end}}}')
            self._batch(batch, self.source[start : self._end(batch)])
            put(self.checkpoint / "commits" / str(batch), "v1\n{}")
            batch += 1

    def _end(self, batch: int) -> int:
        if batch < 0:
            return 0
        end: int = json.loads((self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[2])["end"]
        return end

    def _batch(self, batch: int, rows: list[str]) -> None:
        shares: list[list[str]] = [[] for _ in range(TASKS)]
        for row in rows:
            random.choice(shares).append(row)
        messages = [self._task(batch, index, share) for index, share in enumerate(shares)]
        port = self._port(batch)
        try:
            with patched(port):
                self.writer.commit(messages, batch)
        except Failed:
            with suppress(Failed):
                self.writer.abort(messages, batch)
            raise

    def _task(self, batch: int, index: int, rows: list[str]) -> WriterCommitMessage | None:
        """Attempts until one reports; with `twins`, a second one runs to its end beside the first."""
        found: WriterCommitMessage | None = None
        for attempt in range(ATTEMPTS_MAX):
            dies = self.kill is not None and self.kill.victim == "task" and attempt == 0
            message = self._attempt(Context(self.query, batch, index, attempt), rows, dies)
            if message is not None and found is not None and getattr(message, "part", None) is not None:
                self.wrote_twice += 1
            found = found or message
            if found is not None and (attempt or not self.twins):
                return found
        raise Failed("a task failed too often")

    def _attempt(self, context: Context, rows: list[str], dies: bool) -> WriterCommitMessage | None:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            try:
                writers.task = lambda: context  # type: ignore[assignment, return-value]
                batches = [pa.record_batch([pa.array(rows, pa.string())], ["value"])]
                message = self.writer.write(iter(batches))
                if dies:
                    os.kill(os.getpid(), signal.SIGKILL)
                with os.fdopen(writing, "wb") as pipe:
                    pickle.dump(message, pipe)
            except Failed as error:
                print(f"TASK {error}", file=sys.stderr, flush=True)
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            data = pipe.read()
        os.waitpid(child, 0)
        return pickle.loads(data) if data else None

    def _port(self, batch: int) -> type[ClusterPort]:
        kill, restart = self.kill, self.restart_broker
        if kill is None or kill.victim == "task" or kill.batch != batch:
            return ClusterPort
        left = [kill.call]

        def before(name: str) -> Callable[..., object]:
            def call(self: ClusterPort, *given: object, **named: object) -> object:
                left[0] -= 1
                if left[0] == -1:
                    if kill.victim == "driver":
                        os.kill(os.getpid(), signal.SIGKILL)
                    restart()
                return getattr(ClusterPort, name)(self, *given, **named)

            return call

        return type("Attacked", (ClusterPort,), {name: before(name) for name in CALLS})


class patched:
    """The writer's port replaced, for a while."""

    def __init__(self, port: type[ClusterPort]) -> None:
        self.port = port

    def __enter__(self) -> None:
        writers.ClusterPort = self.port  # type: ignore[attr-defined]

    def __exit__(self, *error: object) -> None:
        writers.ClusterPort = ClusterPort  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Ended:
    """How a driver ended: done, killed, or refused with this sentence."""

    killed: bool
    refused: str | None
    wrote_twice: int = 0

    @property
    def done(self) -> bool:
        return not self.killed and self.refused is None


class Running:
    """A driver in a process of its own."""

    def __init__(self, driver: Driver) -> None:
        self._reading, writing = os.pipe()
        self._child = os.fork()
        if not self._child:
            os.close(self._reading)
            refused: str | None = None
            try:
                driver.run()
            except Failed as error:
                refused = str(error)
            except FileExistsError:
                refused = "Spark: another driver has written to the checkpoint"
            except BaseException as error:
                refused = f"BUG {error!r}"
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(Ended(False, refused, driver.wrote_twice), pipe)
            os._exit(0)
        os.close(writing)

    def wait(self) -> Ended:
        with os.fdopen(self._reading, "rb") as pipe:
            data = pipe.read()
        _, status = os.waitpid(self._child, 0)
        if os.WIFSIGNALED(status):
            return Ended(True, None)
        ended: Ended = pickle.loads(data)
        return ended


def last(folder: Path) -> int:
    """The last batch of a log; -1 if it is empty."""
    return max((int(path.name) for path in folder.iterdir() if path.name.isdecimal()), default=-1)


def upcoming(checkpoint: Path) -> int:
    """The batch that a driver runs next: what was planned last is run again unless it is committed, as by Spark."""
    done, planned = (last(checkpoint / name) for name in ("commits", "offsets"))
    return planned + 1 if planned == done else planned


def put(path: Path, text: str) -> None:
    """Write a file atomically, or raise FileExistsError if it exists: as Spark writes its logs."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text)
    try:
        os.link(beside, path)
    finally:
        beside.unlink()


def restore(backup: Path, checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)
    shutil.copytree(backup, checkpoint)
