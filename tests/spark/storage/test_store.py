"""The operations of a store, on a disk, on S3 and through fsspec: files appear complete, and once."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING

import pytest
from s3 import S3

from ottla.client.failure import Failed
from ottla.spark.storage.location import Location
from ottla.spark.storage.store import Store, unwritable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = ["plain", "with space", "a:b", "ü", "100%", "a%20b", "a=b"]


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with S3(tmp_path_factory.mktemp("s3")) as running:
        running.make_bucket("bucket")
        yield running


@pytest.fixture(params=["disk", "s3", "fsspec"])
def store(request: pytest.FixtureRequest, tmp_path: Path, s3: S3) -> Store:
    name = "".join(letter for letter in request.node.name if letter.isalnum())
    places = {
        "disk": Location.parse(str(tmp_path / "my run: ü 100%")),
        "s3": s3.location(f"bucket/my run ü 100%/{name}"),
        "fsspec": Location.parse(f"local://{tmp_path}/my run ü"),
    }
    return Store(places[request.param])


def test_put_read_list_move_remove(store: Store) -> None:
    assert store.read("a/b") is None
    assert store.files() == []
    assert not store.exists("a")
    for name in NAMES:
        store.put(f"{name}/file", name.encode())
    assert [one.name for one in store.files()] == sorted(f"{name}/file" for name in NAMES)
    assert all(one.size and one.changed > 1.7e9 for one in store.files())
    for name in NAMES:
        assert store.read(f"{name}/file") == name.encode()
    store.put("plain/file", b"again")
    store.move("plain/file", "moved/ü/file")
    assert store.read("moved/ü/file") == b"again"
    assert store.read("plain/file") is None
    with pytest.raises(FileNotFoundError):
        store.move("plain/file", "elsewhere")
    store.move_all([(f"{name}/file", f"all/{name}") for name in NAMES[1:]])
    assert [one.name for one in store.files("all")] == sorted(f"all/{name}" for name in NAMES[1:])
    store.remove("all/ü")
    store.remove("all/ü")
    assert store.read("all/ü") is None
    store.remove_folder("all")
    assert store.files("all") == []
    store.remove_folder("all")


def test_of_many_who_create_a_name_one_gets_it(store: Store) -> None:
    results: list[tuple[bool, bytes]] = []
    start = threading.Barrier(6)

    def attempt(number: int) -> None:
        start.wait()
        data = b"of %d" % number
        results.append((store.create("commits/7.json", data), data))

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [data for won, data in results if won]
    assert len(results) == 6
    assert len(winners) == 1
    assert store.read("commits/7.json") == winners[0]
    assert store.create("commits/7.json", winners[0]), "an answer that was lost: it is ours"
    assert [one.name for one in store.files()] == ["commits/7.json"], "no drafts are left"


def test_streams(store: Store) -> None:
    with store.output("_ottla/staging/x.part") as output:
        output.write(b"12345")
        assert output.tell() == 5
    with store.input("_ottla/staging/x.part") as file:
        file.seek(2)
        assert file.read() == b"345"
    assert store.exists("_ottla/staging")


def test_trouble_is_a_sentence(s3: S3) -> None:
    with pytest.raises(Failed, match=r"^s3://nowhere/t cannot be written \(.*\)$"):
        Store(s3.location("nowhere/t")).put("x", b"")
    with pytest.raises(Failed, match=r"^s3://nowhere/t cannot be written \(.*\)$"):
        Store(s3.location("nowhere/t")).create("x", b"")
    wrong = Location.parse("s3://bucket/t", {**s3.settings, "secret": "wrong"})
    with pytest.raises(Failed, match=r"^s3://bucket/t cannot be read"):
        Store(wrong).files()


def test_a_full_disk_is_told_from_a_place_that_is_not_shared() -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    assert (
        unwritable("/t", full) == "files cannot be written to /t (No space left on device): make room there, and "
        "start again"
    )
    assert "all workers share" in unwritable("/t", OSError(errno.ENOENT, "No such file or directory"))
