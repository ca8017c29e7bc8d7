"""`ottla mirror`: copy topics to another cluster, in this process or with --spark in many.

The code is that of the Spark pipeline `mirror`; only the place where partitions are copied differs. Both keep their
positions in the same group at the target, so one continues where the other stopped.
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
        str, typer.Option("--topics", "-t", help="Names or regular expressions, separated by commas; *: all")
    ] = "*",
    groups: Annotated[
        str, typer.Option("--groups", "-g", help="Regular expression of groups to translate offsets of; '': none")
    ] = ".*",
    prefix: Annotated[str, typer.Option("--prefix", help="Prefix of topic names at the target, such as west.")] = "",
    name: Annotated[
        str, typer.Option("--name", help="Name of this mirror; a second one of this name and target replaces it")
    ] = "mirror",
    once: Annotated[bool, typer.Option("--once", help="Copy what exists now, then exit")] = False,
    append: Annotated[bool, typer.Option("--append", help="Append to target topics that already have records")] = False,
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="Continue if the source deleted records before they were copied")
    ] = False,
    replicas: Annotated[
        int, typer.Option("--replicas", help="Replication factor of topics created at the target; -1: its default")
    ] = -1,
    from_properties: Annotated[
        Path | None, typer.Option("--from-properties", help="Client properties of the source (security.protocol, ...)")
    ] = None,
    to_properties: Annotated[
        Path | None, typer.Option("--to-properties", help="Client properties of the target")
    ] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Copy with Spark, for more than one process can do")] = False,
    json: Json = False,
) -> None:
    """Copy topics to another cluster, exactly once, until stopped or with --once to the end.

    Keys, values, headers, timestamps, partitions and codecs are kept. Topics are created at the target with the options
    of the original; new topics and partitions are detected. Group offsets are translated for the target, so that
    consumers can switch over. A restarted mirror continues where it stopped, also after a crash, and copies nothing
    twice.

    This is one process on one core, one partition after the other. For more, --spark runs `ottla pipeline run mirror`
    with the same options, on all cores or on a Spark cluster; it continues where this one stopped. Both need the extra
    `spark`; only --spark needs Java.

    Exit codes: 0 done or stopped (Ctrl-C), 1 failed, 2 invalid command line.
    """
    if not spark:
        reach(source, None, "--from")
        reach(to, None, "--to")
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
                raise typer.BadParameter("--json cannot be combined with --spark; see `ottla pipeline status --json`")
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
    """Copy in this process; returns the summary."""
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
    """Runs a mirror without Spark: one partition after the other."""

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
    """A progress line on stderr; None without a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with console.status("looking for topics") as line:
        yield line


@contextmanager
def show_warnings() -> Iterator[None]:
    """Print warnings of the loop like those of other commands."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warn(record.getMessage())

    logger, handler = logging.getLogger("ottla.spark"), Lines(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
