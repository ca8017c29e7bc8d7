"""Offsets of the 0.8 era in the metadata store: plain numbers at the paths where old tools look for them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from cluster.zookeepers import opened, run

from ottla.cluster.consumer_offsets import ConsumerOffsets
from ottla.cluster.metadata_store import NoNode
from ottla.cluster.producer_ids import ProducerIds
from ottla.cluster.sqlite_store import SqliteStore
from ottla.errors import BrokerError, ErrorCode
from ottla.testing.zookeeper import ZooKeeperServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


def play(path: Path, story: Callable[[SqliteStore, ConsumerOffsets], Awaitable[None]]) -> None:
    async def scene() -> None:
        store = SqliteStore(str(path / "metadata.sqlite"))
        await store.open()
        await story(store, ConsumerOffsets(store))
        await store.close()

    asyncio.run(scene())


def test_an_offset_is_a_decimal_number_at_kafka_s_path(tmp_path: Path) -> None:
    async def story(store: SqliteStore, offsets: ConsumerOffsets) -> None:
        assert await offsets.get("g", "t", 3) is None
        await offsets.set("g", "t", 3, 42)
        await offsets.set("g", "t", 3, 43)
        assert (await store.get("/consumers/g/offsets/t/3")).data == b"43"
        assert await offsets.get("g", "t", 3) == 43

    play(tmp_path, story)


def test_two_that_commit_for_the_first_time_at_once_both_succeed(tmp_path: Path) -> None:
    async def story(store: SqliteStore, offsets: ConsumerOffsets) -> None:
        await asyncio.gather(*(offsets.set("g", "t", 0, offset) for offset in range(5)))
        assert await offsets.get("g", "t", 0) in range(5)

    play(tmp_path, story)


def test_what_is_no_number_and_what_is_no_path_is_refused(tmp_path: Path) -> None:
    async def story(store: SqliteStore, offsets: ConsumerOffsets) -> None:
        await offsets.set("g", "t", 0, 1)
        await store.set("/consumers/g/offsets/t/0", b"soon")
        with pytest.raises(BrokerError) as unreadable:
            await offsets.get("g", "t", 0)
        assert unreadable.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        for group in ("", "..", "a//b"):
            with pytest.raises(BrokerError):
                await offsets.set(group, "t", 0, 1)
            with pytest.raises(BrokerError):
                await offsets.get(group, "t", 0)
        with pytest.raises(NoNode):
            await store.get("/consumers/a")

    play(tmp_path, story)


def test_a_store_that_fails_says_so(tmp_path: Path) -> None:
    async def scene() -> None:
        store = SqliteStore(str(tmp_path / "metadata.sqlite"))
        await store.open()
        await store.close()
        offsets = ConsumerOffsets(store)
        for call in (offsets.set("g", "t", 0, 1), offsets.get("g", "t", 0)):
            with pytest.raises(BrokerError):
                await call

    asyncio.run(scene())


def test_on_zookeeper_they_lie_where_old_consumers_look_for_them() -> None:
    """A group's name may be no valid ZooKeeper path: only that client gets an error."""

    async def story() -> None:
        async with opened(server) as store:
            offsets = ConsumerOffsets(store)
            assert await offsets.get("g", "t", 0) is None
            await asyncio.gather(*(offsets.set("g", "t", index, 10 + index) for index in range(3)))
            await offsets.set("g", "t", 0, 20)
            assert (await store.get("/consumers/g/offsets/t/0")).data == b"20"
            assert [await offsets.get("g", "t", index) for index in range(3)] == [20, 11, 12]
            for group in ("a\0b", "\ud7ff\ue000", "..", "a/../b"):
                with pytest.raises(BrokerError):
                    await offsets.set(group, "t", 0, 1)
            ids = [ProducerIds(store, node_id) for node_id in (1, 2)]
            taken = await asyncio.gather(*(one.take() for one in ids))
            assert sorted(taken) == [0, 1000]
            assert await offsets.get("g", "t", 0) == 20

    with ZooKeeperServer() as server:
        run(story())
