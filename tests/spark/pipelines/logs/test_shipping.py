"""Lines are shipped once, whatever happens to their files and to the shipper."""

from __future__ import annotations

import json
import subprocess
import sys
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from spark.topics import Topics, committed

from ottla.client.failure import Failed
from ottla.spark.pipelines.logs import pipeline as logs
from ottla.spark.pipelines.logs import shipping
from ottla.spark.pipelines.logs.shipping import CHUNK, KEPT_S, Files, Key, SentPosition, Shipper, lines, places
from ottla.spark.runner import Run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process import Ottla


def test_whole_lines() -> None:
    assert lines(b"") == ([], 0)
    assert lines(b"half") == ([], 0)
    assert lines(b"one\ntwo\r\n\nhalf") == (["one", "two", ""], 10)
    assert lines(b"\xff\n") == (["\ufffd"], 2)


class Shipped:
    """Reads files as the shipper does. The state survives a restart, the reader does not."""

    def __init__(self, *patterns: str) -> None:
        self.patterns = list(patterns)
        self.known: dict[Key, SentPosition] = {}
        self.lines: list[str] = []

    def round(self) -> list[str]:
        files = Files(self.patterns, self.known)
        before = len(self.lines)
        for place, found in list(files.new()):
            self.lines += found
            files.note_sent(place)
        return self.lines[before:]


