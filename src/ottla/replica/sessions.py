"""Incremental fetch sessions: the broker remembers which partitions a client fetches (KIP-227).

A full fetch (epoch 0) may open a session. Every further fetch names it with the next epoch and carries only changes,
and the response carries only partitions with news. Epoch -1 closes a session and fetches without one.

A session belongs to whoever knows its random id; it holds no data, only positions. When the cache is full, a new
session replaces one that has not been used for `eviction_ms`, else a smaller one that was opened that long ago. If
there is none, the client gets no session and keeps sending full fetches. The same happens when all sessions together
hold too many partitions. Times are monotonic.

A follower's session may hold thousands of partitions, and every append leads to a fetch. So a fetch does not check them
all. It checks only those in `fresh`: the follower named them, or the partition reported news (it knows the sessions
that watch it), or the last fetch left something over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import BrokerError, ErrorCode
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ottla.replica.partition import Partition
    from ottla.replica.waits import Wait
    from ottla.wire.messages.fetch import FetchPartition, FetchRequest

EPOCH_INITIAL = 0
EPOCH_FINAL = -1
EPOCH_MAX = 0x7FFFFFFF
NO_REPLICA = -1
WATCHED_MAX = 1 << 18  # partitions of all sessions: some tens of megabytes


class Watched:
    """One partition of a fetch, and the offsets last sent to the client."""

    __slots__ = (
        "high",
        "home",
        "index",
        "key",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start",
        "offset",
        "size_max",
        "start",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: bytes, index: int, key: Key) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.key = key
        self.home: Partition | None = None  # reports news to the session
        self.high = -1
        self.start = -1
        self.offset = self.size_max = 0
        self.leader_epoch = self.last_fetched_epoch = self.log_start = -1

    def update(self, request: FetchPartition) -> None:
        self.offset = request.fetch_offset
        self.size_max = request.partition_max_bytes
        self.leader_epoch = request.current_leader_epoch
        self.last_fetched_epoch = request.last_fetched_epoch
        self.log_start = request.log_start_offset  # of a follower


Key = tuple[str | bytes, int]


class FetchSession:
    __slots__ = (
        "before_ms",
        "by_id",
        "denied",
        "epoch",
        "fresh",
        "grown",
        "id",
        "opened_ms",
        "owner",
        "replica",
        "unnamed",
        "used_ms",
        "wait",
        "watched",
    )

    def __init__(
        self, identity: int, watched: dict[Key, Watched], now_ms: int, *, by_id: bool, replica: int = NO_REPLICA
    ) -> None:
        self.id = identity
        self.epoch = 1
        self.watched = watched
        self.opened_ms = self.used_ms = now_ms
        self.before_ms: int | None = None  # time of the use before the last
        self.by_id = by_id
        self.replica = replica  # broker id of the follower, or NO_REPLICA
        self.fresh: dict[Key, Watched] = {}
        self.grown = 0  # bytes appended to its partitions since they were last checked
        self.wait: Wait | None = None
        # With an authorizer:
        self.owner = ("", "")  # principal and address of the client
        self.denied: dict[Key, None] = {}  # partitions that the client may not read
        self.unnamed: dict[Key, None] = {}  # those of unknown topics, which are checked once the name is known

    def advance(self, now_ms: int) -> None:
        """Called for each fetch: the next one must have the next epoch."""
        self.epoch = self.epoch + 1 if self.epoch < EPOCH_MAX else 1
        self.before_ms, self.used_ms = self.used_ms, now_ms

    def move_to_end(self, watched: Iterable[Watched]) -> None:
        """Partitions in the response come last next time, so that every partition gets its turn."""
        for one in watched:
            if one.key in self.watched:
                del self.watched[one.key]
                self.watched[one.key] = one

    # For followers.

    def take_fresh(self) -> list[Watched]:
        """The partitions to check now."""
        fresh, self.fresh, self.grown = self.fresh, {}, 0
        return list(fresh.values())

    def note(self, partition: Partition, one: Watched, size: int) -> None:
        """A partition has news: `size` new bytes, or 0 for other changes."""
        self.fresh[one.key] = one
        if size:
            self.grown += size
            if self.wait is not None:
                self.wait.grow(partition, size)

    def wake(self, one: Watched) -> None:
        """Answer the follower's waiting fetch at once, because of this partition."""
        self.fresh[one.key] = one
        if self.wait is not None:
            self.wait.wake()

    def leave(self, watched: Iterable[Watched]) -> None:
        """Stop watching these partitions."""
        for one in watched:
            if one.home is not None:
                one.home.unwatch(self)
                one.home = None


