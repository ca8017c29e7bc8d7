"""A full disk refuses writes, serves reads and recovers by itself; a failed directory takes only its own logs away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from compat.raw import Raw, batch, create_topic, fetch, list_offset, produce, read_all
from durability import faults
from process import Ottla
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

KAFKA_STORAGE_ERROR, LEADER_NOT_AVAILABLE, NOT_LEADER = 56, 5, 6


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "faults"
    folder.mkdir()
    return folder


def broken_broker(tmp_path: Path, place: Path, **settings: str) -> Ottla:
    environment = {"OTTLA_FAULTS": str(place)}
    return Ottla(tmp_path / "broker", wrapper=(faults.__file__,), environment=environment, settings=settings)


def test_a_full_disk_refuses_writes_serves_reads_and_recovers(tmp_path: Path, place: Path) -> None:
    with broken_broker(tmp_path, place) as broker, Raw(broker.port) as raw:
        assert create_topic(raw, "t") == 0
        assert produce(raw, "t", batch([b"before"])).base == 0
        (place / "full").touch()
        for _ in range(3):
            assert produce(raw, "t", batch([b"refused"])).error == KAFKA_STORAGE_ERROR
        assert fetch(raw, "t", 0).error == 0
        assert read_all(raw, "t")[0].values() == [b"before"], "reads go on"
        created = create_topic(raw, "u")
        assert broker.alive
        (place / "full").unlink()
        wait_until(lambda: produce(raw, "t", batch([b"after"])).error == 0, "writes come back by themselves")
        assert list_offset(raw, "t", -1) == 2, "what was refused left nothing"
        assert [part.values() for part in read_all(raw, "t")] == [[b"before"], [b"after"]]
        if created:
            assert create_topic(raw, "u") == 0, "a topic that was refused left nothing behind"
        wait_until(lambda: produce(raw, "u", batch([b"first"])).error == 0, "a topic from the bad time works now")
        assert broker.stop() == 0
        broker.start()
        with Raw(broker.port) as again:
            assert [part.values() for part in read_all(again, "t")] == [[b"before"], [b"after"]], "and after a restart"


def test_a_full_disk_at_a_roll(tmp_path: Path, place: Path) -> None:
    with broken_broker(tmp_path, place) as broker, Raw(broker.port) as raw:
        assert create_topic(raw, "t", 1, {"segment.bytes": "1024"}) == 0
        for n in range(3):
            assert produce(raw, "t", batch([b"x" * 900])).base == n
        (place / "full").touch()
        assert produce(raw, "t", batch([b"y" * 900])).error == KAFKA_STORAGE_ERROR
        (place / "full").unlink()
        wait_until(lambda: produce(raw, "t", batch([b"z" * 900])).error == 0, "writes come back by themselves")
        assert [part.values()[0] for part in read_all(raw, "t")] == [b"x" * 900] * 3 + [b"z" * 900]


def test_a_failed_directory_goes_offline_and_the_other_serves(tmp_path: Path, place: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    broker = broken_broker(tmp_path, place, **{"log.dirs": f"{good},{bad}"})
    with broker, Raw(broker.port) as raw:
        assert create_topic(raw, "t", 4) == 0
        homes = {n: good if (good / f"t-{n}").exists() else bad for n in range(4)}
        assert set(homes.values()) == {good, bad}, "partitions are spread over the directories"
        for n in homes:
            assert produce(raw, "t", batch([b"before"]), partition=n).base == 0
        (place / "broken").write_text(str(bad))
        for n, home in homes.items():
            error = produce(raw, "t", batch([b"after"]), partition=n).error
            assert (error == 0) == (home == good), f"partition {n} in {home.name}: error {error}"
            if error:
                assert error in (KAFKA_STORAGE_ERROR, NOT_LEADER)
        for n, home in homes.items():
            if home == good:
                assert [part.values() for part in read_all(raw, "t", partition=n)] == [[b"before"], [b"after"]]
        assert broker.alive
        assert create_topic(raw, "later", 2) == 0
        assert all((good / f"later-{n}").exists() for n in range(2)), "new logs go where a disk works"
        assert broker.stop() == 0
        # The disk is back after a restart: so are its partitions.
        (place / "broken").unlink()
        broker.start()
        with Raw(broker.port) as again:
            for n, home in homes.items():
                found = [part.values() for part in read_all(again, "t", partition=n)]
                assert found == [[b"before"], [b"after"]][: 2 if home == good else 1]
