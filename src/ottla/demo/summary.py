"""The results of the demo, counted from the topics with a read_committed reader."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.fetching import fetch
from ottla.client.offsets import earliest, latest
from ottla.records.native import decode_columns

if TYPE_CHECKING:
    from pathlib import Path

SIZE_MAX = 64 << 20


class TopicContent(NamedTuple):
    records: int
    digest: int  # of keys, values and timestamps, in the order of each partition


def summary(west: str, east: str, topic: str, mirrored: str, report: Path | None) -> str:
    with Cluster(west) as here, Cluster(east) as there:
        events, copies = content(here, topic), content(there, mirrored)
        sessions, minutes = content(here, f"{topic}-sessions"), content(here, f"{topic}-minutes")
    if copies.records < events.records:
        verdict = f"had no time for more than {copies.records:,} of them"
    else:
        verdict = "is the same, key by key, in order" if events == copies else "is NOT the same"
    lines = [
        f"{events.records:,} events of visitors in {topic}, none of them counted twice:",
        f"  {sessions.records:,} sessions that ended and {minutes.records:,} counts by page and minute, exactly once",
        f"  {mirrored} at the other broker {verdict}",
    ]
    if report:
        lines.append(f"  the report is at {report}")
    lines.append("Your turn: `.venv/bin/ottla pipeline list`, `.venv/bin/ottla serve`, docs/pipelines.md.")
    return "\n".join(lines)


def content(cluster: Cluster, topic: str) -> TopicContent:
    found = cluster.topics([topic])
    if not found:
        return TopicContent(0, 0)
    wheres = [TopicPartition(topic, index) for index in range(found[topic].partitions)]
    starts, ends = earliest(cluster, wheres), latest(cluster, wheres, committed=True)
    records = digest = 0
    for where in wheres:
        for piece in fetch(cluster, where, start=starts[where], stop=ends[where], committed=True):
            start = piece.start
            while start < min(piece.end, ends[where]):
                columns = decode_columns(
                    piece.data,
                    start=start,
                    stop=min(piece.end, ends[where]),
                    headers=False,
                    aborted=piece.aborted,
                    size_max=SIZE_MAX,
                )
                records += columns.batch.num_rows
                for row in columns.batch.select(["key", "value", "timestamp"]).to_pylist():
                    digest = zlib.crc32(repr((where.partition, *row.values())).encode(), digest)
                start = columns.next_offset
    return TopicContent(records, digest)
