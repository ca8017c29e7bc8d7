"""Reads the metadata log of a KRaft quorum from a data folder, mainly for topic configs, which no other file holds.

    __cluster_metadata-0/00000000000000000000.log            batches of records, one change of the cluster each
    __cluster_metadata-0/<end offset>-<epoch>.checkpoint     snapshot of the state before the end offset, same format

A record's value is: frame version (1), record kind and version as varints, then its fields in the protocol's flexible
encoding. Only a few kinds matter here; the others are ignored. The folder is read when Ottla takes over a data folder
of Kafka, and not changed, so that Kafka can take it back.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import BrokerError, ErrorCode
from ottla.log.directory import QUORUM
from ottla.records.batch import crc_ok, entries, header, iterate
from ottla.records.compress import CorruptError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ottla.disk import Disk

FRAME = 1
TOPIC, CONFIG, REMOVE_TOPIC, PRODUCER_IDS = 2, 4, 9, 15  # kinds of records
TOPICS, BROKERS = 2, 4  # kinds of resources that have options

Configs = dict[str, dict[str, str]]


class Quorum(NamedTuple):
    topics: Mapping[str, Mapping[str, str]]  # the options of each topic
    brokers: Mapping[str, Mapping[str, str]]  # by id as text, or "" for all brokers
    producer_id: int  # the first that was never given to a broker, -1 for unknown


NOTHING = Quorum({}, {}, -1)


def read_quorum(disk: Disk, directory: str) -> Quorum:
    """The last state of the quorum in this log directory; NOTHING when there was none.

    A corrupt one is an error: without a topic's configs, retention would delete records that must be kept.
    """
    folder = os.path.join(directory, QUORUM)
    if not disk.exists(folder):
        return NOTHING
    try:
        return _read(disk, folder)
    except CorruptError as error:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{folder}: {error}") from error


def _read(disk: Disk, folder: str) -> Quorum:
    names = sorted(entry.name for entry in disk.scan(folder))
    snapshots = [name for name in names if name.endswith(".checkpoint") and name[:20].isdigit()]
    state = _State()
    end = 0
    if snapshots:
        end = int(snapshots[-1][:20])
        for _, value in _values(disk.read(os.path.join(folder, snapshots[-1]))):
            state.apply(value)
    for name in names:
        if name.endswith(".log"):
            for offset, value in _values(disk.read(os.path.join(folder, name))):
                if offset >= end:
                    state.apply(value)
    return Quorum({name: state.topics.get(name, {}) for name in state.names.values()}, state.brokers, state.producer_id)


class _State:
    """The records applied so far. Topics are renamed and removed by id, options are kept by name."""

    def __init__(self) -> None:
        self.names: dict[bytes, str] = {}
        self.topics: Configs = {}
        self.brokers: Configs = {}
        self.producer_id = -1

    def apply(self, value: bytes) -> None:
        fields = _Fields(value)
        if fields.varint() != FRAME:
            raise CorruptError("a metadata record in a frame that is not known")
        kind, _ = fields.varint(), fields.varint()
        if kind == TOPIC:
            name = fields.string() or ""
            self.names[fields.take(16)] = name
        elif kind == REMOVE_TOPIC:
            self.topics.pop(self.names.pop(fields.take(16), ""), None)
        elif kind == CONFIG:
            self._configure(fields)
        elif kind == PRODUCER_IDS:
            fields.take(12)  # who took the block: broker and its epoch
            self.producer_id = int.from_bytes(fields.take(8))

    def _configure(self, fields: _Fields) -> None:
        resource, name, option, value = fields.take(1)[0], fields.string(), fields.string(), fields.string()
        configs = {TOPICS: self.topics, BROKERS: self.brokers}.get(resource)
        if configs is None or name is None or option is None:
            return
        if value is None:
            configs.get(name, {}).pop(option, None)
        else:
            configs.setdefault(name, {})[option] = value


class _Fields:
    """Reads fields in the protocol's flexible encoding."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        taken = self._data[self._position : self._position + size]
        if len(taken) != size:
            raise CorruptError("a metadata record that ends too early")
        self._position += size
        return taken

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def string(self) -> str | None:
        size = self.varint()
        return None if size == 0 else self.take(size - 1).decode(errors="replace")


def _values(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Offset and value of every non-control record, up to the first batch that is incomplete or corrupt."""
    for entry in entries(data):
        fields = header(data, entry.position)
        if not crc_ok(data, entry.position, fields):
            return
        if not fields.control:
            for record in iterate(data, entry.position):
                if record.value is not None:
                    yield record.offset, record.value
