"""The loop of a mirror: look for topics, plan what is new, have it copied, translate groups, and repeat.

The loop does not know what does the copying. `MirrorHost` does: a Spark job with a task for each lane
(`ottla.spark.pipelines.mirror`), or the process itself (`ottla mirror`). `mirroring` has the proof of exactly once. The
loop holds no state that matters, and may die at any time. Progress is committed at the source to group
`ottla-mirrored-<name>`, for lag monitoring.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from ottla.client import offsets
from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed, passes
from ottla.spark.groups import MIRROR, Shown
from ottla.spark.pipelines.mirror.mirroring import KEPT_S, CopyOutcome, Job, PartitionTask
from ottla.spark.trouble import Trouble, WorkerLost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.client.cluster import Cluster
    from ottla.spark.pipelines.mirror.following import Followed
    from ottla.spark.pipelines.mirror.roster import Mirrored, Roster
    from ottla.spark.pipelines.mirror.translation import MirrorPosition

log = logging.getLogger("ottla.spark")

IDLE_S: Final = 0.1  # pause when there is nothing new
FENCED_MAX: Final = 3  # in a row: then it is not a duplicate task of ours, but another run


class MirrorHost(Protocol):
    """Where a mirror runs."""

    @property
    def once(self) -> bool:
        """End when everything that is there now has been copied."""

    @property
    def stopping(self) -> bool:
        """Should the mirror stop?"""

    @property
    def lanes(self) -> int:
        """How many lists of partitions are copied in parallel."""

    def pause(self, seconds: float) -> None:
        """Sleep, but wake up for a stop."""

    def copy(self, job: Job, lanes: list[list[PartitionTask]]) -> list[CopyOutcome]:
        """Call `mirroring.copy` for each lane. WorkerLost: it is unknown how far it came, and the work may be
        repeated."""

    def report(self, records: int, reached: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """Report the records copied since the last report, the offsets reached, and the ends of the partitions."""


@dataclass(frozen=True)
class Pace:
    topics_every_s: float = 5.0  # look for new topics and partitions
    groups_every_s: float = 5.0  # translate groups
    patience_s: float = 600.0  # how long to retry while a cluster is unreachable


class Mirror:
    def __init__(
        self,
        host: MirrorHost,
        job: Job,
        source: Cluster,
        target: Cluster,
        roster: Roster,
        followed: Followed | None,
        pace: Pace | None = None,
    ) -> None:
        self._host = host
        self._job = job
        self._pace = pace or Pace()
        self._shown = Shown(MIRROR, "mirror", job.name)
        self._source = source
        self._target = target
        self._roster = roster
        self._followed = followed
        self._trouble = Trouble(self._pace.patience_s)
        self._topics: list[Mirrored] = []
        self._positions: dict[TopicPartition, tuple[TopicPartition, MirrorPosition]] = {}
        self._stored_at: dict[TopicPartition, float] = {}
        self._fenced: dict[TopicPartition, int] = {}
        self._bounds: dict[TopicPartition, int] | None = None  # where a run that ends by itself ends
        self._looked = self._translated = self._told = float("-inf")
        self._copied = 0  # records since the last report

    def loop(self) -> None:
        """Copy until the host says stop. A run that ends by itself copies what was there when it began."""
        host = self._host
        while not host.stopping:
            try:
                busy = self._round()
            except Failed as error:
                if not passes(error):
                    raise
                self._trouble.bear(str(error))
                self._source.forget()
                self._target.forget()
                host.pause(1.0)
                continue
            if not busy:
                if host.once:
                    break
                host.pause(IDLE_S)
        self._translate(at_once=True)

    def _round(self) -> bool:
        """Copy what is new. Returns whether there was anything."""
        self._look()
        parts, ends = self._plan()
        if parts:
            lanes = share_out(parts, self._positions, self._host.lanes)
            try:
                outcomes = self._host.copy(self._job, lanes)
            except WorkerLost as error:  # the next round begins at the same place
                self._trouble.bear(str(error))
                return True
            self._take(outcomes)
            self._tell()
        if parts or time.monotonic() - self._told > 1.0:
            self._told = time.monotonic()
            reached = {where: position.offset for where, (_, position) in self._positions.items()}
            self._host.report(self._copied, reached, {where: ends[where] for where in reached if where in ends})
            self._copied = 0
        self._translate()
        return bool(parts)

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked < self._pace.topics_every_s:
            return
        self._topics, notes = self._roster.refresh()
        self._looked = now
        for note in notes:
            log.warning("mirror %s: %s", self._job.name, note)
        ids = {(one.name, one.topic_id) for one in self._topics}
        for where, (_, position) in list(self._positions.items()):
            if (where.topic, position.topic_id) not in ids:
                del self._positions[where]  # deleted or recreated: the next task finds out

    def _plan(self) -> tuple[list[PartitionTask], dict[TopicPartition, int]]:
        """Partitions with something new, or not yet looked at; and the ends of all partitions."""
        wheres = [TopicPartition(one.name, index) for one in self._topics for index in range(one.partitions)]
        firsts, ends = offsets.earliest(self._source, wheres), offsets.latest(self._source, wheres, committed=True)
        if self._host.once:
            if self._bounds is None:
                self._bounds = ends
            ends = {where: self._bounds[where] for where in wheres if where in self._bounds}
        parts, now = [], time.monotonic()
        for one in self._topics:
            for index in range(one.partitions):
                where, to = TopicPartition(one.name, index), TopicPartition(one.twin, index)
                if where not in ends:
                    continue
                known = self._positions.get(where)
                # At the first look too: otherwise, if all runs are shorter, the positions of idle partitions would
                # expire.
                stale = known is None or now - self._stored_at.get(where, now) > KEPT_S
                if known is None or stale or known[1].offset < ends[where]:
                    registered = one.provenance.ends.get(index, 0)
                    parts.append(
                        PartitionTask(
                            where, to, one.topic_id, firsts[where], ends[where], registered, one.size_max, stale
                        )
                    )
        return parts, ends

    def _take(self, outcomes: list[CopyOutcome]) -> None:
        """Handle the results of the tasks: positions, permanent errors (raised), and temporary ones (tolerated for a
        while)."""
        troubles = []
        for one in outcomes:
            for note in one.notes:
                log.warning("mirror %s: %s", self._job.name, note)
            self._copied += one.records
            if one.position is not None:
                self._positions[one.where] = (one.to, one.position)
                self._stored_at[one.where] = time.monotonic()
                self._fenced.pop(one.where, None)
                continue
            if not one.passing:
                raise Failed(one.error)
            if one.fenced:
                self._fenced[one.where] = self._fenced.get(one.where, 0) + 1
                if self._fenced[one.where] >= FENCED_MAX:
                    raise Failed(
                        f"another run of mirror {self._job.name} copies the same topics: stop one of the two, or give "
                        "this one another name and prefix"
                    )
            troubles.append(one.error)
        if troubles:
            self._trouble.bear(troubles[0], progress=len(troubles) < len(outcomes))
            self._host.pause(1.0)
        else:
            self._trouble.over()

    def _tell(self) -> None:
        """Commit progress at the source, where lag is monitored. A failure does not stop the mirror."""
        try:
            self._shown.tell(self._source, {where: position.offset for where, (_, position) in self._positions.items()})
        except Failed as error:
            log.warning("mirror %s: progress was not committed at the source (%s)", self._job.name, error)

    def _translate(self, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if self._followed is None or not self._positions:
            return
        if not at_once and now - self._translated < self._pace.groups_every_s:
            return
        self._translated = now
        try:
            _, notes = self._followed.follow(self._source, self._target, self._positions)
        except Failed as error:
            notes = [f"groups were not translated ({error})"]
        for note in notes:
            log.warning("mirror %s: %s", self._job.name, note)


def share_out(
    parts: list[PartitionTask], positions: dict[TopicPartition, tuple[TopicPartition, MirrorPosition]], lanes: int
) -> list[list[PartitionTask]]:
    """Parts for each task, with about the same number of offsets. Partitions with the most come first."""

    def size(part: PartitionTask) -> int:
        known = positions.get(part.where)
        return part.stop - (known[1].offset if known else part.first)

    found: list[tuple[int, list[PartitionTask]]] = [(0, []) for _ in range(min(lanes, len(parts)))]
    for part in sorted(parts, key=size, reverse=True):
        index = min(range(len(found)), key=lambda i: (found[i][0], len(found[i][1])))
        total, some = found[index]
        found[index] = (total + size(part), [*some, part])
    return [some for _, some in found]
