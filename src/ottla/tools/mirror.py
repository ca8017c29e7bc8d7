"""`ottla mirror`: copy topics to another cluster in this one process, or with --spark on many.

The loop and the copying are those of the Spark pipeline `mirror`; only the place where partitions are copied differs.
So both keep their positions in the same group at the target, and one goes on where the other stopped.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.status import Status

from ottla.tools.output import document, say, warn
from ottla.tools.pipeline import extra
from ottla.tools.reach import reach
from ottla.tools.session import BOOTSTRAP, Json

if TYPE_CHECKING:
    from ottla.client.cluster import TopicPartition
    from ottla.spark.pipelines.mirror.mirroring import CopyOutcome, Job, PartitionTask

POLL_S = 0.2


def mirror(
    to: Annotated[str, typer.Option("--to", metavar="HOST:PORT,...", help="The cluster to copy to")],
    source: Annotated[
        str, typer.Option("--from", metavar="HOST:PORT,...", help="The cluster to copy from ($OTTLA_BOOTSTRAP)")
    ] = BOOTSTRAP,
    topics: Annotated[
        str, typer.Option("--topics", "-t", help="Names and patterns (regular expressions) with commas; * is all")
    ] = "*",
    groups: Annotated[
        str, typer.Option("--groups", "-g", help="Pattern of the groups whose offsets are translated; '' is none")
    ] = ".*",
    prefix: Annotated[str, typer.Option("--prefix", help="Put before the names at the target, such as west.")] = "",
    name: Annotated[
        str, typer.Option("--name", help="Of this mirror: two of one name to one target replace each other")
    ] = "mirror",
    once: Annotated[bool, typer.Option("--once", help="Copy what is there now, then end")] = False,
    append: Annotated[
        bool, typer.Option("--append", help="Copy behind records that a topic at the target has already")
    ] = False,
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="Go on when the source has deleted records before they were copied")
    ] = False,
    replicas: Annotated[
        int, typer.Option("--replicas", help="Of topics that are made at the target; -1: its default")
    ] = -1,
    from_properties: Annotated[
        Path | None, typer.Option("--from-properties", help="Client properties of the source (security.protocol, ...)")
    ] = None,
    to_properties: Annotated[
        Path | None, typer.Option("--to-properties", help="Client properties of the target")
    ] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Copy on Spark: for more than one process can do")] = False,
    json: Json = False,
) -> None:
    """Copy topics to another cluster, exactly once, until stopped or with --once to the end.

    Keys, values, headers, timestamps, partitions and codecs stay as they are. Topics are created at the target with the
    options of the original; new topics and partitions are found. Groups stand at the target where they would go on, so
    that consumers can change over. What has been copied is not copied again, whichever way the last run ended.

    This is one process on one core, one partition after the other. For more, --spark runs `ottla pipeline run mirror`
    with the same options, on all cores or on a Spark cluster; it goes on where this one stopped. Both need the extra
    `spark`; Java is needed only with --spark.

    Ends with 0 when done or stopped (Ctrl-C), 1 when it failed, 2 when the command line makes no sense.
    """
    if not spark:
        reach(source, None)
        reach(to, None)
    options = {
        "to": to,
        "topics": topics,
        "groups": groups,
        "prefix": prefix,
        "name": name,
        "existing": "append" if append else "refuse",
        "failOnDataLoss": "false" if skip_lost else "true",
        "replicas": str(replicas),
        "to.properties": str(to_properties or ""),
    }
    with extra():
        from ottla.spark.pipelines.mirror.endpoint import read_properties

        properties = read_properties(str(from_properties)) if from_properties else {}
        if spark:
            if json:
                raise typer.BadParameter("--json is of a run without --spark; see `ottla pipeline status --json`")
            raise typer.Exit(run_on_spark(source, options, properties, once=once))
        summary = run_here(source, options, properties, once=once)
    if json:
        document(summary)
    else:
        moved = f", {summary['groups']:,} groups translated" if groups else ""
        say(f"{summary['records']:,} records of {summary['topics']:,} topics copied to {to}{moved}")


def run_on_spark(source: str, options: Mapping[str, str], properties: Mapping[str, str], *, once: bool) -> int:
    from ottla.spark.pipelines.mirror import PIPELINE
    from ottla.spark.runner import running

    arguments = ["--bootstrap", source, *(["--once"] if once else [])]
    for option, value in options.items():
        arguments += ["--option", f"{option}={value}"]
    return running.run(PIPELINE, arguments, program="ottla mirror --spark", properties=properties)


def run_here(source: str, options: Mapping[str, str], properties: Mapping[str, str], *, once: bool) -> dict[str, Any]:
    """Copy in this process; what was done, for the last line."""
    from ottla.client.security import security
    from ottla.spark.pipelines.mirror.endpoint import Endpoint
    from ottla.spark.pipelines.mirror.endpoint import properties as read_security
    from ottla.spark.pipelines.mirror.following import Followed
    from ottla.spark.pipelines.mirror.loop import Mirror
    from ottla.spark.pipelines.mirror.mirroring import Job
    from ottla.spark.pipelines.mirror.roster import Roster
    from ottla.spark.runner.running import Signals
    from ottla.spark.selection import TopicSelection

    name, file = options["name"], options["to.properties"]
    selection = TopicSelection.parse(options["topics"], options["prefix"])
    followed = Followed(name, options["groups"]) if options["groups"] else None
    here = Endpoint(source, security(properties), "ottla-mirror")
    there = Endpoint(options["to"], read_security(file) if file else security({}), "ottla-mirror")
    with here.connect() as left, there.connect() as right, show_warnings(), status() as line:
        append = options["existing"] == "append"
        roster = Roster(left, right, selection, mirror=name, replicas=int(options["replicas"]), append=append)
        host = ThisProcess(line, once=once)
        lose = options["failOnDataLoss"] == "true"
        job = Job(name, here, there, left.id or "", fail_on_data_loss=lose)
        with Signals(host.ask_to_stop):
            Mirror(host, job, left, right, roster, followed).loop()
    return {
        "topics": len({where.topic for where in host.reached}),
        "records": host.records,
        "groups": followed.groups if followed else 0,
        "behind": host.behind,
    }


class ThisProcess:
    """Where a mirror runs without Spark: one partition after the other."""

    lanes = 1

    def __init__(self, line: Status | None, *, once: bool) -> None:
        self.once = once
        self.stopping = False
        self.records = 0
        self.behind = 0
        self.reached: Mapping[TopicPartition, int] = {}
        self._line = line

    def ask_to_stop(self) -> None:
        self.stopping = True

    def pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self.stopping:
            time.sleep(min(left, POLL_S))

    def copy(self, job: "Job", lanes: "list[list[PartitionTask]]") -> "list[CopyOutcome]":
        from ottla.spark.pipelines.mirror.mirroring import copy

        return [outcome for parts in lanes for outcome in copy(job, parts)]

    def report(
        self, records: int, reached: "Mapping[TopicPartition, int]", ends: "Mapping[TopicPartition, int]"
    ) -> None:
        self.records += records
        self.reached = dict(reached)
        self.behind = sum(max(0, end - reached[where]) for where, end in ends.items())
        if self._line:
            self._line.update(f"{self.records:,} records copied, {self.behind:,} to go")


@contextmanager
def status() -> "Iterator[Status | None]":
    """A line on stderr that says how far it is; none where there is no terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with console.status("looking for topics") as line:
        yield line


@contextmanager
def show_warnings() -> Iterator[None]:
    """What the loop logs is said as all commands say it."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warn(record.getMessage())

    logger, handler = logging.getLogger("ottla.spark"), Lines(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
