"""A coordinator returns only what is committed. The test controls the high watermark of its partition."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from coord.test_runtime import Counter, result, stored
from waiting import until

from ottla.clock import SystemClock
from ottla.config import topic_config
from ottla.coord.machine import Decision
from ottla.coord.runtime import Runtime
from ottla.coord.transactions.markers import Marker, append
from ottla.errors import BrokerError, ErrorCode
from ottla.replica.partition import Partition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

MARKER = Marker(7, 0, 0, 0, commits=True)
TOO_FEW = BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
NOT_LEADER = BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Held(Partition):
    """A partition whose high watermark the test sets."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.mark = 0
        self.too_few = False
        self.held: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def high(self) -> int:
        return min(self.mark, self.log.end)

    def wait_for_commit(self, offset: int) -> asyncio.Future[None] | None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if offset <= self.mark:
            if not self.too_few:
                return None
            future.set_exception(TOO_FEW)
        self.held.append((offset, future))
        return future

    def advance(self, to: int) -> None:
        self.mark = to
        for offset, future in self.held:
            if offset <= to and not future.done():
                future.set_result(None)

    def lose(self, error: BrokerError) -> None:
        for _, future in self.held:
            if not future.done():
                future.set_exception(error)


class Ending(Counter):
    """A counter that starts other work after it has counted."""

    def end(self, key: bytes, token: int) -> Decision:
        decision = self.add(key, token)
        return decision._replace(effects=(key,))

    def finish_load(self, now_ms: int) -> Decision:
        self.was_loaded = True
        return Decision(effects=tuple(sorted(self.counts)))


def play(
    folder: Path, story: Callable[[Runtime[Ending], Held, list[bytes]], Awaitable[None]], patience_s: float = 60.0
) -> None:
    async def scene() -> None:
        with stored(folder) as store:
            log = store.logs.get(("counts", 0)) or store.create(
                "counts", 0, b"x" * 16, topic_config(store.config, {}), 0
            )
            partition = Held("counts", 0, b"x" * 16, log, 0)
            done: list[bytes] = []
            runtime = Runtime(
                lambda _: Ending(), SystemClock(), lambda _, effect: done.append(effect), patience_s=patience_s
            )
            runtime.on_election(partition)
            await asyncio.wait_for(story(runtime, partition, done), 10)
            await runtime.stop()
            await store.close()

    asyncio.run(scene())


async def loaded(runtime: Runtime[Ending]) -> None:
    await until(lambda: not runtime.loading)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_replies_and_effects_follow_when_the_records_are_committed(tmp_path: Path) -> None:
    async def story(runtime: Runtime[Ending], partition: Held, done: list[bytes]) -> None:
        await loaded(runtime)
        first = runtime.run(0, lambda m, token, _: m.end(b"a", token))
        second = runtime.run(0, lambda m, token, _: m.end(b"b", token))
        await turns()
        assert not first.done()
        assert done == []
        partition.advance(1)
        assert await result(first) == 1
        assert done == [b"a"]
        assert not second.done()
        partition.advance(2)
        assert await result(second) == 1
        assert done == [b"a", b"b"]

    play(tmp_path, story)


def test_an_answer_that_rests_on_uncommitted_records_waits_for_them(tmp_path: Path) -> None:
    async def story(runtime: Runtime[Ending], partition: Held, done: list[bytes]) -> None:
        await loaded(runtime)
        written = runtime.run(0, lambda m, token, _: m.add(b"a", token))
        read = runtime.run(0, lambda m, token, _: Decision(replies=[(token, m.counts[b"a"])]))
        machine = runtime.peek(0)
        told = runtime.pending_commit(0, machine)
        assert told is not None
        await turns()
        assert not read.done()
        assert not told.done()
        partition.advance(1)
        assert await result(read) == 1
        await result(told)
        assert await result(written) == 1
        assert runtime.run(0, lambda m, token, _: Decision(replies=[(token, "at once")])) == "at once"
        assert runtime.pending_commit(0, machine) is None

    play(tmp_path, story)


def test_who_waits_too_long_is_told_to_ask_again(tmp_path: Path) -> None:
    async def story(runtime: Runtime[Ending], partition: Held, done: list[bytes]) -> None:
        await loaded(runtime)
        written = runtime.run(0, lambda m, token, _: m.end(b"a", token))
        told = runtime.pending_commit(0, runtime.peek(0))
        for one in (written, told):
            with pytest.raises(BrokerError) as late:
                await result(one)
            assert late.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert done == []
        partition.advance(1)
        await turns()
        assert done == [b"a"], "what was decided is still done"
        assert runtime.run(0, lambda m, token, _: Decision(replies=[(token, m.counts[b"a"])])) == 1

    play(tmp_path, story, patience_s=0.01)


def test_who_waits_too_long_for_a_load_is_told_so(tmp_path: Path) -> None:
    async def write(runtime: Runtime[Ending], partition: Held, done: list[bytes]) -> None:
        await loaded(runtime)
        runtime.run(0, lambda m, token, _: m.add(b"a", token))

    async def story(runtime: Runtime[Ending], partition: Held, done: list[bytes]) -> None:
        with pytest.raises(BrokerError) as late:
            await result(runtime.run(0, lambda m, token, _: m.add(b"a", token)))
        assert late.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        partition.advance(1)
        await loaded(runtime)
        assert runtime.peek(0).counts == {b"a": 1}

    play(tmp_path, write)
    play(tmp_path, story, patience_s=0.01)


