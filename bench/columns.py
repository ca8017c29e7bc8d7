"""Record batches ↔ Arrow columns, without a socket: python bench/columns.py [TEXT ...]

Each line is one number: the best of nine rounds in million records per second of one core (the best, because noise only
slows down), then the median and the spread of the rounds, and the same in bytes. Records are 100 B
of values in batches of 64 kB, which is what a busy producer sends; a call decodes 4 MB of them, or encodes 50,000 rows.
`python` is the Python version that is used where the crate is not built. It is CPU time, so other load on the machine
matters little; still, measure before and after a change on the same machine, in the same minute.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT / "src")

import pyarrow as pa  # noqa: E402

from ottla.records import native  # noqa: E402
from ottla.records.batch import Record, build  # noqa: E402
from ottla.records.compress import Codec  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 9
ROUND_S = 0.1
NOW_MS = 1_700_000_000_000
VALUE = 100
BATCH = 64 * 1024
FETCH = 4 * 1024 * 1024
ROWS = 50_000
SIZE_MAX = 64 * 1024 * 1024


class Measured(NamedTuple):
    name: str
    records: int  # that one call handles
    size: int  # bytes of their values
    call: Callable[[], object]
    crate: bool


def words(chance: random.Random) -> bytes:
    """A value that compresses about as well as log lines."""
    text = b" ".join(chance.choice(WORDS) for _ in range(40))
    return text[:VALUE]


WORDS = [
    bytes(random.Random(number).choices(b"abcdefghijklmnopqrstuvwxyz", k=3 + number % 8)) for number in range(2000)
]


def fetched(codec: Codec, *, keys: bool = False, headers: bool = False) -> tuple[bytes, int]:
    """Batches of 64 kB, 4 MB of them before compression; and how many records they hold."""
    chance, batches, offset = random.Random(7), [], 0
    pairs = (("trace", b"0123456789abcdef"), ("origin", b"bench")) if headers else ()
    while len(batches) * BATCH < FETCH:
        records = [
            Record(
                offset + delta, NOW_MS + delta // 4, b"%08d" % chance.randrange(10**8) if keys else None, value, pairs
            )
            for delta, value in enumerate(words(chance) for _ in range(BATCH // (VALUE + 10)))
        ]
        batches.append(build(records, codec=codec))
        offset += len(records)
    return b"".join(batches), offset


def decoding() -> list[Measured]:
    found = [decode(codec.name.lower(), *fetched(codec)) for codec in Codec]
    found.append(decode("none, no CRC", *fetched(Codec.NONE), check_crc=False))
    found.append(decode("none, keys", *fetched(Codec.NONE, keys=True)))
    data, records = fetched(Codec.NONE, headers=True)
    found.append(decode("none, 2 headers each, asked for", data, records, headers=True))
    found.append(decode("none, 2 headers each, not asked for", data, records))
    found.append(decode("none, read_committed", *fetched(Codec.NONE), aborted=[(7, 0)]))
    found += [decode(codec.name.lower(), *fetched(codec), crate=False) for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD)]
    return found


def decode(
    name: str,
    data: bytes,
    records: int,
    *,
    headers: bool = False,
    check_crc: bool = True,
    aborted: list[tuple[int, int]] | None = None,
    crate: bool = True,
) -> Measured:
    def call() -> object:
        found = native.decode_columns(
            data, start=0, stop=records, headers=headers, aborted=aborted, check_crc=check_crc, size_max=SIZE_MAX
        )
        assert found.batch.num_rows == records
        return found

    return Measured(f"decode {name}", records, records * VALUE, call, crate)


def encoding() -> list[Measured]:
    found = [encode(codec.name.lower(), codec) for codec in Codec]
    found.append(encode("none, keys, 12 partitions", Codec.NONE, keys=True, partitions=12))
    found.append(encode("none, 2 headers each", Codec.NONE, headers=True))
    found += [encode(codec.name.lower(), codec, crate=False) for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD)]
    return found


def encode(
    name: str, codec: Codec, *, keys: bool = False, headers: bool = False, partitions: int = 1, crate: bool = True
) -> Measured:
    chance = random.Random(7)
    values = pa.array([words(chance) for _ in range(ROWS)], pa.binary())
    key = pa.array([b"%08d" % chance.randrange(10**8) for _ in range(ROWS)], pa.binary()) if keys else None
    pairs = [{"key": "trace", "value": b"0123456789abcdef"}, {"key": "origin", "value": b"bench"}]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    lists = pa.array([pairs] * ROWS, kind) if headers else None

    def call() -> object:
        return native.encode_columns(
            key, values, lists, None, None,
            partition_count=partitions, codec=codec, level=None, batch_bytes=BATCH, now_ms=NOW_MS,
        )  # fmt: skip

    return Measured(f"encode {name}", ROWS, ROWS * VALUE, call, crate)


def measure(each: Measured) -> list[float]:
    """Million records per second, one number for each round."""
    each.call()
    count, taken = 1, timed(each.call, 1)
    while taken < ROUND_S:
        count = max(count * 2, int(count * ROUND_S / taken)) if taken else count * 2
        taken = timed(each.call, count)
    return [each.records * count / timed(each.call, count) / 1e6 for _ in range(ROUNDS)]


def timed(call: Callable[[], object], count: int) -> float:
    start = time.process_time()
    for _ in range(count):
        call()
    return time.process_time() - start


def main(chosen: list[str]) -> None:
    if not native.is_built():
        print("the crate is not built: run native/build.py")
    crate = native._crate
    for each in [*decoding(), *encoding()]:
        side = "native" if each.crate else "python"
        if (each.crate and not native.is_built()) or (
            chosen and not any(word in f"{side} {each.name}" for word in chosen)
        ):
            continue
        native._crate = crate if each.crate else lambda: None  # type: ignore[assignment]
        rounds = measure(each)
        native._crate = crate
        middle = statistics.median(rounds)
        spread = (max(rounds) - min(rounds)) / 2 / middle
        mega = max(rounds) * each.size / each.records
        print(
            f"{side} {each.name:40} {max(rounds):7.2f} M/s   median {middle:7.2f} ±{spread:.0%}  {mega:8.0f} MB/s",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
