"""A topic is deleted and recreated again and again while a follower copies it: the follower copies the new one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from replica.cluster import World, alike, append, play
from waiting import until

from ottla.wire.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from pathlib import Path


def test_a_name_that_comes_back_twice_at_once_is_copied(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        other = world.lead(0, name="other", topic_id=b"o" * 16)  # keeps the loop and its session busy
        partition = world.lead(0, topic_id=b"0" * 16)
        append(partition, 5)
        await until(lambda: partition.high == 5)
        for number in range(1, 4):  # nothing is sent in between
            for member in (world[0], world[1]):
                member.replicas.stop("t", 0, delete=True)
            partition = world.lead(0, topic_id=str(number).encode() * 16)
        append(partition, 2)
        append(other, 2)
        await until(lambda: partition.high == other.high == 2)
        assert alike(world[0], world[1])
        fetcher = world[1].fetchers._of["t", 0]
        assert len(fetcher._by_id) == 2
        await asyncio.sleep(0.3)
        world.asked.clear()
        await asyncio.sleep(0.3)
        assert len(world.requests(FetchRequest)) < 20, "the leader is not asked for what is gone"
        assert fetcher._copies["t", 0].failures == 0

    play(tmp_path, story, ids=(0, 1))
