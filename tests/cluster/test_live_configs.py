"""Options that change while a cluster runs: they are noticed, read and published, also when errors intervene."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from cluster.zookeepers import expire, opened, run
from waiting import until

from ottla.clock import SystemClock
from ottla.cluster import live_configs, znodes
from ottla.cluster.image import EMPTY, Partition, Topic
from ottla.cluster.live_configs import LiveConfigs
from ottla.cluster.metadata import Metadata
from ottla.cluster.metadata_store import Create, Delete, Set
from ottla.cluster.sqlite_store import MEMORY, SqliteStore
from ottla.config import load
from ottla.testing.zookeeper import ZooKeeperServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ottla.cluster.metadata_store import MetadataStore

TOPIC = Topic("T", bytes(15) + b"\1", (Partition(0, (1,), (1,), 1, 0),), {})
IMAGE = EMPTY._replace(cluster_id="c").with_topics(TOPIC)


@asynccontextmanager
async def store() -> AsyncIterator[SqliteStore]:
    metadata_store = SqliteStore(MEMORY)
    await metadata_store.open()
    await metadata_store.multi([Create(path) for path in znodes.PARENTS])
    yield metadata_store
    await metadata_store.close()


@asynccontextmanager
async def followed(metadata_store: MetadataStore) -> AsyncIterator[tuple[Metadata, LiveConfigs]]:
    metadata = Metadata(load({}), SystemClock(), node_id=1)
    configs = LiveConfigs(metadata_store, metadata, SystemClock())
    await configs.start(IMAGE)
    yield metadata, configs
    await configs.close()


async def alter(metadata_store: MetadataStore, kind: str, name: str, pairs: dict[str, str]) -> None:
    path, data = f"/config/{kind}/{name}", znodes.encode_configs(pairs)
    known = path in await metadata_store.tree(f"/config/{kind}")
    await metadata_store.multi([Set(path, data) if known else Create(path, data), znodes.notify_of_config(kind, name)])


def test_options_are_there_from_the_start() -> None:
    async def story() -> None:
        async with store() as metadata_store:
            await alter(metadata_store, "brokers", "1", {"log.segment.bytes": "1000000"})
            await alter(metadata_store, "brokers", "<default>", {"log.retention.ms": "8"})
            await alter(metadata_store, "groups", "a%2Fb", {"consumer.session.timeout.ms": "50000"})
            await alter(metadata_store, "topics", "T", {"retention.ms": "5"})
            async with followed(metadata_store) as (metadata, configs):
                assert metadata.config.log_segment_bytes == 1000000
                assert metadata.config.log_retention_ms == 8
                assert metadata.image.group_configs == {"a/b": {"consumer.session.timeout.ms": "50000"}}
                assert await configs.read_topic_configs(["T", "U"]) == {"T": {"retention.ms": "5"}, "U": {}}

    run(story())


def test_changes_are_published_as_they_come() -> None:
    async def story() -> None:
        async with store() as metadata_store, followed(metadata_store) as (metadata, _):
            await alter(metadata_store, "topics", "T", {"retention.ms": "5"})
            await until(lambda: metadata.image.topics["T"].configs == {"retention.ms": "5"})
            await alter(metadata_store, "topics", "T", {})
            await until(lambda: metadata.image.topics["T"].configs == {})
            await alter(metadata_store, "brokers", "1", {"log.segment.bytes": "1000000"})
            await until(lambda: metadata.config.log_segment_bytes == 1000000)
            await alter(metadata_store, "brokers", "<default>", {"log.retention.ms": "8"})
            await until(lambda: metadata.config.log_retention_ms == 8)
            await alter(metadata_store, "groups", "g", {"consumer.session.timeout.ms": "50000"})
            await until(lambda: metadata.image.group_configs == {"g": {"consumer.session.timeout.ms": "50000"}})
            await metadata_store.multi([Delete("/config/groups/g"), znodes.notify_of_config("groups", "g")])
            await until(lambda: metadata.image.group_configs == {})

    run(story())


def test_one_notice_that_makes_no_sense_keeps_no_other_away() -> None:
    async def story() -> None:
        async with store() as metadata_store, followed(metadata_store) as (metadata, _):
            await metadata_store.create("/config/topics/T", znodes.encode_configs({"retention.ms": "5"}))
            notices = [b"", b"\xff", b"[]", b'{"version":2}', b'{"version":2,"entity_path":"moons/3"}', b'"T"']
            await metadata_store.multi([Create(znodes.CONFIG_CHANGE_PREFIX, data, sequential=True) for data in notices])
            await until(lambda: metadata.image.topics["T"].configs == {"retention.ms": "5"})

    run(story())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"version":1,"config":7}'])
def test_options_that_cannot_be_understood_count_as_none(data: bytes) -> None:
    async def story() -> None:
        async with store() as metadata_store:
            await metadata_store.create("/config/topics/T", data)
            async with followed(metadata_store) as (_, configs):
                assert await configs.read_topic_configs(["T"]) == {"T": {}}

    run(story())


def test_a_change_before_its_topic_is_not_lost() -> None:
    async def story() -> None:
        async with store() as metadata_store, followed(metadata_store) as (metadata, configs):
            stale = await configs.read_topic_configs(["U"])
            await alter(metadata_store, "topics", "U", {"retention.ms": "5"})
            await until(lambda: "U" in configs._early)
            metadata.publish(metadata.image.with_topics(TOPIC._replace(name="U", id=bytes(16), configs=stale["U"])))
            await until(lambda: metadata.image.topics["U"].configs == {"retention.ms": "5"})
            assert not configs._early

    run(story())


def test_names_that_never_come_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_configs, "EARLY_MAX", 2)

    async def story() -> None:
        async with store() as metadata_store, followed(metadata_store) as (_, configs):
            for name in "UVW":
                await alter(metadata_store, "topics", name, {"retention.ms": "5"})
            await until(lambda: list(configs._early) == ["V", "W"])

    run(story())


def test_old_notices_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_configs, "NOTICES_KEPT_S", -1.0)

    async def story() -> None:
        async with store() as metadata_store, followed(metadata_store) as (metadata, _):
            await alter(metadata_store, "topics", "T", {"retention.ms": "5"})
            await until(lambda: metadata.image.topics["T"].configs)
            children: list[str] = ["?"]
            async with asyncio.timeout(30):
                while children:
                    children = await metadata_store.children(znodes.CONFIG_CHANGES)

    run(story())


def test_notices_that_went_by_with_a_session_are_made_up_for() -> None:
    async def story(server: ZooKeeperServer) -> None:
        async with opened(server) as metadata_store, opened(server, metadata_store._root) as other:
            await metadata_store.multi([Create(path) for path in znodes.PARENTS])
            async with followed(metadata_store) as (metadata, _):
                # A change whose notification is removed before this member reads it, as after a long absence.
                await other.create("/config/topics/T", znodes.encode_configs({"retention.ms": "5"}))
                await other.create("/config/brokers/1", znodes.encode_configs({"log.retention.ms": "8"}))
                await asyncio.to_thread(expire, metadata_store, server)
                await until(lambda: metadata.image.topics["T"].configs == {"retention.ms": "5"})
                await until(lambda: metadata.config.log_retention_ms == 8)

    with ZooKeeperServer() as server:
        run(story(server))
