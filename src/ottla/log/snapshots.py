"""The state of one partition's producers as a file.

A snapshot `<end offset, 20 digits>.snapshot` holds the state of all batches before that offset. Big endian:

    version i16 = 1 | CRC-32C u32 of all that follows | count i32 | count entries of
    producer id i64 | epoch i16 | last sequence i32 | last offset i64 | offset delta i32 | timestamp i64 |
    coordinator epoch i32 | first offset of the open transaction i64 (-1: none)

Like Apache Kafka's, it holds only the last of the five batches. The others are found in the log: `recall.py`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ottla.records.native import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SUFFIX = ".snapshot"
SEQUENCE_MASK = 0x7FFF_FFFF  # sequences wrap from 2^31-1 to 0

_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_VERSION = 1


Batch = tuple[int, int, int, int, int]  # first sequence, last sequence, base, last, timestamp


class CorruptSnapshotError(ValueError):
    """The file is not a snapshot, or its checksum is wrong."""


class ProducerState:
    """State of one producer id."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "first", "next_sequence", "producer_id", "short", "timestamp")

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.next_sequence = 0
        self.batches: list[Batch] = []
        self.timestamp = -1
        self.coordinator_epoch = -1
        self.first = -1
        self.short = False  # whether `batches` may lack some of the last five, which are in the log

    @property
    def last_sequence(self) -> int:
        return self.batches[-1][1] if self.batches else -1


def encode_snapshot(producers: Iterable[ProducerState]) -> bytes:
    ordered = sorted(producers, key=lambda producer: producer.producer_id)
    body = bytearray(_COUNT.pack(len(ordered)))
    for p in ordered:
        _, last_sequence, base, last, _ = p.batches[-1] if p.batches else (-1, -1, -1, -1, -1)
        body += _ENTRY.pack(
            p.producer_id, p.epoch, last_sequence, last, last - base, p.timestamp, p.coordinator_epoch, p.first
        )
    return _HEAD.pack(_VERSION, crc32c(body)) + bytes(body)


def decode_snapshot(data: bytes) -> list[ProducerState]:
    if len(data) < _HEAD.size + _COUNT.size:
        raise CorruptSnapshotError(f"{len(data)} bytes are too few")
    version, crc = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshotError(f"version {version}, only {_VERSION} is known")
    if crc != (computed := crc32c(memoryview(data)[_HEAD.size :])):
        raise CorruptSnapshotError(f"checksum {crc:#010x}, computed {computed:#010x}")
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    begin = _HEAD.size + _COUNT.size
    if count < 0 or begin + count * _ENTRY.size > len(data):
        raise CorruptSnapshotError(f"{count} entries do not fit into {len(data)} bytes")
    return list(_entries(data[begin : begin + count * _ENTRY.size]))


def _entries(data: bytes) -> Iterator[ProducerState]:
    for row in _ENTRY.iter_unpack(data):
        producer_id, epoch, last_sequence, last, delta, timestamp, coordinator_epoch, first = row
        producer = ProducerState(producer_id, epoch)
        producer.timestamp, producer.coordinator_epoch, producer.first = timestamp, coordinator_epoch, first
        if last >= 0:
            first_sequence = (last_sequence - delta) & SEQUENCE_MASK if last_sequence >= 0 else -1
            producer.batches.append((first_sequence, last_sequence, last - delta, last, timestamp))
            producer.next_sequence = (last_sequence + 1) & SEQUENCE_MASK
            producer.short = True
        yield producer
