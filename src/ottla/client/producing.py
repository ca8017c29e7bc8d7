"""Sends record batches to their leaders: pipelined, with the order within each partition kept.

    sender = Sender(cluster)
    sender.send(TopicPartition("events", 0), batches)      # waits when too much is in flight
    sender.flush()                                         # returns when everything is acknowledged

A Produce request takes one batch of each partition: the oldest waiting one. So large batches (a quarter of a
megabyte and more) are much faster than small ones. Answers on a connection come in the order of its requests, and a
partition uses one connection at a time. When a batch fails for a reason that passes, its partition waits for the
outstanding answers, and then sends everything again from the failed batch on: the same bytes in the same order. With an
identity the broker recognises batches by their sequence numbers and keeps each once; without, a batch may be there
twice (at least once). The first batch of a partition, and the first after a failure, is sent alone: a broker that does
not know a producer accepts any sequence number as its first, even that of the second batch if it has refused the first.

Sequence errors are only ignored where they must happen. DUPLICATE for a batch that was sent before is a success; for
one that was not, sequence numbers were used twice. OUT_OF_ORDER after a batch that failed in this round is a
consequence; after an acknowledged one it means that the broker has lost records. Both other cases are errors.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Self

from ottla.client.cluster import Patience, TopicPartition
from ottla.client.connection import Uncopied
from ottla.client.failure import Failed, Refused, Unreachable, passes
from ottla.client.transaction import newer_protocol
from ottla.errors import ErrorCode
from ottla.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.client.cluster import Cluster
    from ottla.client.connection import Address, Connection
    from ottla.client.transaction import ProducerIdentity

NAMES_UNTIL: Final = 12  # versions of Produce; later ones use topic ids
ANNOUNCED_UNTIL: Final = 11  # after this version, a batch adds its partition to the transaction
PARTITIONS_MAX: Final = 4096  # per request: brokers limit it
TOO_LARGE: Final = {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}


class Batch:
    __slots__ = ("data", "sent")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.sent = 0  # how often


class Lane:
    """The batches of one partition: waiting and in flight, both oldest first."""

    def __init__(self, where: TopicPartition, patience: Patience) -> None:
        self.where = where
        self.waiting: deque[Batch] = deque()
        self.flying: deque[Batch] = deque()
        self.again: list[Batch] = []  # the batch that failed in this round, and all after it
        self.open = False  # the last answer was a success
        self.link: Link | None = None
        self.patience = patience

    @property
    def name(self) -> str:
        return f"{self.where.topic} partition {self.where.partition}"

    def settle(self) -> int:
        """After the last answer of a failed round, queue it again from the failed batch on. Returns its bytes."""
        if not self.again or self.flying:
            return 0
        size = sum(len(batch.data) for batch in self.again)
        self.waiting.extendleft(reversed(self.again))
        self.again = []
        return size


class Link:
    """A connection to a leader with its requests in flight, oldest first."""

    def __init__(self, address: Address, connection: Connection) -> None:
        self.address = address
        self.connection = connection
        self.requests: deque[list[tuple[Lane, Batch]]] = deque()


class Sender:
    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = -1,
        identity: ProducerIdentity | None = None,
        timeout_ms: int = 30_000,
        in_flight: int = 5,
        request_bytes_max: int = 1 << 20,
    ) -> None:
        if identity is not None and acks != -1:
            raise Failed(f"acks={acks}: a producer with an identity needs acks=all, or it could not tell what was lost")
        self._cluster = cluster
        self._acks = acks
        self._identity = identity
        self._timeout_ms = timeout_ms
        self._in_flight = in_flight
        self._request_bytes_max = request_bytes_max
        self._lanes: dict[TopicPartition, Lane] = {}
        self._links: dict[Address, Link] = {}
        self._waiting = 0  # bytes that are in no request yet
        self._error: Failed | None = None

    def send(self, where: TopicPartition, batches: Sequence[bytes]) -> None:
        """Queue batches of one partition, and send full requests."""
        self._check()
        lane = self._lanes.get(where)
        if lane is None:
            lane = self._lanes[where] = Lane(where, Patience(self._cluster))
        for data in batches:
            lane.waiting.append(Batch(data))
            self._waiting += len(data)
            while self._waiting >= self._request_bytes_max:
                self._step()
        self._collect()

    def flush(self) -> None:
        """Wait until everything is acknowledged."""
        self._check()
        while any(lane.waiting or lane.flying or lane.again for lane in self._lanes.values()):
            self._step()

    def close(self) -> None:
        """Release the connections. What was not flushed may or may not arrive."""
        for link in self._links.values():
            self._cluster.release(link.connection)
        self._links.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _step(self) -> None:
        """Send one request, or wait for an answer if none can be sent now."""
        try:
            self._dispatch()
        except Failed as error:
            self._error = error
            raise

    def _collect(self) -> None:
        """Take the answers that are there already."""
        try:
            for link in list(self._links.values()):
                while link.requests and link.connection.ready():
                    self._take(link)
        except Failed as error:
            self._error = error
            raise

    def _dispatch(self) -> None:
        ready: dict[Link, list[Lane]] = {}
        troubles: list[tuple[Lane, Failed]] = []
        silent: dict[Address | None, Unreachable] = {}
        for lane in self._lanes.values():
            if not lane.waiting or lane.again or (lane.flying and not lane.open):
                continue
            try:
                ready.setdefault(self._link(lane, silent), []).append(lane)
            except Failed as error:
                troubles.append((lane, error))
        bear(troubles)
        free = [link for link in ready if len(link.requests) < self._in_flight]
        if free:
            self._request(free[0], ready[free[0]])
            return
        busy = max(self._links.values(), key=lambda link: len(link.requests), default=None)
        if busy is not None and busy.requests:
            self._take(busy)

    def _link(self, lane: Lane, silent: dict[Address | None, Unreachable]) -> Link:
        """The connection for a partition: that of its batches in flight, else that of its leader.

        A broker that is `silent` (None: all of them) is tried once for all partitions, since that may take long.
        """
        if lane.flying:
            assert lane.link is not None, "what is on its way has one"
            return lane.link
        address: Address | None = None
        try:
            if None in silent:
                raise silent[None]
            address = self._cluster.place(lane.where)
            link = self._links.get(address)
            if link is None:
                if address in silent:
                    raise silent[address]
                link = self._links[address] = Link(address, self._cluster.lease(lane.where))
        except Unreachable as error:
            silent.setdefault(address, error)
            raise
        lane.link = link
        return link

    def _request(self, link: Link, lanes: list[Lane]) -> None:
        """Send one request with the oldest batch of each partition, as many as fit; at least one."""
        chosen: list[tuple[Lane, Batch]] = []
        size = 0
        for lane in lanes:
            batch = lane.waiting[0]
            if chosen and size + len(batch.data) > self._request_bytes_max:
                continue
            if len(chosen) == PARTITIONS_MAX:
                break
            chosen.append((lane, lane.waiting.popleft()))
            size += len(batch.data)
        # Partitions that did not fit come first the next time.
        for lane, _ in chosen:
            self._lanes[lane.where] = self._lanes.pop(lane.where)
        for lane, batch in chosen:
            batch.sent += 1
            lane.flying.append(batch)
        self._waiting -= size
        link.requests.append(chosen)
        topics: dict[str, list[PartitionProduceData]] = {}
        for lane, batch in chosen:
            records = Uncopied(batch.data)
            part = PartitionProduceData(index=lane.where.partition, records=records)  # type: ignore[arg-type]
            topics.setdefault(lane.where.topic, []).append(part)
        request = ProduceRequest(
            transactional_id=self._identity.transactional_id if self._identity else None,
            acks=self._acks,
            timeout_ms=self._timeout_ms,
            topic_data=[TopicProduceData(name=name, partition_data=parts) for name, parts in topics.items()],
        )
        try:
            transactional = self._identity is not None and self._identity.transactional_id is not None
            old = transactional and not newer_protocol(self._cluster)
            newest = ANNOUNCED_UNTIL if old else NAMES_UNTIL
            wait_s = self._timeout_ms / 1000
            link.connection.send(request, newest=newest, answered=self._acks != 0, wait_s=wait_s)
        except Unreachable as error:
            self._lose(link, error)
            return
        if self._acks == 0:
            link.requests.pop()
            for lane, _ in chosen:
                lane.flying.popleft()
                lane.patience.progress()

    def _take(self, link: Link) -> None:
        """The answer to the oldest request of a connection."""
        try:
            answer = link.connection.receive(ProduceResponse)
        except Unreachable as error:
            self._lose(link, error)
            return
        codes = {
            TopicPartition(topic.name, one.index): one
            for topic in answer.responses
            for one in topic.partition_responses
        }
        troubles: list[tuple[Lane, Failed]] = []
        for lane, batch in link.requests.popleft():
            lane.flying.popleft()
            said = codes.get(lane.where)
            if said is None:
                raise Failed(f"the broker at {link.connection.name} left out {lane.name}")
            trouble = self._judge(lane, batch, said)
            lane.open = trouble is None and not lane.again
            if lane.again:
                lane.again.append(batch)
            elif trouble is not None:
                lane.again.append(batch)
                troubles.append((lane, trouble))
            else:
                lane.patience.progress()
            self._waiting += lane.settle()
        bear(troubles)

    def _judge(self, lane: Lane, batch: Batch, said: PartitionProduceResponse) -> Refused | None:
        """None if the batch is in the log. Returns a temporary error, raises a permanent one."""
        code = said.error_code
        if not code:
            return None
        if self._identity is not None:
            if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER and batch.sent > 1:
                return None
            if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and lane.again:
                return None  # it follows the failed batch, and is sent again with it
        error = Refused(f"writing to {lane.name}", code, explain(batch, said))
        if not passes(error):
            raise error
        return error

    def _lose(self, link: Link, error: Unreachable) -> None:
        """The connection was lost: send all batches that were in flight again."""
        self._links.pop(link.address, None)
        link.connection.close()
        lanes = list(dict.fromkeys(lane for request in link.requests for lane, _ in request))
        link.requests.clear()
        for lane in lanes:
            lane.again.extend(lane.flying)
            lane.flying.clear()
            lane.open = False
            self._waiting += lane.settle()
        bear([(lane, error) for lane in lanes])


def bear(troubles: Sequence[tuple[Lane, Failed]]) -> None:
    """Pause once for all partitions: a thousand must not wait one after the other."""
    for index, (lane, reason) in reversed(list(enumerate(troubles))):
        lane.patience.bear(reason, pause=index == 0)


def explain(batch: Batch, said: PartitionProduceResponse) -> str:
    if said.error_code in TOO_LARGE:
        return (
            f": it has {len(batch.data)} bytes; raise the topic's max.message.bytes (the broker's message.max.bytes), "
            "or write smaller batches"
        )
    texts = [said.error_message or "", *(one.batch_index_error_message or "" for one in said.record_errors[:1])]
    return "".join(f": {text}" for text in dict.fromkeys(texts) if text)


__all__ = ["Sender"]
