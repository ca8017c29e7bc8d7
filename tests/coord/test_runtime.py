"""The coordinator runtime with a machine that counts: order, waiting, failure, loading, timers, loss of partitions."""

from __future__ import annotations

import asyncio
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clock import SystemClock, steady_ms
from ottla.config import load, topic_config
from ottla.coord.machine import NOBODY, NOTHING, Decision, Record
from ottla.coord.runtime import Runtime, replay, slot
from ottla.disk import RealDisk
from ottla.errors import BrokerError, ErrorCode
from ottla.log.store import LogStore
from ottla.records import batch
from ottla.replica.partition import Partition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path


class Counter:
    """Counts by key. `add` answers at once, `wait` when the count is reached, `alarm` by a timer."""

    def __init__(self) -> None:
        self.counts: dict[bytes, int] = {}
        self.open: dict[int, list[bytes]] = {}
        self.waiting: list[tuple[int, bytes, int]] = []
        self.alarms: list[int] = []
        self.was_loaded = False

    def add(self, key: bytes, token: int) -> Decision:
        count = self.counts.get(key, 0) + 1
        ready = [(t, count) for t, k, n in self.waiting if k == key and n <= count]
        self.waiting = [w for w in self.waiting if w[0] not in dict(ready)]
        return Decision([Record(key, struct.pack(">i", count))], [(token, count), *ready])

    def add_in_transaction(self, key: bytes, token: int) -> Decision:
        return Decision([Record(key, b"\0\0\0\1")], [(token, "pending")], producer=(7, 0))

    def wait(self, key: bytes, count: int, token: int) -> Decision:
        self.waiting.append((token, key, count))
        return NOTHING

    def alarm(self, due_ms: int, token: int) -> Decision:
        self.alarms.append(token)
        return Decision(timers=[("alarm", due_ms)])

    def apply(self, key: bytes, value: bytes | None, *, offset: int, timestamp: int, producer_id: int) -> None:
        assert value is not None
        if producer_id != NOBODY:
            self.open.setdefault(producer_id, []).append(key)
        else:
            (self.counts[key],) = struct.unpack(">i", value)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        for key in self.open.pop(producer_id, []):
            self.counts[key] = self.counts.get(key, 0) + committed

    def finish_load(self, now_ms: int) -> Decision:
        self.was_loaded = True
        return NOTHING

    def expire(self, timer: Any, now_ms: int) -> Decision:
        assert timer == "alarm"
        return Decision(replies=[(token, "rang") for token in self.alarms])

    def unload(self) -> list[tuple[int, Any]]:
        return [(token, "gone") for token, _, _ in self.waiting]


@contextmanager
def stored(folder: Path) -> Iterator[LogStore]:
    config = load({"log.dirs": str(folder)})
    store = LogStore([folder], RealDisk(), SystemClock(), config)
    store.open(lambda _: topic_config(config, {}))
    yield store


def play(folder: Path, story: Callable[[Runtime[Counter], Partition], Awaitable[None]]) -> None:
    async def scene() -> None:
        with stored(folder) as store:
            log = store.logs.get(("counts", 0)) or store.create(
                "counts", 0, b"x" * 16, topic_config(store.config, {}), 0
            )
            partition = Partition("counts", 0, b"x" * 16, log, 0)
            runtime = Runtime(lambda _: Counter(), SystemClock())
            runtime.on_election(partition)
            await story(runtime, partition)
            await runtime.stop()
            await store.close()

    asyncio.run(scene())


async def result(answer: Any) -> Any:
    return await asyncio.wait_for(answer, 5) if asyncio.isfuture(answer) else answer


def test_what_was_decided_is_there_again_after_a_restart(tmp_path: Path) -> None:
    async def first(runtime: Runtime[Counter], _: Partition) -> None:
        with pytest.raises(BrokerError) as loading:
            runtime.peek(0)
        assert loading.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await result(runtime.run(0, lambda m, token, _: m.add(b"a", token))) == 1
        assert [runtime.run(0, lambda m, token, _: m.add(b"a", token)) for _ in range(3)] == [2, 3, 4]
        assert runtime.run(0, lambda m, token, _: m.add(b"b", token)) == 1

    async def second(runtime: Runtime[Counter], _: Partition) -> None:
        assert await result(runtime.run(0, lambda m, token, _: m.add(b"a", token))) == 5
        assert runtime.peek(0).counts == {b"a": 5, b"b": 1}
        assert runtime.peek(0).was_loaded

    play(tmp_path, first)
    play(tmp_path, second)


def test_a_reply_may_come_with_a_later_decision_and_one_for_a_client_that_left_is_dropped(tmp_path: Path) -> None:
    async def story(runtime: Runtime[Counter], _: Partition) -> None:
        await result(runtime.run(0, lambda m, token, _: m.add(b"a", token)))
        waiting = runtime.run(0, lambda m, token, _: m.wait(b"a", 3, token))
        gone = runtime.run(0, lambda m, token, _: m.wait(b"a", 3, token))
        gone.cancel()
        await asyncio.sleep(0)
        runtime.run(0, lambda m, token, _: m.add(b"a", token))
        assert not waiting.done()
        runtime.run(0, lambda m, token, _: m.add(b"a", token))
        assert await result(waiting) == 3

    play(tmp_path, story)