def test_when_leadership_goes_nothing_uncommitted_is_told_or_done(tmp_path: Path) -> None:
    async def story(runtime: Runtime[Ending], partition: Held, done: list[bytes]) -> None:
        await loaded(runtime)
        ending = runtime.run(0, lambda m, token, _: m.end(b"a", token))
        machine = runtime.peek(0)
        told = runtime.pending_commit(0, machine)
        runtime.on_resignation(0)
        partition.advance(1)  # by somebody else, who leads now
        for one in (ending, told):
            with pytest.raises(BrokerError) as lost:
                await result(one)
            assert lost.value.code is ErrorCode.NOT_COORDINATOR
        await turns()
        assert done == []
        with pytest.raises(BrokerError):
            runtime.pending_commit(0, machine)

    play(tmp_path, story)


def test_a_commit_that_fails_is_told_and_what_follows_from_it_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log may fail the commit before the coordinator learns that it lost the partition."""
    monkeypatch.setattr("ottla.coord.runtime.RETRY_S", 0.01)

    async def story(runtime: Runtime[Ending], partition: Held, done: list[bytes]) -> None:
        await loaded(runtime)
        ending = runtime.run(0, lambda m, token, _: m.end(b"a", token))
        read = runtime.run(0, lambda m, token, _: Decision(replies=[(token, m.counts[b"a"])]))
        partition.lose(NOT_LEADER)
        for one in (ending, read):
            with pytest.raises(BrokerError) as refused:
                await result(one)
            assert refused.value.code is ErrorCode.NOT_COORDINATOR
        assert done == []
        await asyncio.sleep(0.03)
        assert done == []
        partition.advance(1)
        await until(lambda: done)

    play(tmp_path, story)


def test_with_too_few_replicas_writers_are_told_and_readers_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.coord.runtime.RETRY_S", 0.01)

    async def story(runtime: Runtime[Ending], partition: Held, done: list[bytes]) -> None:
        await loaded(runtime)
        ending = runtime.run(0, lambda m, token, _: m.end(b"a", token))
        read = runtime.run(0, lambda m, token, _: Decision(replies=[(token, m.counts[b"a"])]))
        told = runtime.pending_commit(0, runtime.peek(0))
        partition.mark = 1
        partition.lose(TOO_FEW)
        with pytest.raises(BrokerError) as refused:
            await result(ending)
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await result(read) == 1
        await result(told)
        await until(lambda: done)  # it is in the log, and read: what follows from it is done
        partition.too_few = True
        assert runtime.pending_commit(0, runtime.peek(0)) is None
        runtime.on_resignation(0)
        runtime.on_election(partition)
        await loaded(runtime)
        assert runtime.peek(0).counts == {b"a": 1}

    play(tmp_path, story)


def test_a_machine_is_ready_when_all_that_it_has_read_is_committed(tmp_path: Path) -> None:
    async def before(runtime: Runtime[Ending], partition: Held, done: list[bytes]) -> None:
        partition.advance(100)
        await loaded(runtime)
        for key in (b"a", b"b"):
            runtime.run(0, lambda m, token, _, key=key: m.add(key, token))

    async def story(runtime: Runtime[Ending], partition: Held, done: list[bytes]) -> None:
        assert partition.log.end == 2
        early = runtime.run(0, lambda m, token, _: m.add(b"a", token))
        partition.advance(1)
        await asyncio.sleep(0.02)
        assert runtime.loading
        with pytest.raises(BrokerError) as loading:
            runtime.peek(0)
        assert loading.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert done == []
        partition.advance(2)
        await loaded(runtime)
        assert done == [b"a", b"b"]
        assert not early.done(), "its own record is not committed"
        partition.advance(3)
        assert await result(early) == 2

    play(tmp_path, before)
    play(tmp_path, story)


def test_a_marker_that_comes_while_the_machine_waits_is_read_too(tmp_path: Path) -> None:
    async def story(runtime: Runtime[Ending], partition: Held, done: list[bytes]) -> None:
        partition.advance(100)
        await loaded(runtime)
        runtime.run(0, lambda m, token, _: m.add_in_transaction(b"a", token))
        partition.mark = 0
        runtime.on_resignation(0)
        runtime.on_election(partition)
        await asyncio.sleep(0.02)
        assert runtime.loading
        append(partition, MARKER, 0)
        runtime.end_transaction(0, 7, committed=True)
        partition.advance(100)
        await loaded(runtime)
        assert runtime.peek(0).counts == {b"a": 1}

    play(tmp_path, story)


def test_a_newer_epoch_of_the_same_leader_keeps_the_machine(tmp_path: Path) -> None:
    async def story(runtime: Runtime[Ending], partition: Held, done: list[bytes]) -> None:
        partition.advance(100)
        await loaded(runtime)
        machine = runtime.peek(0)
        waiting = runtime.run(0, lambda m, token, _: m.wait(b"a", 1, token))
        partition.epoch += 1
        runtime.on_election(partition)
        assert runtime.peek(0) is machine
        assert not waiting.done()

    play(tmp_path, story)


def test_an_ended_transaction_is_told_of_when_its_marker_is_committed(tmp_path: Path) -> None:
    async def story(runtime: Runtime[Ending], partition: Held, done: list[bytes]) -> None:
        await loaded(runtime)
        runtime.run(0, lambda m, token, _: m.add_in_transaction(b"a", token))
        partition.advance(1)
        machine = runtime.peek(0)
        assert runtime.pending_commit(0, machine) is None
        append(partition, MARKER, 0)
        runtime.end_transaction(0, 7, committed=True)
        assert machine.counts == {b"a": 1}
        told = runtime.pending_commit(0, machine)
        assert told is not None
        partition.advance(2)
        await result(told)

    play(tmp_path, story)
