"""The metadata store on SQLite: the port's contract, and the state after kill -9 at any moment."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from random import Random

import pytest
from cluster.refusals import REFUSALS
from waiting import until

from ottla.cluster import sqlite_store
from ottla.cluster.metadata_store import (
    Create,
    Event,
    NotEmpty,
    Op,
    SessionEvent,
    Set,
    StoreError,
    Unavailable,
)
from ottla.cluster.sqlite_store import MEMORY, RESERVE_SIZE, Database, SqliteStore


def run(story: Coroutine[None, None, None]) -> None:
    asyncio.run(story)


async def opened(path: str = MEMORY) -> SqliteStore:
    store = SqliteStore(path)
    await store.open()
    return store


def test_a_node_has_data_a_version_and_children() -> None:
    async def story() -> None:
        store = await opened()
        assert await store.create("/a", b"one") == "/a"
        await store.create("/a/y")
        await store.create("/a/x")
        await store.create("/ab")
        assert (await store.get("/a")).data == b"one"
        assert (await store.get("/a")).stat.version == 0
        assert (await store.set("/a", b"two")).version == 1
        assert (await store.set("/a", b"three", version=1)).version == 2
        assert await store.children("/a") == ["x", "y"]
        assert await store.children("/") == ["a", "ab"]
        assert set(await store.tree("/a")) == {"/a", "/a/x", "/a/y"}
        assert set(await store.tree("/nothing")) == set()
        await store.delete("/a/x")
        assert await store.children("/a") == ["y"]
        await store.close()

    run(story())


@pytest.mark.parametrize(("op", "error"), REFUSALS)
def test_a_refusal_leaves_everything_as_it_was(op: Op, error: type[StoreError]) -> None:
    async def story() -> None:
        store = await opened()
        await store.multi([Create("/a"), Create("/a/b")])
        before = await store.tree("/")
        with pytest.raises(error):
            await store.multi([Create("/c"), Set("/a", b"changed"), op])
        assert await store.tree("/") == before
        await store.close()

    run(story())


def test_transactions_are_numbered_and_nodes_remember_theirs() -> None:
    async def story() -> None:
        store = await opened()
        await store.multi([Create("/a"), Create("/b")])
        await store.create("/c")
        born = {path: node.stat.czxid for path, node in (await store.tree("/")).items()}
        assert born["/a"] == born["/b"] == born["/c"] - 1
        await store.close()

    run(story())


def test_sequential_nodes_are_numbered_per_parent_and_never_twice() -> None:
    async def story() -> None:
        store = await opened()
        await store.create("/q")
        first = await store.create("/q/n_", sequential=True)
        await store.delete(first)
        assert first == "/q/n_0000000000"
        assert await store.create("/q/n_", sequential=True) == "/q/n_0000000001"
        await store.close()

    run(story())


def test_watches_tell_of_the_node_and_of_its_children_until_cancelled() -> None:
    async def story() -> None:
        store = await opened()
        seen: list[Event] = []
        cancel = store.watch("/a", seen.append)
        await store.create("/a")
        await store.set("/a", b"x")
        await store.create("/a/b")
        with pytest.raises(NotEmpty):
            await store.delete("/a")
        await store.delete("/a/b")
        await store.delete("/a")
        cancel()
        cancel()
        await store.create("/a")
        assert [(event.kind, event.path) for event in seen] == [
            (kind, "/a") for kind in ("created", "changed", "children", "children", "deleted")
        ]
        await store.close()

    run(story())


def test_each_of_several_writes_gets_its_own_version() -> None:
    async def story() -> None:
        store = await opened()
        await store.create("/a")
        stats = await asyncio.gather(*(store.set("/a", b"x") for _ in range(20)))
        assert [stat.version for stat in stats] == list(range(1, 21))
        await store.close()

    run(story())


def test_the_session_is_the_file_being_open() -> None:
    async def story() -> None:
        store = SqliteStore(MEMORY)
        seen: list[SessionEvent] = []
        cancel = store.subscribe(seen.append)
        assert (store.connected, store.session) == (False, 0)
        await store.open()
        assert store.session != 0
        await store.create("/me", ephemeral=True)
        await store.create("/other")
        assert (await store.get("/me")).stat.owner == (await store.tree("/"))["/me"].stat.owner == store.session
        assert (await store.get("/other")).stat.owner == 0
        await store.close()
        assert (seen, store.session) == ([SessionEvent.CONNECTED], 0)
        cancel()
        cancel()

    run(story())


def test_ephemeral_nodes_end_with_the_session_and_the_rest_stays(tmp_path: Path) -> None:
    async def story() -> None:
        file = str(tmp_path / "metadata.db")
        store = await opened(file)
        await store.multi([Create("/a", b"kept"), Create("/a/me", ephemeral=True)])
        assert (await store.get("/a/me")).stat.ephemeral
        await store.close()
        assert not store.connected
        store = await opened(file)
        assert await store.children("/a") == []
        assert (await store.get("/a")).data == b"kept"
        await store.close()

    run(story())


def test_one_process_at_a_time(tmp_path: Path) -> None:
    async def story() -> None:
        file = str(tmp_path / "metadata.db")
        store = await opened(file)
        with pytest.raises(Unavailable, match="locked"):
            await opened(file)
        await store.close()
        with pytest.raises(Unavailable, match="closed"):
            await store.get("/")
        await store.close()

    run(story())


def test_a_file_that_is_no_store_is_refused_by_name(tmp_path: Path) -> None:
    async def story() -> None:
        file = tmp_path / "metadata.db"
        file.write_bytes(b"something else entirely, and long enough to be looked at as a header" * 20)
        with pytest.raises(Unavailable, match=r"metadata.db: file is not a database"):
            await opened(str(file))

    run(story())


# Writes pairs of nodes for ever, each in one transaction, and prints each pair that was acknowledged.
WRITER = """
import asyncio, sys
from ottla.cluster.sqlite_store import SqliteStore
from ottla.cluster.metadata_store import Create, Set

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    nodes = await store.tree("/")
    count = sum(path.startswith("/left-") for path in nodes)
    if "/count" not in nodes:
        await store.create("/count", b"0")
    await store.create("/me", ephemeral=True)
    while True:
        ops = [Create(f"/left-{count}", b"x" * 500), Set("/count", b"%d" % (count + 1)), Create(f"/right-{count}")]
        await store.multi(ops)
        print(count, flush=True)
        count += 1

