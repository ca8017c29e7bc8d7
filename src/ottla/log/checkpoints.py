"""The small text files beside the logs, in Apache Kafka's formats.

In a log directory, one line for each partition (`recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`,
`replication-offset-checkpoint`, `cleaner-offset-checkpoint`):

    0                          version
    2                          number of lines that follow
    orders 0 1200              topic, partition, offset
    orders 1 1177

In a partition's folder, `leader-epoch-checkpoint` has the same shape with lines of epoch and first offset, and
`partition.metadata` holds the topic id. `meta.properties` names the owner of the directory; `.kafka_cleanshutdown`
exists only while no broker uses the directory and the last one stopped cleanly.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ottla.disk import Disk, Path

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
COMPACTED = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_MARKER = ".kafka_cleanshutdown"

T = TypeVar("T")
Offsets = dict[tuple[str, int], int]


class CorruptCheckpointError(ValueError):
    """The file cannot be parsed."""


class Meta(NamedTuple):
    """The owner of a log directory. Version 0 is written by brokers with ZooKeeper, 1 by those with KRaft."""

    version: int
    node_id: int | None
    cluster_id: str | None
    directory_id: str | None = None

    @property
    def says_whose(self) -> bool:
        return self.node_id is not None or self.cluster_id is not None


def read_offsets(disk: Disk, path: Path) -> Offsets:
    """Offsets by topic and partition; empty when the file is missing or empty, as Kafka creates it."""

    def parse(words: list[str]) -> tuple[tuple[str, int], int]:
        topic, index, offset = words
        return (topic, int(index)), int(offset)

    return dict(_read_lines(disk, path, parse))


def write_offsets(disk: Disk, path: Path, offsets: Mapping[tuple[str, int], int], *, sync: bool = False) -> None:
    lines = [f"{topic} {index} {offset}\n" for (topic, index), offset in offsets.items()]
    disk.write(path, f"0\n{len(lines)}\n{''.join(lines)}".encode(), sync=sync)


def read_epochs(disk: Disk, path: Path) -> list[tuple[int, int]]:
    """(epoch, first offset), ascending."""

    def parse(words: list[str]) -> tuple[int, int]:
        epoch, offset = (int(word) for word in words)
        if epoch < 0 or offset < 0:
            raise ValueError("negative")
        return epoch, offset

    return _read_lines(disk, path, parse)


def write_epochs(disk: Disk, path: Path, epochs: Iterable[tuple[int, int]], *, sync: bool = False) -> None:
    lines = [f"{epoch} {offset}\n" for epoch, offset in epochs]
    disk.write(path, f"0\n{len(lines)}\n{''.join(lines)}".encode(), sync=sync)


def _read_lines(disk: Disk, path: Path, parse: Callable[[list[str]], T]) -> list[T]:
    try:
        text = disk.read(path).decode()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise CorruptCheckpointError(f"{path}: not text") from error
    if not text:
        return []
    lines = text.splitlines()
    try:
        version, count = int(lines[0]), int(lines[1])
        found = [parse(line.split()) for line in lines[2:]]
    except (ValueError, IndexError) as error:
        raise CorruptCheckpointError(f"{path}: malformed") from error
    if version != 0 or count != len(found):
        raise CorruptCheckpointError(f"{path}: version {version} with {len(found)} of {count} lines")
    return found


def read_topic_id(disk: Disk, folder: str) -> bytes | None:
    """The topic id of a partition's folder, None where there is none: brokers before 2.8 wrote no ids."""
    path = os.path.join(folder, PARTITION_METADATA)
    try:
        data = disk.read(path)
    except FileNotFoundError:
        return None
    try:
        fields = dict(line.split(": ", 1) for line in data.decode().splitlines())
        topic_id = id_from_text(fields["topic_id"])
    except (ValueError, KeyError) as error:
        raise CorruptCheckpointError(f"{path}: malformed") from error
    if fields.get("version") != "0":
        raise CorruptCheckpointError(f"{path}: version {fields.get('version')}")
    return topic_id


def write_topic_id(disk: Disk, folder: str, topic_id: bytes, *, new: bool = False) -> None:
    """`new`: the file does not exist yet, so it need not be replaced atomically."""
    data = f"version: 0\ntopic_id: {id_to_text(topic_id)}".encode()
    path = os.path.join(folder, PARTITION_METADATA)
    if new:
        disk.append(path, data)
    else:
        disk.write(path, data)


def id_to_text(value: bytes) -> str:
    """Kafka writes a 16-byte id as 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def id_from_text(text: str) -> bytes:
    try:
        value = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(f"not an id: {text}") from error
    if len(value) != 16:
        raise ValueError(f"not an id: {text}")
    return value


def read_meta(disk: Disk, directory: str) -> Meta | None:
    path = os.path.join(directory, META_PROPERTIES)
    try:
        data = disk.read(path)
    except FileNotFoundError:
        return None
    except IsADirectoryError as error:
        raise CorruptCheckpointError(f"{path} is a folder but must be a file: remove it and restart") from error
    fields: dict[str, str] = {}
    for line in data.decode("latin-1").splitlines():
        if line.strip() and line.lstrip()[0] not in "#!":
            name, _, value = line.partition("=")
            fields[name.strip()] = value.strip()
    try:
        version = int(fields.get("version", "0"))
        name = "broker.id" if version == 0 else "node.id"
        node_id = int(fields[name]) if name in fields else None
    except ValueError as error:
        raise CorruptCheckpointError(f"{path}: malformed") from error
    if version not in (0, 1):
        raise CorruptCheckpointError(f"{path}: version {version}")
    return Meta(version, node_id, fields.get("cluster.id"), fields.get("directory.id"))


def write_meta(disk: Disk, directory: str, meta: Meta) -> None:
    names: dict[str, int | str | None] = {
        "version": meta.version,
        "broker.id" if meta.version == 0 else "node.id": meta.node_id,
        "cluster.id": meta.cluster_id,
        "directory.id": meta.directory_id,
    }
    text = "#\n" + "".join(f"{name}={value}\n" for name, value in names.items() if value is not None)
    disk.write(os.path.join(directory, META_PROPERTIES), text.encode("latin-1"), sync=True)


def write_clean_marker(disk: Disk, directory: str, broker_epoch: int = -1) -> None:
    text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    disk.write(os.path.join(directory, CLEAN_MARKER), text.encode(), sync=True)


def take_clean_marker(disk: Disk, directory: str) -> bool:
    """Whether the last broker stopped cleanly. Removes the marker, so that a crash from now on is detected."""
    path = os.path.join(directory, CLEAN_MARKER)
    if not disk.exists(path):
        return False
    disk.remove(path)
    return True
