"""Bytes that Apache Kafka 3.9.2 made of RECORDS: golden.txt, a line each of magic, codec, append time or "create", hex.

`test_judged.py` asks Kafka to make them again.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from records.oracle import CODECS

from ottla.records.batch import Record

RECORDS = [
    Record(41, 1_700_000_000_000, b"key", b"value", (("source", b"golden"), ("empty", b""), ("null", None))),
    Record(42, 1_700_000_000_007, None, b"no key"),
    Record(45, 1_699_999_999_000, b"tombstone", None),
    Record(46, 1_700_000_000_001, b"", b"twice upon a time, twice upon a time, twice upon a time"),
]


class Golden(NamedTuple):
    magic: int
    codec: int
    append_time: int | None
    data: bytes

    @property
    def written(self) -> list[Record]:
        """The records as they can be written in this magic: without headers before 2, without timestamps in 0."""
        records = RECORDS if self.magic == 2 else [record._replace(headers=()) for record in RECORDS]
        return [record._replace(timestamp=-1) for record in records] if self.magic == 0 else records

    @property
    def seen(self) -> list[Record]:
        """The records as a reader sees them: log append time hides their own."""
        if self.append_time is None:
            return self.written
        return [record._replace(timestamp=self.append_time) for record in self.written]


def load() -> list[Golden]:
    lines = [line.split() for line in (Path(__file__).parent / "golden.txt").read_text().splitlines()]
    return [
        Golden(int(magic), CODECS.index(codec), None if time == "create" else int(time), bytes.fromhex(data))
        for magic, codec, time, data in lines
    ]


GOLDEN = load()
