"""How far and how fast the queries of a run are, measured from what Spark reports after each micro-batch."""

import json
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from ottla.client.failure import Failed
from ottla.spark.runner.state import QueryProgress
from ottla.spark.source.checkpoint import Position, load

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.streaming.query import StreamingQuery

WINDOW_S = 10.0  # a rate is averaged over the last few batches
SHORTEST_S = 0.1  # and over at least this time
ASIDE = "aside"  # a query that observes a `count` under this name reports how many records it has put aside


class Meter:
    def __init__(self) -> None:
        self._counts: dict[str, Count] = {}

    def read(self, queries: "Sequence[StreamingQuery]") -> tuple[QueryProgress, ...]:
        return tuple(self._counts.setdefault(query.name, Count(query.name)).read(query) for query in queries)


class Count:
    """Counts the rows of one query, with the times at which they came."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows = 0
        self.batch: int | None = None
        self.lag: int | None = None
        self.aside = 0
        self._seen: tuple[int, str] | None = None
        self._rate = CountRate()
        self._rate.at(time.monotonic(), 0)

    def read(self, query: "StreamingQuery") -> QueryProgress:
        last = query.lastProgress
        if last and (last["batchId"], last["timestamp"]) != self._seen:
            before = self._seen
            self._seen = (last["batchId"], last["timestamp"])
            missed = last["batchId"] - (before[0] if before else -1) > 1  # Spark keeps the last hundred
            for one in query.recentProgress if missed else [last]:
                if before is None or (one["batchId"], one["timestamp"]) > before:
                    self.rows += count_records(one)
                    self.aside += count_aside(one)
            self.batch = last["batchId"]
            self.lag = lag(last["sources"])
        rate = self._rate.at(time.monotonic(), self.rows)
        doing = describe_status(query) if self.batch is None else ""
        return QueryProgress(self.name, self.batch, self.rows, rate, self.lag, self.aside, doing)


class CountRate:
    """How fast a count grows, averaged over the last few readings."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()

    def at(self, now: float, count: int) -> float:
        self._marks.append((now, count))
        while len(self._marks) > 2 and self._marks[1][0] < now - WINDOW_S:
            self._marks.popleft()
        began, first = self._marks[0]
        return max(0.0, (count - first) / (now - began)) if now - began >= SHORTEST_S else 0.0


def describe_status(query: "StreamingQuery") -> str:
    """Spark's own text, such as `Processing new data`; queries that are not Spark's have none."""
    status: Mapping[str, Any] = getattr(query, "status", None) or {}
    return str(status.get("message") or "")


def count_records(progress: Any) -> int:
    """Records in a batch. Spark counts rows, twice if the plan scans the source twice; offsets are exact."""
    rows: int = progress["numInputRows"]
    spans = [span(source) for source in progress["sources"]]
    known = [count for count in spans if count is not None]
    return min(rows, sum(known)) if known and len(known) == len(spans) else rows


def count_aside(progress: Any) -> int:
    observed = progress.get("observedMetrics") or {}
    return int(observed[ASIDE]["count"] or 0) if ASIDE in observed else 0


def span(source: Any) -> int | None:
    """The number of offsets in a batch; None if the source does not report them."""
    start, end = position(source.get("startOffset")), position(source["endOffset"])
    if end is None or (start is None and not end.begun):
        return None
    begun = {**(start.offsets if start else {}), **end.begun}
    return sum(offset - begun.get(where, 0) for where, offset in end.offsets.items())


def lag(sources: "Sequence[Any]") -> int | None:
    """Records that were there, but not read, when the last batch was planned; None if no source reports it."""
    known = [behind(position(source["endOffset"]), position(source["latestOffset"])) for source in sources]
    counts = [count for count in known if count is not None]
    return sum(counts) if counts else None


def behind(end: Position | None, latest: Position | None) -> int | None:
    if end is None or latest is None:
        return None
    return sum(max(0, offset - end.offsets.get(where, 0)) for where, offset in latest.offsets.items())


def position(offset: str | None) -> Position | None:
    """The position, if it is one of Ottla's source; None for other sources."""
    try:
        return load(json.loads(offset)) if offset else None
    except (Failed, ValueError):
        return None
