"""A pipeline that is a loop of Spark jobs instead of a streaming query: its jobs, and its progress told as a query's.

`Run.queries` takes a `Rounds`, which has the names of Spark's queries, beside real ones; so the progress line, `ottla
pipeline status` and the end of a run treat both alike.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped, unused-ignore]
from pyspark.errors import PySparkException

from ottla.client.failure import Failed
from ottla.spark.runner.causes import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from ottla.client.cluster import TopicPartition

log = logging.getLogger("ottla.spark")

RECENT: Final = 100  # as many rounds are remembered as Spark remembers batches

Item = TypeVar("Item")
Result = TypeVar("Result")


class Rounds:
    def __init__(self, name: str) -> None:
        self.name = name
        self.isActive = True
        self.status = {"isTriggerActive": False}
        self._count = 0
        self._progress: deque[dict[str, Any]] = deque(maxlen=RECENT)

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        return self._progress[-1] if self._progress else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        return list(self._progress)

    def exception(self) -> None:
        """What goes wrong in a round is raised in it."""

    def stop(self) -> None:
        self.isActive = False

    def done(self, rows: int, reached: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """A round has ended: so many records, up to here, of what there was."""
        self._progress.append(
            {
                "batchId": self._count,
                "timestamp": f"{time.time():.6f}",
                "numInputRows": rows,
                "sources": [{"endOffset": _offsets(reached), "latestOffset": _offsets(ends)}],
            }
        )
        self._count += 1


def _offsets(given: Mapping[TopicPartition, int]) -> str:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in given.items():
        found.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(found)


def spread(spark: SparkSession, work: Sequence[Item], function: Callable[[Item], Result]) -> list[Result]:
    """One task for each item, in the Python workers; their results, in no order."""
    if not work:
        return []
    return spark.sparkContext.parallelize(work, len(work)).map(function).collect()


class Trouble:
    """What passes by itself is borne for a while, said once, and then is an error."""

    OF_SPARK: Final = (Py4JJavaError, PySparkException)  # a job has failed; Spark itself is there
    KILLED: Final = "a job of Spark has failed: one of its workers was killed"

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._since: float | None = None
        self._said = ""

    def bear(self, error: str | BaseException, *, progress: bool = False) -> None:
        """Raise it if it has gone on for too long; `progress`: something else has worked meanwhile."""
        if isinstance(error, PySparkException):  # raised in a task, whose expected errors are values: it would be again
            raise Failed(sentence(error)) from error
        text = self.KILLED if isinstance(error, Py4JJavaError) else str(error)
        now = time.monotonic()
        if self._since is None or progress:
            self._since = now
        if now - self._since > self._patience_s:
            raise Failed(text)
        if text != self._said:
            log.warning("%s; trying again", text)
        self._said = text

    def over(self) -> None:
        self._since, self._said = None, ""
