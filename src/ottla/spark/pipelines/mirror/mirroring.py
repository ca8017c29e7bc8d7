"""Copies one partition to another cluster, exactly once. Runs in the Python workers of a Spark job.

    identify    the transactional id of (mirror, partition) at the target: an earlier copier is fenced, and its open
                transaction is aborted before this returns
    position    the offset that the mirror's group has committed at the target. After the fence, only we can move it
    repeat      a transaction at the target: batches from the source, then the new position, then the commit

A record is visible at the target if and only if the position after it is committed, because both are in one
transaction. So it does not matter when a worker, the driver or a broker is killed, or whether a task runs twice.

The position is written before the first record. So a partition that has records but no position is not an interrupted
copy: somebody else wrote them, or the position has expired. Both are refused.

Fetching, rewriting and sending overlap: the next Fetch is in flight while a piece is rewritten, and up to five Produce
requests are in flight while the next piece arrives. Nothing is done per record.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.client import offsets
from ottla.client.failure import Failed, Refused, passes
from ottla.client.fetching import OutOfRange, fetch
from ottla.client.groups import Committed, read_offsets
from ottla.client.transaction import ProducerIdentity, add_offsets, end, enlist, identify
from ottla.errors import ErrorCode
from ottla.spark.pipelines.mirror.copying import Copier, DamagedError, writable
from ottla.spark.pipelines.mirror.pushing import Pusher
from ottla.spark.pipelines.mirror.translation import MirrorPosition, OffsetMap, OffsetRun
from ottla.spark.worker import at_work

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.client.cluster import Cluster, TopicPartition
    from ottla.client.fetching import Piece
    from ottla.spark.pipelines.mirror.copying import Copied
    from ottla.spark.pipelines.mirror.endpoint import Endpoint

ON_LOSS: Final = "set failOnDataLoss=false (`ottla mirror --skip-lost`)"
GROUP: Final = "ottla-mirror-"  # plus the mirror's name: the group at the target with its positions
KEPT_S: Final = 12 * 3600.0  # after this time, what was committed at the target is committed again, or it would expire
FENCED: Final = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}


@dataclass(frozen=True)
class Job:
    """What all tasks of a mirror have in common."""

    name: str
    source: Endpoint
    target: Endpoint
    cluster: str  # the id of the source
    seconds: float = 5.0  # how long a task keeps starting new transactions
    transaction_bytes: int = 64 << 20
    transaction_seconds: float = 2.0
    transaction_timeout_ms: int = 60_000
    fetch_bytes: int = 8 << 20
    fail_on_data_loss: bool = True

    @property
    def group(self) -> str:
        return GROUP + self.name

    def transactional_id(self, to: TopicPartition) -> str:
        """Unique for each mirror and partition: topic names have no slash."""
        return f"{GROUP}{self.name}/{to.topic}/{to.partition}"

    def older_id(self, to: TopicPartition) -> str:
        """As before 0.1.0: `orders` of mirror `eu-west` had the same id as `west-orders` of mirror `eu`."""
        return f"{GROUP}{self.name}-{to.topic}-{to.partition}"


@dataclass(frozen=True)
class PartitionTask:
    """A partition at the source, what there is to copy of it, and where it goes."""

    where: TopicPartition
    to: TopicPartition
    topic_id: str
    first: int  # the log start when the round was planned
    stop: int  # and the last stable offset then
    registered_end: int = 0  # the log end of the target's partition before the mirror wrote to it
    size_max: int = 1 << 20  # of a batch at the target
    refresh: bool = False  # commit the position even if it does not move


@dataclass(frozen=True)
class CopyOutcome:
    """The result of a part. Errors are values, so that the trouble of one partition does not stop the others."""

    where: TopicPartition
    to: TopicPartition
    position: MirrorPosition | None = None
    records: int = 0
    size: int = 0
    notes: tuple[str, ...] = ()
    error: str = ""
    passing: bool = False  # the error may be temporary
    fenced: bool = False  # another run of this mirror has taken over


@dataclass
class _Progress:
    records: int = 0
    size: int = 0
    notes: list[str] = field(default_factory=list)


def copy(job: Job, parts: Iterable[PartitionTask]) -> list[CopyOutcome]:
    """Copy these partitions one after another, each for its share of the time."""
    waiting = list(parts)
    outcomes = []
    began = time.monotonic()
    with at_work():
        for index, part in enumerate(waiting):
            deadline = began + job.seconds * (index + 1) / len(waiting)
            outcomes.append(copy_part(job, part, deadline))
    return outcomes


def copy_part(job: Job, part: PartitionTask, deadline: float) -> CopyOutcome:
    progress = _Progress()
    try:
        with job.source.reuse() as source, job.target.reuse() as target:
            position = Passage(job, part, source, target, progress).copy(deadline)
    except Failed as error:
        code = error.code if isinstance(error, Refused) else 0
        fenced = code in FENCED
        return _outcome(part, progress, None, error=str(error), passing=fenced or passes(error), fenced=fenced)
    return _outcome(part, progress, position)


def _outcome(
    part: PartitionTask,
    progress: _Progress,
    position: MirrorPosition | None,
    *,
    error: str = "",
    passing: bool = False,
    fenced: bool = False,
) -> CopyOutcome:
    return CopyOutcome(
        part.where, part.to, position, progress.records, progress.size, tuple(progress.notes), error, passing, fenced
    )


class Passage:
    """Copies one partition, in one task."""

    def __init__(self, job: Job, part: PartitionTask, source: Cluster, target: Cluster, progress: _Progress) -> None:
        self._job = job
        self._part = part
        self._source = source
        self._target = target
        self._progress = progress
        self._name = f"{part.where.topic} partition {part.where.partition}"
        self._stored = False  # has this task committed a position?

    def copy(self, deadline: float) -> MirrorPosition:
        job, part = self._job, self._part
        identity = identify(self._target, job.transactional_id(part.to), timeout_ms=job.transaction_timeout_ms)
        identity, position = self._position(identity)
        if position.offset >= part.stop:
            return self._move_to(identity, position)[1] if part.refresh and not self._stored else position
        pieces = fetch(
            self._source, part.where, start=position.offset, stop=part.stop, committed=True, bytes_max=job.fetch_bytes
        )
        copier: Copier | None = None
        pusher = Pusher(self._target, part.to, job.transactional_id(part.to))
        try:
            while True:
                if copier is None:
                    copier = Copier(identity.producer_id, identity.epoch, size_max=part.size_max)
                transaction = CopiedTransaction(job, part, self._target, identity, position, copier, pusher)
                while (piece := next(pieces, None)) is not None:
                    transaction.add(piece)
                    if transaction.full:
                        break
                after, position = transaction.commit(finished=piece is None)
                if after != identity:
                    identity, copier = after, None  # sequences begin again
                self._progress.records += transaction.records
                self._progress.size += transaction.size
                if position.offset >= part.stop or time.monotonic() >= deadline:
                    return position
        except OutOfRange:
            if not job.fail_on_data_loss:
                return position  # the next round finds out why, and continues with what is left
            first = offsets.earliest(self._source, [part.where])[part.where]
            raise Failed(f"{self._loss(position.offset, first)}; to continue there, {ON_LOSS}") from None
        except DamagedError as error:
            raise Failed(
                f"{self._name} at the source: {error}; restore the partition from another replica, or exclude the topic"
            ) from None
        finally:
            pusher.close()
            pieces.close()  # type: ignore[attr-defined]  # a generator: its connection is given back now

    def _position(self, identity: ProducerIdentity) -> tuple[ProducerIdentity, MirrorPosition]:
        """The position to continue from. A new one is committed before any record is copied.

        A round may have been planned long ago, by a driver that was replaced since. So whatever contradicts the
        position is looked up again, now that nobody else can move it.
        """
        job, part = self._job, self._part
        position = self._read_position()
        if position is not None and position.older:  # a task of that version may be alive: it is fenced by its own id
            identify(self._target, job.older_id(part.to), timeout_ms=job.transaction_timeout_ms)
            position = self._read_position() or position
        if position is None:
            self._check_untouched()
            return self._move_to(identity, MirrorPosition(part.first, job.cluster, part.topic_id, OffsetMap()))
        if position.cluster != job.cluster:
            raise Failed(
                f"{part.to.topic} partition {part.to.partition} has been copied from cluster {position.cluster}, not "
                f"from {job.cluster}: give this mirror another name or prefix"
            )
        if position.topic_id != part.topic_id:
            topic = self._source.topics([part.where.topic]).get(part.where.topic)
            if topic is None or str(topic.id) != part.topic_id:
                raise Refused(self._name, ErrorCode.UNKNOWN_TOPIC_ID)
            text = f"{self._name} was deleted and recreated at the source since it was copied"
            fresh = MirrorPosition(part.first, job.cluster, part.topic_id, OffsetMap())
            return self._lose(identity, text, fresh)
        if position.offset < part.first:
            error = self._loss(position.offset, part.first)
            return self._lose(identity, str(error), position._replace(offset=part.first))
        if position.offset > part.stop:
            ends = offsets.latest(self._source, [part.where])[part.where]
            if position.offset > ends:
                text = f"{self._name} ends at offset {ends} at the source, but was copied up to {position.offset}"
                return self._lose(identity, text, position._replace(offset=ends, offsets=OffsetMap()))
        return identity, position

    def _read_position(self) -> MirrorPosition | None:
        found = read_offsets(self._target, self._job.group, [self._part.to]).get(self._part.to)
        return None if found is None else MirrorPosition.parse(found.offset, found.metadata)

    def _loss(self, offset: int, first: int) -> Failed:
        return Failed(
            f"{self._name} now begins at offset {first} at the source, but was copied only up to {offset}: "
            f"retention has deleted {first - offset} offsets"
        )

    def _lose(
        self, identity: ProducerIdentity, text: str, position: MirrorPosition
    ) -> tuple[ProducerIdentity, MirrorPosition]:
        if self._job.fail_on_data_loss:
            raise Failed(f"{text}; to continue at offset {position.offset}, {ON_LOSS}")
        self._progress.notes.append(f"{text}; continuing at offset {position.offset}")
        return self._move_to(identity, position)

    def _move_to(self, identity: ProducerIdentity, position: MirrorPosition) -> tuple[ProducerIdentity, MirrorPosition]:
        stored = {self._part.to: Committed(position.offset, position.metadata())}
        add_offsets(self._target, identity, self._job.group, stored)
        after = end(self._target, identity, commit=True)
        self._stored = True
        return after, position

    def _check_untouched(self) -> None:
        to = self._part.to
        ends = offsets.latest(self._target, [to])[to]
        if ends != self._part.registered_end:
            raise Failed(
                f"{to.topic} partition {to.partition} at the target has records, but no position of mirror "
                f"{self._job.name} is known (it expires when a mirror has not run for offsets.retention.minutes): "
                "delete that topic to copy it again, or choose another prefix"
            )


class CopiedTransaction:
    """Batches and the position after them. The first batch begins it; without batches it only moves the position."""

    def __init__(
        self,
        job: Job,
        part: PartitionTask,
        target: Cluster,
        identity: ProducerIdentity,
        position: MirrorPosition,
        copier: Copier,
        pusher: Pusher,
    ) -> None:
        self._job = job
        self._part = part
        self._target = target
        self._identity = identity
        self._position = position
        self._copier = copier
        self._pusher = pusher
        self._copied: list[OffsetRun] = []
        self._target_end = -1  # the offset of the next record
        self._source_end = position.offset
        self._began = time.monotonic()
        self.records = 0
        self.size = 0

    @property
    def full(self) -> bool:
        job = self._job
        return self.size >= job.transaction_bytes or time.monotonic() - self._began >= job.transaction_seconds

    def add(self, piece: Piece) -> None:
        self._source_end = piece.end
        copied = self._copier.copy(writable(piece.data), start=piece.start, aborted=piece.aborted)
        if not copied:
            return
        if not self.records:
            self._begin()
        self._pusher.send([one.data for one in copied])
        for one in copied:
            self._note(one)

    def _begin(self) -> None:
        enlist(self._target, self._identity, [self._part.to])
        # From here on the markers of the previous transaction are in the log, and only what we send follows.
        self._target_end = self._latest()
        self._check_kept()
        self._pusher.begin()

    def _check_kept(self) -> None:
        """What was copied must still be there: a recreated topic would lack its beginning for ever."""
        to, runs = self._part.to, self._position.offsets.runs
        if runs and self._target_end < runs[-1].target + runs[-1].count:
            raise Failed(
                f"{to.topic} partition {to.partition} at the target ends at offset {self._target_end}, but was filled "
                f"up to {runs[-1].target + runs[-1].count}: it was deleted or has lost records; delete its offsets in "
                f"group {self._job.group} to copy it again"
            )

    def _note(self, one: Copied) -> None:
        """A batch with gaps counts as one record in the map: offsets after a gap cannot be found by counting."""
        at = self._target_end + self.records
        dense = one.next - one.first == one.count
        self._copied.append(OffsetRun(one.first, at, one.count if dense else 1))
        self.records += one.count
        self.size += len(one.data)

    def commit(self, *, finished: bool) -> tuple[ProducerIdentity, MirrorPosition]:
        """Commit everything sent, and the position after it. `finished`: everything planned has been copied."""
        reached = max(self._source_end, self._part.stop) if finished else self._source_end
        position = self._position._replace(offset=reached)
        if self.records:
            self._pusher.flush()
            position = position._replace(offsets=self._map_sent())
        stored = {self._part.to: Committed(position.offset, position.metadata())}
        add_offsets(self._target, self._identity, self._job.group, stored)
        return end(self._target, self._identity, commit=True), position

    def _map_sent(self) -> OffsetMap:
        """The offset map with what was sent. If somebody else has written in between, the offsets of our records are
        unknown, and the map is left without them."""
        found = OffsetMap(self._position.offsets.runs)
        if self._latest() == self._target_end + self.records:
            for run in self._copied:
                found.add(*run)
        return found

    def _latest(self) -> int:
        return offsets.latest(self._target, [self._part.to])[self._part.to]
