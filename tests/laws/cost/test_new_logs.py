"""A new log costs a handful of disk calls: a controller may request thousands at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from log.making import TOPIC_ID, a_store, append, produced, settings
from replica.making import Host, state

from ottla import descriptors
from ottla.disk import RealDisk
from ottla.replica.assigned import UNLOOKED_MAX

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class CountingDisk(RealDisk):
    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        for name in ("append", "cut", "exists", "make_folder", "open", "rename", "scan", "stat", "sync", "write"):
            setattr(self, name, self._count(name, getattr(self, name)))

    def _count(self, name: str, method: Any) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.calls[name] += 1
            return method(*arguments, **options)

        return counted


def test_a_new_log_is_a_folder_and_four_files(tmp_path: Path) -> None:
    disk = CountingDisk()
    store = a_store(tmp_path, disk=disk)
    disk.calls.clear()
    log = store.create("orders", 0, TOPIC_ID, settings(), -1)
    assert disk.calls == {"exists": 1, "make_folder": 1, "open": 3, "append": 1}
    append(log, produced(1))
    log.close()
    assert a_store(tmp_path).logs["orders", 0].topic_id == TOPIC_ID


def test_a_torn_topic_id_does_not_matter(tmp_path: Path) -> None:
    a_store(tmp_path).create("orders", 0, TOPIC_ID, settings(), -1)
    for torn in (b"", b"version: 0\ntopic"):
        (tmp_path / "orders-0" / "partition.metadata").write_bytes(torn)
        assert a_store(tmp_path).logs["orders", 0].topic_id == bytes(16)


def test_the_limit_of_open_files_is_not_looked_at_for_each_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    left = descriptors.count_free

    def counted() -> int:
        looks.append(left())
        return looks[-1]

    monkeypatch.setattr(descriptors, "count_free", counted)

    async def story() -> None:
        host = Host(tmp_path)
        for index in range(50):
            host.assign(state(leader=1, index=index))
        await host.store.close()

    asyncio.run(story())
    assert 1 <= len(looks) <= 50 / UNLOOKED_MAX + 1
