"""meta.properties names the owner of a log folder. It may be torn, and folders of two brokers may be mixed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla.clock import SystemClock
from ottla.cluster.sqlite_store import MEMORY, SqliteStore
from ottla.config import load, topic_config
from ottla.disk import RealDisk
from ottla.errors import BrokerError
from ottla.founding.member import Joined
from ottla.log.checkpoints import CorruptCheckpointError, Meta
from ottla.log.store import LogStore
from ottla.replica.waits import Waits

if TYPE_CHECKING:
    from pathlib import Path


def two_folders(tmp_path: Path, first: str, second: str) -> LogStore:
    for name, text in (("a", first), ("b", second)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text(text)
    return LogStore([tmp_path / "a", tmp_path / "b"], RealDisk(), SystemClock(), load({}))


@pytest.mark.parametrize("torn", ["", "#\n", "#\nversion=0\n"])
def test_a_torn_one_does_not_hide_another(tmp_path: Path, torn: str) -> None:
    store = two_folders(tmp_path, torn, "version=0\nbroker.id=5\ncluster.id=c\n")
    assert store.read_meta() == Meta(0, 5, "c")
    store.write_meta(Meta(0, 5, "c"))
    assert "broker.id=5" in (tmp_path / "a" / "meta.properties").read_text()


@pytest.mark.parametrize("other", ["broker.id=6\ncluster.id=c\n", "broker.id=5\ncluster.id=d\n"])
def test_folders_of_two_brokers_are_refused(tmp_path: Path, other: str) -> None:
    store = two_folders(tmp_path, "version=0\nbroker.id=5\ncluster.id=c\n", f"version=0\n{other}")
    with pytest.raises(CorruptCheckpointError, match="belongs to node"):
        store.read_meta()


def test_logs_of_nobody_are_not_put_away_under_a_number_that_was_made_up(tmp_path: Path) -> None:
    """The broker id is lost with meta.properties: under another id every log here would be a stray."""

    async def story() -> None:
        options = {"log.dirs": str(tmp_path), "zookeeper.connect": "nowhere:1"}
        config, clock = load(options), SystemClock()
        before = LogStore([tmp_path], RealDisk(), clock, config)
        before.open(lambda _: topic_config(config, {}))
        before.create("t", 0, b"i" * 16, topic_config(config, {}), 0)
        await before.close()
        store = LogStore([tmp_path], RealDisk(), clock, config)
        joined = Joined(config, clock, store, SqliteStore(MEMORY))
        with pytest.raises(BrokerError, match=r"set broker\.id"):
            await joined.open({}, Waits(asyncio.get_running_loop()))
        await joined.close()
        await store.close()

    asyncio.run(story())
    assert (tmp_path / "t-0").is_dir()