def test_timers_fire_and_a_lost_partition_answers_who_waits(tmp_path: Path) -> None:
    async def story(runtime: Runtime[Counter], _: Partition) -> None:
        soon = steady_ms(SystemClock()) + 20
        assert await result(runtime.run(0, lambda m, token, _: m.alarm(soon, token))) == "rang"
        waiting = runtime.run(0, lambda m, token, _: m.wait(b"a", 3, token))
        forgotten = runtime.run(0, lambda m, token, _: m.alarm(soon + 10**6, token))
        runtime.on_resignation(0)
        assert await result(waiting) == "gone"
        with pytest.raises(BrokerError) as lost:
            await result(forgotten)
        assert lost.value.code is ErrorCode.NOT_COORDINATOR
        with pytest.raises(BrokerError):
            runtime.run(0, lambda m, token, _: m.add(b"a", token))

    play(tmp_path, story)


def test_a_decision_that_cannot_be_written_changes_nothing_and_everybody_in_it_hears(tmp_path: Path) -> None:
    async def story(runtime: Runtime[Counter], partition: Partition) -> None:
        await result(runtime.run(0, lambda m, token, _: m.add(b"a", token)))
        waiting = runtime.run(0, lambda m, token, _: m.wait(b"a", 2, token))
        partition.log.fault = "pulled out"
        with pytest.raises(BrokerError) as refused:
            runtime.run(0, lambda m, token, _: m.add(b"a", token))
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
        with pytest.raises(BrokerError):
            await result(waiting)
        assert runtime.peek(0).counts == {b"a": 1}
        partition.log.fault = None

    play(tmp_path, story)


def test_records_of_a_transaction_count_when_its_marker_comes_live_and_at_load(tmp_path: Path) -> None:
    async def story(runtime: Runtime[Counter], partition: Partition) -> None:
        await result(runtime.run(0, lambda m, token, _: m.add_in_transaction(b"a", token)))
        assert runtime.peek(0).counts == {}
        runtime.end_transaction(0, 7, committed=True)
        assert runtime.peek(0).counts == {b"a": 1}
        found = partition.log.read(0, 10**6, offset_max=partition.log.end)
        assert found is not None
        fresh = Counter()
        assert replay(fresh, found.read(), 0) == 1
        assert fresh.counts == {}
        key, value = struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 0)
        marker = batch.build(
            [batch.Record(1, 0, key, value, ())], producer_id=7, producer_epoch=0, transactional=True, control=True
        )
        assert replay(fresh, marker, 1) == 2
        assert fresh.counts == {b"a": 1}

    play(tmp_path, story)


def test_an_error_becomes_a_reply_for_who_knows_how_to_refuse(tmp_path: Path) -> None:
    def refused(code: ErrorCode) -> str:
        return f"refused: {code.name}"

    async def story(runtime: Runtime[Counter], partition: Partition) -> None:
        await result(runtime.run(0, lambda m, token, _: m.add(b"a", token)))
        waiting = runtime.run(0, lambda m, token, _: m.wait(b"a", 2, token), refused)
        partition.log.fault = "full"
        with pytest.raises(BrokerError):  # nobody waits yet, so it is raised
            runtime.run(0, lambda m, token, _: m.add(b"a", token), refused)
        assert await result(waiting) == "refused: NOT_COORDINATOR", "what a failed log means to a client"
        partition.log.fault = None
        forgotten = runtime.run(0, lambda m, token, _: m.alarm(steady_ms(SystemClock()) + 10**6, token), refused)
        runtime.on_resignation(0)
        assert await result(forgotten) == "refused: NOT_COORDINATOR"

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("key", "index"),
    [("", 0), ("a", 47), ("test-group", 12), ("größe", 7), ("😀", 49), ("polygenelubricants", 0), ("long" * 100, 42)],
)
def test_keys_lie_in_the_partition_where_kafka_puts_them(key: str, index: int) -> None:
    assert slot(key, 50) == slot(key, 50) == index
    assert slot(key, 1) == 0


def test_a_decision_too_large_for_one_batch_becomes_several(tmp_path: Path) -> None:
    async def story(runtime: Runtime[Counter], partition: Partition) -> None:
        await result(runtime.run(0, lambda m, token, _: m.add(b"a", token)))
        limit, before = partition.log.config.max_message_bytes, partition.log.end
        keys = [b"%06d" % number + b"x" * 1000 for number in range(3 * limit // 1000)]
        many = Decision([Record(key, struct.pack(">i", 7)) for key in keys])
        runtime.decide(0, lambda machine, _: many)
        assert partition.log.end == before + len(keys)
        assert all(runtime.peek(0).counts[key] == 7 for key in keys)

    play(tmp_path, story)


def test_what_the_broker_itself_wants_done_waits_for_the_load_and_for_a_log_that_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.coord.runtime.RETRY_S", 0.01)

    async def story(runtime: Runtime[Counter], partition: Partition) -> None:
        runtime.decide(0, lambda machine, _: machine.add(b"a", 0))  # not loaded yet
        await result(runtime.run(0, lambda m, token, _: m.wait(b"a", 1, token)))
        partition.log.fault = "full"
        runtime.decide(0, lambda machine, _: machine.add(b"a", 0))
        await asyncio.sleep(0.03)
        assert runtime.peek(0).counts == {b"a": 1}
        partition.log.fault = None
        await result(runtime.run(0, lambda m, token, _: m.wait(b"a", 2, token)))
        partition.log.fault = "full"
        runtime.decide(0, lambda machine, _: machine.add(b"a", 0))
        runtime.on_resignation(0)
        partition.log.fault = None
        end = partition.log.end
        await asyncio.sleep(0.03)
        assert partition.log.end == end, "who leads it now decides"

    play(tmp_path, story)
