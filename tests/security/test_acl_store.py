"""Lists in the metadata store: two brokers that change the same ones, what is torn, and what is read at the start."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from ottla.cluster.embedded import Embedded

from ottla.clock import SystemClock
from ottla.cluster.acl_store import AclStore
from ottla.errors import BrokerError
from ottla.security.acl import Entry, Resource
from ottla.security.authorizer import Authorizer
from ottla.wire.access import Operation, Pattern, Permission, ResourceType

if TYPE_CHECKING:
    from pathlib import Path

ORDERS = Resource(ResourceType.TOPIC, "orders")
PREFIX = Resource(ResourceType.TOPIC, "ord", Pattern.PREFIXED)
READ = Entry("User:ann", "*", Operation.READ, Permission.ALLOW)
WRITE = READ._replace(operation=Operation.WRITE)


async def make_keeper(folder: Path) -> Embedded:
    keeper = Embedded(str(folder / "store.sqlite"), str(folder / "journal"))
    await keeper.open()
    return keeper


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    async def story() -> None:
        keeper = await make_keeper(tmp_path)
        first = Authorizer()
        store = AclStore(keeper, first, SystemClock(), shared=False)
        await store.start()
        await store.add(ORDERS, [READ])
        await store.add(ORDERS, [WRITE, READ])
        await store.add(PREFIX, [READ])
        await store.remove(PREFIX, [READ])
        assert first.entries(ORDERS) == {READ, WRITE}
        second = Authorizer()
        await AclStore(keeper, second, SystemClock(), shared=False).start()
        assert second.entries(ORDERS) == {READ, WRITE}
        assert second.entries(PREFIX) == frozenset()
        await keeper.close()

    asyncio.run(story())


def test_two_brokers_change_the_same_list_and_follow_each_other(tmp_path: Path) -> None:
    async def story() -> None:
        keeper = await make_keeper(tmp_path)
        both = [Authorizer(), Authorizer()]
        stores = [AclStore(keeper, one, SystemClock(), shared=True) for one in both]
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
        await keeper.close()

    asyncio.run(story())


def test_a_list_that_cannot_be_read_is_not_left_out(tmp_path: Path) -> None:
    """One of its entries may deny."""

    async def story() -> None:
        keeper = await make_keeper(tmp_path)
        store = AclStore(keeper, Authorizer(), SystemClock(), shared=False)
        await store.start()
        await keeper.create(ORDERS.path, b'{"acls":[{"principal"')
        with pytest.raises(BrokerError, match="/kafka-acl/Topic/orders cannot be read"):
            await AclStore(keeper, Authorizer(), SystemClock(), shared=False).start()
        with pytest.raises(BrokerError):
            await store.add(ORDERS, [READ])
        await keeper.close()

    asyncio.run(story())
