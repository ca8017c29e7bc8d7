"""Every file of a data folder, damaged in every way, after a clean stop and after a crash.

The folder holds logs with transactions, with several segments, and a compacted one. Whatever happened to a file, the
store opens, the other logs are intact, and the file's log serves what was acknowledged, except:

    a `.log` file          after a crash the log ends before the damage; after a clean stop damage is served as it is,
                           as Apache Kafka does, and the client's checksum finds it
    a folder in its place  the file's log, or the whole directory, is refused in one line that names it
"""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from log.making import (
    NOW_MS,
    TOPIC_ID,
    a_store,
    append,
    end_transaction,
    everything,
    from_producer,
    in_transaction,
    keep_house,
    produced,
)
from test_broker import create, produce, read

from ottla import BrokerThread
from ottla.config import load, topic_config
from ottla.embed import BrokerFailed
from ottla.errors import BrokerError
from ottla.log.checkpoints import CorruptCheckpointError
from ottla.records import batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ottla.log.log import Log
    from ottla.log.store import LogStore

OPTIONS = {"segment.bytes": "700", "index.interval.bytes": "150"}
TOPICS = ("orders", "table", "plain")


KEPT = 1  # the log start offset of all


def a_folder(folder: Path) -> LogStore:
    """A store with three logs, which is not stopped."""
    store = a_store(folder, topic=OPTIONS)
    compacted = {**OPTIONS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    configs = {name: topic_config(load({}), compacted if name == "table" else OPTIONS) for name in TOPICS}
    orders, table, plain = (store.create(name, 0, TOPIC_ID, configs[name], 0) for name in TOPICS)
    for log in (orders, table, plain):
        for step in range(6):
            append(log, produced(2, size=20 + step, timestamp=NOW_MS + step), epoch=step // 3)
            append(log, from_producer(step, producer_id=100), epoch=step // 3)
    for step in range(3):
        for producer_id, commit in ((200, False), (300, True)):
            append(orders, in_transaction(step * 2, producer_id), epoch=2)
            append(orders, produced(1), epoch=2)
            end_transaction(orders, commit=commit, producer_id=producer_id, epoch=2)
    append(orders, in_transaction(0, 400), epoch=2)
    append(orders, in_transaction(0, 500), epoch=2)
    append(orders, produced(3, size=180), epoch=2)  # two segments on from where they began
    append(orders, produced(3, size=180), epoch=2)
    end_transaction(orders, commit=False, producer_id=500, epoch=2)  # and the other one stays open
    assert asyncio.run(store.cleaner.clean_filthiest())
    for log in (orders, table, plain):
        log.delete_before(KEPT)
    asyncio.run(keep_house(store))
    return store


def content(log: Log) -> dict[str, Any]:
    """What `read_committed` consumers, timestamp lookups and producers get."""
    data, stable = everything(log), log.last_stable(log.end)
    coming = sorted((first, producer_id) for producer_id, first in log.list_aborted(log.start, stable))
    aborted: set[int] = set()
    records = []
    for entry in batch.entries(data):
        header = batch.header(data, entry.position)
        while coming and coming[0][0] <= header.last_offset:
            aborted.add(coming.pop(0)[1])
        if header.control:
            aborted.discard(header.producer_id)
        elif header.last_offset < stable and not (header.transactional and header.producer_id in aborted):
            records += [(record.offset, record.value) for record in batch.iterate(data, entry.position)]
    times = [log.offset_for_time(NOW_MS + step) for step in range(6)]
    return {
        "range": (log.start, log.end, stable),
        "records": [(offset, value) for offset, value in records if offset >= KEPT],
        "times": [one and one.offset for one in times],
        "producers": sorted(log.producers.active()),
    }


def missing(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def half(path: Path) -> None:
    """Half of the file, cut at no entry boundary."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 | 1])


def garbage(path: Path) -> None:
    path.write_bytes(bytes((at * 89 + 41) % 256 for at in range(max(68, path.stat().st_size))))


def zeros(path: Path) -> None:
    """Zeros, as a file system leaves in blocks that were allocated but not written."""
    path.write_bytes(bytes(path.stat().st_size))


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes() or b"\0")
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stopped")
    asyncio.run(a_folder(place).close())
    return place


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("crashed")
    a_folder(place)
    return place


@pytest.mark.parametrize("damage", [missing, empty, half, garbage, zeros, flipped, folder])
@pytest.mark.parametrize("state", ["stopped", "crashed"])
def test_no_damaged_file_harms_more_than_its_log(
    tmp_path: Path,
    state: str,
    damage: Callable[[Path], None],
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole: Path = request.getfixturevalue(state)
    shutil.copytree(whole, tmp_path / "whole")
    expected = {key: content(log) for key, log in a_store(tmp_path / "whole", topic=OPTIONS).logs.items()}
    names = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    assert {".log", ".index", ".timeindex", ".txnindex"} <= {name.suffix for name in names}
    wrong = {}
    for at, name in enumerate(names):
        place = tmp_path / str(at)
        shutil.copytree(whole, place)
        damage(place / name)
        caplog.clear()
        try:
            fault = fault_of(place, name, expected, clean=state == "stopped", refused=damage is folder, caplog=caplog)
        except Exception as error:  # collect all failures, not only the first
            fault = repr(error)
        if fault:
            wrong[str(name)] = fault
        shutil.rmtree(place)
    assert not wrong


def fault_of(
    place: Path,
    name: Path,
    expected: dict[tuple[str, int], dict[str, Any]],
    *,
    clean: bool,
    refused: bool,
    caplog: pytest.LogCaptureFixture,
) -> str:
    """What is wrong with the store in this folder, "" for nothing."""
    own = None if name.parent == name.parent.parent else (name.parent.name.rpartition("-")[0], 0)
    try:
        store = a_store(place, topic=OPTIONS)
    except BrokerError:
        said = " ".join(str(getattr(record, "reason", "")) for record in caplog.records)
        return "" if refused and own is None and str(place / name) in said and "remove it" in said else "no start"
    for key, known in expected.items():
        if key != own or not (refused or name.suffix == ".log"):
            log = store.logs.get(key)
            if log is None:
                return f"{key} is not there: {store.broken}"
            found = content(log)
            if (
                name.name == "log-start-offset-checkpoint"
            ):  # its value is not checked, so more or fewer records may be visible
                found, known = ({**one, "range": 0, "times": 0, "records": 0} for one in (found, known))
            if found != known:
                return f"{key}: {[(what, found[what], known[what]) for what in known if found[what] != known[what]]}"
    if own is not None and refused:
        if own in store.logs or "remove it" not in store.broken[own] or str(place / name) not in store.broken[own]:
            return f"not refused: {store.broken}"
    elif name.suffix == ".log" and own in store.logs:
        return fault_of_log(store.logs[own], expected[own], clean=clean)
    return ""


def fault_of_log(log: Log, expected: dict[str, Any], *, clean: bool) -> str:
    try:
        found = content(log)
    except (BrokerError, ValueError):
        return "" if clean else "not readable after recovery"
    if not clean and not set(found["records"]) <= {*expected["records"]}:
        return "other records"
    return ""


@pytest.mark.parametrize("damage", [missing, empty, half, garbage, zeros, flipped, folder])
def test_a_damaged_meta_properties_is_made_again_or_refused_in_one_line(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    with BrokerThread(data=tmp_path) as broker:
        create(broker)
        produce(broker, b"before")
    path = tmp_path / "meta.properties"
    damage(path)
    said = ""
    try:
        with BrokerThread(data=tmp_path) as broker:
            assert read(broker, 0, 1) == [b"before"]
    except (BrokerFailed, CorruptCheckpointError) as error:
        said = str(error)
    assert not said or (damage not in (missing, empty) and "meta.properties" in said)
