"""A log that could not be opened for a while is unchanged after repair: its checkpoint entries were kept."""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Any

import pytest
from log.making import NOW_MS, TOPIC_ID, StillClock, a_store, append, produced, settings

from ottla.log import recovery
from ottla.log.checkpoints import COMPACTED, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ottla.log.checkpoints import Offsets
    from ottla.log.log import Log
    from ottla.log.store import LogStore

NEW_ID = bytes(range(16, 32))
FILES = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, COMPACTED)


def lines(folder: Path, name: str) -> list[str]:
    return [line for line in (folder / name).read_text().splitlines() if line.startswith("orders 0 ")]


async def write_checkpoints(store: LogStore, clock: StillClock) -> None:
    """Write the checkpoints of the other log."""
    append(store.logs["other", 0], produced(5))
    store.logs["other", 0].durability.flush(NOW_MS)
    for _ in range(2):
        await store.housekeeping.checkpoint()
        clock.ms += 60_000


def damaged(folder: Path) -> Path:
    """A store with two logs, one of which has a folder in place of a file."""
    clock = StillClock()
    store = a_store(folder, clock=clock)
    store.create("other", 0, NEW_ID, settings(), 0)
    log = store.create("orders", 0, TOPIC_ID, settings(), 0)
    append(log, produced(600))
    log.durability.flush(NOW_MS)
    log.delete_before(500)
    log.compacted = 550
    asyncio.run(write_checkpoints(store, clock))
    asyncio.run(store.close())
    index = folder / "orders-0" / f"{0:020d}.index"
    index.rename(folder / "index")
    index.mkdir()
    return index


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_a_restart_before_the_repair_costs_nothing(tmp_path: Path, end: str) -> None:
    index = damaged(tmp_path)
    said = {name: lines(tmp_path, name) for name in FILES}
    assert said[LOG_STARTS] == ["orders 0 500"]
    for _ in range(2):
        clock = StillClock()
        store = a_store(tmp_path, clock=clock)
        assert list(store.broken) == [("orders", 0)]
        asyncio.run(write_checkpoints(store, clock))
        if end == "stopped":
            asyncio.run(store.close())
        assert {name: lines(tmp_path, name) for name in FILES} == said
    index.rmdir()
    log = a_store(tmp_path).logs["orders", 0]
    assert (log.start, log.end, log.compacted) == (500, 600, 550)


def test_a_new_log_of_that_name_begins_with_nothing(tmp_path: Path) -> None:
    damaged(tmp_path)
    clock = StillClock()
    store = a_store(tmp_path, clock=clock)
    append(store.create("orders", 0, NEW_ID, settings(), 0), produced(100))
    asyncio.run(write_checkpoints(store, clock))
    asyncio.run(store.close())
    log = a_store(tmp_path).logs["orders", 0]
    assert (log.start, log.end, log.compacted) == (0, 100, None)


def test_it_is_opened_while_a_checkpoint_is_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged(tmp_path).rmdir()
    clock, load = StillClock(), recovery.load

    def fail(path: str, *rest: Any, **more: Any) -> Any:
        if path.endswith("orders-0"):
            raise OSError(errno.EMFILE, "too many open files", path)
        return load(path, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(recovery, "load", fail)
        store = a_store(tmp_path, clock=clock)
    assert list(store.broken) == [("orders", 0)]

    async def write(name: str) -> None:
        ledger = store.directories[0].ledger
        say = ledger.lines

        def look(name: str, logs: Iterable[Log]) -> Offsets:
            found = say(name, logs)
            for key, unopened in list(store._unopened.items()):  # the end of `LogStore.open_again`
                unopened.adopt(unopened.load())
                ledger.let_go(key)
                del store._unopened[key]
            return found

        monkeypatch.setattr(ledger, "lines", look)
        house, directory = store.housekeeping, store.directories[0]
        store.logs["other", 0].delete_before(2)  # there is something to write
        await house._write(directory, await house._plan(directory, name))

    asyncio.run(write(LOG_STARTS))
    assert lines(tmp_path, LOG_STARTS) == ["orders 0 500"]
