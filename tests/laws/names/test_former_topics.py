"""A log of a deleted topic never becomes a replica of the recreated topic, even if the deletion was not announced."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from replica.making import TOPIC_ID, Host, state
from replica.test_partition import play

from ottla.errors import BrokerError, ErrorCode
from ottla.log.checkpoints import PARTITION_METADATA

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

NEW_ID = bytes(range(16, 32))
OUTSIDE = state(leader=1, epoch=0, isr=(1, 2))
ROLES = {
    "outside of the in-sync set": OUTSIDE,
    "in sync": state(leader=1, epoch=0),
    "leader": state(epoch=0),
    "without a leader": state(leader=-1, epoch=0, isr=(1, 2)),
}


async def write(host: Host) -> None:
    """Five records of the former topic, as a leader in epoch 7."""
    host.append(host.assign(state(epoch=7, replicas=(0,), isr=(0,))), 5)


def play_on(folder: Path, story: Callable[[Host], Awaitable[None]], *, torn: bool = False) -> None:
    """Restart the broker after kill -9; with `torn`, after a power cut that emptied the file with the topic id."""
    shutil.copytree(folder / "first", folder / "next")
    if torn:
        (folder / "next" / "t-0" / PARTITION_METADATA).write_bytes(b"")
    play(folder / "next", story)


def strays(host: Host) -> list[str]:
    folder = host.store.directories[0].path
    return [entry.name for entry in host.store.disk.scan(folder) if entry.name.endswith("-stray")]


@pytest.mark.parametrize("life", ["the same life", "the next life"])
@pytest.mark.parametrize("role", ROLES)
def test_a_topic_that_was_made_again_while_nobody_told_this_broker(tmp_path: Path, role: str, life: str) -> None:
    async def first(host: Host) -> None:
        await write(host)
        if life == "the same life":
            await then(host)

    async def then(host: Host) -> None:
        if role == "outside of the in-sync set":
            partition = host.assign(ROLES[role], topic_id=NEW_ID, new=False)
            assert (partition.topic_id, partition.log.end, partition.high) == (NEW_ID, 0, 0)
            assert len(strays(host)) == 1
            assert host.replicas.require_hosted_by_id(NEW_ID, 0) is partition
            with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_ID"):
                host.replicas.require_hosted_by_id(TOPIC_ID, 0)
        else:  # the id may be wrong, and the log may be needed
            with pytest.raises(BrokerError) as refused:
                host.assign(ROLES[role], topic_id=NEW_ID, new=False)
            assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
            assert host.store.logs["t", 0].end == 5

    play(tmp_path / "first", first)
    if life == "the next life":
        play_on(tmp_path, then)


@pytest.mark.parametrize(
    ("role", "new", "kept"),
    [
        ("outside of the in-sync set", False, False),
        ("in sync", False, True),
        ("leader", False, True),
        ("leader", True, False),
        ("without a leader", False, True),
    ],
)
def test_a_log_whose_topic_id_is_lost(tmp_path: Path, role: str, *, new: bool, kept: bool) -> None:
    """An in-sync replica has a log of this topic, unless the topic has just been created."""

    async def then(host: Host) -> None:
        partition = host.assign(ROLES[role], topic_id=NEW_ID, new=new)
        assert (partition.log.topic_id, partition.log.end) == (NEW_ID, 5 if kept else 0)
        assert len(strays(host)) == (0 if kept else 1)
        assert partition.log.id_lost is False

    play(tmp_path / "first", write)
    play_on(tmp_path, then, torn=True)


def test_a_log_from_before_there_were_topic_ids_is_kept(tmp_path: Path) -> None:
    async def first(host: Host) -> None:
        host.append(host.assign(state(epoch=7, replicas=(0,), isr=(0,)), topic_id=bytes(16)), 5)

    async def then(host: Host) -> None:
        partition = host.assign(OUTSIDE, topic_id=NEW_ID, new=False)
        assert (partition.log.topic_id, partition.log.end) == (NEW_ID, 5)

    play(tmp_path / "first", first)
    play_on(tmp_path, then)
