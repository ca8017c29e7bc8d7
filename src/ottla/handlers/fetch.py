"""Fetch (1), v0-18: record batches from an offset on, as bytes of the log files, for many partitions at once.

v1 throttle time; v2-3 magic 1; v3 a bound for the whole answer, and at least one batch however small the bounds; v4
record batches, isolation level, last stable offset; v5 log start offset; v7 sessions; v9 leader epoch; v10 zstd; v11
rack; v12 flexible, last fetched epoch; v13 topics by id; v15 replica state; v17-18 fields of replicas.

Records are sent as regions of the log files. Only clients older than v4, which cannot read today's batches, get them
converted. An answer with fewer than `min_bytes` waits until there are enough, or for `max_wait_ms`.

Consumers read up to the high watermark: from the leader, and from v11 on also from a follower in their rack, if the
leader sends them there (KIP-392). Followers (replica id 0 or higher) read up to the log end; their fetch offset tells
the leader how far they have replicated. The debugging consumer (-2) reads everything, from any replica.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.clock import steady_ms
from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.handlers.hints import leader_hint
from ottla.handlers.reading import (
    BY_ID,
    DEBUGGING_CONSUMER,
    RACKS,
    choose_finder,
    convert,
    has_news,
    is_up_to_date,
    list_aborted,
    refuse,
    remember,
)
from ottla.replica.selector import choose_replica
from ottla.replica.throttle import is_throttled
from ottla.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ottla.handlers.call import Steps
    from ottla.handlers.fetch_shortcut import FetchShortcut
    from ottla.quota.quotas import Quotas
    from ottla.replica.partition import Partition
    from ottla.replica.sessions import FetchSession, Watched
    from ottla.security.authorizer import Authorizer

    Result = tuple[Watched, PartitionData]
    Topics = dict[tuple[str, bytes], FetchableTopicResponse]

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
# The first versions with a feature; see the list above.
BOUNDED, BATCHES, ZSTD, HINTS = 3, 4, 10, 16
CONVERTED_ROOM = 1 << 20  # bytes converted for one answer: this blocks all other clients
MAGIC_OF_OLD_VERSIONS = (0, 0, 1, 1)
PARTITIONS_PER_TURN = 200  # more are read in slices
UNKNOWN = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID))
ELSEWHERE = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH))


class Reading:
    """One fetch request in progress."""

    __slots__ = (
        "_arrived",
        "_call",
        "_find",
        "_follows",
        "_found",
        "_incremental",
        "_kept",
        "_min_one",
        "_missing",
        "_parts",
        "_request",
        "_room",
        "_session",
        "_size",
        "_to_end",
        "_urgent",
        "_watched",
        "broker_epoch",
        "replica_id",
    )

    def __init__(
        self,
        parts: Parts,
        call: Call,
        request: FetchRequest,
        session: FetchSession | None,
        watched: list[Watched],
        *,
        incremental: bool,
    ) -> None:
        self._parts = parts
        self._call = call
        self._request = request
        self._session = session
        self._watched = watched
        self._incremental = incremental
        self._arrived = True
        self.replica_id, self.broker_epoch = request.replica_id, -1
        if call.version >= 15:
            self.replica_id, self.broker_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
        self._find = choose_finder(parts, call.version, self.replica_id)
        uncommitted = request.isolation_level == READ_UNCOMMITTED
        self._to_end = self.replica_id >= 0 or (self.replica_id == DEBUGGING_CONSUMER and uncommitted)
        self._follows = session if session is not None and self.replica_id >= 0 else None  # a follower's session
        self._kept: list[Result] = []  # results of a follower's session from before the wait

    def start(self) -> FetchResponse | asyncio.Future[FetchResponse] | Steps[FetchResponse]:
        if len(self._watched) > PARTITIONS_PER_TURN:
            return self._start_slowly()
        self._begin()
        results = self._read(self._watched)
        if self._is_enough(results):
            return self._respond(results)
        return self._wait(self.finish, results)

    def finish(self) -> FetchResponse:
        self._begin()
        return self._respond(self._read(self._take_watched()))

    def _take_watched(self) -> list[Watched]:
        """The partitions to read after waiting."""
        return self._watched if self._follows is None else self._follows.take_fresh()

    def _respond(self, results: list[Result]) -> FetchResponse:
        topics: Topics = {}
        self._report(self._add_kept(results), topics)
        return self._response(topics)

    def _add_kept(self, results: list[Result]) -> list[Result]:
        if not self._kept:
            return results
        read = {one.key for one, _ in results}
        return [kept for kept in self._kept if kept[0].key not in read] + results

    def _start_slowly(self) -> Steps[FetchResponse]:
        """`start` in slices, for many partitions."""
        results = yield from self._read_slowly()
        if not self._is_enough(results):
            yield self._wait(lambda: None, results)
            self._watched = self._take_watched()
            results = yield from self._read_slowly()
        results = self._add_kept(results)
        topics: Topics = {}
        for first in range(0, len(results), PARTITIONS_PER_TURN):
            self._report(results[first : first + PARTITIONS_PER_TURN], topics)
            yield
        return self._response(topics)

    def _read_slowly(self) -> Steps[list[Result]]:
        self._begin()
        results = []
        for first in range(0, len(self._watched), PARTITIONS_PER_TURN):
            results += self._read(self._watched[first : first + PARTITIONS_PER_TURN])
            yield
        return results

    def _is_enough(self, results: list[Result]) -> bool:
        request = self._request
        nothing = len(results) == self._missing and self._follows is None
        return self._urgent or self._size >= request.min_bytes or request.max_wait_ms <= 0 or nothing

    def _wait(self, answer: Callable[[], Any], results: list[Result]) -> asyncio.Future[Any]:
        request, waits, follows = self._request, self._parts.replicas.waits, self._follows
        self._arrived = False
        missing = request.min_bytes - self._size
        if follows is not None:
            self._kept = results
            missing -= follows.grown  # arrived while the partitions were read in slices
            wait_ms = request.max_wait_ms if missing > 0 else 0
            return waits.add((), missing, wait_ms, answer, to_end=True, session=follows)
        return waits.add(
            self._find_present(),
            missing,
            request.max_wait_ms,
            answer,
            committed=request.isolation_level == READ_COMMITTED and not self._to_end,
            to_end=self._to_end,
        )

    def _find_present(self) -> list[Partition]:
        found = []
        for one in self._watched:
            try:
                found.append(self._find(*one.key))
            except BrokerError:
                continue  # the answer says so
        return found

    def _begin(self) -> None:
        """Set the limits, before the first partition is read."""
        version = self._call.version
        room = min(self._request.max_bytes, self._parts.config.fetch_max_bytes)
        self._room = room if version >= BATCHES else min(room, CONVERTED_ROOM)
        self._min_one = version >= BOUNDED
        self._size = 0
        self._urgent = False  # answer without waiting
        self._missing = 0  # unknown partitions, of a consumer
        self._found: list[tuple[Partition, int]] = []  # partitions with data, and how many bytes

    def _read(self, watched: list[Watched]) -> list[Result]:
        """Read these partitions, one after the other."""
        find, room, min_one, follows = self._find, self._room, self._min_one, self._follows
        results = []
        served = []
        for one in watched:
            try:
                partition = find(*one.key)
                data, size = self._read_one(partition, one, min(one.size_max, room), min_one=min_one)
                if data.diverging_epoch.end_offset >= 0 or data.preferred_read_replica >= 0:
                    self._urgent = True
                if follows is not None:
                    if one.home is not partition:
                        partition.watch(follows, one)
                    if size:
                        served.append(one)
                    elif not is_up_to_date(follows, partition, one, data):
                        follows.fresh[one.key] = one
            except BrokerError as error:
                data, size = refuse(one.index, error.code), 0
                if error.code in UNKNOWN and self.replica_id < 0:
                    self._missing += 1  # no reason to answer earlier: the consumer would ask again at once
                else:
                    self._urgent = True
                if follows is not None:
                    follows.fresh[one.key] = one
            if size:
                self._found.append((partition, size))
                self._size += size
                room = max(0, room - size)
                min_one = False
            results.append((one, data))
        self._room, self._min_one = room, min_one
        if follows is not None:
            follows.fresh.update((one.key, one) for one in served)  # at the end, so that no partition starves
        return results

    def _read_one(
        self, partition: Partition, one: Watched, size_max: int, *, min_one: bool
    ) -> tuple[PartitionData, int]:
        version, request = self._call.version, self._request
        if one.leader_epoch >= 0:
            partition.check_epoch(one.leader_epoch)
        log, to_end = partition.log, self._to_end
        diverging = self._diverging(partition, one) if one.last_fetched_epoch >= 0 else None
        if self.replica_id >= 0 and diverging is None:
            self._note(partition, one)
        high = partition.high
        data = PartitionData(
            partition_index=one.index,
            error_code=0,
            high_watermark=high,
            log_start_offset=log.start,
            aborted_transactions=None,
            records=b"",
        )
        data.last_stable_offset = stable = log.last_stable(high)
        if diverging is not None:
            data.diverging_epoch = diverging
            return data, 0
        if partition.followers is not None:
            if not to_end and version >= RACKS and request.rack_id and self._send_away(partition, one, data):
                return data, 0
            if self.replica_id >= 0 and self._holds_back(partition):
                return data, 0
        limit = log.end if to_end else high
        if request.isolation_level == READ_COMMITTED and self.replica_id < 0:
            limit = stable
        if version < ZSTD and log.config.compression_type == "zstd":
            raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if version < BATCHES:
            magic = MAGIC_OF_OLD_VERSIONS[version]
            data.records = convert(partition, one.offset, size_max, limit, magic, min_one=min_one)
            return data, len(data.records)
        found = log.read(one.offset, size_max, offset_max=limit, min_one=min_one)
        if request.isolation_level == READ_COMMITTED:
            data.aborted_transactions = [] if found is None else list_aborted(partition, one.offset, limit, found)
        if found is None:
            return data, 0
        data.records = found
        if self.replica_id >= 0:
            self._count_bytes(partition, found.size)
        return data, found.size

    # Followers.

    def _note(self, partition: Partition, one: Watched) -> None:
        """Note how far a follower has replicated: up to its fetch offset. Once per fetch, when it arrives."""
        log, offset = partition.log, one.offset
        if not log.start <= offset <= log.end:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if self._arrived:
            known = one.leader_epoch >= 0
            partition.note_fetch(
                self.replica_id,
                offset,
                one.log_start,
                self.broker_epoch,
                epoch_known=known,
                session=self._follows,
            )

    def _throttles(self, partition: Partition) -> bool:
        """Whether replication is throttled for a follower. Not in the ISR, because acknowledgements wait for those."""
        followers, throttled = partition.followers, partition.log.config.leader_replication_throttled_replicas
        if not throttled or followers is None or self.replica_id in followers.isr:
            return False
        return is_throttled(throttled, partition.index, self.replica_id)

    def _holds_back(self, partition: Partition) -> bool:
        throttle = self._parts.throttle
        return throttle is not None and self._throttles(partition) and throttle.is_exceeded()

    def _count_bytes(self, partition: Partition, size: int) -> None:
        throttle = self._parts.throttle
        if throttle is not None and self._throttles(partition):
            throttle.record(size)

    def _send_away(self, partition: Partition, one: Watched, data: PartitionData) -> bool:
        """Whether a consumer should read from a replica in its rack. The answer then names that replica."""
        selector, rack = self._parts.config.replica_selector_class, self._request.rack_id
        chosen = choose_replica(selector, partition, one.offset, rack, self._parts.metadata.image, self._call.listener)
        if chosen is not None:
            data.preferred_read_replica = chosen
        return chosen is not None

    def _diverging(self, partition: Partition, one: Watched) -> EpochEndOffset | None:
        """Where a log with this last epoch diverges from ours; None if it does not. A diverging follower gets no
        records."""
        epoch, end = partition.log.epoch_end(one.last_fetched_epoch)
        if epoch == one.last_fetched_epoch and end >= one.offset:
            return None
        if end < 0:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return EpochEndOffset(epoch=epoch, end_offset=end)

    def _report(self, results: list[Result], topics: Topics) -> None:
        """Add to the answer the partitions that the client must see."""
        session = self._session
        if session is not None:
            news = [(one, data) for one, data in results if has_news(one, data)]
            for one, data in news:
                remember(one, data)
            if self._incremental:
                results = news
            session.move_to_end([one for one, data in news if data.records])
        for one, data in results:
            key = (one.topic, one.topic_id)
            topic = topics.get(key)
            if topic is None:
                topics[key] = topic = FetchableTopicResponse(topic=one.topic, topic_id=one.topic_id, partitions=[])
            topic.partitions.append(data)

    def _response(self, topics: Topics) -> FetchResponse:
        for partition, size in self._found:
            if self.replica_id < 0:
                partition.traffic.bytes_out += size
            else:
                partition.traffic.replicated_out += size
        session_id = 0 if self._session is None else self._session.id
        response = FetchResponse(session_id=session_id, responses=list(topics.values()))
        if self._call.version >= HINTS and self._urgent:
            self._hint(response)
        return response

    def _hint(self, response: FetchResponse) -> None:
        """Add the leaders of partitions that this broker does not lead."""
        endpoints: dict[int, NodeEndpoint] = {}
        for topic in response.responses:
            name = self._parts.metadata.image.names_by_id.get(topic.topic_id, topic.topic)
            for data in topic.partitions:
                if data.error_code in ELSEWHERE:
                    hint = leader_hint(self._parts, self._call, name, data.partition_index)
                    if hint is not None:
                        data.current_leader = LeaderIdAndEpoch(leader_id=hint.leader, leader_epoch=hint.epoch)
                        endpoints[hint.leader] = NodeEndpoint(
                            node_id=hint.leader, host=hint.host, port=hint.port, rack=hint.rack
                        )
        response.node_endpoints = list(endpoints.values())


def make_shortcut(
    parts: Parts, version: int, authorizer: Authorizer | None, quotas: Quotas | None
) -> FetchShortcut | None:
    from ottla.handlers import fetch_shortcut

    return fetch_shortcut.make(parts, version, authorizer, quotas)


@handles(FetchRequest, shortcut=make_shortcut)
def fetch(
    parts: Parts, call: Call, request: FetchRequest
) -> FetchResponse | asyncio.Future[FetchResponse] | Steps[FetchResponse]:
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return FetchResponse(error_code=ErrorCode.INVALID_REQUEST, responses=[])
    try:
        session, incremental, watched = parts.sessions.open(
            request, steady_ms(parts.clock), by_id=call.version >= BY_ID
        )
    except BrokerError as error:
        return FetchResponse(error_code=error.code, responses=[])
    # The session has them: do not keep them while the request waits.
    request.topics, request.forgotten_topics_data = [], []
    return Reading(parts, call, request, session, watched, incremental=incremental).start()