def test_a_file_that_grows(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    shipped = Shipped(f"{tmp_path}/*.log")
    assert shipped.round() == []
    path.write_text("one\ntw")
    assert shipped.round() == ["one"]
    assert shipped.round() == []
    with path.open("a") as file:
        file.write("o\nthree\n")
    assert shipped.round() == ["two", "three"]


def test_a_file_that_is_rotated(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    shipped = Shipped(f"{tmp_path}/*.log")
    path.write_text("one\n")
    shipped.round()
    with path.open("a") as file:
        file.write("two\n")
    path.rename(tmp_path / "app.log.1")
    path.write_text("three\n")
    assert shipped.round() == ["two", "three"], "the rest of the old one first"
    (tmp_path / "app.log.1").rename(tmp_path / "app.log.2")
    assert shipped.round() == []


def test_a_file_that_is_truncated_or_takes_the_place_of_another(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    shipped = Shipped(str(path))
    path.write_text("one\ntwo\n")
    shipped.round()
    path.write_text("three\n")
    assert shipped.round() == ["three"], "shorter than it was"
    inode = path.stat().st_ino
    path.write_text("another first line\n")
    assert path.stat().st_ino == inode
    assert shipped.round() == ["another first line"], "the same inode, another file"


def test_a_line_that_is_too_long_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_bytes(b"x" * (CHUNK + 1))
    with pytest.raises(Failed, match=r"a line in .*app.log is longer than 1048576 bytes: leave this file out of ship"):
        Shipped(f"{tmp_path}/*.log").round()


def test_a_file_that_takes_the_inode_of_one_that_is_gone_is_not_a_renamed_one(tmp_path: Path) -> None:
    shipped = Shipped(f"{tmp_path}/*.log")
    path, other = tmp_path / "app.log", tmp_path / "other.txt"
    path.write_text("one\n")
    shipped.round()
    path.rename(other)
    other.write_text("not to be shipped\n")
    assert shipped.round() == [], "it matches nothing, and is not what was shipped"


def test_a_file_with_several_links_is_shipped_once(tmp_path: Path) -> None:
    shipped = Shipped(f"{tmp_path}/*.log", f"{tmp_path}/*")
    path = tmp_path / "app.log"
    path.write_text("one\n")
    (tmp_path / "a-link.log").symlink_to(path)
    (tmp_path / "hard.log").hardlink_to(path)
    assert shipped.round() == ["one"]
    with path.open("a") as file:
        file.write("two\n")
    assert shipped.round() == ["two"]
    assert [place.file for place in shipped.known.values()] == [str(path)]


def place_of(path: Path, **known: Any) -> SentPosition:
    """As it is after its first line."""
    line = path.read_bytes().partition(b"\n")[0] + b"\n"
    found, size = path.stat(), len(line)
    own = {"inode": found.st_ino, "file": str(path), "position": size, "head": size, "device": found.st_dev, "at": 1.0}
    return SentPosition(**{**own, "print": sha256(line).hexdigest()[:16], **known})


def test_the_same_inode_on_another_device_is_another_file(tmp_path: Path) -> None:
    shipped = Shipped(f"{tmp_path}/*.log")
    path = tmp_path / "app.log"
    path.write_text("one\ntwo\n")
    other = place_of(path, device=path.stat().st_dev + 1, file="/elsewhere/app.log")
    shipped.known[other.key] = other
    assert shipped.round() == ["one", "two"]
    assert other.key in shipped.known


@pytest.mark.parametrize("device", [0, 999_999], ids=["not asked for", "another number"])
@pytest.mark.parametrize("name", ["app.log", "app.log.1"])
def test_a_device_that_is_new_or_has_another_number_sends_nothing_again(tmp_path: Path, device: int, name: str) -> None:
    shipped = Shipped(f"{tmp_path}/*.log")
    path = tmp_path / name
    path.write_text("one\ntwo\n")
    before = place_of(path, device=device, file=str(tmp_path / "app.log"))
    shipped.known[before.key] = before
    assert shipped.round() == ["two"]
    assert shipped.round() == []
    files = Files(shipped.patterns, shipped.known)
    assert list(files.new()) == []
    assert files.gone() == [before], "it has been replaced"


def test_places_are_read_as_any_release_wrote_them() -> None:
    old = {"inode": 7, "file": "/a", "position": 1, "head": 1, "print": "x"}
    new = {**old, "inode": 8, "device": 3, "at": 5.0}
    text = {name: json.dumps(fields).encode() for name, fields in (("old", old), ("new", new))}
    records = [
        (b"a/b/7", text["old"]),
        (b"a/b/3:8", text["new"]),
        (b"a/b/9", json.dumps({**old, "inode": 9}).encode()),
        (b"a/b/9", None),
        (b"other/7", text["old"]),
    ]
    found = places("a/b", records)
    assert found == {(0, 7): SentPosition(**old), (3, 8): SentPosition(**new)}
    assert [place.name for place in found.values()] == ["7", "3:8"]


def test_places_of_files_that_are_long_gone_are_forgotten(tmp_path: Path) -> None:
    now = 1_000_000.0
    path, idle = tmp_path / "logs" / "app.log", tmp_path / "idle.log"
    path.parent.mkdir()
    for each in (path, idle):
        each.write_text("one\n")
    files = Files([f"{tmp_path}/*.log", str(path)], {}, now=lambda: now)
    for place, _ in list(files.new()):
        files.note_sent(place)
    away = place_of(path, device=999_999, inode=1)
    files.note_sent(away)
    path.unlink()
    path.parent.rmdir()
    now += KEPT_S - 1
    assert [list(files.new()), files.gone()] == [[], []], "not for long yet"
    now += 2
    assert list(files.new()) == []
    (gone,) = files.gone()
    assert gone.file == str(path), "one is only idle, and the file system of another is away"
    files.forget(gone)
    assert files.gone() == []


def test_a_file_that_is_rotated_while_we_look_is_not_read_twice(tmp_path: Path) -> None:
    path, older = tmp_path / "app.log", tmp_path / "app.log.1"
    path.write_text("new\n")
    older.write_text("old\n")
    files = Files([f"{tmp_path}/*"], {})
    looking = files.new()
    place, found = next(looking)
    path.rename(older)
    assert [found, *looking] == [["new"]]
    files.note_sent(place)
    assert list(files.new()) == []


def test_a_file_that_goes_while_we_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = tmp_path / "app.log", tmp_path / "other.log"
    for each in (path, other):
        each.write_text("one\n")
    names = shipping.glob.glob(f"{tmp_path}/*.log")
    monkeypatch.setattr(shipping.glob, "glob", lambda _: names)
    monkeypatch.setattr(shipping.os.path, "isfile", lambda _: True)  # as it was a moment ago
    monkeypatch.setattr(shipping.os.path, "exists", lambda _: True)
    other.unlink()
    assert Shipped("any").round() == ["one"]


def test_a_folder_that_may_not_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(folder: str) -> Any:
        raise PermissionError(13, "Permission denied", folder)

    path = tmp_path / "app.log"
    shipped = Shipped(str(path))
    path.write_text("one\n")
    shipped.round()
    path.rename(tmp_path / "app.log.1")
    path.write_text("two\n")
    monkeypatch.setattr(shipping.os, "scandir", refused)
    assert shipped.round() == ["two"]


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_shipped_twice_or_not_at_all(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    path, written = tmp_path / "app.log", list[str]()
    shipped = Shipped(f"{tmp_path}/*.log", f"{tmp_path}/*.log.*")
    for step in range(60):
        deed = random.random()
        if deed < 0.5:
            with path.open("a") as file:
                for number in range(random.randint(1, 5)):
                    written.append(f"{step}.{number}")
                    file.write(f"{step}.{number}\n")
        elif deed < 0.65 and path.exists():
            path.rename(tmp_path / f"app.log.{step}")
        else:
            shipped.round()
    shipped.round()
    assert sorted(shipped.lines) == sorted(written)


# --- the shipper -----------------------------------------------------------------------------------------------------


class Unsent(Shipper):
    """A shipper without a cluster: collects what it would send."""

    def __init__(self, run: Run, patterns: str) -> None:
        self.sent: list[str] = []
        super().__init__(run, "logs", patterns, "here")

    def _new_producer(self) -> Any:
        return None

    def _read(self) -> dict[Key, SentPosition]:
        return {}

    def _send(self, new: list[tuple[SentPosition, list[str]]], gone: list[SentPosition]) -> None:
        self.sent += [line for _, found in new for line in found]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(Run, "ensure_topic", lambda *_, **__: None)
    return Run(pipeline=logs.PIPELINE, bootstrap="localhost:1", folder=tmp_path)


def test_all_is_what_the_files_have_when_it_begins(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a busy host never end."""
    path, later = tmp_path / "app.log", tmp_path / "later.log"
    monkeypatch.setattr(shipping, "CHUNK", 10)

    class Busy(Unsent):
        def _send(self, new: list[tuple[SentPosition, list[str]]], gone: list[SentPosition]) -> None:
            super()._send(new, gone)
            assert len(self.sent) < 100, "it does not end"
            for each in (path, later):
                with each.open("a") as file:
                    file.write("more\nmore\n")

    path.write_text("".join(f"{number}\n" for number in range(20)) + "ha")
    shipper = Busy(run, f"{tmp_path}/*.log")
    assert shipper.all() == 20
    assert shipper.sent == [str(number) for number in range(20)]
    assert shipper.round() == 3, "and the rest at the next time"


def test_a_shipper_that_fails_stops_the_run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def strange(*_: object) -> Any:
        raise RuntimeError("nobody thought of this")

    shipper = Unsent(run, f"{tmp_path}/*.log")
    monkeypatch.setattr(Files, "new", strange)
    with pytest.raises(RuntimeError):
        shipper.run()
    assert str(shipper.failure) == "shipping failed: nobody thought of this (RuntimeError)"
    assert run.stopping


def test_security_is_told_in_the_names_of_its_client(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    class Producer:
        def __init__(self, settings: dict[str, Any]) -> None:
            given.update(settings)

        def init_transactions(self, timeout_s: float) -> None:
            pass

    monkeypatch.setattr(confluent_kafka, "Producer", Producer)
    monkeypatch.setattr(Shipper, "_read", lambda _: {})
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    run.properties = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": "ca.pem",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{module} required username="me" password="secret";',
    }
    Shipper(run, "logs", "*.log", "here")
    assert given["ssl.ca.location"] == "ca.pem"
    assert (given["sasl.username"], given["sasl.password"]) == ("me", "secret")
    assert not {"sasl.jaas.config", "ssl.truststore.location"} & given.keys()


def test_what_its_client_refuses_is_one_sentence(run: Run, tmp_path: Path) -> None:
    run.properties = {"security.protocol": "SSL", "ssl.truststore.location": str(tmp_path / "nowhere.pem")}
    with pytest.raises(Failed, match=r"^cannot ship to localhost:1: .*ssl\.ca\.location"):
        Shipper(run, "logs", "*.log", "here")


def test_positions_of_an_older_release_are_gone_on_with_and_replaced(
    ottla: Ottla, tmp_path: Path, fresh: Callable[[str], str]
) -> None:
    topics = Topics(ottla.bootstrap)
    topic = topics.make(fresh("older"))
    path = tmp_path / "app.log"
    path.write_text("one\ntwo\n")
    old = place_of(path)
    value = {name: getattr(old, name) for name in ("inode", "file", "position", "head", "print")}
    topics.make(f"{topic}.positions", configs={"cleanup.policy": "compact"})
    topics.producer.produce(f"{topic}.positions", json.dumps(value), key=f"here/{old.inode}")
    assert topics.producer.flush(30) == 0
    run = Run(pipeline=logs.PIPELINE, bootstrap=ottla.bootstrap, folder=tmp_path)
    assert Shipper(run, topic, str(path), "here").all() == 1
    path.write_text(path.read_text() + "three\n")
    assert Shipper(run, topic, str(path), "here").all() == 1
    assert [json.loads(record.value())["line"] for record in committed(ottla.bootstrap, topic)] == ["two", "three"]
    last = {record.key().decode(): record.value() for record in committed(ottla.bootstrap, f"{topic}.positions")}
    assert last[f"here/{old.inode}"] is None
    assert json.loads(last[f"here/{old.device}:{old.inode}"])["position"] == 14

    path.unlink()
    shipper = Shipper(run, topic, str(path), "here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shipping, "KEPT_S", -1.0)
        assert shipper.all() == 0
    last = {record.key().decode(): record.value() for record in committed(ottla.bootstrap, f"{topic}.positions")}
    assert last[f"here/{old.device}:{old.inode}"] is None, "of a file that is gone"
    assert Shipper(run, topic, str(path), "here").all() == 0


SHIPPING = """
import sys
from pathlib import Path
from ottla.spark.runner import Run
from ottla.spark.pipelines.logs import pipeline as logs
from ottla.spark.pipelines.logs import shipping
shipping.CHUNK = 10_000
bootstrap, topic, path, folder = sys.argv[1:]
run = Run(pipeline=logs.PIPELINE, bootstrap=bootstrap, folder=Path(folder), once=True)
shipper = shipping.Shipper(run, topic, path, "here")
while lines := shipper.round():
    print(lines, flush=True)
"""


def test_a_shipper_that_is_killed_has_sent_nothing_twice(
    ottla: Ottla, tmp_path: Path, fresh: Callable[[str], str]
) -> None:
    topics = Topics(ottla.bootstrap)
    topic = topics.make(fresh("killed"), 2)
    path = tmp_path / "app.log"
    path.write_text("".join(f"line {number}\n" for number in range(20_000)))
    command = [sys.executable, "-c", SHIPPING, ottla.bootstrap, topic, str(path), str(tmp_path)]
    for rounds in (1, 3, 2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(rounds):
                assert int(process.stdout.readline()) > 0
            process.kill()
    last = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert 0 < sum(map(int, last)) < 20_000, "some were sent before"
    found = [json.loads(record.value())["line"] for record in committed(ottla.bootstrap, topic)]
    assert sorted(found) == sorted(f"line {number}" for number in range(20_000))