class Sessions:
    def __init__(self, slots: int, eviction_ms: int, draw: Callable[[], int]) -> None:
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._draw = draw  # a random positive int32
        self._by_id: dict[int, FetchSession] = {}
        self._count = 0  # partitions in all sessions, refused ones included

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, identity: int) -> FetchSession | None:
        return self._by_id.get(identity)

    def close(self, identity: int) -> None:
        self._forget(identity)

    def note_rights(
        self, session: FetchSession, owner: tuple[str, str], denied: dict[Key, None], unnamed: dict[Key, None]
    ) -> bool:
        """Keep what was found out about the rights of a session's client. False, and the session is closed, if there
        are too many partitions."""
        self._count += len(denied) - len(session.denied)
        session.owner, session.denied, session.unnamed = owner, denied, unnamed
        if self._count <= WATCHED_MAX:
            return True
        self._forget(session.id)
        return False

    def close_all(self) -> None:
        """Make every client send a full fetch again: permissions have changed."""
        for identity in list(self._by_id):
            self._forget(identity)

    def open(
        self, request: FetchRequest, now_ms: int, *, by_id: bool
    ) -> tuple[FetchSession | None, bool, list[Watched]]:
        """The session of this fetch, whether the response may omit unchanged partitions, and what to read."""
        epoch = request.session_epoch
        if epoch == EPOCH_FINAL:
            self._forget(request.session_id)
            return None, False, list(list_partitions(request, by_id=by_id).values())
        if epoch == EPOCH_INITIAL:
            self._forget(request.session_id)
            watched = list_partitions(request, by_id=by_id)
            if not watched:
                return None, False, []
            replica = max(request.replica_id, request.replica_state.replica_id)  # each version has one of them
            session = self._create(watched, now_ms, by_id=by_id, replica=replica)
            return session, False, list(watched.values())
        found = self._by_id.get(request.session_id)
        if found is None:
            raise BrokerError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session = found
        if session.epoch != epoch:
            raise BrokerError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id is not by_id:
            raise BrokerError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._change(session, request)
        session.advance(now_ms)
        if not session.watched:
            self._forget(session.id)
            return None, True, []
        if session.replica > NO_REPLICA:
            return session, True, session.take_fresh()
        return session, True, list(session.watched.values())

    def _change(self, session: FetchSession, request: FetchRequest) -> None:
        watched, by_id = session.watched, session.by_id
        before = len(watched)
        for topic in request.topics:
            for partition in topic.partitions:
                key: Key = (topic.topic_id if by_id else topic.topic, partition.partition)
                known = watched.get(key)
                if known is None:
                    known = watched[key] = Watched(topic.topic, topic.topic_id, partition.partition, key)
                known.update(partition)
                if session.replica > NO_REPLICA:
                    session.fresh[key] = known
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                key = (forgotten.topic_id if by_id else forgotten.topic, index)
                known = watched.pop(key, None)
                if known is not None:
                    session.leave((known,))
                    session.fresh.pop(key, None)
        self._count += len(watched) - before
        if self._count > WATCHED_MAX and len(watched) > before:
            self._forget(session.id)
            raise BrokerError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)  # the client then sends full fetches

    def change(
        self,
        session: FetchSession,
        named: Sequence[tuple[str | bytes, int, int, int, int]],
        forgotten: Iterable[Key],
    ) -> bool:
        """Apply the changes in a fetch to a consumer's session. `named`: topic, partition, leader epoch, offset and
        maximum bytes of each; `forgotten`: partitions to remove. Idempotent.

        False, with nothing changed, if there could be too many partitions."""
        watched = session.watched
        before = len(watched)
        if self._count + len(named) > WATCHED_MAX:
            return False
        for topic, index, leader_epoch, offset, size_max in named:
            one = watched.get((topic, index))
            if one is None:
                name, topic_id = (topic, ZERO_UUID) if isinstance(topic, str) else ("", topic)
                one = watched[topic, index] = Watched(name, topic_id, index, (topic, index))
            one.leader_epoch, one.offset, one.size_max, one.last_fetched_epoch = leader_epoch, offset, size_max, -1
        for key in forgotten:
            watched.pop(key, None)
        self._count += len(watched) - before
        return True

    def _create(self, watched: dict[Key, Watched], now_ms: int, *, by_id: bool, replica: int) -> FetchSession | None:
        if self._count + len(watched) > WATCHED_MAX:
            return None
        if len(self._by_id) >= self._slots and not self._evict(len(watched), now_ms):
            return None
        identity = self._draw()
        while identity in self._by_id:
            identity = self._draw()
        self._by_id[identity] = session = FetchSession(identity, watched, now_ms, by_id=by_id, replica=replica)
        self._count += len(watched)
        return session

    def _forget(self, identity: int) -> None:
        session = self._by_id.pop(identity, None)
        if session is not None:
            self._count -= len(session.watched) + len(session.denied)
            session.leave(session.watched.values())

    def _evict(self, size: int, now_ms: int) -> bool:
        if not self._by_id:
            return False
        oldest = min(self._by_id.values(), key=lambda session: session.used_ms)
        if now_ms - oldest.used_ms < self._eviction_ms:
            aged = [session for session in self._by_id.values() if now_ms - session.opened_ms >= self._eviction_ms]
            oldest = min(aged, key=lambda session: len(session.watched), default=oldest)
            if not aged or len(oldest.watched) >= size:
                return False
        self._forget(oldest.id)
        return True


def list_partitions(request: FetchRequest, *, by_id: bool) -> dict[Key, Watched]:
    """The partitions named in the request, each once."""
    watched: dict[Key, Watched] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            key: Key = (topic.topic_id if by_id else topic.topic, partition.partition)
            watched[key] = one = Watched(topic.topic, topic.topic_id if by_id else ZERO_UUID, partition.partition, key)
            one.update(partition)
    return watched
