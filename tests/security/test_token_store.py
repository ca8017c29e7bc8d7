"""Tokens in the metadata store: Kafka's bytes, two brokers that follow each other, and what is torn or old."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from waiting import until

from ottla.clock import SystemClock
from ottla.cluster.sqlite_store import SqliteStore
from ottla.cluster.token_store import TokenStore
from ottla.config import load
from ottla.errors import BrokerError, ErrorCode
from ottla.security.principal import user
from ottla.security.token import CHANGES, TOKENS, Token, decode, encode, sign

if TYPE_CHECKING:
    from pathlib import Path

# As Apache Kafka 3.9.2 wrote it.
KAFKAS = (
    b'{"issueTimestamp":1794839203839,"renewers":["User%3Ab%2Cb","User%3Ac%20d"],"tokenRequester":"User%3Aann",'
    b'"tokenId":"VeTbCEVQTWeQgwQFQqxnVQ","owner":"User%3Aann","expiryTimestamp":1794925603975,'
    b'"maxTimestamp":1795444003839,"version":3}'
)
READ = Token(
    "VeTbCEVQTWeQgwQFQqxnVQ",
    user("ann"),
    user("ann"),
    (user("b,b"), user("c d")),
    1794839203839,
    1794925603975,
    1795444003839,
)
CONFIG = load({"log.dirs": "/nowhere", "delegation.token.secret.key": "key"})


def test_the_bytes_are_kafkas() -> None:
    assert decode(KAFKAS) == READ
    assert decode(encode(READ)) == READ
    assert sign(b"key", READ.id)[:16].hex() == "da9a6c7c583777b0edeb8210772031db"
    older = KAFKAS.replace(b'"tokenRequester":"User%3Aann",', b"").replace(b'"version":3', b'"version":1')
    assert decode(older) == READ


async def make(folder: Path, count: int, *, in_charge: bool = True) -> tuple[SqliteStore, list[TokenStore]]:
    metadata_store = SqliteStore(str(folder / "store.sqlite"), str(folder / "journal"))
    await metadata_store.open()
    stores = [
        TokenStore(
            metadata_store,
            CONFIG,
            SystemClock(),
            lambda size, first=bytes([number]): first * size,
            shared=count > 1,
            in_charge=lambda: in_charge,
        )
        for number in range(count)
    ]
    for store in stores:
        await store.start()
    return metadata_store, stores


def test_brokers_follow_each_other(tmp_path: Path) -> None:
    async def story() -> None:
        metadata_store, (one, other) = await make(tmp_path, 2)
        token = await one.create(user("ann"), user("ann"), [user("bob")], -1)
        await until(lambda: token.id in other.tokens)
        password = one.password(token)
        assert other.login(token.id, "SCRAM-SHA-256") is not None
        expires_ms = await other.renew(password, user("bob"), 1000)
        await until(lambda: one.tokens[token.id].expires_ms == expires_ms)
        with pytest.raises(BrokerError) as refused:
            await other.expire(password, user("carl"), -1)
        assert refused.value.code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        await other.expire(password, user("ann"), -1)
        await until(lambda: not one.tokens)
        assert one.login(token.id, "SCRAM-SHA-256") is None
        assert [
            (await metadata_store.get(f"{CHANGES}/{name}")).data for name in await metadata_store.children(CHANGES)
        ] == [token.id.encode()] * 3
        for store in (one, other):
            await store.close()
        await metadata_store.close()

    asyncio.run(story())


def test_one_that_another_broker_has_removed_is_gone(tmp_path: Path) -> None:
    async def story() -> None:
        metadata_store, (store,) = await make(tmp_path, 1)
        token = await store.create(user("ann"), user("ann"), [], -1)
        await metadata_store.delete(token.path)
        with pytest.raises(BrokerError) as refused:
            await store.renew(store.password(token), user("ann"), -1)
        assert refused.value.code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert not store.tokens
        await store.close()
        await metadata_store.close()

    asyncio.run(story())


def test_what_is_torn_is_nobodys_and_the_others_stay(tmp_path: Path) -> None:
    async def story() -> None:
        metadata_store, (one, other) = await make(tmp_path, 2)
        await metadata_store.create(f"{TOKENS}/torn", b'{"owner":')
        await metadata_store.create(f"{TOKENS}/other-name", encode(READ))
        for notice in (b"torn", b"other-name", b"../../brokers", b"\xff", b""):
            await metadata_store.create(f"{CHANGES}/token_change_", notice, sequential=True)
        token = await one.create(user("ann"), user("ann"), [], -1)
        await until(lambda: other.tokens.keys() == {token.id})
        for store in (one, other):
            await store.close()
        _, (third,) = metadata_store, (await restarted(metadata_store),)
        assert third.tokens.keys() == {token.id}
        await third.close()
        await metadata_store.close()

    asyncio.run(story())


async def restarted(metadata_store: SqliteStore) -> TokenStore:
    store = TokenStore(metadata_store, CONFIG, SystemClock(), bytes, shared=False, in_charge=lambda: True)
    await store.start()
    return store


@pytest.mark.parametrize("in_charge", [True, False])
def test_old_ones_are_removed_by_who_is_in_charge(tmp_path: Path, in_charge: bool) -> None:
    async def story() -> None:
        metadata_store, (store,) = await make(tmp_path, 1, in_charge=in_charge)
        await metadata_store.create(READ.path, encode(READ._replace(expires_ms=1)))
        await store.close()
        store = TokenStore(metadata_store, CONFIG, SystemClock(), bytes, shared=False, in_charge=lambda: in_charge)
        await store.start()
        assert store.login(READ.id, "SCRAM-SHA-256") is None, "it is over, whether removed or not"
        await store.remove_old()
        assert (READ.id in store.tokens) is not in_charge
        assert await metadata_store.children(TOKENS) == ([] if in_charge else [READ.id])
        await store.close()
        await metadata_store.close()

    asyncio.run(story())
