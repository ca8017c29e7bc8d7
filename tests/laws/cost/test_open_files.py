"""An append opens no file, however many partitions take turns, unless the process is short of descriptors."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import pytest
from log.making import TOPIC_ID, a_store, append, produced, settings

from ottla.disk import File, RealDisk
from ottla.log.files import KEPT_MAX, OpenFiles

if TYPE_CHECKING:
    import os
    from pathlib import Path

LOGS = 60


class CountingDisk(RealDisk):
    def __init__(self) -> None:
        self.opened = 0

    def open(self, path: str | os.PathLike[str], *, create: bool = False) -> File:
        self.opened += 1
        return super().open(path, create=create)


def test_partitions_that_take_turns_keep_their_files(tmp_path: Path) -> None:
    disk = CountingDisk()
    store = a_store(tmp_path, disk=disk)
    logs = [store.create("orders", index, TOPIC_ID, settings(), 0) for index in range(LOGS)]
    for log in logs:
        append(log, produced(1))
    disk.opened = 0
    for _ in range(5):
        for log in logs:
            append(log, produced(1))
    assert disk.opened == 0


@pytest.mark.parametrize(
    ("soft", "kept"),
    [
        (1024, 512),
        (4096, 2048),
        (20_000, 10_000),
        (40_960, 20_480),  # connections need descriptors, too
        (65_536, KEPT_MAX),
        (resource.RLIM_INFINITY, KEPT_MAX),
    ],
)
def test_how_many_files_are_kept_follows_the_limit_of_the_process(
    soft: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert OpenFiles()._limit() == kept
