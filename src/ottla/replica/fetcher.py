"""Replica fetchers: `num.replica.fetchers` tasks for each broker that is leader of partitions we follow.

A fetcher has one Fetch in flight, for all of its partitions, in a fetch session: a request carries only changes since
the last one, a response only news. Received batches are checked and appended unchanged. The next fetch tells the leader
our offset, from which it computes the high watermark.

A partition that fails pauses for `replica.fetch.backoff.ms`; the others continue. When the leader cannot be reached,
all of its partitions pause for as long. A throttled partition pauses when it has exceeded the rate. A fetcher without
partitions ends.

A fetch may be waiting at the leader when a partition is added, and producers may be waiting for that partition. Then
the fetch is abandoned, not too often, and sent again with the new partition.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from zlib import crc32

from ottla.cluster.peers import PeerError
from ottla.cluster.turns import Turns
from ottla.errors import BrokerError, ErrorCode
from ottla.replica.asking import EARLIEST, LATEST, FollowerSession, epochs_request, fetch_request, offsets_request
from ottla.replica.copying import Copy
from ottla.replica.releases import NAMED, TELLS_DIVERGING, FollowerVersions, versions_of
from ottla.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.cluster.image import Image
    from ottla.cluster.metadata import Metadata
    from ottla.cluster.peers import Peers
    from ottla.config import BrokerConfig
    from ottla.log.store import LogStore
    from ottla.replica.partition import Partition
    from ottla.replica.throttle import Throttle
    from ottla.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData

    Key = tuple[str, int]

SESSION_ERRORS = frozenset(
    (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    )
)
# After an election or topic creation, the leader may learn of it a moment later than its followers.
SETTLING = frozenset(
    (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
SETTLING_TRIES = 8  # some seconds; after that the error is logged
THROTTLED_PAUSE_S = 0.5
FIRST_PAUSE_S = 0.05
GATHER_S = 0.01  # partitions are often added in groups
INTERRUPT_S = 1.0  # a waiting fetch is abandoned at most this often


class Fetchers:
    """All fetchers of a broker."""

    def __init__(
        self,
        peers: Peers,
        metadata: Metadata,
        store: LogStore,
        *,
        broker_epoch: Callable[[], int],
        throttle: Throttle | None = None,
    ) -> None:
        self.peers = peers
        self.metadata = metadata
        self.store = store
        self.broker_epoch = broker_epoch
        self.throttle = throttle
        self.stopped = False
        self._count = metadata.config.num_replica_fetchers
        self._loops: dict[tuple[int, int], Fetcher] = {}  # by leader and number
        self._of: dict[Key, Fetcher] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        metadata.subscribe(self.apply)

    def follow(self, partition: Partition) -> None:
        """Copy a partition from its current leader."""
        place = partition.leader_id, crc32(f"{partition.topic}-{partition.index}".encode()) % self._count
        fetcher = self._loops.get(place)
        if fetcher is None or self._of.get((partition.topic, partition.index)) is not fetcher:
            self.forget(partition)
        if self.stopped or (fetcher is not None and fetcher.copies(partition)):
            return
        if fetcher is None:
            fetcher = self._loops[place] = Fetcher(self, *place)
            task = asyncio.get_running_loop().create_task(fetcher.run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._of[partition.topic, partition.index] = fetcher
        fetcher.add(Copy(partition, self.store))

    def forget(self, partition: Partition) -> None:
        fetcher = self._of.pop((partition.topic, partition.index), None)
        if fetcher is not None:
            fetcher.remove((partition.topic, partition.index))

    def on_end(self, fetcher: Fetcher) -> None:
        if self._loops.get((fetcher.leader, fetcher.number)) is fetcher:
            del self._loops[fetcher.leader, fetcher.number]

    def apply(self, old: Image | None, new: Image) -> None:
        """Called with a new image: brokers or configs may have changed."""
        for (leader, _), fetcher in self._loops.items():
            if old is None or old.brokers.get(leader) != new.brokers.get(leader):
                fetcher.wake()
        if self.metadata.config.num_replica_fetchers != self._count:
            self._count = self.metadata.config.num_replica_fetchers
            for fetcher in list(self._loops.values()):
                for partition in fetcher.partitions():
                    self.follow(partition)

    async def stop(self) -> None:
        self.stopped = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Fetcher:
    def __init__(self, owner: Fetchers, leader: int, number: int) -> None:
        self.leader = leader
        self.number = number
        self._owner = owner
        self._me = owner.metadata.node_id
        self._copies: dict[Key, Copy] = {}
        self._paused: set[Key] = set()
        self._nameless: set[Key] = set()  # topics without an id, or with one that the leader does not know
        self._by_id: dict[tuple[bytes, int], Copy] = {}  # a name may be reused for another topic
        self._changed: dict[Key, Copy] = {}  # to be named in the next request
        self._forgotten: dict[tuple[str, int, bytes], Copy] = {}  # to be removed from the session
        self._session = FollowerSession()
        self._waiting = False  # for an answer to a fetch
        self._interrupted_at = -INTERRUPT_S
        self._woken = asyncio.Event()
        self._turns = Turns(owner.store.clock)
        self._steps = Steps("ottla.fetcher")
        self._channel = f"fetcher-{number}"

    def __str__(self) -> str:
        return f"fetcher {self.number} from broker {self.leader}"

    # What to copy.

    def partitions(self) -> list[Partition]:
        return [copy.partition for copy in self._copies.values()]

    def copies(self, partition: Partition) -> bool:
        """Whether this partition is already copied in its current epoch. Restarting would lose news from the leader: in
        a fetch session it sends a high watermark only once."""
        known = self._copies.get((partition.topic, partition.index))
        return (
            known is not None
            and known.partition is partition
            and (known.epoch, known.topic_id) == (partition.epoch, partition.topic_id)
        )

    def add(self, copy: Copy) -> None:
        key = copy.topic, copy.index
        self._drop(key)
        self._copies[key] = copy
        self._by_id[copy.topic_id, copy.index] = copy
        if not any(copy.topic_id):
            self._nameless.add(key)
        with self._steps.attempt("preparing to follow", copy.partition.log) as attempt:
            copy.begin(tells_diverging=self._versions.fetch >= TELLS_DIVERGING)
        if attempt.failed:
            self._pause(copy)
        else:
            self._name(copy)
        asyncio.get_running_loop().call_later(GATHER_S, self._interrupt)

    def remove(self, key: Key) -> None:
        self._drop(key)
        self.wake()
        if not self._copies:
            self._owner.peers.close_channel(self.leader, self._channel)  # the leader may never answer

    def wake(self) -> None:
        self._woken.set()

    def _drop(self, key: Key) -> None:
        copy = self._copies.pop(key, None)
        if copy is not None:
            self._changed.pop(key, None)
            self._paused.discard(key)
            self._nameless.discard(key)
            self._by_id.pop((copy.topic_id, copy.index), None)
            self._forgotten[copy.topic, copy.index, copy.topic_id] = copy

    def _name(self, copy: Copy) -> None:
        """Name it in the next fetch."""
        self._forgotten.pop((copy.topic, copy.index, copy.topic_id), None)
        self._changed[copy.topic, copy.index] = copy
        self.wake()

    def _pause(self, copy: Copy, seconds: float | None = None) -> None:
        """Do not fetch a partition for a while."""
        key = copy.topic, copy.index
        copy.asked = False
        self._paused.add(key)
        self._changed.pop(key, None)
        self._forgotten[copy.topic, copy.index, copy.topic_id] = copy
        if seconds is None:
            seconds = self._backoff_s(copy.failures)
            copy.failures += 1
        asyncio.get_running_loop().call_later(seconds, self._resume, copy)

    def _backoff_s(self, failures: int) -> float:
        """Short at first: after an election a follower may know the leader before the leader itself does."""
        return min(self._config.replica_fetch_backoff_ms / 1000, FIRST_PAUSE_S * (1 << min(failures, 10)))

    def _resume(self, copy: Copy) -> None:
        key = copy.topic, copy.index
        if self._copies.get(key) is not copy:
            return
        throttle = self._owner.throttle
        if throttle is not None and copy.is_throttled(self._me) and throttle.is_exceeded():
            self._pause(copy, THROTTLED_PAUSE_S)
        elif copy.partition.log.fault is not None:
            self._pause(copy)
        else:
            self._paused.discard(key)
            self._name(copy)

    def _interrupt(self) -> None:
        """Abandon the fetch that waits at the leader, because partitions were added since."""
        now = asyncio.get_running_loop().time()
        if self._waiting and self._changed and now - self._interrupted_at >= INTERRUPT_S:
            self._interrupted_at = now
            self._waiting = False
            self._owner.peers.close_channel(self.leader, self._channel)

    # The loop.

    async def run(self) -> None:
        """Runs until there is nothing to copy, or until cancelled."""
        failures = 0
        try:
            while self._copies:
                self._woken.clear()
                with self._steps.attempt("fetching", self) as attempt:
                    try:
                        await self._turn()
                    except PeerError as error:
                        raise BrokerError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
                failures = failures + 1 if attempt.failed else 0
                if failures:
                    self._session.reset()
                    await self._rest(failures - 1)
        finally:
            self._owner.on_end(self)
            self._owner.peers.close_channel(self.leader, self._channel)

    async def _turn(self) -> None:
        if len(self._paused) == len(self._copies):
            self._session.reset()
            await self._woken.wait()
            return
        while unsure := [copy for copy in self._changed.values() if copy.unsure]:
            await self._ask_epochs(unsure)
        seeking = [copy for copy in self._changed.values() if copy.seeks]
        if seeking:
            await self._seek(seeking)
        cut = [copy for copy in self._changed.values() if copy.partition.log.durability.owes_cut]
        await asyncio.gather(*map(self._force_cut, cut))
        request, version = self._request()
        self._waiting = True
        try:
            answer = await self._ask(request, version)
        except PeerError:
            if not self._waiting:  # abandoned by _interrupt
                self._session.reset()
                return
            raise
        finally:
            self._waiting = False
        await self._take(answer)

    async def _rest(self, failures: int) -> None:
        """Back off after the whole fetch failed. A new partition or a returning leader ends the wait early."""
        timer = asyncio.get_running_loop().call_later(self._backoff_s(failures), self.wake)
        try:
            await self._woken.wait()
        finally:
            timer.cancel()

    async def _ask(self, request: Any, version: int) -> Any:
        broker = self._owner.metadata.image.brokers.get(self.leader)
        if broker is None:
            raise PeerError(f"broker {self.leader} is not registered")
        return await self._owner.peers.ask(
            broker,
            request,
            version=version,
            timeout_s=self._config.replica_socket_timeout_ms / 1000,
            client_id=f"broker-{self._me}-fetcher-{self.number}",
            channel=self._channel,
        )

    @property
    def _config(self) -> BrokerConfig:
        return self._owner.metadata.config

    @property
    def _versions(self) -> FollowerVersions:
        return versions_of(self._config.inter_broker_protocol_version)

    # Asking for records.

    def _request(self) -> tuple[FetchRequest, int]:
        """The next fetch and its version."""
        config, session, version = self._config, self._session, self._versions.fetch
        if self._nameless:
            version = min(version, NAMED)
        if session.by_id is not (version > NAMED):
            session.reset()
            session.by_id = version > NAMED
        if session.epoch == 0:
            named = [copy for key, copy in self._copies.items() if key not in self._paused]
        else:
            named = list(self._changed.values())
        self._changed = {(one.topic, one.index): one for one in named if one.unsure or one.seeks}
        named = [copy for copy in named if not (copy.unsure or copy.seeks)]
        forgotten = list(self._forgotten.values()) if session.epoch else []
        self._forgotten.clear()
        for copy in named:
            copy.asked = True
        replica = self._me, self._owner.broker_epoch()
        return fetch_request(config, replica, session, named, forgotten), version

    async def _take(self, answer: FetchResponse) -> None:
        if answer.error_code in SESSION_ERRORS and self._session.epoch != 0:
            self._session.reset()  # send a full fetch at once
            return
        check(answer.error_code)
        self._session.advance(answer.session_id)
        for topic in answer.responses:
            for data in topic.partitions:
                index = data.partition_index
                if self._session.by_id:
                    copy = self._by_id.get((topic.topic_id, index))
                else:
                    copy = self._copies.get((topic.topic, index))
                if copy is not None and copy.asked:
                    self._take_one(copy, data)
                    await self._turns.pause()
        await self._force()

    def _take_one(self, copy: Copy, data: PartitionData) -> None:
        if data.error_code in SETTLING and copy.failures < SETTLING_TRIES:
            self._pause(copy)
            return
        if data.error_code == ErrorCode.UNKNOWN_TOPIC_ID and self._session.by_id:
            self._nameless.add((copy.topic, copy.index))
            self._pause(copy)
            return
        throttle, throttled = self._owner.throttle, copy.is_throttled(self._me)
        with self._steps.attempt("copying", copy.partition.log) as attempt:
            size = copy.take(data)
            if throttle is not None and throttled and size:
                throttle.record(size)
        if attempt.failed:
            self._pause(copy)
        elif throttle is not None and throttled and throttle.is_exceeded():
            self._pause(copy, THROTTLED_PAUSE_S)
        else:
            copy.failures = 0
            self._changed[copy.topic, copy.index] = copy

    async def _force(self) -> None:
        """Finish flushes that `flush.messages` requires before the next fetch acknowledges the records."""
        flusher = self._owner.store.flusher
        logs = [copy.partition.log for copy in self._changed.values()]
        owed = [flusher.wait_for(log, log.durability.owed) for log in logs if log.durability.owes_flush]
        if owed:
            await asyncio.gather(*owed)

    async def _force_cut(self, copy: Copy) -> None:
        """Force a truncation to disk before new records are appended. If this fails, the next append does it."""
        with self._steps.attempt("truncating", copy.partition.log):
            await self._owner.store.flusher.force_cut(copy.partition.log)

    # Asking where logs diverge.

    async def _ask_epochs(self, copies: list[Copy]) -> None:
        answer = await self._ask(epochs_request(self._me, copies), self._versions.offset_for_leader_epoch)
        untold = {(copy.topic, copy.index): copy for copy in copies}
        for topic in answer.topics:
            for data in topic.partitions:
                copy = self._copies.get((topic.topic, data.partition))
                if copy is not None and untold.pop((topic.topic, data.partition), None) is copy:
                    with self._steps.attempt("truncating", copy.partition.log) as attempt:
                        check(data.error_code)
                        copy.parts_at(data.leader_epoch, data.end_offset)
                    if attempt.failed:
                        self._pause(copy)
        for key, copy in untold.items():
            if self._copies.get(key) is copy:
                self._pause(copy)

    async def _seek(self, copies: list[Copy]) -> None:
        """Request the start and end of the leader's logs, for partitions whose offset was out of range."""
        ends, starts = await self._list(copies, LATEST), await self._list(copies, EARLIEST)
        for copy in copies:
            key = copy.topic, copy.index
            if self._copies.get(key) is copy:
                with self._steps.attempt("truncating", copy.partition.log) as attempt:
                    check(ends[key][0] or starts[key][0])
                    copy.seek(starts[key][1], ends[key][1])
                if attempt.failed:
                    self._pause(copy)

    async def _list(self, copies: list[Copy], timestamp: int) -> dict[Key, tuple[int, int]]:
        """(error code, offset) of each."""
        answer = await self._ask(offsets_request(self._me, copies, timestamp), self._versions.list_offsets)
        return {
            (topic.name, one.partition_index): (one.error_code, one.offset)
            for topic in answer.topics
            for one in topic.partitions
        }


def check(code: int) -> None:
    if code:
        raise BrokerError(ErrorCode(code))
