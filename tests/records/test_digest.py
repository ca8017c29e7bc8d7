"""A digest of rows: the same for any order and any pieces, another one for any other row; and both twins agree."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from ottla.records import columns, native
from ottla.records import digest as twin

HEADERS = columns.HEADERS
ROWS: list[tuple[Any, ...]] = [
    ("t", b"k", b"v", None, None, None),
    ("t", b"", b"v", None, None, None),
    ("t", None, b"v", None, None, None),
    ("t", b"k", None, None, None, None),
    ("t", b"k", b"", None, None, None),
    ("t", b"kv", None, None, None, None),
    ("t", b"k", b"v\0", None, None, None),
    ("t", b"k", b"v" * 16, None, None, None),
    ("t", b"k", b"v" * 17, None, None, None),
    ("t", b"k", bytes(range(256)) * 5, None, None, None),
    ("u", b"k", b"v", None, None, None),
    (None, b"k", b"v", None, None, None),
    ("t", b"k", b"v", [("h", b"1")], None, None),
    ("t", b"k", b"v", [("h", None)], None, None),
    ("t", b"k", b"v", [("h", b"1"), ("h", b"1")], None, None),
    ("t", b"k", b"v", None, 0, None),
    ("t", b"k", b"v", None, -1, None),
    ("t", b"k", b"v", None, 1_700_000_000_000, None),
    ("t", b"k", b"v", None, None, 0),
    ("t", b"k", b"v", None, None, 7),
]


def arrays(rows: list[tuple[Any, ...]]) -> list[pa.Array]:
    topics, keys, values, headers, times, partitions = zip(*rows, strict=True)
    named = [None if one is None else [{"key": key, "value": value} for key, value in one] for one in headers]
    return [
        pa.array(topics, pa.string()),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(named, HEADERS),
        pa.array(times, pa.int64()),
        pa.array(partitions, pa.int32()),
    ]


def python(rows: list[tuple[Any, ...]]) -> int:
    topics, *rest = arrays(rows)
    return twin.digest(columns.rows(topics, None, None, None, None).keys, columns.rows(*rest))


def test_every_row_counts() -> None:
    assert len({native.digest(*arrays([row])) for row in ROWS}) == len(ROWS)


def test_order_and_pieces_do_not() -> None:
    whole = native.digest(*arrays(ROWS))
    mixed = random.Random(1).sample(ROWS, len(ROWS))
    assert native.digest(*arrays(mixed)) == whole
    assert (native.digest(*arrays(mixed[:7])) + native.digest(*arrays(mixed[7:]))) % 2**64 == whole
    sliced = [array.slice(3, 9) for array in arrays(ROWS)]
    assert native.digest(*sliced) == native.digest(*arrays(ROWS[3:12]))


def test_a_column_of_nulls_is_no_column() -> None:
    rows = [(None, None, b"v", None, None, None)] * 2
    assert native.digest(*arrays(rows)) == native.digest(None, None, pa.array([b"v", b"v"]), None, None, None)


def test_a_row_twice_is_not_a_row_once() -> None:
    """As a sum of hashes tells, and a combination by xor would not."""
    one, two, three = (native.digest(*arrays(ROWS[:1] * count)) for count in (1, 2, 3))
    assert len({0, one, two, three}) == 4


def test_both_twins_agree() -> None:
    assert python(ROWS) == native.digest(*arrays(ROWS))
    chance = random.Random(2)
    rows = [("t", chance.randbytes(chance.randint(0, 40)), chance.randbytes(chance.randint(0, 80)), None, None, None)
            for _ in range(200)]  # fmt: skip
    assert python(rows) == native.digest(*arrays(rows))
