"""A node's metadata in an empty store of a cluster: all of it, once, also after an interruption."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla.cluster import joining, znodes
from ottla.cluster.joining import hand_over
from ottla.cluster.metadata_store import Create, Unknown
from ottla.cluster.sqlite_store import MEMORY, SqliteStore
from ottla.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from ottla.cluster.metadata_store import Op


def run(story: Coroutine[None, None, None]) -> None:
    asyncio.run(story)


async def store(*ops: Op) -> SqliteStore:
    metadata_store = SqliteStore(MEMORY)
    await metadata_store.open()
    await metadata_store.multi(ops)
    return metadata_store


async def node() -> SqliteStore:
    return await store(
        *(Create(path) for path in znodes.PARENTS),
        Create(znodes.CLUSTER_ID, znodes.encode_cluster_id("mine")),
        Create(znodes.CONTROLLER_EPOCH, b"4"),
        Create(znodes.PRODUCER_IDS, znodes.encode_producer_ids(1, 0, 999)),
        Create(znodes.broker_path(1), b"{}", ephemeral=True),
        Create(znodes.topic_config_path("T"), b"{}"),
        *(
            Create(path, f"of {path}".encode())
            for index in range(3)
            for path in (
                znodes.topic_path(f"T{index}"),
                znodes.partitions_path(f"T{index}"),
                znodes.partition_path(f"T{index}", 0),
                znodes.state_path(f"T{index}", 0),
            )
        ),
    )


async def contents(metadata_store: SqliteStore) -> dict[str, bytes]:
    return {path: found.data for path, found in (await metadata_store.tree("/")).items() if not found.stat.ephemeral}


@pytest.mark.parametrize("at_once", [1, 3, 1000])
def test_everything_is_handed_over(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(joining, "OPS_MAX", at_once)

    async def story() -> None:
        source, target = await node(), await store()
        written = await hand_over(source, target)
        assert await contents(target) == await contents(source)
        assert znodes.state_path("T2", 0) in written
        assert znodes.broker_path(1) not in written

    run(story())


def test_large_nodes_go_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "SIZE_MAX", 50)

    async def story() -> None:
        source, target = await node(), await store()
        sizes: list[int] = []
        multi = target.multi

        async def counted(ops: Sequence[Op]) -> list[str]:
            sizes.append(len(ops))
            return await multi(ops)

        target.multi = counted  # type: ignore[method-assign]
        await hand_over(source, target)
        assert max(sizes) < 10
        assert await contents(target) == await contents(source)

    run(story())


@pytest.mark.parametrize("fails_at", range(6))
def test_an_interruption_can_be_repeated(monkeypatch: pytest.MonkeyPatch, fails_at: int) -> None:
    monkeypatch.setattr(joining, "OPS_MAX", 8)

    async def story() -> None:
        source, target = await node(), await store()
        calls = 0
        multi = target.multi

        async def lost(ops: Sequence[Op]) -> list[str]:
            nonlocal calls
            calls += 1
            paths = await multi(ops)
            if calls == fails_at + 1:
                raise Unknown("the connection is lost")
            return paths

        target.multi = lost  # type: ignore[method-assign]
        try:
            await hand_over(source, target)
        except Unknown:
            if znodes.CLUSTER_ID not in await target.tree("/"):
                await hand_over(source, target)
        assert await contents(target) == await contents(source)

    run(story())


def test_a_cluster_that_is_there_is_left_alone() -> None:
    async def story() -> None:
        source, target = await node(), await store()
        await target.multi([Create("/cluster"), Create(znodes.CLUSTER_ID, znodes.encode_cluster_id("other"))])
        before = await contents(target)
        with pytest.raises(BrokerError, match=r"keeps a cluster already \(other\)"):
            await hand_over(source, target)
        assert await contents(target) == before

    run(story())


def test_a_folder_without_metadata_is_refused() -> None:
    async def story() -> None:
        with pytest.raises(BrokerError, match="no metadata"):
            await hand_over(await store(), await store())

    run(story())
