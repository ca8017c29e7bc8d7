"""Checkpoint files: those of Apache Kafka can be read, and ours are the same as its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.disk import RealDisk
from ottla.log.checkpoints import (
    CorruptCheckpointError,
    Meta,
    id_from_text,
    id_to_text,
    read_meta,
    read_offsets,
    read_topic_id,
    take_clean_marker,
    write_clean_marker,
    write_meta,
    write_offsets,
    write_topic_id,
)

if TYPE_CHECKING:
    from pathlib import Path

DISK = RealDisk()


def test_offsets_are_a_version_a_count_and_lines(tmp_path: Path) -> None:
    write_offsets(DISK, tmp_path / "file", {("orders", 0): 1200, ("t-1", 7): 0})
    assert (tmp_path / "file").read_text() == "0\n2\norders 0 1200\nt-1 7 0\n"
    assert read_offsets(DISK, tmp_path / "file") == {("orders", 0): 1200, ("t-1", 7): 0}


def test_a_missing_or_empty_file_says_nothing(tmp_path: Path) -> None:
    assert read_offsets(DISK, tmp_path / "file") == {}
    (tmp_path / "file").touch()
    assert read_offsets(DISK, tmp_path / "file") == {}


@pytest.mark.parametrize(
    "text",
    ["0\n", "1\n0\n", "0\n1\n", "0\n2\nt 0 1\n", "0\n1\nt 0\n", "0\n1\nt x 1\n", "a\nb\n", "0\n1\nt 0 1\nt 1 1\n"],
)
def test_a_torn_or_strange_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(CorruptCheckpointError):
        read_offsets(DISK, tmp_path / "file")


@given(st.binary(max_size=60))
def test_no_bytes_do_anything_but_be_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("checkpoints")
    for name in ("partition.metadata", "meta.properties", "file"):
        (folder / name).write_bytes(content)
    for read in (
        lambda: read_offsets(DISK, folder / "file"),
        lambda: read_topic_id(DISK, str(folder)),
        lambda: read_meta(DISK, str(folder)),
    ):
        try:
            read()
        except CorruptCheckpointError:
            continue


def test_the_topic_id_of_a_folder_is_kafkas_text(tmp_path: Path) -> None:
    topic_id = bytes.fromhex("f4110c58c10c418c9ffac3230b75bbc1")
    assert read_topic_id(DISK, str(tmp_path)) is None
    write_topic_id(DISK, str(tmp_path), topic_id)
    assert (tmp_path / "partition.metadata").read_text() == "version: 0\ntopic_id: 9BEMWMEMQYyf-sMjC3W7wQ"
    assert read_topic_id(DISK, str(tmp_path)) == topic_id


@pytest.mark.parametrize("text", ["", "version: 0\n", "version: 0\ntopic_id: abc", "version: 1\ntopic_id: " + "A" * 22])
def test_a_strange_partition_metadata_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "partition.metadata").write_text(text)
    with pytest.raises(CorruptCheckpointError):
        read_topic_id(DISK, str(tmp_path))


@given(st.binary(min_size=16, max_size=16))
def test_ids_survive_their_text(value: bytes) -> None:
    assert len(id_to_text(value)) == 22
    assert id_from_text(id_to_text(value)) == value


@pytest.mark.parametrize("text", ["", "A" * 21, "A" * 23, "!" * 22])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an id"):
        id_from_text(text)


def test_properties_of_a_broker_under_zookeeper(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(
        "#\n#Sun Nov 15 10:19:32 UTC 2026\nbroker.id=1\nversion=0\ncluster.id=13HXBH9LQWGd7-F-sdwXMg\n"
    )
    assert read_meta(DISK, str(tmp_path)) == Meta(0, 1, "13HXBH9LQWGd7-F-sdwXMg")


def test_properties_of_a_broker_under_kraft(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("node.id=3\nversion=1\ndirectory.id=abc\ncluster.id=xyz\n")
    assert read_meta(DISK, str(tmp_path)) == Meta(1, 3, "xyz", "abc")


@pytest.mark.parametrize("meta", [Meta(0, 7, "cluster"), Meta(1, 7, "cluster", "directory"), Meta(0, None, "cluster")])
def test_properties_survive_writing(tmp_path: Path, meta: Meta) -> None:
    assert read_meta(DISK, str(tmp_path)) is None
    write_meta(DISK, str(tmp_path), meta)
    assert read_meta(DISK, str(tmp_path)) == meta


@pytest.mark.parametrize("text", ["version=2\n", "version=x\n", "version=0\nbroker.id=one\n"])
def test_properties_of_the_future_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(CorruptCheckpointError):
        read_meta(DISK, str(tmp_path))


def test_the_marker_of_a_clean_stop_is_taken_once(tmp_path: Path) -> None:
    assert not take_clean_marker(DISK, str(tmp_path))
    write_clean_marker(DISK, str(tmp_path))
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":-1}'
    assert take_clean_marker(DISK, str(tmp_path))
    assert not take_clean_marker(DISK, str(tmp_path))
