"""A topic is deleted and recreated while the directory of its log is offline; then the directory comes back."""

from __future__ import annotations

import asyncio
import errno
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from log.making import NOW_MS, produced

from ottla.broker import Broker
from ottla.cluster.plans import NewTopic
from ottla.config import load

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ottla.handlers.call import Parts

FOLDERS = ("metadata", "b", "c")


@asynccontextmanager
async def broker(folder: Path) -> AsyncIterator[Parts]:
    folders = ",".join(str(folder / name) for name in FOLDERS)
    root = Broker(load({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": folders}))
    try:
        await root.start()
        assert root._dispatch is not None
        yield root._dispatch._parts
    finally:
        await root.stop()


@pytest.mark.parametrize(("former", "current"), [("b", "c"), ("c", "b")])
def test_the_former_topic_does_not_displace_the_current_one(tmp_path: Path, former: str, current: str) -> None:
    """The log that was found first was taken. It was of the wrong topic, and so the topic began empty."""

    async def create(parts: Parts, folder: str, count: int) -> None:
        parts.store.move("orders", 0, str(tmp_path / folder))  # where to create it
        await parts.controller.create_topics([NewTopic("orders", 1, 1)])
        partition = parts.replicas.require_led("orders", 0)
        assert partition.log.folder.parent == tmp_path / folder
        partition.append(produced(count), NOW_MS, 9)

    async def story() -> None:
        async with broker(tmp_path) as parts:
            await create(parts, former, 5)
            directory = parts.replicas.require_led("orders", 0).log.directory
            directory.fail(OSError(errno.EIO, "unplugged"))
            (tmp_path / former).rename(tmp_path / "unplugged")
            await parts.controller.delete_topics(["orders"])
            await create(parts, current, 2)
        (tmp_path / "unplugged").rename(tmp_path / former)
        for _ in range(2):
            async with broker(tmp_path) as parts:
                log = parts.replicas.require_led("orders", 0).log
                assert (log.folder, log.end) == (tmp_path / current / "orders-0", 2)
                assert [path.name[-6:] for path in (tmp_path / former).glob("orders-0*")] == ["-stray"]

    asyncio.run(story())
