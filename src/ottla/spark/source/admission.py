"""Decides where the next micro-batch ends, from the query's position and the offsets of the cluster.

    start ──── resume ────► begins ──── reach ────► ends ──── share ────► next position
    (checkpoint)  gone, new or           the target of AvailableNow,     maxOffsetsPerTrigger
                  recreated              or the log end

The rule: in every partition, batches follow each other without a gap or an overlap. A batch begins where the one before
it ended. If those records are gone, it begins later: a `Loss` is reported, and the beginning is stored in the position
(`begun`), so that a repeated batch reads the same records. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ottla.client.failure import Failed
from ottla.spark.source.checkpoint import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from uuid import UUID

    from ottla.client.cluster import TopicPartition

    Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True)
class ClusterReport:
    """What the cluster reported about the selected partitions. Each mapping has all of them."""

    cluster: str | None
    ids: Mapping[str, UUID | None]
    earliest: Offsets
    latest: Offsets  # how far reads may go: the log end, or the last stable offset for read_committed
    high: Offsets  # the log end


class Loss(NamedTuple):
    """Records that the query should have read and cannot. `instead` says where it would continue."""

    what: str
    instead: str

    def warning(self) -> str:
        return f"{self.what}; the query continues {self.instead}"


def failure(losses: Iterable[Loss]) -> Failed:
    """The sentence for failOnDataLoss=true."""
    first, *others = losses
    more = f" (and {len(others)} more such losses)" if others else ""
    return Failed(
        f"{first.what}{more}: set failOnDataLoss to false to continue {first.instead}, or start with a new "
        "checkpointLocation"
    )


def advance(
    start: Position,
    seen: ClusterReport,
    wanted: Callable[[TopicPartition], bool],
    *,
    target: Position | None = None,
    limit: int | None = None,
) -> tuple[Position, list[Loss]]:
    """The end of the batch that begins at `start`: not after `target`, and about `limit` offsets, where these are
    given. If the result is the same place as `start`, there is nothing to read."""
    begins, losses = resume(start, seen, wanted)
    ends = share(begins, reach(begins, seen, target), limit)
    begun = {
        where: begin
        for where, begin in begins.items()
        if start.offsets.get(where) != begin or start.begun.get(where) == begin
    }
    ids = {topic: seen.ids[topic] for topic in {where.topic for where in ends}}
    return Position(ends, begun, ids, seen.cluster, start.token), losses


def resume(
    start: Position, seen: ClusterReport, wanted: Callable[[TopicPartition], bool]
) -> tuple[dict[TopicPartition, int], list[Loss]]:
    """Where each partition continues, and which records before that cannot be read."""
    losses = _find_recreated(start, seen)
    known = {where.topic for where in start.offsets}
    begins = {}
    for where, earliest in seen.earliest.items():
        begins[where] = earliest
        if where.topic not in known or _anew(start, seen, where.topic):
            continue
        if where not in start.offsets:
            if earliest > 0:
                losses.append(_gone(where, 0, earliest, "is new to the query and "))
        elif start.offsets[where] < earliest:
            losses.append(_gone(where, start.offsets[where], earliest, ""))
        elif start.offsets[where] > seen.high[where]:
            begins[where] = earliest if seen.ids[where.topic] is None else seen.high[where]
            losses.append(_cut(where, start.offsets[where], seen.high[where], begins[where]))
        else:
            begins[where] = start.offsets[where]
    losses += _find_vanished(start, seen, wanted)
    return begins, losses


def _anew(start: Position, seen: ClusterReport, topic: str) -> bool:
    """Is this a different topic from the one of that name in the checkpoint?"""
    before, now = start.ids.get(topic), seen.ids.get(topic)
    return bool(before and now and before != now) or _elsewhere(start, seen)


def _elsewhere(start: Position, seen: ClusterReport) -> bool:
    return bool(start.cluster and seen.cluster and start.cluster != seen.cluster)


def _find_recreated(start: Position, seen: ClusterReport) -> list[Loss]:
    if _elsewhere(start, seen):
        what = (
            f"the checkpoint belongs to cluster {start.cluster}, but kafka.bootstrap.servers to cluster {seen.cluster}"
        )
        return [Loss(what, "at the start of its topics")]
    return [
        Loss(
            f"topic {topic} was deleted and recreated since the last batch (its id was {start.ids[topic]} and is "
            f"{seen.ids[topic]}), so the unread records of the old one are gone",
            "at the start of the new one",
        )
        for topic in sorted(start.ids)
        if topic in seen.ids and _anew(start, seen, topic)
    ]


def _gone(where: TopicPartition, first: int, earliest: int, new: str) -> Loss:
    which = f"offset {first} is" if first == earliest - 1 else f"offsets {first} to {earliest - 1} are"
    return Loss(
        f"{where.topic} partition {where.partition} {new}starts at offset {earliest} now, and {which} gone unread "
        "(retention or deleted records)",
        f"at offset {earliest}",
    )


def _cut(where: TopicPartition, position: int, high: int, begin: int) -> Loss:
    return Loss(
        f"{where.topic} partition {where.partition} ends at offset {high}, before offset {position} where the query "
        "stands, so the cluster has lost records",
        f"at offset {begin}",
    )


def _find_vanished(start: Position, seen: ClusterReport, wanted: Callable[[TopicPartition], bool]) -> list[Loss]:
    """Requested partitions that no longer exist; a topic that the options no longer name is no loss."""
    if _elsewhere(start, seen):
        return []
    losses = []
    missing = [where for where in sorted(start.offsets) if where not in seen.earliest and wanted(where)]
    for topic in dict.fromkeys(where.topic for where in missing):
        if topic not in seen.ids:
            losses.append(Loss(f"topic {topic} is gone, with its unread records", "without it"))
        elif not _anew(start, seen, topic):
            numbers = ", ".join(str(where.partition) for where in missing if where.topic == topic)
            losses.append(Loss(f"partition {numbers} of topic {topic} is gone", "without it"))
    return losses


def reach(begins: Offsets, seen: ClusterReport, target: Position | None) -> dict[TopicPartition, int]:
    """Where each partition's batch may end, never before it begins. A partition that is not in the target was created
    after it."""
    ends = {}
    for where, begin in begins.items():
        end = seen.latest[where]
        if target is not None:
            same = where in target.offsets and not _anew(target, seen, where.topic)
            end = min(end, target.offsets[where]) if same else begin
        ends[where] = max(begin, end)
    return ends


def share(begins: Offsets, ends: Offsets, limit: int | None) -> dict[TopicPartition, int]:
    """Ends such that about `limit` offsets are read. Each partition gets a share in proportion to what it has pending,
    and at least one offset, so that large partitions do not starve small ones."""
    sizes = {where: end - begins[where] for where, end in ends.items()}
    total = sum(sizes.values())
    if limit is None or total <= limit:
        return dict(ends)
    return {where: begins[where] + min(size, max(1, limit * size // total)) for where, size in sizes.items()}


def pending(start: Position, end: Position) -> int:
    """Number of offsets in the batch between the two."""
    return sum(stop - begin for begin, stop in ranges(start, end).values())


def ranges(start: Position, end: Position) -> dict[TopicPartition, tuple[int, int]]:
    """Begin and end of each partition in a batch, except partitions whose beginning neither position has."""
    spans = {}
    for where, stop in end.offsets.items():
        begin = end.begun.get(where, start.offsets.get(where))
        if begin is not None:
            spans[where] = (begin, stop)
    return spans


def early(size: int, least: int | None, waited_ms: float | None, delay_ms: int) -> bool:
    """Should a batch of this size wait for more? Never the first (`waited_ms` is None), and never longer than
    `delay_ms`."""
    return least is not None and size < least and waited_ms is not None and waited_ms < delay_ms
