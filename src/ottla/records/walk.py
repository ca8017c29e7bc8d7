"""A walk over a region of a log file, for recovery: verifies every checksum, and derives state from the headers.

This is the reference of `walk_log` in the crate, and replaces it where it is not built. The result is small, because a
log may have millions of batches: one entry for each index entry, a leader epoch where it changes, and for each producer
only the batches that its state depends on: all transactional ones, and otherwise the last few.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from ottla.records.batch import TAIL
from ottla.records.native import crc32c

WINDOW = 5  # how many batches of a producer are remembered, see `ottla.log.producers`

_HEAD = struct.Struct(">qiib")  # base offset, length, leader epoch, magic
_CRC = struct.Struct(">I")
_TIMESTAMP = struct.Struct(">q")
_OVERHEAD = 12
_SIZES_MIN = (26, 26, 61)  # by magic
_DECIDES = 0x30  # transactional or control


class WalkState(NamedTuple):
    """The state of a walk. It continues with the next region from the values in `Walked`."""

    end: int  # the next offset must not be smaller
    offset_max: int
    since: int  # bytes since the last index entry
    interval: int  # bytes between two index entries
    timestamp: int  # the largest so far
    timestamp_offset: int  # last offset of the batch that has it
    epoch: int  # the latest leader epoch


class Walked(NamedTuple):
    size: int  # of complete, valid batches
    sound: bool  # False: an invalid batch follows; True: the region ends there, perhaps within a batch
    end: int
    since: int
    timestamp: int
    timestamp_offset: int
    points: list[tuple[int, int, int, int]]  # for the index: last offset, position, largest timestamp, its offset
    epochs: list[tuple[int, int]]  # epoch, first offset
    producers: list[int]  # positions of batches


def walk(data: bytes, state: WalkState) -> Walked:
    end, offset_max, since, interval, timestamp, timestamp_offset, latest = state
    points: list[tuple[int, int, int, int]] = []
    epochs: list[tuple[int, int]] = []
    decisive: list[int] = []
    recent: dict[int, list[int]] = {}
    at, sound, view = 0, True, memoryview(data)
    while len(data) - at >= _HEAD.size:
        base, length, epoch, magic = _HEAD.unpack_from(data, at)
        size = length + _OVERHEAD
        if magic not in (0, 1, 2) or size < _SIZES_MIN[magic] or base < end:
            sound = False
            break
        if at + size > len(data):
            break
        whole = view[at : at + size]
        last, latest_here, producer_id, attributes = base, -1, -1, 0
        if magic == 2:
            attributes, delta, _, latest_here, producer_id, _, _, _ = TAIL.unpack_from(data, at + 21)
            last = base + delta
            right = delta >= 0 and crc32c(whole[21:]) == _CRC.unpack_from(data, at + 17)[0]
        else:
            latest_here = _TIMESTAMP.unpack_from(data, at + 18)[0] if magic else -1
            right = zlib.crc32(whole[16:]) == _CRC.unpack_from(data, at + 12)[0]
        if not right or last > offset_max:
            sound = False
            break
        if latest_here > timestamp:
            timestamp, timestamp_offset = latest_here, last
        if since > interval:
            points.append((last, at, timestamp, timestamp_offset))
            since = 0
        since += size
        if magic == 2 and epoch > latest:
            epochs.append((epoch, base))
            latest = epoch
        if producer_id >= 0:
            _note(decisive, recent, producer_id, at, decides=bool(attributes & _DECIDES))
        end = last + 1
        at += size
    producers = sorted([*decisive, *(position for positions in recent.values() for position in positions)])
    return Walked(at, sound, end, since, timestamp, timestamp_offset, points, epochs, producers)


def _note(decisive: list[int], recent: dict[int, list[int]], producer_id: int, at: int, *, decides: bool) -> None:
    if decides:
        decisive.append(at)
        return
    positions = recent.setdefault(producer_id, [])
    positions.append(at)
    if len(positions) > WINDOW:
        del positions[0]
