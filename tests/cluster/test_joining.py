"""A member that starts while the metadata store is unavailable: it waits for it, but not for ever."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla.clock import SystemClock
from ottla.cluster import znodes
from ottla.cluster.metadata_store import Unavailable, UnknownOutcome
from ottla.cluster.sqlite_store import MEMORY, SqliteStore
from ottla.config import load
from ottla.disk import RealDisk
from ottla.founding import member
from ottla.founding.member import Joined
from ottla.log.store import LogStore
from ottla.replica.waits import Waits

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ottla.cluster.metadata_store import Znode


class Flaky(SqliteStore):
    """Fails the first reads of each tree."""

    def __init__(self, failures: int) -> None:
        super().__init__(MEMORY)
        self._failures = failures
        self.failed: dict[str, int] = {}

    async def tree(self, path: str) -> Mapping[str, Znode]:
        failed = self.failed.setdefault(path, 0)
        if path.startswith("/brokers") and failed < self._failures:
            self.failed[path] = failed + 1
            raise UnknownOutcome(path)
        return await super().tree(path)


async def join(folder: Path, metadata_store: Flaky, patience_ms: int) -> int:
    options = {
        "log.dirs": str(folder),
        "zookeeper.connect": "nowhere:1",
        "zookeeper.connection.timeout.ms": str(patience_ms),
        "broker.id": "7",
    }
    config, clock = load(options), SystemClock()
    store = LogStore([folder], RealDisk(), clock, config)
    joined = Joined(config, clock, store, metadata_store)
    try:
        await joined.open({}, Waits(asyncio.get_running_loop()))
        return joined.metadata.node_id
    finally:
        await joined.close()
        await store.close()


def test_a_read_that_gets_no_answer_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "RETRY_S", 0.001)
    metadata_store = Flaky(failures=3)
    assert asyncio.run(join(tmp_path, metadata_store, 60_000)) == 7
    assert {znodes.TOPICS: 3, znodes.BROKERS: 3}.items() <= metadata_store.failed.items()


def test_a_store_that_stays_away_ends_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "RETRY_S", 0.001)
    with pytest.raises(Unavailable):
        asyncio.run(join(tmp_path, Flaky(failures=10**9), 20))
