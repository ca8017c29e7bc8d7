"""The parts of the demo: visitors, live queries, report and mirror. Each runs a pipeline's own code in a thread.

The three that need Spark share one session, to fit on a laptop; `ottla pipeline run` gives each its own.
"""

from __future__ import annotations

import shutil
import socket
import threading
from typing import TYPE_CHECKING, Final, Self

from ottla.client.failure import Failed
from ottla.spark import groups
from ottla.spark.runner import Run
from ottla.spark.runner.causes import sentence
from ottla.spark.runner.session import SessionSettings, start_session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

EVENTS: Final = "activity"
PREFIX: Final = "west."
MIRRORED: Final = PREFIX + EVENTS
MIRROR_GROUP: Final = groups.MIRROR + "mirror"
# Sessions end after ten seconds, so that a demo of one minute shows some.
LIVE: Final = {"gap": "10 seconds", "late": "5 seconds"}
# A JVM that starts in half the time but runs slower: right for a few minutes.
QUICK: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
REPORT_EVERY_S: Final = 10.0
STOP_S: Final = 90.0


class Part:
    """A piece of work in a thread, with the run that can stop it, the group it commits to, and its error."""

    def __init__(self, name: str, run: Run, work: Callable[[Run], object], group: str | None = None) -> None:
        self.name = name
        self.group = group or name
        self.run = run
        self.error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def check(self) -> None:
        if self.error is not None:
            raise Failed(f"{self.name}: {sentence(self.error)}") from self.error

    def stop(self) -> None:
        self.run.ask_to_stop()
        self._thread.join(STOP_S)
        self.check()
        if self.alive:
            raise Failed(f"{self.name} did not stop within {STOP_S:.0f} seconds")

    def _live(self) -> None:
        try:
            self._work(self.run)
        except BaseException as error:  # kept for the main thread, which checks it
            self.error = error


class Stage:
    def __init__(self, west: str, east: str, folder: Path, rate: float) -> None:
        self._west = west
        self._east = east
        self._folder = folder
        self._rate = rate
        self._spark: SparkSession | None = None
        self._visitors: Part | None = None
        self.parts: list[Part] = []

    def open(self) -> None:
        """Start the visitors; they need no Spark."""
        from ottla.spark.pipelines.activity import pipeline as activity

        run = Run(pipeline=activity.PIPELINE, bootstrap=self._west, folder=self._folder / "site", rate=self._rate)
        run.ensure_topic(EVENTS, activity.PARTITIONS)
        self._visitors = Part("visitors", run, activity.generate)

    def work(self, say: Callable[[str], None]) -> None:
        """Start Spark, and the three groups on it."""
        from ottla.spark.pipelines.activity import pipeline as activity
        from ottla.spark.pipelines.mirror import pipeline as mirror

        settings = SessionSettings(log=self._folder / "spark.log", memory="1g", conf=QUICK)
        self._spark = spark = start_session("ottla-demo", settings)
        say(f"Spark {spark.version} is up")
        live = self._run(activity.PIPELINE, "live", LIVE)
        report = self._run(activity.PIPELINE, "report", {"gap": LIVE["gap"]})
        copy = self._run(mirror.PIPELINE, "mirror", {"to": self._east, "topics": EVENTS, "prefix": PREFIX})
        self.parts += [
            Part("activity-live", live, run_until_stopped(activity.live)),
            Part("mirror", copy, mirror.run, group=MIRROR_GROUP),
            Part("activity-report", report, again(activity.report)),
        ]
        say(f"the groups activity-live, activity-report and {MIRROR_GROUP} read the topic, each at its own pace")

    def _run(self, pipeline: object, name: str, options: dict[str, str]) -> Run:
        return Run(
            pipeline=pipeline,  # type: ignore[arg-type]
            bootstrap=self._west,
            folder=self._folder / name,
            options=options,
            session=self._spark,
        )

    def check(self) -> None:
        for part in [*self.parts, *([self._visitors] if self._visitors else [])]:
            part.check()

    def close_doors(self) -> None:
        """Stop the visitors."""
        if self._visitors is not None:
            self._visitors.stop()

    def stop(self) -> None:
        for part in self.parts:
            part.run.ask_to_stop()
        for part in self.parts:
            part.stop()

    def keep_report(self, place: Path) -> Path | None:
        """Move the newest report page to `place`, which is kept. None if there was no time to make one."""
        made = self._folder / "report" / "report"
        pages = sorted(made.glob("*.html"))
        if not pages:
            return None
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(made, place)
        index = place / "index.html"
        return index if index.exists() else place / pages[-1].name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for part in [*self.parts, *([self._visitors] if self._visitors else [])]:
            part.run.ask_to_stop()
        if self._spark is not None:
            self._spark.stop()


def run_until_stopped(start: Callable[[Run], object]) -> Callable[[Run], None]:
    """Start queries, and wait until they end."""

    def work(run: Run) -> None:
        start(run)
        run.wait()

    return work


def again(once: Callable[[Run], object]) -> Callable[[Run], None]:
    """Repeat a piece of work every few seconds, and once more at the end."""

    def work(run: Run) -> None:
        while not run.stopping:
            once(run)
            run.pause(REPORT_EVERY_S)

    return work


def free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