asyncio.run(main())
"""


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_any_moment_it_keeps_what_it_answered_and_nothing_by_half(tmp_path: Path, seed: int) -> None:
    random, file = Random(seed), str(tmp_path / "metadata.db")
    source = str(Path(sys.modules[SqliteStore.__module__].__file__ or "").parents[2])
    answered = -1
    for _ in range(8):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, file], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": source}
        )
        assert writer.stdout is not None
        for _ in range(random.randrange(1, 60)):
            answered = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        answered = int((writer.stdout.read().split() or [b"%d" % answered])[-1])
        writer.wait()
        nodes = asyncio.run(contents(file))
        lefts = {path.removeprefix("/left-") for path in nodes if path.startswith("/left-")}
        rights = {path.removeprefix("/right-") for path in nodes if path.startswith("/right-")}
        assert lefts == rights == {str(number) for number in range(int(nodes["/count"]))}
        assert len(lefts) in (answered + 1, answered + 2), "at most the one in flight is more than was answered"
        assert "/me" not in nodes


async def contents(file: str) -> dict[str, bytes]:
    store = await opened(file)
    nodes = {path: node.data for path, node in (await store.tree("/")).items()}
    await store.close()
    return nodes


def test_room_is_kept_for_a_start_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "RESERVE_RETRY_S", 0.01)
    path, reserve = tmp_path / "tree", tmp_path / "tree-reserve"
    connect = Database._connect

    def full_unless_room_was_made(self: Database) -> None:
        if reserve.exists():
            raise Unavailable("database or disk is full")
        connect(self)

    async def story() -> None:
        store = await opened(str(path))
        await store.create("/a", b"kept")
        await store.close()
        assert reserve.stat().st_blocks * 512 >= RESERVE_SIZE, "blocks, not a hole"
        with monkeypatch.context() as patch:
            patch.setattr(Database, "_connect", full_unless_room_was_made)
            store = await opened(str(path))
        assert (await store.get("/a")).data == b"kept"
        assert not reserve.exists(), "it is in use now"
        await until(reserve.exists, "it is set aside again when there is room, without a restart")
        await store.close()

    run(story())


def test_nobody_else_may_read_the_files(tmp_path: Path) -> None:
    """They contain users' credentials."""
    path, journal = tmp_path / "store.sqlite", tmp_path / "journal"

    async def story() -> None:
        store = SqliteStore(str(path), str(journal))
        await store.open()
        await store.create("/a", b"secret", sequential=True)
        await store.close()

    asyncio.run(story())
    assert [path.stat().st_mode & 0o777, journal.stat().st_mode & 0o777] == [0o600, 0o600]
    path.chmod(0o644)  # as an earlier version left it
    asyncio.run(story())
    assert path.stat().st_mode & 0o777 == 0o600
