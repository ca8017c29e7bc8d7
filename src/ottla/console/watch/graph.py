"""The graph of readers and writers: topic → query or group → topic, with rate and lag on each edge. No side effects.

A group reads the topics it commits offsets for. Spark queries identify themselves in the metadata of their commits
(`ottla.spark`), and the transactional ids of their sinks show where they write. Other writers are unknown to a cluster.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.console.watch.snapshot import Group, Snapshot

TOPIC, GROUP, QUERY = "topic", "group", "query"
METADATA_MAX: Final = 8192
SEEN_S: Final = 3600.0
SEEN_MAX: Final = 10_000


class SparkQuery(NamedTuple):
    """A Spark query, as described by its commits."""

    name: str
    group: str
    id: str
    run: str
    batch: int
    reads: tuple[str, ...]
    lag: int
    seconds: float | None
    rate: float


class Edge(NamedTuple):
    source: tuple[str, str]  # kind, name
    target: tuple[str, str]
    rate: float
    lag: int | None


def queries(snapshot: Snapshot) -> list[SparkQuery]:
    return [found for group in snapshot.groups.values() if (found := query(group)) is not None]


def query(group: Group) -> SparkQuery | None:
    best: dict[str, Any] | None = None
    for lag in group.lags:
        said = parse_metadata(lag.metadata)
        if said is not None and (best is None or said["batch"] >= best["batch"]):
            best = {**(best or {}), **said}
    if best is None:
        return None
    return SparkQuery(
        str(best.get("name") or group.name),
        group.name,
        str(best["query"]),
        str(best["run"]),
        int(best["batch"]),
        group.topics,
        group.lag,
        group.seconds,
        group.rate,
    )


def parse_metadata(metadata: str) -> dict[str, Any] | None:
    if not metadata.startswith("{") or len(metadata) > METADATA_MAX:
        return None
    try:
        said = json.loads(metadata)
        return said if isinstance(said["query"], str) and isinstance(said["batch"], int) and "run" in said else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def edges(snapshot: Snapshot, written: Iterable[tuple[str, str]] = ()) -> list[Edge]:
    """Busiest first."""
    found = []
    names = {one.group: one.name for one in queries(snapshot)}
    for group in snapshot.groups.values():
        node = (QUERY, names[group.name]) if group.name in names else (GROUP, group.name)
        count = max(1, len(group.topics))
        for topic in group.topics:
            lag = sum(one.records or 0 for one in group.lags if one.where.topic == topic)
            found.append(Edge((TOPIC, topic), node, group.rate / count, lag))
    found += [
        Edge((QUERY, name), (TOPIC, topic), snapshot.topics[topic].rate, None)
        for name, topic in written
        if topic in snapshot.topics and name in names.values()
    ]
    return sorted(set(found), key=lambda edge: (edge.rate, edge.lag or 0), reverse=True)


class Writers:
    """Which query writes to which topic, seen from its open transactions; remembered for a while."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], float] = {}

    def note(self, snapshot: Snapshot) -> None:
        opened = [one for one in snapshot.transactions if one.partitions]
        if not opened:
            return
        known = queries(snapshot)
        for one in opened:
            for query in known:
                if query.id in one.name:
                    for topic in {where.topic for where in one.partitions}:
                        if topic in snapshot.topics and not snapshot.topics[topic].internal:
                            self._seen[query.name, topic] = snapshot.taken
        if len(self._seen) > SEEN_MAX:
            self._seen.clear()

    def pairs(self, now: float) -> list[tuple[str, str]]:
        return [pair for pair, moment in self._seen.items() if now - moment < SEEN_S]
