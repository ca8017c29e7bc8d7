"""A log that cannot be opened affects only itself: the broker starts, logs it once, and serves all others."""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING

import pytest
from log.making import TOPIC_ID, a_store, append, everything, produced
from test_broker import create, produce, read

from ottla import BrokerThread
from ottla.config import load, topic_config
from ottla.disk import RealDisk
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ottla.disk import File, FolderEntry


class Unreadable(RealDisk):
    """One folder cannot be read: an error of a kind, or any exception at all."""

    def __init__(self, folder: str, error: Exception) -> None:
        self.folder = folder
        self.error = error

    def scan(self, folder: str | os.PathLike[str]) -> Sequence[FolderEntry]:
        if os.fspath(folder).endswith(self.folder):
            raise self.error
        return super().scan(folder)


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "Permission denied", "orders-1"),
        OSError(errno.EMFILE, "Too many open files", "orders-1"),
        MemoryError(),
        ZeroDivisionError("a fault of our own"),
    ],
)
@pytest.mark.parametrize("clean", [True, False])
def test_whatever_befalls_one_log_the_others_open(
    tmp_path: Path, error: Exception, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = a_store(tmp_path)
    for index in range(3):
        log = store.create("orders", index, TOPIC_ID, topic_config(load({}), {}), 0)
        append(log, produced(2))
    if clean:
        (tmp_path / ".kafka_cleanshutdown").write_bytes(b"")
    found = a_store(tmp_path, disk=Unreadable("orders-1", error))
    assert sorted(found.logs) == [("orders", 0), ("orders", 2)]
    assert list(found.broken) == [("orders", 1)]
    assert [everything(log) for log in found.logs.values()] == [everything(log)] * 2
    assert sum(record.message == "log offline" and record.exc_info is None for record in caplog.records) == 1
    assert a_store(tmp_path).logs["orders", 1].end == 2, "nothing of it was touched"


class Unopenable(RealDisk):
    """No file can be opened while there is an `error`."""

    error: OSError | None = None

    def open(self, path: str | os.PathLike[str], *, create: bool = False) -> File:
        if self.error is not None:
            raise self.error
        return super().open(path, create=create)


def test_a_file_that_cannot_be_opened_now_is_an_error_of_its_log(tmp_path: Path) -> None:
    """Whoever reads many logs catches the errors of each: a raw one would end the whole request."""
    disk = Unopenable()
    log = a_store(tmp_path, disk=disk).create("orders", 0, TOPIC_ID, topic_config(load({}), {}), 0)
    append(log, produced(2))
    log.active.let_go()  # as when others need the descriptor
    disk.error = OSError(errno.EMFILE, "Too many open files", "orders-0")
    with pytest.raises(BrokerError) as raised:
        log.read(0, 1000, offset_max=2)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    disk.error = None
    assert log.read(0, 1000, offset_max=2) is not None


def test_a_broker_serves_the_others_and_refuses_the_broken_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with BrokerThread(data=tmp_path) as broker:
        create(broker)
        assert set(produce(broker, b"before").values()) == {None}
    index = tmp_path / "t-1" / "00000000000000000000.index"
    index.unlink(missing_ok=True)
    index.mkdir()
    (tmp_path / "report-2024").write_text("no folder, no partition")
    with caplog.at_level(logging.ERROR), BrokerThread(data=tmp_path) as broker:
        told = produce(broker, b"after")
        assert [partition for partition, error in told.items() if error is not None] == [1]
        assert read(broker, 0, 2) == [b"before", b"after"]
    assert any(str(index) in str(getattr(record, "reason", "")) for record in caplog.records)
    index.rmdir()
    with BrokerThread(data=tmp_path) as broker:
        assert read(broker, 1, 1) == [b"before"], "it waited, and was not begun anew"
        assert set(produce(broker, b"again").values()) == {None}
