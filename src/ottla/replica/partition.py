"""One partition on this broker: its log, its role, its high watermark, and the requests that wait for it.

    led, followers is None     leader and only replica: everything in the log is committed
    led, followers             leader with followers: `leader.Leader` computes what is committed
    not led                    follower, perhaps without a leader for now: the fetcher moves the high watermark

With `flush.messages`, records count only when they are on disk, so flushes also move the high watermark.

The high watermark is stored in one place, `log.high`. Fetches that read up to the end of the log (followers, the
debugging consumer) wait in `waits`, and every append wakes them. Fetches that read up to the high watermark wait in
`commit_waits`. For an only replica without `flush.messages` both limits are the same, and all fetches are in `waits`.
"""

from __future__ import annotations

import asyncio
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from ottla.clock import steady_ms
from ottla.cluster.topic_names import is_internal
from ottla.errors import BrokerError, ErrorCode
from ottla.log.append import RETRY, append, append_own, append_run, append_sound
from ottla.log.planned_write import finish_write, plan_write
from ottla.log.replicate import replicate
from ottla.replica.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.clock import Clock
    from ottla.log.append import Appended
    from ottla.log.flush import Flusher
    from ottla.log.log import Log
    from ottla.log.planned_write import PlannedWrite
    from ottla.records.markers import EndMarker
    from ottla.records.native import Sound
    from ottla.records.own_batch import OwnRecord
    from ottla.records.validate import Accepted
    from ottla.replica.leader import Leader
    from ottla.replica.sessions import FetchSession, Watched
    from ottla.replica.waits import Wait

NOBODY = -1
ALL = -1  # acks: all in-sync replicas
SIZE_MAX = 0x7FFFFFFF
UNLIMITED = (1 << 63) - 1  # `flush.messages` that requires no flush
COMMITS_KEPT = 1000


class Site(NamedTuple):
    """What a leader with followers needs from its broker."""

    clock: Clock
    propose: Callable[[Partition], None]  # the in-sync set may have to change


