"""Where quotas are kept: Kafka's paths and JSON, beside credentials that are never lost; alone and in a cluster."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from quota.asking import entity, list_quotas, port_of, set_quota
from waiting import until

from ottla.clock import SystemClock
from ottla.cluster import znodes
from ottla.cluster.control.changes import Changes
from ottla.cluster.image import EMPTY
from ottla.cluster.live_configs import LiveConfigs
from ottla.cluster.metadata import Metadata
from ottla.cluster.metadata_store import Create, Set
from ottla.cluster.sqlite_store import MEMORY, SqliteStore
from ottla.config import load
from ottla.embed import BrokerThread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ottla.cluster.metadata_store import MetadataStore

RATE = "producer_byte_rate"
IMAGE = EMPTY._replace(cluster_id="c")


@asynccontextmanager
async def store() -> AsyncIterator[SqliteStore]:
    kept = SqliteStore(MEMORY)
    await kept.open()
    await kept.multi([Create(path) for path in znodes.PARENTS])
    yield kept
    await kept.close()


@asynccontextmanager
async def member(kept: MetadataStore) -> AsyncIterator[tuple[Metadata, Changes]]:
    """A broker of a cluster, as far as it follows and changes what is kept."""
    metadata = Metadata(load({}), SystemClock(), node_id=1)
    configs = LiveConfigs(kept, metadata, SystemClock())
    await configs.start(IMAGE)
    yield metadata, Changes(kept, metadata, lambda size: bytes(size))
    await configs.close()


def test_a_member_writes_what_kafka_writes() -> None:
    async def story() -> None:
        async with store() as kept, member(kept) as (metadata, changes):
            await changes.alter_entity("users/ann/clients/my%20app", {RATE: "1024"})
            await changes.alter_entity("users/<default>", {"request_percentage": "50.0"})
            await changes.alter_user("ann", {"SCRAM-SHA-256": "salt=x"})
            await changes.alter_entity("users/ann", {RATE: "7"})
            nodes = await kept.tree("/config/users")
            assert nodes["/config/users/ann/clients/my%20app"].data == b'{"version":1,"config":{"%s":"1024"}}' % (
                RATE.encode()
            )
            assert znodes.decode_configs(nodes["/config/users/ann"].data) == {"SCRAM-SHA-256": "salt=x", RATE: "7"}
            notices = await kept.tree("/config/changes")
            told = [json.loads(node.data)["entity_path"] for _, node in sorted(notices.items()) if node.data]
            assert told == ["users/ann/clients/my%20app", "users/<default>", "users/ann", "users/ann"]
            assert metadata.image.users == {"ann": {"SCRAM-SHA-256": "salt=x", RATE: "7"}}
            assert metadata.image.quotas == {
                "users/ann/clients/my%20app": {RATE: "1024"},
                "users/<default>": {"request_percentage": "50.0"},
            }
            await changes.alter_entity("users/ann", {RATE: None})
            await changes.alter_entity("users/<default>", {"request_percentage": None})
            assert metadata.image.users == {"ann": {"SCRAM-SHA-256": "salt=x"}}
            assert metadata.image.quotas.keys() == {"users/ann/clients/my%20app"}

    asyncio.run(story())


def test_members_that_change_a_user_at_once_lose_nothing() -> None:
    """Each writes its own name into the node of one user, many times, and none knows of the others' last change."""

    async def story() -> None:
        async with store() as kept, member(kept) as (metadata, one), member(kept) as (_, other):
            for round_number in range(10):
                await asyncio.gather(
                    one.alter_user("ann", {f"SCRAM-{round_number}": "x"}),
                    other.alter_entity("users/ann", {f"quota-{round_number}": "1"}),
                    one.alter_entity("users/ann/clients/c", {f"quota-{round_number}": "1"}),
                    other.alter_entity("users/ann/clients/c", {f"rate-{round_number}": "1"}),
                )
            for node, names in (("ann", ("SCRAM", "quota")), ("ann/clients/c", ("quota", "rate"))):
                found = znodes.decode_configs((await kept.get(f"/config/users/{node}")).data)
                assert found.keys() == {f"{name}-{number}" for name in names for number in range(10)}
            await until(lambda: len(metadata.image.users.get("ann", ())) == 20)

    asyncio.run(story())


def test_what_others_write_is_followed_and_read_at_the_start() -> None:
    async def story() -> None:
        data = znodes.encode_configs({RATE: "5"})
        async with store() as kept:
            await kept.multi([Create("/config/users/u"), Create("/config/users/u/clients")])
            await kept.multi([Create("/config/users/u/clients/c", data), Create("/config/clients/d", data)])
            await kept.multi([Create("/config/ips/<default>", b"{broken"), Create("/config/users/v", data)])
            async with member(kept) as (metadata, _):
                assert metadata.image.quotas.keys() == {"users/u/clients/c", "clients/d"}
                assert metadata.image.users.keys() == {"v"}
                notice = znodes.notify_of_config("ips", "<default>")
                await kept.multi([Set("/config/ips/<default>", znodes.encode_configs({"x": "1"})), notice])
                await until(lambda: "ips/<default>" in metadata.image.quotas)
                await kept.multi([Set("/config/clients/d", b""), znodes.notify_of_config("clients", "d")])
                await until(lambda: "clients/d" not in metadata.image.quotas)
                await kept.delete("/config/users/v")
                await kept.multi([znodes.notify_of_config("users", "v")])
                await until(lambda: "v" not in metadata.image.users)

    asyncio.run(story())


def test_quotas_and_credentials_of_one_node_survive_each_other_and_a_restart(tmp_path: Path) -> None:
    password = UserScramCredentialUpsertion(
        "ann", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"sesame", b"salt"
    )
    strange = "x/y ü*~+<default>" + "k" * 10_000

    def is_known(broker: BrokerThread, user: str = "ann") -> bool:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        return user in admin.describe_user_scram_credentials().result(60)

    with BrokerThread(data=tmp_path) as broker:
        port = port_of(broker)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        set_quota(port, entity(user="ann", client_id=strange), producer_byte_rate=5)
        for future in admin.alter_user_scram_credentials([password]).values():
            future.result(60)
        set_quota(port, entity(user="ann"), producer_byte_rate=7, consumer_byte_rate=8)
        set_quota(port, entity(user=None), producer_byte_rate=9)
        set_quota(port, entity(user=strange), producer_byte_rate=10)
    with BrokerThread(data=tmp_path) as broker:
        port = port_of(broker)
        assert is_known(broker)
        assert list_quotas(port) == {
            (("client-id", strange), ("user", "ann")): {RATE: 5},
            (("user", "ann"),): {RATE: 7, "consumer_byte_rate": 8},
            (("user", None),): {RATE: 9},
            (("user", strange),): {RATE: 10},
        }
        set_quota(port, entity(user="ann"), producer_byte_rate=None, consumer_byte_rate=None)
        assert is_known(broker)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        gone = UserScramCredentialDeletion("ann", ScramMechanism.SCRAM_SHA_256)
        for future in admin.alter_user_scram_credentials([gone]).values():
            future.result(60)
        for named in ({"user": "ann", "client_id": strange}, {"user": None}, {"user": strange}):
            set_quota(port, entity(**named), producer_byte_rate=None)
        assert list_quotas(port) == {}
        store = broker._broker._root._founding.metadata_store  # type: ignore[union-attr]
        loop = broker._loop
        assert loop is not None
        left = asyncio.run_coroutine_threadsafe(store.tree("/config/users"), loop).result(60)
        assert left.keys() == {"/config/users"}, "nothing is left behind"
