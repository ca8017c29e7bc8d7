"""Joining a cluster: identity, registration, and what happens when sessions end."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from cluster.zookeepers import SESSION_MS, expire, opened, run
from waiting import until

from ottla.clock import SystemClock
from ottla.cluster import registration, znodes
from ottla.cluster.metadata_store import NoNode
from ottla.cluster.registration import SESSION_FILE, BrokerEndpoints, Registration
from ottla.cluster.sqlite_store import MEMORY, SqliteStore
from ottla.config import load
from ottla.disk import RealDisk
from ottla.errors import BrokerError, ErrorCode
from ottla.testing.zookeeper import ZooKeeperServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from ottla.cluster.metadata_store import MetadataStore

PLACE = BrokerEndpoints({"IN": ("a", 1), "OUT": ("b", 2)}, {"OUT": "SASL_SSL"}, "east")


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@asynccontextmanager
async def embedded() -> AsyncIterator[SqliteStore]:
    store = SqliteStore(MEMORY)
    await store.open()
    yield store
    await store.close()


def made(store: MetadataStore, folder: Path, **options: str) -> Registration:
    pairs = {name.replace("_", "."): value for name, value in options.items()}
    pairs = {"zookeeper.session.timeout.ms": str(SESSION_MS), "log.dirs": str(folder), **pairs}
    return Registration(store, load(pairs), SystemClock(), RealDisk())


def test_the_first_broker_makes_the_cluster_and_the_next_finds_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded() as store:
            first = made(store, tmp_path, broker_id="7")
            await first.identify(node_id=None, cluster_id=None)
            assert set(znodes.PARENTS) < set(await store.tree("/"))
            assert len(first.cluster_id) == 22
            assert first.node_id == 7
            second = made(store, tmp_path)
            await second.identify(node_id=9, cluster_id=first.cluster_id)
            assert (second.node_id, second.cluster_id) == (9, first.cluster_id)

    run(story())


def test_a_tree_that_others_have_begun_is_completed(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded() as store:
            await store.create("/config")
            await store.create("/config/topics", b"theirs")
            await made(store, tmp_path).identify(node_id=None, cluster_id=None)
            nodes = await store.tree("/")
            assert set(znodes.PARENTS) < set(nodes)
            assert nodes["/config/topics"].data == b"theirs"

    run(story())


def test_folders_of_another_cluster_are_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded() as store:
            with pytest.raises(BrokerError, match="belong to cluster other, and ZooKeeper keeps no cluster at zk:1/x"):
                await made(store, tmp_path, zookeeper_connect="zk:1/x").identify(node_id=1, cluster_id="other")
            first = made(store, tmp_path, broker_id="7")
            await first.identify(node_id=None, cluster_id=None)
            with pytest.raises(BrokerError, match=f"other, ZooKeeper to cluster {first.cluster_id}") as refused:
                await made(store, tmp_path).identify(node_id=1, cluster_id="other")
            assert refused.value.code == ErrorCode.INCONSISTENT_CLUSTER_ID

    run(story())


def test_brokers_that_come_together_agree(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded() as store:
            brokers = [made(store, tmp_path) for _ in range(5)]
            await asyncio.gather(*(broker.identify(node_id=None, cluster_id=None) for broker in brokers))
            assert len({broker.cluster_id for broker in brokers}) == 1
            assert sorted(broker.node_id for broker in brokers) == [1001, 1002, 1003, 1004, 1005]

    run(story())


def test_numbers_are_made_up_above_the_reserved_ones(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded() as store:
            numbers = []
            for options in ({}, {"broker_id": "-1"}, {"reserved_broker_max_id": "5000"}):
                broker = made(store, tmp_path, **options)
                await broker.identify(node_id=None, cluster_id=None)
                numbers.append(broker.node_id)
            assert numbers == [1001, 1002, 5003]
            with pytest.raises(BrokerError, match=r"broker\.id"):
                await made(store, tmp_path, broker_id_generation_enable="false").identify(node_id=None, cluster_id=None)

    run(story())


def test_folders_of_another_number_are_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded() as store:
            with pytest.raises(BrokerError, match="belong to node 3, not 4"):
                await made(store, tmp_path, node_id="4").identify(node_id=3, cluster_id=None)

    run(story())


def test_the_registration_says_where_the_broker_is(server: ZooKeeperServer, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(server) as store:
            broker = made(store, tmp_path, broker_id="7")
            await broker.identify(node_id=None, cluster_id=None)
            epoch = await broker.register(PLACE)
            node = await store.get("/brokers/ids/7")
            assert node.stat.ephemeral
            assert epoch == broker.broker_epoch == node.stat.czxid
            said = znodes.decode_broker(7, node.data, epoch)
            assert (said.endpoints, said.protocols, said.rack) == PLACE
            assert int((tmp_path / SESSION_FILE).read_text().split()[0]) == store.session
            await broker.close()
            with pytest.raises(NoNode):
                await store.get("/brokers/ids/7")

    run(story())


def test_after_a_lost_session_it_registers_again_with_a_new_epoch(server: ZooKeeperServer, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(server) as store:
            broker = made(store, tmp_path, broker_id="7")
            await broker.identify(node_id=None, cluster_id=None)
            first = await broker.register(PLACE)
            epochs: list[int] = []

            def fail(epoch: int) -> None:
                raise RuntimeError("a bug")

            broker.subscribe(fail)
            broker.subscribe(epochs.append)
            for _ in range(2):
                await asyncio.to_thread(expire, store, server)
                count = len(epochs)
                await until(lambda count=count: len(epochs) > count)
            assert first < epochs[0] < epochs[1] == broker.broker_epoch
            assert (await store.get("/brokers/ids/7")).stat.czxid == broker.broker_epoch
            await broker.close()

    run(story())


def test_a_killed_broker_comes_back_at_once(server: ZooKeeperServer, tmp_path: Path) -> None:
    """Its old session is still alive, but the folder shows that the session was its own."""

    async def story() -> None:
        async with opened(server) as former:
            broker = made(former, tmp_path, broker_id="7")
            await broker.identify(node_id=None, cluster_id=None)
            before = await broker.register(PLACE)
            async with opened(server, former._root) as store:
                again = made(store, tmp_path, broker_id="7", zookeeper_session_timeout_ms="3600000")
                await again.identify(node_id=7, cluster_id=broker.cluster_id)
                assert await again.register(PLACE) > before
                await again.close()
            await broker.close()

    run(story())


def test_a_copy_of_the_folder_does_not_speak_for_the_original(
    server: ZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of a running broker was copied, and another broker starts with the copy."""
    monkeypatch.setattr(registration, "MARGIN_S", 0.0)

    async def story() -> None:
        async with opened(server) as store, opened(server, store._root) as other:
            (tmp_path / "one").mkdir()
            first = made(store, tmp_path / "one", broker_id="7")
            await first.identify(node_id=None, cluster_id=None)
            epoch = await first.register(PLACE)
            shutil.copytree(tmp_path / "one", tmp_path / "two")
            second = made(other, tmp_path / "two", broker_id="7", zookeeper_session_timeout_ms="100")
            await second.identify(node_id=7, cluster_id=first.cluster_id)
            with pytest.raises(BrokerError, match="number 7 runs at"):
                await second.register(PLACE)
            assert (await store.get("/brokers/ids/7")).stat.czxid == epoch
            await second.close()
            await first.close()

    run(story())


