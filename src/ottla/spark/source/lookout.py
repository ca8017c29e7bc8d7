"""Keeps track of the topics of a query in the cluster, with few requests.

Spark asks an idle query a hundred times a second whether there is anything new. One request for the ends of the known
partitions answers that. The rest (new partitions and topics, recreated topics, log starts that moved) is checked once
every `LOOK_S`, and always before a batch is made.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

from ottla.client import offsets
from ottla.client.cluster import TopicPartition
from ottla.client.failure import Refused, Unreachable
from ottla.spark.source.admission import ClusterReport

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from ottla.client.cluster import Cluster
    from ottla.spark.source.options import SourceOptions

LOOK_S: Final = 1.0


class Lookout:
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._pattern = re.compile(options.subscribe_pattern) if options.subscribe_pattern is not None else None
        self._cluster: Cluster | None = None
        self._looked_at: float | None = None
        self.latest: dict[TopicPartition, int] = {}  # as last reported

    @property
    def cluster(self) -> Cluster:
        if self._cluster is None:
            patience_ms = max(self._options.request_timeout_ms, self._options.driver_patience_ms)
            self._cluster = self._options.cluster(patience_ms=patience_ms)
        return self._cluster

    def wants(self, where: TopicPartition) -> bool:
        """Do the options select this partition?"""
        if self._pattern is not None:
            return self._pattern.search(where.topic) is not None
        if self._options.subscribe is not None:
            return where.topic in self._options.subscribe
        return where in (self._options.assign or ())

    def idle(self, at: Mapping[TopicPartition, int]) -> bool:
        """Is there certainly nothing to do? True if nothing is new after these offsets and a full look was done
        recently."""
        if self._looked_at is None or time.monotonic() > self._looked_at + LOOK_S:
            return False
        try:
            self.latest = offsets.latest(self.cluster, at, committed=self._options.committed)
        except Refused:  # a topic is gone: the full look decides what that means
            return False
        return all(end <= at[where] for where, end in self.latest.items())

    def look(self) -> ClusterReport:
        """The current state of all selected partitions. Offsets and ids must match, so if a topic was recreated in
        between, this asks again."""
        cluster = self.cluster

        def attempt() -> ClusterReport:
            ids, wheres = self._find(cluster)
            earliest = offsets.earliest(cluster, wheres)
            high = latest = offsets.latest(cluster, wheres)
            if self._options.committed:
                latest = offsets.latest(cluster, wheres, committed=True)
            if (again := self._find(cluster)) != (ids, wheres):
                gone = min(set(ids.items()) ^ set(again[0].items()) or {("", None)})[0]
                raise Unreachable(f"topic {gone} is being created or deleted: start the query again when that is done")
            return ClusterReport(cluster.id, ids, earliest, latest, high)

        seen = cluster.retrying(attempt, what="looking at the topics")
        self._looked_at = time.monotonic()
        self.latest = dict(seen.latest)
        return seen

    def _find(self, cluster: Cluster) -> tuple[dict[str, UUID | None], list[TopicPartition]]:
        """The existing topics and partitions that the options select."""
        if self._pattern is not None:
            found = {name: topic for name, topic in cluster.topics().items() if not topic.internal}
        else:
            named = self._options.subscribe or [where.topic for where in self._options.assign or ()]
            found = cluster.topics(named)
        wheres = [
            where
            for name in sorted(found)
            for where in (TopicPartition(name, index) for index in range(found[name].partitions))
            if self.wants(where)
        ]
        return {name: found[name].id for name in {where.topic for where in wheres}}, wheres

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
