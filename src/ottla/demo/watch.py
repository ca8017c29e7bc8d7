"""Topics of a cluster with their records, and groups with their lag, both with a rate.

A rate is computed over the last few samples. Internal topics and groups without commits are left out.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from ottla.client.cluster import TopicPartition
from ottla.client.group_list import list_committed
from ottla.client.offsets import earliest, latest
from ottla.spark.runner.meter import CountRate

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.client.groups import Committed


class TopicView(NamedTuple):
    name: str
    partitions: int
    records: int  # offsets in use, including transaction markers
    per_second: float


class GroupView(NamedTuple):
    name: str
    topics: tuple[str, ...]
    committed: int
    lag: int
    per_second: float


class DemoView(NamedTuple):
    topics: list[TopicView]
    groups: list[GroupView]


class Sampler:
    """Samples one cluster repeatedly."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rates: dict[tuple[str, str], CountRate] = {}

    def look(self) -> DemoView:
        topics = {name: topic for name, topic in self._cluster.topics().items() if not topic.internal}
        wheres = [TopicPartition(name, index) for name, topic in topics.items() for index in range(topic.partitions)]
        starts, ends = earliest(self._cluster, wheres), latest(self._cluster, wheres)
        views = []
        for name, topic in sorted(topics.items()):
            here = [where for where in wheres if where.topic == name]
            end = sum(ends[where] for where in here)
            records = end - sum(starts[where] for where in here)
            views.append(TopicView(name, topic.partitions, records, self._rate("topic", name, end)))
        groups = sorted(list_committed(self._cluster).items())
        return DemoView(views, [view for name, one in groups if (view := self._group(name, one.committed, ends))])

    def _group(
        self, name: str, committed: dict[TopicPartition, Committed], ends: dict[TopicPartition, int]
    ) -> GroupView | None:
        offsets = {where: one.offset for where, one in committed.items() if where in ends}
        if not offsets:
            return None
        done = sum(offsets.values())
        lag = sum(max(0, ends[where] - offset) for where, offset in offsets.items())
        topics = tuple(sorted({where.topic for where in offsets}))
        return GroupView(name, topics, done, lag, self._rate("group", name, done))

    def _rate(self, kind: str, name: str, count: int) -> float:
        return self._rates.setdefault((kind, name), CountRate()).at(time.monotonic(), count)