class Partition:
    __slots__ = (
        "_commits",
        "_commits_max",
        "_count",
        "_site",
        "commit_waits",
        "epoch",
        "flusher",
        "followers",
        "index",
        "internal",
        "leader_id",
        "led",
        "log",
        "topic",
        "topic_id",
        "traffic",
        "version",
        "waits",
        "watchers",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        log: Log,
        epoch: int,
        flusher: Flusher | None = None,
        *,
        led: bool = True,
        traffic: Traffic | None = None,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.internal = is_internal(topic)  # written by coordinators, not by clients
        self.log = log
        self.traffic = traffic or Traffic()  # of the topic
        self.flusher = flusher
        self.epoch = epoch
        self.version = -1  # of the partition's state, as sent by the controller
        self.leader_id = NOBODY  # set while another broker is the leader
        self.followers: Leader | None = None
        self.waits: list[Wait] = []
        self.commit_waits: list[Wait] = []
        self.watchers: dict[int, tuple[FetchSession, Watched]] = {}  # the sessions of followers, by replica
        self._commits: list[tuple[int, int, asyncio.Future[None]]] = []  # a heap
        self._commits_max = COMMITS_KEPT
        self._count = 0
        self._site: Site | None = None
        self.led = False
        log.durability.on_forced = self._on_flush
        if led:
            self.lead(epoch)

    # Roles.

    def lead(self, epoch: int, followers: Leader | None = None, site: Site | None = None) -> None:
        """Become leader in this epoch, with followers or as the only replica."""
        self.epoch, self.led, self.leader_id = epoch, True, NOBODY
        self.followers, self._site = followers, site
        if self.log.fault is None:
            self.log.assign_epoch(epoch)  # consumers may ask for its start before anything is written in it
        if followers is None:
            self.log.commit_all()
        else:
            self.log.high = followers.high
        self._release()
        self.wake()
        if self.log.durability.held is not None:
            self._force()

    def follow(self, epoch: int, leader_id: int) -> None:
        """Become follower of another broker, or of nobody. Pending commits fail."""
        high = self.log.high
        self.epoch, self.led, self.leader_id = epoch, False, leader_id
        self.followers, self._site = None, None
        self.log.high = high
        self.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.wake()

    def fail(self, code: ErrorCode) -> None:
        """Fail all pending commits with this error."""
        commits, self._commits = self._commits, []
        for _, _, future in commits:
            if not future.done():
                refuse(future, code)

    # Writing.

    def append(
        self,
        data: memoryview,
        now_ms: int,
        produce_version: int,
        *,
        client: bool = True,
        accepted: Accepted | None = None,
        acks: int = ALL,
    ) -> Appended:
        self._require_leadership(acks)
        try:
            appended = append(
                self.log,
                data,
                epoch=self.epoch,
                now_ms=now_ms,
                produce_version=produce_version,
                client=client,
                accepted=accepted,
            )
        except BrokerError as error:
            raise self._judge(error) from None
        if not appended.duplicate:
            traffic = self.traffic
            traffic.messages_in += appended.last - appended.base + 1
            traffic.bytes_in += len(data)
        self._announce_append(len(data), duplicate=appended.duplicate)
        return appended

    def append_sound(self, data: memoryview, sound: Sound, now_ms: int, acks: int) -> int:
        """Fast path of `append` for batches that need only their offset and epoch: see `log/append.py`."""
        if self.followers is not None or not self.led:
            self._require_leadership(acks)
        try:
            base = append_sound(self.log, data, sound, self.epoch, now_ms)
        except BrokerError as error:
            raise self._judge(error) from None
        if base != RETRY:
            traffic = self.traffic
            traffic.messages_in += sound[0] + 1
            traffic.bytes_in += len(data)
            if self.waits or self.commit_waits or self.followers is not None or self.log.durability.held is not None:
                self._announce_append(len(data))
        return base

    def append_own(
        self,
        records: Sequence[OwnRecord],
        now_ms: int,
        producer: tuple[int, int] | None = None,
        marker: EndMarker | None = None,
    ) -> int:
        """Append records of this broker itself: see `log/append.py`. Returns the offset of the first."""
        if self.followers is not None or not self.led:
            self._require_leadership(ALL)
        try:
            base, size = append_own(self.log, records, self.epoch, now_ms, producer, marker)
        except BrokerError as error:
            raise self._judge(error) from None
        self.traffic.messages_in += len(records)
        self.traffic.bytes_in += size
        if self.waits or self.commit_waits or self.followers is not None or self.log.durability.held is not None:
            self._announce_append(size)
        return base

    def plan_write(self, frame: memoryview, start: int, end: int, sound: Sound, acks: int) -> PlannedWrite | None:
        """Decide where a batch goes: see `log/planned_write.py`. None: pass it to `append_sound`."""
        if self.followers is not None and acks == ALL and not self.has_enough():
            return None
        return plan_write(self.log, frame, start, end, sound, self.epoch) if self.led else None

    def finish_write(self, write: PlannedWrite, sound: Sound) -> int:
        """Record that the batch was written. Returns its last offset."""
        last = finish_write(self.log, write, sound)
        traffic, size = self.traffic, write[5] - write[4]
        traffic.messages_in += sound[0] + 1
        traffic.bytes_in += size
        if self.waits or self.commit_waits or self.followers is not None or self.log.durability.held is not None:
            self._announce_append(size)
        return last

    def append_run(self, run: Sequence[tuple[memoryview, Sound]]) -> int:
        """Append several batches with one write: see `log/append.py`. Returns 0 if the partition has followers."""
        if self.followers is not None or not self.led:
            return 0
        count = append_run(self.log, run, self.epoch)
        size = 0
        for data, (delta, _, _) in run[:count]:
            size += len(data)
            self.traffic.messages_in += delta + 1
        self.traffic.bytes_in += size
        if count:
            self._announce_append(size)
        return count

    def _require_leadership(self, acks: int) -> None:
        followers = self.followers
        if not self.led:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if followers is not None and acks == ALL and not self.has_enough():
            raise BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS, f"in sync are only {list(followers.isr)}")

    def _announce_append(self, size: int, *, duplicate: bool = False) -> None:
        """Notify followers and waiting fetches of an append. A duplicate adds no bytes."""
        followers = self.followers
        if followers is not None:
            assert self._site is not None
            durability = self.log.durability
            own_end = None if durability.held is None else durability.settled_end
            if followers.note_append(self.log.end, steady_ms(self._site.clock), own_end=own_end):
                self._set_high(followers.high)
            if not duplicate:
                for session, watched in self.watchers.values():
                    session.note(self, watched, size)
        if not duplicate:
            for wait in self.waits:
                wait.grow(self, size)
        if self.log.durability.held is not None:
            self._force()
        elif followers is None:
            for wait in self.commit_waits:
                wait.grow(self, size)

    def _judge(self, error: BrokerError) -> BrokerError:
        """The error to answer with for a failed append.

        Many producers give up after an out of order sequence. A leader that was suspended may have been replaced
        without knowing it, and the new leader may have the missing batches. A new leader may receive batches whose
        predecessor is still on its way to the former leader. So only a settled leader reports sequence gaps.
        """
        if error.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or self.followers is None or self._site is None:
            return error
        if self.followers.is_settled(steady_ms(self._site.clock)):
            return error
        return BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "a gap in a sequence, and others may lead")

    def _force(self) -> None:
        """Start the flush that `flush.messages` requires before the records may be read."""
        if self.flusher is None:
            durability = self.log.durability
            durability.flush(durability.flushed_ms)
        elif self.log.fault is None:
            self.flusher.begin(self.log)

    def _on_flush(self, before: int) -> None:
        """A flush has finished: records from `before` on are on disk."""
        if not self.led:
            return
        if self.followers is None:
            self._announce(before, self.log.high)
        elif self._site is not None:
            settled_end, now_ms = self.log.durability.settled_end, steady_ms(self._site.clock)
            if self.followers.note_flush(settled_end, now_ms):
                self._set_high(self.followers.high)

    def replicate(self, data: memoryview, *, now_ms: int) -> None:
        """As a follower: append what the leader sent."""
        replicate(self.log, data, now_ms=now_ms)
        self.traffic.replicated_in += len(data)
        for wait in self.waits:
            wait.grow(self, len(data))

    def has_enough(self) -> bool:
        """Whether at least `min.insync.replicas` replicas are in sync, or all if there are fewer."""
        followers = self.followers
        if followers is None:
            return True
        return len(followers.isr) >= min(self.log.config.min_insync_replicas, len(followers.followers) + 1)

    def wait_for_commit(self, offset: int) -> asyncio.Future[None] | None:
        """None if everything below `offset` is committed, and on disk if `flush.messages` requires it.

        Otherwise a future for that, which may fail with NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS_AFTER_APPEND or
        KAFKA_STORAGE_ERROR.
        """
        durability = self.log.durability
        if durability.owes_flush:
            if self.flusher is not None:
                return asyncio.ensure_future(self._wait_for_flush_and_commit(offset))
            durability.flush(durability.flushed_ms)
        if self.followers is None and self.led:
            return None
        return self._wait_for_replicas(offset)

    async def _wait_for_flush_and_commit(self, offset: int) -> None:
        assert self.flusher is not None
        replicated = self._wait_for_replicas(offset)
        try:
            await self.flusher.wait_for(self.log, self.log.durability.owed)
        except BaseException:
            if replicated is not None:
                replicated.cancel()
            raise
        if replicated is not None:
            await replicated

    def _wait_for_replicas(self, offset: int) -> asyncio.Future[None] | None:
        enough = self.has_enough()
        if self.led and offset <= self.log.high and enough:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self.led:
            refuse(future, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif offset <= self.log.high:
            refuse(future, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        else:
            self._count += 1
            heappush(self._commits, (offset, self._count, future))
            if len(self._commits) >= self._commits_max:
                self._prune()
        return future

    def _prune(self) -> None:
        """Drop finished futures: while too few replicas respond, producers time out and retry."""
        self._commits = [commit for commit in self._commits if not commit[2].done()]
        heapify(self._commits)
        self._commits_max = max(COMMITS_KEPT, 2 * len(self._commits))

    @property
    def waiting(self) -> int:
        """Number of appends that wait for replication."""
        return len(self._commits)

    # Committing.

    @property
    def high(self) -> int:
        return self.log.high

    def note_fetch(
        self,
        replica: int,
        offset: int,
        start: int,
        broker_epoch: int,
        *,
        epoch_known: bool,
        session: FetchSession | None = None,
    ) -> None:
        """A follower fetched from `offset`, so it has everything below. `epoch_known`: it named the leader epoch.

        In a session it need not repeat this: each use of the session counts.
        """
        followers, site = self.followers, self._site
        if followers is None or site is None or replica not in followers.followers:
            unknown = ErrorCode.UNKNOWN_LEADER_EPOCH if epoch_known else ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise BrokerError(unknown, f"broker {replica} is no replica of {self.topic}-{self.index} that we know of")
        now_ms = steady_ms(site.clock)
        if followers.note_fetch(replica, offset, start=start, broker_epoch=broker_epoch, now_ms=now_ms):
            self._set_high(followers.high)
        followers.followers[replica].session = session
        if followers.may_propose(replica):
            site.propose(self)

    def is_abandoned(self) -> bool:
        """Whether this broker is leader as far as it knows, but all in-sync followers have stopped fetching from it."""
        if self.followers is None or self._site is None:
            return False
        return self.followers.is_abandoned(steady_ms(self._site.clock))

    def on_isr_change(self, *, moved: bool) -> None:
        """The in-sync set has changed. `moved`: so has the high watermark."""
        if self.followers is not None:
            self.version = self.followers.version
            if moved:
                self._set_high(self.followers.high)

    def advance(self, high: int) -> None:
        """As a follower: take over the high watermark from the leader."""
        if high > self.log.high:
            self._set_high(high)

    def _set_high(self, high: int) -> None:
        before, self.log.high = self.log.high, high
        self._announce(before, high)

    def _announce(self, before: int, high: int) -> None:
        """Notify all waiters that the high watermark has moved."""
        if self._commits:
            self._release()
        for session, watched in self.watchers.values():
            session.note(self, watched, 0)
        if self.commit_waits:
            size = self._size(before, high)
            for wait in self.commit_waits:
                wait.grow(self, size)

    def _release(self) -> None:
        """Complete the futures whose offsets are committed."""
        commits, high, enough = self._commits, self.log.high, self.has_enough()
        while commits and commits[0][0] <= high:
            future = heappop(commits)[2]
            if future.done():
                continue
            if enough:
                future.set_result(None)
            else:
                refuse(future, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    def _size(self, start: int, end: int) -> int:
        """Approximate bytes between two offsets: only those of one segment, at least 1."""
        try:
            found = self.log.read(max(start, self.log.start), SIZE_MAX, offset_max=end)
        except BrokerError:  # the fetch will report it
            return SIZE_MAX
        return 1 if found is None else found.size

    # Waiting.

    def check_epoch(self, epoch: int) -> None:
        """Reject a client with an older or newer leader epoch than ours. A negative epoch is not checked."""
        if epoch < 0 or epoch == self.epoch:
            return
        raise BrokerError(ErrorCode.FENCED_LEADER_EPOCH if epoch < self.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH)

    def expect(self, wait: Wait, *, to_end: bool) -> None:
        """Notify this wait of every append (`to_end`), or only of committed records."""
        alone = self.led and self.followers is None and self.log.config.flush_messages == UNLIMITED
        (self.waits if to_end or alone else self.commit_waits).append(wait)

    def forget(self, wait: Wait) -> None:
        for waits in (self.waits, self.commit_waits):
            if wait in waits:
                waits.remove(wait)

    def wake(self) -> None:
        """Answer waiting fetches now: something other than an append happened that they must report."""
        for wait in (*self.waits, *self.commit_waits):
            wait.wake()
        for session, watched in self.watchers.values():
            session.wake(watched)

    def watch(self, session: FetchSession, watched: Watched) -> None:
        """Report news to this follower's session from now on, instead of to its former session."""
        former = self.watchers.get(session.replica)
        if former is not None and former[0] is not session:
            former[1].home = None
            former[0].fresh[former[1].key] = former[1]
        watched.home = self
        self.watchers[session.replica] = session, watched

    def unwatch(self, session: FetchSession) -> None:
        found = self.watchers.get(session.replica)
        if found is not None and found[0] is session:
            del self.watchers[session.replica]


def refuse(future: asyncio.Future[None], code: ErrorCode) -> None:
    """Fail the future. Read the exception once, because asyncio logs one that nobody retrieves."""
    future.set_exception(BrokerError(code))
    future.exception()