def test_a_registration_that_somebody_removed_is_made_again(server: ZooKeeperServer, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(server) as store, opened(server, store._root) as other:
            broker = made(store, tmp_path, broker_id="7")
            await broker.identify(node_id=None, cluster_id=None)
            first = await broker.register(PLACE)
            epochs: list[int] = []
            broker.subscribe(epochs.append)
            await other.delete("/brokers/ids/7")
            await until(lambda: epochs)
            assert epochs == [broker.broker_epoch]
            assert first < broker.broker_epoch
            await broker.close()

    run(story())


def test_it_waits_for_a_session_that_ends(server: ZooKeeperServer, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(server) as store:
            broker = made(store, tmp_path, broker_id="7", zookeeper_session_timeout_ms="3600000")
            await broker.identify(node_id=None, cluster_id=None)
            async with opened(server, store._root) as other:
                await other.create("/brokers/ids/7", b"{}", ephemeral=True)
                registering = asyncio.ensure_future(broker.register(PLACE))
                await asyncio.sleep(0.05)
                assert not registering.done()
            await registering
            await broker.close()

    run(story())


def test_two_brokers_of_one_number_are_one_clear_line(
    server: ZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "MARGIN_S", 0.0)

    async def story() -> None:
        async with opened(server) as store, opened(server, store._root) as other:
            first = made(store, tmp_path / "one", broker_id="7")
            (tmp_path / "one").mkdir()
            await first.identify(node_id=None, cluster_id=None)
            await first.register(PLACE)
            second = made(other, tmp_path / "two", broker_id="7", zookeeper_session_timeout_ms="100")
            await second.identify(node_id=None, cluster_id=None)
            with pytest.raises(BrokerError, match=r"number 7 runs at IN://a:1, OUT://b:2: give .* another broker\.id"):
                await second.register(PLACE)
            await second.close()
            await first.close()

    run(story())


def test_a_malformed_registration_of_the_same_number_is_one_clear_line(
    server: ZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "MARGIN_S", 0.0)

    async def story() -> None:
        async with opened(server) as store, opened(server, store._root) as other:
            one = made(store, tmp_path, broker_id="7", zookeeper_session_timeout_ms="100")
            await one.identify(node_id=None, cluster_id=None)
            await other.create(znodes.broker_path(7), b"[]", ephemeral=True)
            with pytest.raises(BrokerError, match=r"number 7 runs at an unknown address .* another broker\.id"):
                await one.register(PLACE)
            await one.close()

    run(story())


@pytest.mark.parametrize("content", [b"", b"torn\xff", None])
def test_a_session_file_can_be_anything(server: ZooKeeperServer, tmp_path: Path, content: bytes | None) -> None:
    async def story() -> None:
        async with opened(server) as store:
            if content is not None:
                (tmp_path / SESSION_FILE).write_bytes(content)
            folder = tmp_path if content is not None else tmp_path / "gone"  # not writable at all
            broker = made(store, folder, broker_id="7")
            await broker.identify(node_id=None, cluster_id=None)
            async with opened(server, store._root) as other:
                await other.create("/brokers/ids/7", b"{}", ephemeral=True)
                registering = asyncio.ensure_future(broker.register(PLACE))
                await asyncio.sleep(0.05)
            assert await registering == broker.broker_epoch
            await broker.close()

    run(story())
