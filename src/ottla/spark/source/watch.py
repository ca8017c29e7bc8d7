"""A thread beside the planner that warns when retention is about to overtake the query, also in the middle of a batch.

It samples the partitions in which the query is behind, over its own connection, and asks forecast.py. Warnings go to
the driver's log, at most once every `WARN_S`, and into the metadata of the query's group (`"loses_in_s": 1234`), as
long as they apply. Failures here are ignored: the next look may succeed, and reading reports what is really gone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from ottla.client import offsets
from ottla.client.failure import Failed, Refused
from ottla.client.fetching import fetch
from ottla.records.batch import entries
from ottla.records.compress import CorruptError
from ottla.spark.source.forecast import PartitionSample, Retention, alarming, retention, time_left_s

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.client.cluster import Cluster, TopicPartition

log = logging.getLogger("ottla.spark")

LOOK_S: Final = 15.0
LOOK_S_MIN: Final = 0.5
WARN_S: Final = 300.0
CONFIGS_S: Final = 300.0  # retention may be changed to save the query
PARTITIONS_MAX: Final = 32  # those with the largest lag
SAMPLES_MAX: Final = 64


class RetentionWatch:
    def __init__(
        self,
        connect: Callable[[], Cluster],
        warning_ms: int,
        tell: Callable[[Mapping[str, int]], None],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._connect = connect
        self._warning_ms = warning_ms
        self._tell = tell
        self._now = now
        self._pause_s = LOOK_S_MIN
        self._at: Mapping[TopicPartition, int] = {}
        self._samples: dict[TopicPartition, deque[PartitionSample]] = {}
        self._kept: dict[str, tuple[float, Retention]] = {}
        self._warned_at: float | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ottla-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stands(self, at: Mapping[TopicPartition, int]) -> None:
        """Set the query's position; called by the planner."""
        self._at = at

    def stop(self) -> None:
        """Tell the thread to end. Nobody waits for it."""
        self._ended.set()

    def _run(self) -> None:
        cluster: Cluster | None = None
        while not self._ended.wait(self._pause_s):
            self._pause_s = min(2 * self._pause_s, self._pause_s_max())
            try:
                cluster = cluster or self._connect()
                self.look(cluster)
            except (Failed, CorruptError) as error:
                log.debug("cannot tell how long records are kept: %s", error)
                if cluster is not None:
                    cluster.close()
                cluster = None
        if cluster is not None:
            cluster.close()

    def _pause_s_max(self) -> float:
        """Often enough for the topic with the shortest retention."""
        shortest = min((kept.ms for _, kept in self._kept.values() if kept.ms is not None), default=None)
        return LOOK_S if shortest is None else max(LOOK_S_MIN, min(LOOK_S, shortest / 1000 / 20))

    def look(self, cluster: Cluster) -> None:
        """Sample every partition with a lag, and report."""
        at = dict(self._at)
        latest = offsets.latest(cluster, at)
        behind = sorted(
            (where for where in at if latest[where] > at[where]), key=lambda where: at[where] - latest[where]
        )
        behind = behind[:PARTITIONS_MAX]
        earliest = offsets.earliest(cluster, behind)
        self._samples = {where: self._samples.get(where, deque(maxlen=SAMPLES_MAX)) for where in behind}
        soonest: tuple[float, TopicPartition, Retention] | None = None
        for where in behind:
            record_s, size = peek(cluster, where, max(at[where], earliest[where]))
            seen = PartitionSample(self._now(), at[where], earliest[where], latest[where], record_s, size)
            self._samples[where].append(seen)
            kept = self._retention(cluster, where.topic)
            left = time_left_s(self._samples[where], kept)
            if left is not None and alarming(left, kept, self._warning_ms) and (not soonest or left < soonest[0]):
                soonest = (left, where, kept)
        self._tell({"loses_in_s": round(soonest[0])} if soonest else {})
        if soonest:
            self._warn(*soonest)

    def _retention(self, cluster: Cluster, topic: str) -> Retention:
        now = self._now()
        if topic not in self._kept or now > self._kept[topic][0] + CONFIGS_S:
            try:
                kept = retention(cluster.configs(topic))
            except Refused:  # the right to read does not include configs: then the log's own movement must do
                kept = Retention(None, None)
            self._kept[topic] = (now, kept)
        return self._kept[topic][1]

    def _warn(self, left: float, where: TopicPartition, kept: Retention) -> None:
        now = self._now()
        if self._warned_at is not None and now < self._warned_at + WARN_S:
            return
        self._warned_at = now
        log.warning(
            "retention may delete records of %s partition %d that this query has not read, in about %d s: it is at "
            "offset %d, %d before the end; raise retention.ms or retention.bytes of the topic, or give the query more "
            "resources",
            where.topic,
            where.partition,
            left,
            self._samples[where][-1].position,
            self._samples[where][-1].lag,
        )


def peek(cluster: Cluster, where: TopicPartition, offset: int) -> tuple[float | None, float | None]:
    """Timestamp of the batch at an offset in seconds, and its bytes per offset: a fetch of one byte returns a whole
    batch."""
    for piece in fetch(cluster, where, start=offset, stop=offset + 1, bytes_max=1, wait_ms=0):
        for entry in entries(piece.data):
            span = entry.last_offset + 1 - min(entry.base_offset, offset)
            return (entry.max_timestamp / 1000 if entry.max_timestamp >= 0 else None), entry.size / max(span, 1)
    return None, None
