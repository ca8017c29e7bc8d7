"""A pipeline that is a loop of Spark jobs instead of a streaming query: its jobs, and its progress in a query's form.

`Run.queries` takes a `Rounds` beside real queries, because it has the interface of Spark's queries. So the progress
line, `ottla pipeline status` and the end of a run treat both alike.
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

RECENT: Final = 100  # rounds to remember, as many as Spark remembers batches

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
        """Errors of a round are raised in the round itself."""

    def stop(self) -> None:
        self.isActive = False

    def done(self, rows: int, reached: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """A round has ended: its number of records, where it ended, and the ends of the partitions."""
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
    """Run one task for each item in the Python workers. Returns the results in no particular order.

    An exception of a task becomes Failed: expected errors are values, so a retry would raise the same. A killed worker
    raises WorkerLost instead.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped, unused-ignore]
    from pyspark.errors import PySparkException  # imported here, since `ottla mirror` runs without them

    if not work:
        return []
    try:
        return spark.sparkContext.parallelize(work, len(work)).map(function).collect()
    except PySparkException as error:
        raise Failed(sentence(error)) from error
    except Py4JJavaError as error:
        raise WorkerLost("a job of Spark has failed: one of its workers was killed") from error
