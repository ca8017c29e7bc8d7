"""A pipeline that is a loop of Spark jobs instead of a streaming query: its jobs, and its progress told as a query's.

`Run.queries` takes a `Rounds`, which has the names of Spark's queries, beside real ones; so the progress line, `ottla
pipeline status` and the end of a run treat both alike.
"""

from __future__ import annotations

import json
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.client.failure import Failed
from ottla.spark.runner.causes import sentence
from ottla.spark.trouble import WorkerLost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from ottla.client.cluster import TopicPartition

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
    """One task for each item, in the Python workers; their results, in no order.

    What a task raises is Failed: expected errors are values, so the same would be raised again. A killed worker is not.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped, unused-ignore]
    from pyspark.errors import PySparkException  # here, since `ottla mirror` runs without them

    if not work:
        return []
    try:
        return spark.sparkContext.parallelize(work, len(work)).map(function).collect()
    except PySparkException as error:
        raise Failed(sentence(error)) from error
    except Py4JJavaError as error:
        raise WorkerLost("a job of Spark has failed: one of its workers was killed") from error
