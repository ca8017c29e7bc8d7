"""The broker dies between any two steps of a start, a creation or a deletion: the next start finds all or nothing."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from ottla.broker import Broker
from ottla.cluster.image import Topic
from ottla.cluster.plans import NewTopic
from ottla.config import load
from ottla.disk import RealDisk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from ottla.cluster.standalone import Standalone

CHANGES = ("open", "writev", "append", "write", "truncate", "rename", "remove", "make_folder", "remove_folder", "cut")
STEPS_MAX = 60


class Dead(BaseException):
    """The process has been killed."""


class Fate:
    """Counts the steps that change something, and kills the broker at one of them, before or after it is done."""

    def __init__(self, step: int, *, done: bool) -> None:
        self.left = step
        self.done = done
        self.dead = False

    def around(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **named: Any) -> Any:
            if self.dead:
                raise Dead
            self.left -= 1
            if self.left == 0:
                self.dead = True
                if self.done:
                    change(*arguments, **named)
                raise Dead
            return change(*arguments, **named)

        return step


def fated(folder: Path, fate: Fate) -> Broker:
    """A broker whose changes, on the disk and in the metadata, all count as steps."""
    disk = RealDisk()
    broker = made(folder, disk)
    for name in CHANGES:
        setattr(disk, name, fate.around(getattr(disk, name)))
    file = broker._founding.metadata_store._file
    file._transact = fate.around(file._transact)  # type: ignore[method-assign]
    return broker


def made(folder: Path, disk: RealDisk | None = None) -> Broker:
    return Broker(load({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder)}), disk=disk)


async def forsaken(broker: Broker) -> None:
    """Clean up as the operating system does for a killed process."""
    for task in broker._tasks:
        task.cancel()
    await asyncio.gather(*broker._tasks, return_exceptions=True)
    for listener in broker._listeners:
        listener.stop_accepting()
    database = broker._founding.metadata_store._file._database
    if database is not None:
        database.close()
    broker._founding.metadata_store._worker.shutdown()


def controller(broker: Broker) -> Standalone:
    assert broker._dispatch is not None
    return broker._dispatch._parts.controller


async def look(folder: Path, name: str) -> bool:
    """Whether the topic exists after a start. It must be complete, or absent and possible to create."""
    broker = made(folder)
    await broker.start()
    image = controller(broker).metadata.image
    there = name in image.topics
    if there:
        assert {index for topic, index in broker._store.logs if topic == name} == {0, 1}
    else:
        assert not [key for key in broker._store.logs if key[0] == name]
        result = (await controller(broker).create_topics([NewTopic(name, 2, 1)]))[0]
        assert isinstance(result, Topic), f"it cannot be made again: {result}"
    assert ("old" in image.topics) == (("old", 0) in broker._store.logs)
    assert not [entry for entry in os.listdir(folder) if entry.endswith("-stray")], "an empty log is nobody's business"
    await broker.stop()
    return there


async def die(folder: Path, fate: Fate, change: Callable[[Broker], Awaitable[object]]) -> bool:
    """Run the change until the broker is killed; return whether it was."""
    fate_step, fate.left = fate.left, -1  # not during the start
    broker = fated(folder, fate)
    try:
        await broker.start()
        fate.left = fate_step
        with suppress(Dead):
            await change(broker)
    finally:
        fate.dead, died = True, fate.dead
        await forsaken(broker)
    return died


@pytest.mark.parametrize("done", [False, True])
def test_a_creation_that_is_cut_short(tmp_path: Path, done: bool) -> None:
    outcomes = []
    for step in range(1, STEPS_MAX):
        folder = tmp_path / str(step)

        async def story(folder: Path = folder, step: int = step) -> bool:
            died = await die(
                folder, Fate(step, done=done), lambda broker: controller(broker).create_topics([NewTopic("t", 2, 1)])
            )
            outcomes.append(await look(folder, "t"))
            return died

        if not asyncio.run(story()):
            break
    assert outcomes[0] is False
    assert outcomes[-1] is True
    assert outcomes == sorted(outcomes), "from one step on it is there"


@pytest.mark.parametrize("done", [False, True])
def test_a_deletion_that_is_cut_short(tmp_path: Path, done: bool) -> None:
    outcomes = []
    for step in range(1, STEPS_MAX):
        folder = tmp_path / str(step)

        async def story(folder: Path = folder, step: int = step) -> bool:
            broker = made(folder)
            await broker.start()
            await controller(broker).create_topics([NewTopic("t", 2, 1)])
            await broker.stop()
            died = await die(folder, Fate(step, done=done), lambda broker: controller(broker).delete_topics(["t"]))
            outcomes.append(await look(folder, "t"))
            return died

        if not asyncio.run(story()):
            break
    assert outcomes[-1] is False
    assert outcomes == sorted(outcomes, reverse=True), "from one step on it is gone"


@pytest.mark.parametrize("done", [False, True])
def test_a_first_start_that_is_cut_short(tmp_path: Path, done: bool) -> None:
    for step in range(1, STEPS_MAX):
        folder = tmp_path / str(step)

        async def story(folder: Path = folder, step: int = step) -> bool:
            fate = Fate(step, done=done)
            broker = fated(folder, fate)
            try:
                with suppress(Dead):
                    await broker.start()
            finally:
                fate.dead, died = True, fate.dead
                await forsaken(broker)
            assert not await look(folder, "t")
            return died

        if not asyncio.run(story()):
            return
    raise AssertionError("a start has fewer steps")


def test_a_folder_that_is_in_the_way_is_set_aside(tmp_path: Path) -> None:
    async def story() -> None:
        broker = made(tmp_path)
        await broker.start()
        os.mkdir(tmp_path / "t-1")
        (tmp_path / "t-1" / "precious").write_text("kept")
        result = (await controller(broker).create_topics([NewTopic("t", 2, 1)]))[0]
        assert isinstance(result, Topic), f"{result}"
        (stray,) = [entry for entry in os.listdir(tmp_path) if entry.endswith("-stray")]
        assert os.listdir(tmp_path / stray) == ["precious"]
        await broker.stop()

    asyncio.run(story())


def test_a_file_that_is_called_like_a_partition_is_no_partition(tmp_path: Path) -> None:
    async def story() -> None:
        (tmp_path / "notes-1").write_text("not a folder")
        broker = made(tmp_path)
        await broker.start()
        assert all(directory.online for directory in broker._store.directories)
        assert not broker._store.logs
        await broker.stop()

    asyncio.run(story())
