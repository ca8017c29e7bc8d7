"""What a pipeline is, and what it is given when it runs.

A pipeline is one file: a docstring, its options, a function `run` that sets up streaming queries or does a batch job, a
function `generate` that generates input for trying it, and these lines:

    OPTIONS = (Option("window", "1 minute", "Count over windows of this length."),)
    PIPELINE = Pipeline("visits", "Count visits.", run=run, options=OPTIONS, generate=generate)

    if __name__ == "__main__":
        main(PIPELINE)

`ottla pipeline run`, `python file.py` and `spark-submit file.py` run the same file. `run` gets a Run: the options, the
Spark session, and shortcuts for streams, topics and files that set checkpoints, groups and triggers. When `run`
returns, its queries continue until they are stopped; with `--once`, until they have read all records that are there.
"""

import difflib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from ottla.client.failure import Failed
from ottla.spark.dead_letter import OPTION
from ottla.spark.runner.causes import TOO_BUSY, full_text, sentence
from ottla.spark.runner.state import STOP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from ottla.client.cluster import Cluster
    from ottla.spark.runner.generating import Record
    from ottla.spark.runner.session import SessionSettings

POLL_S: Final = 0.25  # how often a stop, an end or a failure of a query is checked
AGAIN_MAX: Final = 3  # how often a query that failed because the machine was too busy is restarted or planned again
PATIENCE_S: Final = 120.0  # how long a stopping run waits for its running batches
DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?|d|days?)?\s*")
Planned = TypeVar("Planned")
UNIT_S = {"ms": 0.001, "mi": 60.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class UsageError(Failed):
    """Invalid command line."""


def retry_when_busy(plan: Callable[[], Planned]) -> Planned:
    """Plan a source, which starts a Python process. Try again if that took longer than Spark waits for it."""
    from pyspark.errors import PySparkException

    for _ in range(AGAIN_MAX):
        try:
            return plan()
        except PySparkException as error:
            if TOO_BUSY not in full_text(error):
                raise
    return plan()


@dataclass(frozen=True)
class Option:
    name: str
    default: str | None  # None: no default, it must be given
    summary: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pipeline:
    name: str
    summary: str
    run: Callable[["Run"], None]
    options: tuple[Option, ...] = ()
    generate: Callable[["Run"], None] | None = None

    def settings(self, given: Mapping[str, str]) -> dict[str, str]:
        """A value for every option, from those given and the defaults."""
        known = {option.name: option for option in self.options}
        for name, value in given.items():
            if name not in known:
                raise UsageError(f"{self.name} has no option {name}: {nearest(name, known)}")
            choices = known[name].choices
            if choices and value not in choices:
                raise UsageError(f"{name}={value}: choose one of {', '.join(choices)}")
        if missing := [option for option in self.options if option.default is None and option.name not in given]:
            raise UsageError(f"{self.name} needs --option {missing[0].name}=...: {missing[0].summary}")
        return {option.name: given.get(option.name, option.default or "") for option in self.options}


def nearest(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    if close := difflib.get_close_matches(name, names, n=1):
        return f"did you mean {close[0]}?"
    return f"it has {', '.join(names)}" if names else "it has none"


@dataclass(kw_only=True)
class Run:
    """One run of a pipeline. Tests construct it: `Run(pipeline=PIPELINE, bootstrap=..., folder=..., once=True)`."""

    pipeline: Pipeline
    bootstrap: str
    folder: Path  # its own: checkpoints/, tables/, spark.log, and the files of `ottla.spark.runner.state`
    options: Mapping[str, str] = field(default_factory=dict)
    once: bool = False
    tenured: bool = True  # it holds its folder, where it may be asked to stop; a run that only generates input does not
    every_s: float = 1.0  # seconds from one micro-batch to the next; 0: as soon as the last one ended
    checkpoints: str | None = None  # where checkpoints go if the folder is not on shared storage
    properties: Mapping[str, str] = field(default_factory=dict)  # Kafka's client options, without "kafka."
    session: "SparkSession | SessionSettings | None" = None  # an existing one, or how to make one
    rate: float | None = None  # for `generate`: records per second (None: as fast as possible) ...
    seed: int = 0
    count: int | None = None  # ... and how many in all (None: until stopped)
    report: Callable[["Run"], None] = lambda run: None  # called regularly by `wait`
    queries: "list[StreamingQuery]" = field(default_factory=list)

    def __post_init__(self) -> None:
        self.values = self.pipeline.settings(self.options)
        self._asked = False
        self._writers: dict[str, DataStreamWriter] = {}
        self._again: Counter[str] = Counter()

    @property
    def name(self) -> str:
        return self.pipeline.name

    # Options.

    def __getitem__(self, option: str) -> str:
        return self.values[option]

    def integer(self, option: str, *, least: int | None = None) -> int:
        text = self[option]
        span = "" if least is None else f", at least {least}"
        try:
            found = int(text.replace("_", ""))
        except ValueError:
            raise UsageError(f"{option}={text}: expected a whole number{span}") from None
        if least is not None and found < least:
            raise UsageError(f"{option}={text}: expected a whole number{span}")
        return found

    def number(self, option: str) -> float:
        text = self[option]
        try:
            return float(text)
        except ValueError:
            raise UsageError(f"{option}={text}: expected a number") from None

    def flag(self, option: str) -> bool:
        text = self[option].lower()
        if text not in ("true", "false", "yes", "no", "1", "0"):
            raise UsageError(f"{option}={text}: expected true or false")
        return text in ("true", "yes", "1")

    def seconds(self, option: str, *, above_zero: bool = False) -> float:
        """A duration such as `30 seconds`, `5m` or `90`."""
        text = self[option]
        found = DURATION.fullmatch(text)
        if not found:
            raise UsageError(f"{option}={text}: expected a duration such as 30 seconds, 5m or 1 hour")
        if above_zero and not float(found[1]):
            raise UsageError(f"{option}={text}: expected a duration above zero")
        unit = found[2] or "s"
        return float(found[1]) * UNIT_S.get(unit[:2], UNIT_S[unit[0]])

    # Spark, inputs and outputs.

    @cached_property
    def spark(self) -> "SparkSession":
        from pyspark.sql import SparkSession

        from ottla.spark.runner.session import SessionSettings, start_session

        if isinstance(self.session, SparkSession):
            return self.session
        return start_session(self.name, self.session or SessionSettings(log=self.folder / "spark.log"))

    def stream(self, topics: str, *, group: str, **options: str) -> "DataFrame":
        """A stream of rows from the earliest record on. Progress is committed to the group."""
        begin = {"subscribe": topics, "startingOffsets": "earliest", "ottla.group": group}
        reader = self.spark.readStream.format("ottla").options(**{**self._reading(), **begin, **options})
        return retry_when_busy(reader.load)

    def table(self, topics: str, **options: str) -> "DataFrame":
        """The current content of topics, as a table."""
        reader = self.spark.read.format("ottla").options(**{**self._reading(), "subscribe": topics, **options})
        return retry_when_busy(reader.load)

    def to_topic(
        self,
        frame: "DataFrame",
        topic: str | None,
        *,
        name: str,
        mode: str = "append",
        exactly_once: bool = True,
        dead_letter: str = "",
        **options: str,
    ) -> "StreamingQuery":
        """Write rows with a column `value` and optionally `key`, `headers`, `partition`. With topic None, a column
        names it.

        `dead_letter` is the topic for rows that cannot be written; without it they fail the query."""
        writer = frame.writeStream.format("ottla").options(**self.kafka())
        writer = writer.option("exactly.once", str(exactly_once).lower()).options(**options)
        if topic is not None:
            writer = writer.option("topic", topic)
        if dead_letter:
            writer = writer.option(OPTION, dead_letter)
        return self.start(writer.outputMode(mode), name=name)

    def to_files(
        self,
        frame: "DataFrame",
        path: Path | str,
        *,
        name: str,
        partition_by: Sequence[str] = (),
        format: str = "parquet",
    ) -> "StreamingQuery":
        writer = frame.writeStream.format(format).option("path", str(path))
        return self.start(writer.partitionBy(*partition_by) if partition_by else writer, name=name)

    def each_batch(
        self,
        frame: "DataFrame",
        function: "Callable[[DataFrame, int], None]",
        *,
        name: str,
        mode: str = "append",
        once: bool = False,
    ) -> "StreamingQuery":
        """Call `function(rows, batch)` with every micro-batch. After a crash a batch may come again, with the same
        rows."""
        return self.start(frame.writeStream.outputMode(mode).foreachBatch(function), name=name, once=once)

    def start(self, writer: "DataStreamWriter", *, name: str, once: bool = False) -> "StreamingQuery":
        """Start any query under a name, with its checkpoint and trigger. `once`: it ends even if the run continues."""
        writer = writer.queryName(name).option("checkpointLocation", self.checkpoint(name))
        if self.once or once:
            writer = writer.trigger(availableNow=True)
        elif self.every_s:
            writer = writer.trigger(processingTime=f"{round(self.every_s * 1000)} milliseconds")
        from ottla.spark.runner.session import activate

        activate(self.spark)
        query = writer.start()
        self.queries = [*(other for other in self.queries if other.name != name), query]
        self._writers[name] = writer
        return query

    def checkpoint(self, name: str) -> str:
        """As Spark expects it: a URL that is not escaped, since a space would become %20 in the folder's name."""
        if self.checkpoints:
            return f"{self.checkpoints.rstrip('/')}/{name}"
        return f"file://{(self.folder / 'checkpoints' / name).absolute()}"

    def cluster(self) -> "Cluster":
        """A client of the cluster; the caller closes it."""
        from ottla.client.cluster import Cluster
        from ottla.client.security import security

        return Cluster(self.bootstrap, security=security(self.properties), client_id=f"ottla-{self.name}")

    def ensure_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic unless it exists. `cleanup_policy="compact"` sets cleanup.policy."""
        with self.cluster() as cluster:
            if name not in cluster.topics([name]):
                dotted = {config.replace("_", "."): value for config, value in configs.items()}
                cluster.create(name, partitions, configs=dotted)

    def send(self, records: "Iterable[Record]") -> int:
        """For `generate`: produce at the requested rate, until `count` is reached, the records end, or the run is
        stopped."""
        from ottla.spark.runner.generating import send

        return send(self, records)

    def kafka(self) -> dict[str, str]:
        """The options of sources and sinks for connecting to the cluster."""
        properties = {f"kafka.{name}": value for name, value in self.properties.items()}
        return {"kafka.bootstrap.servers": self.bootstrap, **properties}

    def _reading(self) -> dict[str, str]:
        """Read committed records only, unless an option says otherwise."""
        return {"kafka.isolation.level": "read_committed", **self.kafka()}

    # Ending the run.

    @property
    def stopping(self) -> bool:
        """For a pipeline's own loops: should this run stop?"""
        return self._asked or (self.tenured and (self.folder / STOP).exists())

    def ask_to_stop(self) -> None:
        """Only sets a flag: a signal handler may call it at any time."""
        self._asked = True

    def pause(self, seconds: float) -> None:
        """Sleep, but wake up for a stop."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self.stopping:
            time.sleep(min(left, POLL_S))

    def wait(self, *queries: "StreamingQuery", seconds: float | None = None) -> None:
        """Wait until stopped, or until these queries (default: all) have ended, or for this many seconds.

        With `once`, queries end by themselves. If any query has failed, this raises Failed.
        """
        end = None if seconds is None else time.monotonic() + seconds
        names = {query.name for query in queries}
        while True:
            self.check()
            self.report(self)
            if self.stopping:
                self.finish()
                return
            if seconds is None and not any(query.isActive for query in self._those(names)):
                self.check()
                if not any(query.isActive for query in self._those(names)):
                    return
            if end is not None and time.monotonic() >= end:
                return
            time.sleep(POLL_S)

    def check(self) -> None:
        """If a query has failed, stop the others and raise the reason in a sentence."""
        for query in self.queries:
            if (error := query.exception()) and not self._restart(query.name, error):
                self._fail(query.name, error)

    def finish(self) -> None:
        """Stop every query after its current batch. A batch that begins meanwhile is repeated at the next start."""
        waiting = {query: last_report(query) for query in self.queries if query.isActive}
        end = time.monotonic() + PATIENCE_S
        while waiting:
            for query, before in list(waiting.items()):
                idle = not query.isActive or not query.status["isTriggerActive"]
                if idle or last_report(query) != before or time.monotonic() > end:
                    query.stop()
                    del waiting[query]
            self.report(self)
            time.sleep(POLL_S / 5)
        self.check()

    def end(self) -> None:
        """Stop Spark, if this run has started it."""
        spark = self.__dict__.pop("spark", None)
        if spark is not None and spark is not self.session:
            spark.stop()

    def _those(self, names: set[str]) -> "list[StreamingQuery]":
        return [query for query in self.queries if not names or query.name in names]

    def _restart(self, name: str, error: BaseException) -> bool:
        """Restart a query from its checkpoint if it failed only because the machine was busy."""
        if (
            TOO_BUSY not in full_text(error)
            or name not in self._writers
            or self._again[name] == AGAIN_MAX
            or self.stopping
        ):
            return False
        self._again[name] += 1
        fresh = self._writers[name].start()
        self.queries = [fresh if query.name == name else query for query in self.queries]
        return True

    def _fail(self, name: str, error: BaseException) -> NoReturn:
        for query in self.queries:
            if query.isActive:
                query.stop()
        raise Failed(f"the query {name} failed: {sentence(error)}") from error


def last_report(query: "StreamingQuery") -> Any:
    progress = query.lastProgress
    return progress and (progress["batchId"], progress["timestamp"])


def main(pipeline: Pipeline) -> None:
    """The end of a pipeline's file: run it by the command line, and exit with its code."""
    from ottla.spark.runner.running import main

    main(pipeline)
