"""Runs the machines of one internal topic: loads them, carries out what they decide, runs their timers.

A partition is loaded when this broker becomes its leader: its log is read from the start and every record applied, a
slice at a time so that other work continues. Requests wait until that is done and everything that was read is
committed. When leadership is lost, the machine is dropped and pending requests get NOT_COORDINATOR. A load that fails
is retried.

Appending and applying happen in one step on the event loop, so operations on a partition never interleave. Replies and
effects of a decision follow when its records are committed: on enough replicas, and on disk if the topic requires it. A
decision without records may depend on earlier records that are not committed yet, so it waits for those. A request that
waits too long because a replica does not answer gets a retriable error, but the decision is not undone.
"""

from __future__ import annotations

import asyncio
import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ottla.clock import steady_ms
from ottla.coord.machine import NOBODY, NOTHING, Decision, Machine, Moment
from ottla.errors import BrokerError, ErrorCode
from ottla.records import batch
from ottla.records.markers import read_marker
from ottla.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from ottla.clock import Clock
    from ottla.coord.machine import Record, TimerKey, Token
    from ottla.replica.partition import Partition

logger = logging.getLogger("ottla.coord")

M = TypeVar("M", bound=Machine)
LOAD_SIZE = 1 << 20  # bytes applied before the loader yields to other work
BATCH_OVERHEAD = batch.HEADER_SIZE
RECORD_OVERHEAD = 40  # upper bound for the lengths, offset and time of a record
TIMER_RETRY_MS = 10_000
PATIENCE_S = 30.0
SLOTS_KEPT = 4096  # keys whose partition is remembered
KEY_SIZE_KEPT = 256  # longer keys are not
RETRY_S = 1.0  # delay before a failed load, or a decision that could not be written, is retried
# The error code that a client of a coordinator gets for a failed append.
MEANINGS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class Reply(asyncio.Future[Any]):
    """The reply that a client waits for. An error becomes a reply, too, if `refuse` is given: it makes one of a code.

    It can be returned to the connection as it is: no task is needed that waits for it.
    """

    def __init__(self, refuse: Callable[[ErrorCode], Any] | None) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._refuse = refuse

    def fail(self, code: ErrorCode) -> None:
        if self.done():
            return
        if self._refuse is None:
            self.set_exception(BrokerError(code))
        else:
            self.set_result(self._refuse(code))


class Shard(Generic[M]):
    """One partition of the internal topic and its machine."""

    def __init__(self, partition: Partition, machine: M) -> None:
        self.partition = partition
        self.machine = machine
        self.ready = False
        self.end = 0  # offset after the last record that the machine has applied
        self.load: asyncio.Task[None] | None = None
        self.timers: dict[TimerKey, tuple[int, asyncio.TimerHandle]] = {}
        self.waiting: dict[Token, Reply] = {}


