"""A full disk under the metadata: deletion uses reserved space, other changes are refused; it recovers by itself."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from ottla.broker import Broker
from ottla.cluster import sqlite_store
from ottla.cluster.alterations import SET, OptionChange
from ottla.cluster.image import Topic
from ottla.cluster.metadata_store import Create, Delete, Unavailable
from ottla.cluster.plans import NewTopic
from ottla.cluster.sqlite_store import SqliteStore
from ottla.config import load
from ottla.errors import BrokerError, ErrorCode
from ottla.founding.alone import METADATA_FILE
from ottla.handlers.call import Call
from ottla.handlers.transactions import init_producer_id
from ottla.wire.messages.transactions import InitProducerIdRequest

if TYPE_CHECKING:
    from pathlib import Path

WRITES = ("INSERT", "UPDATE", "DELETE", "COMMIT")


class FullDisk:
    """A database whose disk is full until the reserve is released; a test can also clear `full`."""

    def __init__(self, database: sqlite3.Connection, reserve: Path) -> None:
        self._database = database
        self._reserve = reserve
        self.full = True

    def execute(self, query: str, *values: Any) -> Any:
        if self.full and os.path.exists(self._reserve) and query.startswith(WRITES):
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return self._database.execute(query, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


def has_reserve(folder: Path) -> bool:
    return (folder / "metadata-reserve").exists()


def fill(store: SqliteStore, path: Path, patch: pytest.MonkeyPatch) -> FullDisk:
    """Fill the disk: no space for a transaction nor, once it was released, for a reserve."""
    reserve = path.with_name(f"{path.name}-reserve")
    assert reserve.stat().st_blocks * 512 >= 1 << 20, "there is room aside"
    disk = FullDisk(store._file._database, reserve)  # type: ignore[arg-type]
    store._file._database = disk  # type: ignore[assignment]
    genuine = sqlite_store.claim

    def refuse(descriptor: int, position: int, size: int) -> None:
        if disk.full:
            raise OSError(28, "No space left on device")
        genuine(descriptor, position, size)

    patch.setattr(sqlite_store, "claim", refuse)
    return disk


def test_a_full_disk_takes_deletions_refuses_the_rest_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        store = SqliteStore(str(tmp_path / "metadata"))
        await store.open()
        await store.multi([Create("/a"), Create("/b"), Create("/c")])
        disk = fill(store, tmp_path / "metadata", monkeypatch)
        for _ in range(3):
            with pytest.raises(Unavailable, match="full"):
                await store.create("/d")
        assert has_reserve(tmp_path), "only what makes room may take the reserve"
        await store.multi([Delete("/a")])
        assert not has_reserve(tmp_path)
        await store.delete("/b")
        disk.full = False
        await store.create("/d")
        assert has_reserve(tmp_path), "taken again"
        assert await store.children("/") == ["c", "d"]
        await store.close()

    asyncio.run(story())
    said = [record.message for record in caplog.records]
    assert [line for line in said if "disk" in line] == [
        "the disk is full: no metadata but deletions can be written",
        "the disk has room again for metadata",
    ]


def test_a_broker_on_a_full_disk_deletes_topics_and_answers_who_wants_a_producer_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        broker = Broker(load({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}))
        await broker.start()
        assert broker._dispatch is not None
        parts = broker._dispatch._parts
        await parts.controller.create_topics([NewTopic("a", 3, 1), NewTopic("b", 1, 1)])
        disk = fill(broker._founding.metadata_store, tmp_path / METADATA_FILE, monkeypatch)
        call = Call(22, 4, "", "", "PLAINTEXT", ("", 0))
        for name, code in ((None, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), ("x", ErrorCode.COORDINATOR_NOT_AVAILABLE)):
            request = InitProducerIdRequest(
                transactional_id=name, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
            )
            answer = await init_producer_id(parts, call, request)
            assert answer.error_code == code
        refused = (await parts.controller.create_topics([NewTopic("c", 2, 1)]))[0]
        assert isinstance(refused, BrokerError)
        assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert not [name for name in os.listdir(tmp_path) if name.startswith("c-") and not name.endswith("-delete")]
        with pytest.raises(BrokerError):
            await parts.controller.alter_topic("a", [OptionChange("retention.ms", SET, "5")])
        assert all(isinstance(one, Topic) for one in await parts.controller.delete_topics(["a", "b"]))
        assert not parts.metadata.image.topics
        disk.full = False
        assert isinstance((await parts.controller.create_topics([NewTopic("c", 2, 1)]))[0], Topic)
        assert await parts.producer_ids.take() >= 0
        await broker.stop()

    asyncio.run(story())
