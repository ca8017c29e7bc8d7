"""The end of a log damaged although the last stop was clean: what is acknowledged from then on can be read, and stays.

Behind such a tail nobody would find it, and the next recovery would cut it off together with the damage.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest
from log.making import NOW_MS, TOPIC_ID, a_store, append, everything, produced, settings

from ottla.records import batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OPTIONS = {"index.interval.bytes": "500"}
BATCHES = 20
BASE = f"{0:020d}"


def torn(folder: Path) -> None:
    os.truncate(folder / f"{BASE}.log", (folder / f"{BASE}.log").stat().st_size - 7)


def extended(folder: Path, data: bytes) -> None:
    with (folder / f"{BASE}.log").open("ab") as file:
        file.write(data)


def zeros(folder: Path) -> None:
    extended(folder, bytes(3000))


def header_begun(folder: Path) -> None:
    extended(folder, bytes(7) + b"\x10")


def wrong_length(folder: Path) -> None:
    """The last batch claims to be longer than it is."""
    path = folder / f"{BASE}.log"
    data = bytearray(path.read_bytes())
    last = list(batch.entries(bytes(data)))[-1]
    data[last.position + 10] ^= 0x40
    path.write_bytes(data)


def offset_of_batch_flipped(folder: Path) -> None:
    """No checksum covers the offset of a batch. This one would make the log end beyond what a segment can hold."""
    path = folder / f"{BASE}.log"
    data = bytearray(path.read_bytes())
    data[list(batch.entries(bytes(data)))[-1].position + 1] ^= 0x10
    path.write_bytes(data)


def position_flipped(folder: Path) -> None:
    """The last index entry points into the middle of a batch."""
    flip(folder / f"{BASE}.index", -2)


def offset_flipped(folder: Path) -> None:
    """The last index entry is for an offset that was never written."""
    flip(folder / f"{BASE}.index", -6)


def time_offset_flipped(folder: Path) -> None:
    flip(folder / f"{BASE}.timeindex", -2)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        (torn, 1),
        (zeros, 0),
        (header_begun, 0),
        (wrong_length, 1),
        (offset_of_batch_flipped, 1),
        (position_flipped, 0),
        (offset_flipped, 0),
        (time_offset_flipped, 0),
    ],
)
def test_what_is_appended_after_a_damaged_tail_is_kept(
    tmp_path: Path, damage: Callable[[Path], None], lost: int
) -> None:
    store = a_store(tmp_path, topic=OPTIONS)
    log = store.create("orders", 0, TOPIC_ID, settings(index_interval_bytes=500), 0)
    for at in range(BATCHES):
        append(log, produced(size=200, timestamp=NOW_MS + at))
    asyncio.run(store.close())
    damage(tmp_path / "orders-0")

    opened = a_store(tmp_path, topic=OPTIONS).logs["orders", 0]
    assert opened.end == BATCHES - lost
    offsets = [append(opened, produced(size=200, timestamp=NOW_MS + BATCHES + at)).base for at in range(BATCHES)]
    expected = [*range(BATCHES - lost), *offsets]
    assert [entry.base_offset for entry in batch.entries(everything(opened))] == expected
    crashed = a_store(tmp_path, topic=OPTIONS).logs["orders", 0]
    assert [entry.base_offset for entry in batch.entries(everything(crashed))] == expected
    found = crashed.offset_for_time(NOW_MS + BATCHES + 3)
    assert found is not None
    assert found.offset == offsets[3]


def test_a_log_at_the_largest_offset_is_refused_and_the_others_are_served(tmp_path: Path) -> None:
    """Its offsets could not be encoded, and every response with one of them failed, whatever else it held."""
    store = a_store(tmp_path)
    for name in ("near", "far"):
        append(store.create(name, 0, TOPIC_ID, settings(), 0), produced())
    asyncio.run(store.close())
    for path in (tmp_path / "far-0").glob("0*"):
        path.unlink()
    (tmp_path / "far-0" / f"{2**63 - 1:020d}.log").touch()
    opened = a_store(tmp_path)
    assert list(opened.logs) == [("near", 0)]
    assert opened.broken.keys() == {("far", 0)}
    assert "too near to the largest one" in opened.broken["far", 0]