class Runtime(Generic[M]):
    """The machines of one internal topic."""

    def __init__(
        self,
        make: Callable[[int], M],
        clock: Clock,
        perform: Callable[[int, Any], None] | None = None,
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._make = make
        self._clock = clock
        self._patience_s = patience_s  # how long a request waits for a commit or a load
        self._perform = perform  # carries out an effect of the machine of a partition
        self._shards: dict[int, Shard[M]] = {}
        self._retries: dict[int, asyncio.TimerHandle] = {}  # of partitions that could not be loaded
        self._steps = Steps("ottla.coord")
        self._token = 0
        self.stopped = False

    # Leadership.

    def on_election(self, partition: Partition) -> None:
        """This broker is now the partition's leader: load its machine, unless it is loaded already."""
        index = partition.index
        known = self._shards.get(index)
        if self.stopped or (known is not None and known.partition is partition):
            return
        self.on_resignation(index)
        shard = self._shards[index] = Shard(partition, self._make(index))
        shard.load = asyncio.get_running_loop().create_task(self._load(shard))

    def on_resignation(self, index: int) -> None:
        """This broker is no longer the partition's leader, or the partition was deleted: drop its machine."""
        retry = self._retries.pop(index, None)
        if retry is not None:
            retry.cancel()
        shard = self._shards.pop(index, None)
        if shard is None:
            return
        if shard.load is not None:
            shard.load.cancel()
        for _, handle in shard.timers.values():
            handle.cancel()
        for token, reply in shard.machine.unload():
            self._reply(shard, token, reply)
        for waiting in list(shard.waiting.values()):
            waiting.fail(ErrorCode.NOT_COORDINATOR)

    async def stop(self) -> None:
        self.stopped = True
        loads = [shard.load for shard in self._shards.values() if shard.load is not None]
        for index in [*self._shards, *self._retries]:
            self.on_resignation(index)
        await asyncio.gather(*loads, return_exceptions=True)

    async def _load(self, shard: Shard[M]) -> None:
        partition, machine = shard.partition, shard.machine
        log = partition.log
        try:
            offset = log.start
            while True:
                while offset < log.end:
                    found = log.read(offset, LOAD_SIZE, offset_max=log.end, min_one=True)
                    if found is None:
                        break
                    offset = replay(machine, found.read(), offset)
                    await asyncio.sleep(0)
                shard.end = log.end
                uncommitted = pending_commit(shard)
                if uncommitted is None:
                    break
                await asyncio.wait((uncommitted,))  # a marker may be appended meanwhile
                if (error := uncommitted.exception()) is not None and not is_isr_too_small(error):
                    raise error
            decision = machine.finish_load(self._now())
            shard.ready = True
            self._carry_out(shard, decision)
        except Exception as error:
            if self._shards.get(partition.index) is not shard:
                return  # leadership was lost during the load
            self._steps.note_failure(f"loading {partition.topic}-{partition.index}", error)
            shard.ready = False
            self.on_resignation(partition.index)  # answers pending requests; the load is retried below
            retry = asyncio.get_running_loop().call_later(RETRY_S, self._retry, partition)
            self._retries[partition.index] = retry
        else:
            self._steps.note_success(f"loading {partition.topic}-{partition.index}")

    def _retry(self, partition: Partition) -> None:
        self._retries.pop(partition.index, None)
        self.on_election(partition)

    def epoch(self, index: int) -> int:
        """The current leader epoch of a partition that this broker leads."""
        return self._shards[index].partition.epoch

    def partitions(self) -> list[Partition]:
        """The partitions that this broker leads."""
        return [shard.partition for shard in self._shards.values()]

    def leads(self, index: int) -> bool:
        """Whether this broker is the partition's leader, even if its machine is not loaded yet."""
        return index in self._shards or index in self._retries

    # Operations.

    def run(
        self,
        index: int,
        operation: Callable[[M, Token, int], Decision],
        refuse: Callable[[ErrorCode], Any] | None = None,
    ) -> Any | asyncio.Future[Any]:
        """Run an operation. Returns the reply, or a future of it if the reply has to wait.

        With `refuse` a `Reply` does not fail. Other futures, and this call, still raise BrokerError.
        """
        shard = self._shards.get(index)
        if shard is None:
            raise BrokerError(ErrorCode.NOT_COORDINATOR)
        if not shard.ready:
            return asyncio.ensure_future(self._run_when_loaded(shard, operation))
        return self._run(shard, operation, refuse)

    def _run(
        self,
        shard: Shard[M],
        operation: Callable[[M, Token, int], Decision],
        refuse: Callable[[ErrorCode], Any] | None = None,
    ) -> Any | Reply:
        self._token = token = self._token + 1
        decision = operation(shard.machine, token, self._now())
        answer = self._carry_out(shard, decision, token)
        if answer is not None:
            return answer
        reply = shard.waiting[token] = Reply(refuse)
        reply.add_done_callback(lambda _: shard.waiting.pop(token, None))
        return reply

    async def _run_when_loaded(self, shard: Shard[M], operation: Callable[[M, Token, int], Decision]) -> Any:
        assert shard.load is not None
        done, _ = await asyncio.wait((shard.load,), timeout=self._patience_s)
        if not shard.ready:
            raise BrokerError(ErrorCode.NOT_COORDINATOR if done else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        answer = self._run(shard, operation)
        return await answer if asyncio.isfuture(answer) else answer

    def peek(self, index: int) -> M:
        """The machine, for reading only. BrokerError while it loads, or if this broker is not the leader."""
        shard = self._shards.get(index)
        if shard is None:
            raise BrokerError(ErrorCode.NOT_COORDINATOR)
        if not shard.ready:
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard.machine

    def machines(self) -> Iterator[tuple[int, M]]:
        """The machines that are loaded, by partition."""
        return ((index, shard.machine) for index, shard in self._shards.items() if shard.ready)

    @property
    def loading(self) -> bool:
        return any(not shard.ready for shard in self._shards.values())

    def pending_commit(self, index: int, machine: M) -> asyncio.Future[None] | None:
        """None if all that the machine knows is committed, else a future to await before showing it to a client.

        NOT_COORDINATOR, raised or from the future, if this is no longer the machine of the partition, or if this
        broker may have lost leadership during a long suspension without knowing it yet.
        """
        shard = self._shards.get(index)
        if shard is None or shard.machine is not machine or shard.partition.is_abandoned():
            raise BrokerError(ErrorCode.NOT_COORDINATOR)
        uncommitted = pending_commit(shard)
        if uncommitted is None:
            return None
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.add_done_callback(lambda done: done.cancelled() or done.exception())  # the caller may be gone

        def settle(outcome: asyncio.Future[None]) -> None:
            code = self._outcome(shard, outcome, written=False)
            if waiting.done():
                return
            if code is ErrorCode.NONE:
                waiting.set_result(None)
            else:
                waiting.set_exception(BrokerError(code))

        uncommitted.add_done_callback(settle)

        def give_up() -> None:
            if not waiting.done():
                waiting.set_exception(BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            uncommitted.cancel()

        self._limit(uncommitted, give_up)
        return waiting

    def _limit(self, uncommitted: asyncio.Future[None], give_up: Callable[[], None]) -> None:
        """Call `give_up` if a commit takes too long.

        It cancels `uncommitted` unless that is still needed: while the high watermark does not advance, clients retry,
        and their requests must not pile up.
        """
        timer = asyncio.get_running_loop().call_later(self._patience_s, give_up)
        uncommitted.add_done_callback(lambda _: timer.cancel())

    def wait_for_commit(self, index: int, machine: M) -> Generator[asyncio.Future[None], None, None]:
        """Wait for `pending_commit`, as steps of a handler."""
        waiting = self.pending_commit(index, machine)
        if waiting is not None:
            yield waiting
            waiting.result()

    def end_transaction(self, index: int, producer_id: int, *, committed: bool) -> None:
        """A transaction marker was written to a partition of this topic."""
        shard = self._shards.get(index)
        if shard is not None and shard.ready:
            shard.machine.end_transaction(producer_id, committed=committed)
            shard.end = shard.partition.log.end

    def decide(self, index: int, operation: Callable[[M, int], Decision]) -> None:
        """Run an internal operation, which no client waits for.

        No client would retry it. So as long as this broker is the leader, it is retried until the machine is loaded
        and its log accepts the records, unless the decision has its own `on_failure`.
        """
        shard = self._shards.get(index)
        if shard is not None and shard.ready:
            decision = operation(shard.machine, self._now())
            if decision.on_failure is None:
                decision = decision._replace(on_failure=lambda _: self._decide_later(index, operation))
            self._carry_out(shard, decision)
        elif self.leads(index):
            self._decide_later(index, operation)

    def _decide_later(self, index: int, operation: Callable[[M, int], Decision]) -> Decision:
        asyncio.get_running_loop().call_later(RETRY_S, self.decide, index, operation)
        return NOTHING

    def _carry_out(self, shard: Shard[M], decision: Decision, token: Token = 0) -> Any | None:
        """Append, apply, set timers, reply. Returns the reply to `token` if it is available at once."""
        while decision.records:
            try:
                self._append(shard, decision)
                break
            except BrokerError as error:
                code = MEANINGS.get(error.code, error.code)
                logger.warning("cannot write to %s-%d: %s", shard.partition.topic, shard.partition.index, error)
                if decision.on_failure is None:
                    for timer, due_ms in decision.timers:  # to try again later
                        self._set_timer(shard, timer, due_ms)
                    for waiting, _ in decision.replies:
                        if waiting != token and (reply := shard.waiting.get(waiting)):
                            reply.fail(code)
                    if token:
                        raise BrokerError(code) from error
                    return None
                decision = decision.on_failure(code)
        for timer, due_ms in decision.timers:
            self._set_timer(shard, timer, due_ms)
        if not decision.replies and not decision.effects:
            return None
        uncommitted = pending_commit(shard, written=bool(decision.records))
        if uncommitted is None:
            return self._conclude(shard, decision, token)
        # The reply to `token` then also goes through its future.
        uncommitted.add_done_callback(lambda outcome: self._settle(shard, decision, outcome))
        if decision.replies:
            tokens = [token for token, _ in decision.replies]

            def give_up() -> None:
                for waiting in map(shard.waiting.get, tokens):
                    if waiting is not None:
                        waiting.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                if not decision.effects:
                    uncommitted.cancel()

            self._limit(uncommitted, give_up)
        return None

    def _settle(self, shard: Shard[M], decision: Decision, outcome: asyncio.Future[None]) -> None:
        """Called when the records of a decision are committed, or their commit failed or timed out."""
        code = self._outcome(shard, outcome, written=bool(decision.records))
        if self._shards.get(shard.partition.index) is not shard:
            return  # pending requests were answered; the new leader performs what is in the log
        if code is ErrorCode.NONE:
            self._conclude(shard, decision, 0)
            return
        for waiting, _ in decision.replies:
            if reply := shard.waiting.get(waiting):
                reply.fail(code)
        if decision.effects:  # the records are in the log and may still be committed
            left = Decision(effects=decision.effects)
            asyncio.get_running_loop().call_later(RETRY_S, self._perform_later, shard, left)

    def _perform_later(self, shard: Shard[M], left: Decision) -> None:
        if self._shards.get(shard.partition.index) is shard:
            self._carry_out(shard, left)

    def _outcome(self, shard: Shard[M], outcome: asyncio.Future[None], *, written: bool) -> ErrorCode:
        """The error code for a client, given the outcome of a commit."""
        if outcome.cancelled() or self._shards.get(shard.partition.index) is not shard:
            return ErrorCode.NOT_COORDINATOR
        error = outcome.exception()
        if error is None or (is_isr_too_small(error) and not written):
            return ErrorCode.NONE
        self._steps.note_failure(f"commit in {shard.partition.topic}-{shard.partition.index}", error)
        if isinstance(error, BrokerError):
            return MEANINGS.get(error.code, error.code)
        return ErrorCode.UNKNOWN_SERVER_ERROR

    def _conclude(self, shard: Shard[M], decision: Decision, token: Token) -> Any | None:
        """Send the replies and perform the effects. Returns the reply to `token` if there is one."""
        answer = None
        for waiting, reply in decision.replies:
            if waiting == token:
                answer = reply
            else:
                self._reply(shard, waiting, reply)
        if decision.effects:
            assert self._perform is not None, "a machine with effects needs somebody to perform them"
            for effect in decision.effects:
                self._perform(shard.partition.index, effect)
        return answer

    def _append(self, shard: Shard[M], decision: Decision) -> None:
        now_ms, partition, machine, producer = self._clock.now_ms(), shard.partition, shard.machine, decision.producer
        producer_id = NOBODY if producer is None else producer[0]
        for records in portions(decision.records, partition.log.config.max_message_bytes):
            base = partition.append_own(records, now_ms, producer)
            for offset, one in enumerate(records, base):
                machine.apply(one.key, one.value, offset=offset, timestamp=now_ms, producer_id=producer_id)
            shard.end = base + len(records)

    def _reply(self, shard: Shard[M], token: Token, reply: Any) -> None:
        future = shard.waiting.get(token)
        if future is not None and not future.done():  # else the client is gone
            future.set_result(reply)

    # Time.

    def _now(self) -> Moment:
        return Moment.of(steady_ms(self._clock), self._clock.now_ms())

    def _set_timer(self, shard: Shard[M], timer: TimerKey, due_ms: int | None) -> None:
        present = shard.timers.get(timer)
        if present is not None:
            if present[0] == due_ms:
                return
            present[1].cancel()
            del shard.timers[timer]
        if due_ms is not None:
            delay_s = max(0, due_ms - steady_ms(self._clock)) / 1000
            handle = asyncio.get_running_loop().call_later(delay_s, self._expire, shard, timer)
            shard.timers[timer] = due_ms, handle

    def _expire(self, shard: Shard[M], timer: TimerKey) -> None:
        shard.timers.pop(timer, None)
        if self._shards.get(shard.partition.index) is not shard:
            return
        try:
            self._carry_out(shard, shard.machine.expire(timer, self._now()))
        except Exception:  # a bug must not lose the timer
            logger.exception("timer %s of %s-%d", timer, shard.partition.topic, shard.partition.index)
            self._set_timer(shard, timer, steady_ms(self._clock) + TIMER_RETRY_MS)


def pending_commit(shard: Shard[Any], *, written: bool = False) -> asyncio.Future[None] | None:
    """A future that is done when everything that the machine knows is committed; None if it already is.

    For a writer (`written`) it also fails if too few replicas are in sync. For a reader it does not: what was
    committed before the ISR became too small is still committed.
    """
    partition, log = shard.partition, shard.partition.log
    if not written and partition.led and shard.end <= partition.high and not log.durability.owes_flush:
        return None
    uncommitted = partition.wait_for_commit(shard.end)
    if uncommitted is not None:
        uncommitted.add_done_callback(lambda done: done.cancelled() or done.exception())  # the caller may be gone
    return uncommitted


def is_isr_too_small(error: BaseException) -> bool:
    """Whether the records are committed, but fewer replicas are in sync than min.insync.replicas."""
    return isinstance(error, BrokerError) and error.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def portions(records: Sequence[Record], size_max: int) -> Iterable[Sequence[Record]]:
    """Split records into batches within the topic's size limit; usually there is only one."""
    size = BATCH_OVERHEAD
    for key, value in records:
        size += RECORD_OVERHEAD + len(key) + (0 if value is None else len(value))
    return (records,) if size <= size_max or len(records) == 1 else split(records, size_max)


def split(records: Sequence[Record], size_max: int) -> Iterator[Sequence[Record]]:
    size, first = BATCH_OVERHEAD, 0
    for at, one in enumerate(records):
        grown = RECORD_OVERHEAD + len(one.key) + len(one.value or b"")
        if size + grown > size_max and at > first:
            yield records[first:at]
            size, first = BATCH_OVERHEAD, at
        size += grown
    yield records[first:]


def replay(machine: Machine, data: bytes, offset: int) -> int:
    """Apply every whole batch in data from offset on. Returns the offset after the last."""
    for entry in batch.entries(data):
        if entry.last_offset < offset:
            continue
        head = batch.header(data, entry.position) if entry.magic >= 2 else None
        if head is not None and head.control:
            for record in batch.iterate(data, entry.position):
                marker = read_marker(record.key, record.value)
                if marker is not None:
                    machine.end_transaction(head.producer_id, committed=marker.commit)
        else:
            producer_id = head.producer_id if head is not None and head.transactional else NOBODY
            for record in batch.iterate(data, entry.position):
                if record.key is not None and record.offset >= offset:
                    machine.apply(
                        record.key,
                        record.value,
                        offset=record.offset,
                        timestamp=record.timestamp,
                        producer_id=producer_id,
                    )
        offset = entry.last_offset + 1
    return offset


def slot(key: str, count: int) -> int:
    """The partition in which Kafka keeps a key: Java's string hash, without its sign."""
    return _slot(key, count) if len(key) > KEY_SIZE_KEPT else _kept_slot(key, count)


def _slot(key: str, count: int) -> int:
    value = 0
    for unit in memoryview(key.encode("utf-16-le", "surrogatepass")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    value = value - (1 << 32) if value >= 1 << 31 else value
    return (0 if value == -(1 << 31) else abs(value)) % count


_kept_slot = lru_cache(SLOTS_KEPT)(_slot)
