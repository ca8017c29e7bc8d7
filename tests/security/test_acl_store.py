"""Lists in the metadata store: two brokers that change the same ones, what is torn, and what is read at the start."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla.clock import SystemClock
from ottla.cluster.acl_store import AclStore
from ottla.cluster.sqlite_store import SqliteStore
from ottla.errors import BrokerError
from ottla.security.acl import AclEntry, Resource
from ottla.security.authorizer import Authorizer
from ottla.wire.access import Operation, Pattern, Permission, ResourceType

if TYPE_CHECKING:
    from pathlib import Path

ORDERS = Resource(ResourceType.TOPIC, "orders")
PREFIX = Resource(ResourceType.TOPIC, "ord", Pattern.PREFIXED)
READ = AclEntry("User:ann", "*", Operation.READ, Permission.ALLOW)
WRITE = READ._replace(operation=Operation.WRITE)


async def make_store(folder: Path) -> SqliteStore:
    metadata_store = SqliteStore(str(folder / "store.sqlite"), str(folder / "journal"))
    await metadata_store.open()
    return metadata_store


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    async def story() -> None:
        metadata_store = await make_store(tmp_path)
        first = Authorizer()
        store = AclStore(metadata_store, first, SystemClock(), shared=False)
        await store.start()
        await store.add(ORDERS, [READ])
        await store.add(ORDERS, [WRITE, READ])
        await store.add(PREFIX, [READ])
        await store.remove(PREFIX, [READ])
        assert first.entries(ORDERS) == {READ, WRITE}
        second = Authorizer()
        await AclStore(metadata_store, second, SystemClock(), shared=False).start()
        assert second.entries(ORDERS) == {READ, WRITE}
        assert second.entries(PREFIX) == frozenset()
        await metadata_store.close()

    asyncio.run(story())


def test_two_brokers_change_the_same_list_and_follow_each_other(tmp_path: Path) -> None:
    async def story() -> None:
        metadata_store = await make_store(tmp_path)
        both = [Authorizer(), Authorizer()]
        stores = [AclStore(metadata_store, one, SystemClock(), shared=True) for one in both]
        for store in stores:
            await store.start()
        users = [READ._replace(principal=f"User:{number}") for number in range(20)]
        await asyncio.gather(*(stores[at % 2].add(ORDERS, [user]) for at, user in enumerate(users)))
        async with asyncio.timeout(30):
            while any(one.entries(ORDERS) != frozenset(users) for one in both):
                await asyncio.sleep(0.01)
        await stores[0].remove(ORDERS, users)
        async with asyncio.timeout(30):
            while both[1].entries(ORDERS):
                await asyncio.sleep(0.01)
        for store in stores:
            await store.close()
        await metadata_store.close()

    asyncio.run(story())


def test_a_list_that_cannot_be_read_is_not_left_out(tmp_path: Path) -> None:
    """One of its entries may deny."""

    async def story() -> None:
        metadata_store = await make_store(tmp_path)
        store = AclStore(metadata_store, Authorizer(), SystemClock(), shared=False)
        await store.start()
        await metadata_store.create(ORDERS.path, b'{"acls":[{"principal"')
        with pytest.raises(BrokerError, match="/kafka-acl/Topic/orders cannot be read"):
            await AclStore(metadata_store, Authorizer(), SystemClock(), shared=False).start()
        with pytest.raises(BrokerError):
            await store.add(ORDERS, [READ])
        await metadata_store.close()

    asyncio.run(story())
