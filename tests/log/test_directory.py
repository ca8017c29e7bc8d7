"""Names of partition folders, in use and set aside, as Apache Kafka writes and reads them."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from ottla.disk import RealDisk
from ottla.errors import ErrorCode
from ottla.log.directory import Directory, Name, aside, parse

if TYPE_CHECKING:
    from pathlib import Path

UNIQUE = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("orders-0", Name("orders", 0)),
        ("a-b-12", Name("a-b", 12)),
        ("a.b_c-3", Name("a.b_c", 3)),
        (f"orders-0.{UNIQUE}-delete", Name("orders", 0, "delete")),
        (f"orders-7.{UNIQUE}-future", Name("orders", 7, "future")),
        (f"orders-7.{UNIQUE}-stray", Name("orders", 7, "stray")),
        (f"a-b.{UNIQUE}-1.{UNIQUE}-delete", Name(f"a-b.{UNIQUE}", 1, "delete")),
        ("orders", None),
        ("orders-x", None),
        ("orders-", None),
        ("-0", None),
        ("meta.properties", None),
        ("orders-0.tmp", None),
        ("or ders-0", None),
        ("lost+found", None),
        ("__cluster_metadata-0", None),
    ],
)
def test_what_a_folder_name_stands_for(folder: str, name: Name | None) -> None:
    assert parse(folder) == name


@pytest.mark.parametrize("topic", ["orders", "t" * 249])
@pytest.mark.parametrize("kind", ["delete", "future", "stray"])
def test_a_name_aside_fits_and_is_understood(topic: str, kind: str) -> None:
    folder = aside(topic, 2_000_000_000, UNIQUE, kind)
    assert len(folder) <= 255
    name = parse(folder)
    assert name is not None
    assert topic.startswith(name.topic)
    assert name[1:] == (2_000_000_000, kind)


@pytest.mark.parametrize(("number", "online"), [(errno.ENOSPC, True), (errno.EMFILE, True), (errno.EIO, False)])
def test_only_a_broken_device_goes_offline(tmp_path: Path, number: int, online: bool) -> None:
    directory = Directory(str(tmp_path), RealDisk())
    failure = OSError(number, "reason")
    directory.note_failure(failure)
    error = directory.storage_error(failure)
    assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert directory.online is online
    directory.note_failure(OSError(errno.EIO, "later"))
    assert directory.error is not None
    assert directory.error.strerror == ("later" if online else "reason"), "the first cause is kept"
