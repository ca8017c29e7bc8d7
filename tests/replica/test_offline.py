"""A running broker reports failed directories and room for refused logs to the controller: once, with retries."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest
from log.making import a_store
from replica.making import Host, state
from replica.test_partition import play
from waiting import until

from ottla import descriptors
from ottla.errors import BrokerError, ErrorCode
from ottla.replica import offline
from ottla.replica.offline import watch_directories

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.replica.assigned import Assigned


class Rooms:
    """Stands for replicas that were never refused."""

    refusals = 0


def test_a_directory_that_fails_is_told_of_until_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "LOOK_S", 0.005)

    async def story() -> None:
        store, replicas = a_store([tmp_path / "a", tmp_path / "b", tmp_path / "c"]), cast("Assigned", Rooms())
        tries: list[int] = []

        async def tell() -> None:
            tries.append(len(tries))
            if len(tries) < 3:
                raise ConnectionError("no session")

        store.directories[0].fail(OSError(5, "before the start: the answers to LeaderAndIsr will say so"))
        task = asyncio.ensure_future(watch_directories(store, replicas, tell))
        await asyncio.sleep(0.05)
        assert not tries
        store.directories[1].fail(OSError(5, "broken"))
        await until(lambda: len(tries) >= 3)
        await asyncio.sleep(0.05)
        assert len(tries) == 3
        task.cancel()

    asyncio.run(story())


@pytest.mark.parametrize("lack", ["files", "space"])
def test_room_for_what_was_refused_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lack: str) -> None:
    monkeypatch.setattr(offline, "LOOK_S", 0.005)

    async def story(host: Host) -> None:
        told: list[int] = []
        (directory,) = host.store.directories

        async def tell() -> None:
            told.append(host.replicas.refusals)

        def set_lack(*, lacks: bool) -> None:
            if lack == "files":
                monkeypatch.setattr(descriptors, "count_free", lambda: 0 if lacks else 1000)
            else:
                directory.full = lacks

        def refuse(*args: object, **more: object) -> None:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)

        task = asyncio.ensure_future(watch_directories(host.store, host.replicas, tell))
        with monkeypatch.context() as patched:
            set_lack(lacks=True)
            if lack == "space":
                patched.setattr(host.store, "create", refuse)
            for index in range(3):
                with pytest.raises(BrokerError):
                    host.assign(state(index=index))
        await asyncio.sleep(0.05)
        assert not told, "there is no room yet"
        set_lack(lacks=False)
        async with asyncio.timeout(60):
            while not told:
                await asyncio.sleep(0.005)
        host.assign(state())
        await asyncio.sleep(0.05)
        assert told == [3]
        task.cancel()

    play(tmp_path, story)
