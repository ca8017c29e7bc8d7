"""Followers truncate what their leaders do not have, on a slow disk: the loop does not wait for it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from replica.cluster import World, alike, append, play
from waiting import until

from ottla.disk import RealDisk

if TYPE_CHECKING:
    from pathlib import Path

OLD = {
    "inter.broker.protocol.version": "2.3"
}  # followers ask leaders for epoch end offsets, one request for all partitions


@pytest.mark.parametrize("options", [{}, OLD], ids=["newest", "2.3"])
def test_cuts_of_many_logs_are_forced_in_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    forced: list[bool] = []  # whether a thread did it, for each
    loop, sync, sync_folder = threading.current_thread(), RealDisk.sync, RealDisk.sync_folder

    def noted(fd: int) -> None:
        forced.append(threading.current_thread() is not loop)
        sync(fd)

    def noted_folder(disk: RealDisk, folder: Path) -> None:
        forced.append(threading.current_thread() is not loop)
        sync_folder(disk, folder)

    async def story(world: World) -> None:
        count = 20
        for index in range(count):
            former = world.lead(0, epoch=1, index=index)
            append(former, 3)
        await until(lambda: all(alike(*world.members.values(), index=index) for index in range(count)))
        world.down.add(0)
        for index in range(count):  # records that no other replica has
            append(world[0].replicas.require_led("t", index), 4)
        for index in range(count):
            append(world.lead(1, epoch=2, index=index), 1)
        world.down.clear()
        monkeypatch.setattr(RealDisk, "sync", staticmethod(noted))
        monkeypatch.setattr(RealDisk, "sync_folder", noted_folder)
        for index in range(count):
            world.lead(1, epoch=3, index=index)
        await until(lambda: all(alike(*world.members.values(), index=index) for index in range(count)))
        assert len(forced) >= 2 * count
        assert all(forced), "the loop has waited for the disk"
        monkeypatch.undo()

    play(tmp_path, story, **options)
