"""Producing to a log whose next offset is 1000 and whose leader epoch is 7, at a fixed time."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest
from records.oracle import FORMATS, NOW, topic

from ottla.errors import BrokerError, ErrorCode
from ottla.records import batch, legacy
from ottla.records.batch import Record
from ottla.records.native import crc32c
from ottla.records.validate import Accepted, validate

if TYPE_CHECKING:
    from ottla.config import TopicConfig

PLAIN = topic()
KEYED = [Record(offset, NOW, b"key", b"value" * 20) for offset in range(3)]
OLD = {magic: topic(message_format_version=FORMATS[magic]) for magic in (0, 1)}


def accept(data: bytes, config: TopicConfig = PLAIN, version: int = 9, **rest: Any) -> Accepted:
    found = validate(memoryview(data), config, base=1000, epoch=7, now_ms=NOW, produce_version=version, **rest)
    assert sum(len(part) for part in found.parts) == found.size
    return found


def stored(accepted: Accepted) -> bytes:
    data = b"".join(accepted.parts)
    for entry in batch.entries(data):
        if entry.magic == batch.MAGIC:
            assert batch.crc_ok(data, entry.position, batch.header(data, entry.position))
        else:
            assert legacy.crc_ok(data, entry.position, legacy.outer(data, entry.position))
    return data


def refuse(code: ErrorCode, data: bytes, config: TopicConfig = PLAIN, version: int = 9, **rest: Any) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        accept(data, config, version, **rest)
    assert caught.value.code == code
    assert caught.value.message
    return caught.value


def changed(data: bytes, **fields: int) -> bytes:
    """A batch with some header fields changed and a checksum that fits."""
    data = batch.HEADER.pack(*batch.header(data)._replace(**fields)) + data[batch.HEADER_SIZE :]
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]
