"""The one door to native code for records: a checksum, the check of a produced batch, single records of a stored one,
and whole batches ↔ Arrow columns.

CRC-32C (Castagnoli) guards every v2 batch. It runs at more than 10 GB/s with the processor's own instruction; a Python
loop would be ten thousand times slower. Only this file knows which library does it.

That extension is loaded by its file, past the `__init__` of its package, which imports a command line and the readers
of package metadata: 40 ms, an eighth of the time a broker has to its first answer.

Everything else is in the crate under `native/`. Where it is not built, or built for another version of this file, the
twins in Python give the same answers slowly and within tighter limits: `check` and `pick` for the broker, `columns` for
readers and writers of many records (Spark, pandas). The crate works without a Python object for each record and, where
that is worth it, without the interpreter's lock. Its columns come as plain buffers that pyarrow adopts without a copy:
both sides know Arrow's layout, so neither needs the other's library. All are imported at the first call.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from ottla.records.compress import SIZE_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from logging import Logger

    import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
    from crc32c import crc32c

    from ottla.records.check import Limits, Rules, Verdict
    from ottla.records.columns import Columns, EncodeOptions, Rows
    from ottla.records.compress import Buffer
    from ottla.records.pick import Picked
    from ottla.records.walk import Walked, WalkState
else:
    _package = PathFinder.find_spec("crc32c")
    assert _package is not None, "crc32c is a dependency of ottla"
    _spec = PathFinder.find_spec("_crc32c", _package.submodule_search_locations)
    assert _spec is not None, "crc32c 2.x is an extension module inside its package"
    _module = module_from_spec(_spec)
    _spec.loader.exec_module(_module)
    crc32c = _module.crc32c

__all__ = [
    "check",
    "crc32c",
    "decode_columns",
    "digest",
    "encode_columns",
    "fetch_reader",
    "is_built",
    "murmur2",
    "portion",
    "produce_reader",
    "since",
    "transcode",
    "walk_log",
    "warn_if_missing",
]


def check(data: Buffer, rules: Rules, limits: Limits, *, release: bool = False) -> Verdict:
    """What `ottla.records.check` says of one batch of magic 2. `release`: in a thread, so let others run meanwhile."""
    crate = _crate()
    if crate is None:
        from ottla.records import check as twin

        return twin.check(data, rules, limits if release else twin.on_loop(limits))
    return crate.check(data, rules, limits, release)


def transcode(
    data: Buffer,
    rules: Rules,
    limits: Limits,
    *,
    codec: int,
    level: int | None,
    size_max: int,
    release: bool = False,
) -> tuple[Verdict, bytes]:
    """The same, and the batch's records packed with another codec, in at most `size_max` bytes."""
    crate = _crate()
    if crate is None:
        from ottla.records import check as twin

        return twin.transcode(data, rules, limits if release else twin.on_loop(limits), codec, level, size_max)
    return crate.transcode(data, rules, limits, release, codec, level, size_max)


def since(
    data: Buffer, timestamp: int, start: int, limits: Limits, *, release: bool = False
) -> tuple[int, str, tuple[int, int] | None]:
    """State and detail as in a verdict; offset and timestamp of the first record of a batch of magic 2, from offset
    `start` on, whose timestamp is not below."""
    crate = _crate()
    if crate is None:
        from ottla.records import pick as twin

        return twin.since(data, timestamp, start, limits)
    return crate.since(data, timestamp, start, limits, release)


def portion(
    data: Buffer, start: int, *, records_max: int, bytes_max: int, limits: Limits
) -> tuple[int, str, list[Picked]]:
    """State and detail as in a verdict; the records of a batch of magic 2 from offset `start` on, until they are
    `records_max` or hold `bytes_max`."""
    crate = _crate()
    if crate is None:
        from ottla.records import pick as twin

        return twin.portion(data, start, records_max, bytes_max, limits)
    return crate.portion(data, start, records_max, bytes_max, limits)


def decode_columns(
    data: Buffer,
    *,
    start: int,
    stop: int,
    headers: bool,
    aborted: list[tuple[int, int]] | None,
    check_crc: bool = True,
    size_max: int,
) -> Columns:
    """The records at offsets start <= offset < stop in what a Fetch answered for one partition.

    `data` is whole batches of any magic, back to back, at most 256 MiB, perhaps with a torn one at the end; the first
    may begin before `start`. It must not change during the call, in which other threads run. Control batches are left
    out, and with `aborted`, the answer's list of (producer id, first offset), also what was aborted.

    Columns.batch        key, value, offset, timestamp, timestamp_type and, if asked for, headers: see `columns`
    Columns.next_offset  start <= next_offset <= stop: where to go on. Beyond the last record if control, aborted or
                         compacted batches follow it; equal to `stop` once there is nothing left to find before it.
    Columns.bytes_read   size of the batches looked at. 0 with next_offset < stop: not one whole batch, fetch more.

    `size_max` (at most 256 MiB) bounds what one batch may inflate to, and ends the call early once the columns hold as
    much: then next_offset lies in what `data` still has, and another call with the same data and the same `aborted`
    goes on there. ValueError, with the batch's offset: a checksum that does not match, or bytes that make no sense.
    """
    from ottla.records import columns

    if not 0 <= start <= stop <= columns.OFFSET_MAX:
        raise ValueError(f"no range of offsets from {start} to {stop}")
    if not 0 < size_max <= SIZE_MAX or len(data) > SIZE_MAX:
        raise ValueError(f"{len(data)} bytes with size_max={size_max}: either is at most {SIZE_MAX} bytes")
    if (crate := _crate()) is not None:
        found = crate.decode(data, start, stop, headers, aborted, check_crc, size_max)
        if found is not None:
            return _columns(found)
        # magic 0 or 1 is somewhere in it: too rare for a second implementation
    return columns.decode(
        data,
        start=start,
        stop=stop,
        headers=headers,
        aborted=aborted,
        check_crc=check_crc,
        size_max=size_max,
    )


def encode_columns(
    keys: pa.Array | pa.ChunkedArray | None,
    values: pa.Array | pa.ChunkedArray | None,
    headers: pa.Array | pa.ChunkedArray | None,
    timestamps: pa.Array | pa.ChunkedArray | None,
    partitions: pa.Array | pa.ChunkedArray | None,
    *,
    partition_count: int,
    codec: int,
    level: int | None,
    batch_bytes: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequences: Mapping[int, int] | None = None,
    transactional: bool = False,
    now_ms: int,
) -> dict[int, list[bytes]]:
    """Partition → its batches (magic 2), in the order of the rows, ready for Produce.

    keys, values   binary or string, any width; None is a column of nulls
    headers        list of (key: string, value: binary); a null list is none
    timestamps     a timestamp, or milliseconds as integers; null, or no column, is `now_ms`; -1 is a record without
    partitions     integers; null, or no column: murmur2 of the key as Kafka's Java clients do, and a row without a key
                   goes where the last one went until that batch is full, then to the next partition. The first of a
                   call is `now_ms` modulo the count, so that calls differ without chance having a part in it.

    A batch has at most `batch_bytes` before compression, header included; a larger record has a batch for itself.
    `base_sequences` is each partition's next sequence (0 if not named); it counts with a producer id only. A ValueError
    names the column or row that cannot be written.
    """
    from ottla.records import columns

    given = columns.rows(keys, values, headers, timestamps, partitions)
    target = columns.EncodeOptions(
        partition_count,
        codec,
        level,
        batch_bytes,
        producer_id,
        producer_epoch,
        dict(base_sequences or {}),
        transactional,
        now_ms,
    )
    target.check()
    if (crate := _crate()) is None:
        return columns.encode(given, target)
    return _encode(crate, given, target)


def digest(
    topics: pa.Array | pa.ChunkedArray | None,
    keys: pa.Array | pa.ChunkedArray | None,
    values: pa.Array | pa.ChunkedArray | None,
    headers: pa.Array | pa.ChunkedArray | None,
    timestamps: pa.Array | pa.ChunkedArray | None,
    partitions: pa.Array | pa.ChunkedArray | None,
) -> int:
    """A number of 64 bits that stands for these rows in any order; numbers of parts add up, modulo 2**64, to that of
    the whole. The columns are those of `encode_columns`, with topics where rows name theirs: see `digest`."""
    from ottla.records import columns
    from ottla.records import digest as twin

    given = columns.rows(keys, values, headers, timestamps, partitions)
    named = None if topics is None else columns.rows(topics, None, None, None, None).keys
    native: Callable[..., int] | None = getattr(_crate(), "digest", None)
    if native is None:
        return twin.digest(named, given)
    return native(None if named is None else _blobs(named), *_arrays(given))


def murmur2(keys: pa.Array | pa.ChunkedArray) -> pa.Int32Array:
    """The hash of each key, signed, as Kafka's Java clients compute it; null for null. Its lower 31 bits, modulo the
    number of partitions, are the partition of a record with that key."""
    import pyarrow as pa

    from ottla.records import columns

    given = columns.rows(keys, None, None, None, None).keys
    if (crate := _crate()) is None:
        return columns.murmur2(given)
    hashes = pa.py_buffer(crate.murmur2(_blobs(given)))
    valid = given.is_valid().buffers()[1] if given.null_count else None
    return pa.Array.from_buffers(pa.int32(), len(given), [valid, hashes], given.null_count)


def is_built() -> bool:
    """Whether the crate is there; otherwise its twin in Python answers, about a hundred times slower."""
    return _crate() is not None


def missing() -> str | None:
    """Without the crate, a line for the log that says so and what to do about it."""
    return None if is_built() else MISSING


@cache
def warn_if_missing(log: Logger) -> None:
    """Say it once in a process, however many brokers start there."""
    if line := missing():
        log.warning(line)


MISSING: Final = (
    "the native part of Ottla is not here, so Python does its work, several times slower; to build it, put Rust on the "
    "PATH and run `pip install --force-reinstall --no-deps --no-cache-dir ottla` (in a clone: `make setup`)"
)

# The crate: functions over buffers, nothing else crosses.

INTERFACE: Final = 2  # of the functions below; a crate with another number is not used

Region = object  # anything with the buffer protocol
Blobs = tuple["Region | None", Region, Region, int, int]  # validity, positions, bytes, first row, number of rows
Numbers = tuple["Region | None", Region, int]  # validity, numbers, first row
Pairs = tuple[Numbers, Blobs, Blobs]
Found = tuple[
    int,  # rows
    tuple[int, Region, Region, Region],  # key: nulls, validity, positions, bytes
    tuple[int, Region, Region, Region],  # value
    Region,  # offset
    Region,  # timestamp
    Region,  # timestamp_type
    # headers: rows without, validity, positions; then how many there are, the keys' positions, bytes; the values
    tuple[int, Region, Region, int, Region, Region, tuple[int, Region, Region, Region]] | None,
    int,  # next offset
    int,  # bytes read
]


class Crate(Protocol):
    INTERFACE: int

    def decode(
        self,
        data: Region,
        start: int,
        stop: int,
        headers: bool,
        aborted: list[tuple[int, int]] | None,
        check_crc: bool,
        size_max: int,
    ) -> Found | None: ...

    def encode(
        self,
        keys: Blobs,
        values: Blobs,
        headers: Pairs | None,
        timestamps: Numbers | None,
        partitions: Numbers | None,
        target: EncodeOptions,
    ) -> dict[int, list[bytes]]: ...

    def murmur2(self, keys: Blobs) -> Region: ...

    # Verdicts and records come as plain tuples with the fields of their classes.
    def check(self, data: Region, rules: Rules, limits: Limits, release: bool) -> Verdict: ...

    def transcode(
        self,
        data: Region,
        rules: Rules,
        limits: Limits,
        release: bool,
        codec: int,
        level: int | None,
        size_max: int,
    ) -> tuple[Verdict, bytes]: ...

    def since(
        self, data: Region, timestamp: int, start: int, limits: Limits, release: bool
    ) -> tuple[int, str, tuple[int, int] | None]: ...

    def portion(
        self, data: Region, start: int, records_max: int, bytes_max: int, limits: Limits
    ) -> tuple[int, str, list[Picked]]: ...


Sound = tuple[int, int, int]  # of a batch: its last offset delta, largest timestamp and producer id
# Topic (a name or an id), partition, where its records begin and end in the frame, and the answer up to its result.
ProduceEntry = tuple["str | bytes", int, int, int, bytes]
ProduceRead = tuple[int, int, list[ProduceEntry], bytes]  # acks, timeout, partitions, and the end of the answer


class ProduceReader(NamedTuple):
    """The functions behind `ottla.handlers.shortcut`. They have no twins: without them there is no shortcut."""

    # The request in a frame, if it is a usual one.
    read: Callable[[Region], ProduceRead | None]
    # (data, start, end, keyed, now_ms, before_ms, after_ms, zstd, inflated_max): if the batch can be stored as it came.
    check: Callable[[Region, int, int, bool, int, int, int, bool, int], Sound | None]


# Topic (a name or an id), partition, leader epoch, offset, most bytes.
FetchEntry = tuple["str | bytes", int, int, int, int]
# Correlation id, longest wait, fewest and most bytes, whether only committed records are wanted, session and its epoch,
# whether a rack is named, partitions, and those that are not wanted any more.
FetchRead = tuple[int, int, int, int, bool, int, int, bool, list[FetchEntry], list[tuple["str | bytes", int]]]
# Partition, high watermark, last stable offset, log start, bytes of records.
FetchPart = tuple[int, int, int, int, int]


class FetchReader(NamedTuple):
    """The functions behind `ottla.handlers.fetch_shortcut`. They have no twins either."""

    # The request in a frame, if it is a usual one.
    read: Callable[[Region], FetchRead | None]
    # (version, correlation id, session, committed, topics): the pieces of the answer, between which the records go.
    answer: Callable[[int, int, int, bool, list[tuple[str | bytes, list[FetchPart]]]], list[bytes] | None]


def fetch_reader() -> FetchReader | None:
    crate = _crate()
    if not hasattr(crate, "read_fetch"):
        return None
    return FetchReader(crate.read_fetch, crate.answer_fetch)  # type: ignore[union-attr]


def produce_reader() -> ProduceReader | None:
    crate = _crate()
    if not hasattr(crate, "read_produce"):
        return None
    return ProduceReader(crate.read_produce, crate.sound)  # type: ignore[union-attr]


def walk_log(data: bytes, state: WalkState) -> Walked:
    """Check the batches of a region of a log file, and say what is derived from them: see `walk`.

    The crate has none for regions with magic 0 or 1: too rare for a second implementation.
    """
    from ottla.records import walk

    found = getattr(_crate(), "walk_log", _never)(data, state)
    return walk.walk(data, state) if found is None else walk.Walked(*found)


def _never(data: bytes, state: WalkState) -> tuple[Any, ...] | None:
    return None


@cache
def _crate() -> Crate | None:
    try:
        found = cast("Crate", import_module("ottla._native"))
    except ImportError:
        return None
    return found if found.INTERFACE == INTERFACE else None


def _columns(found: Found) -> Columns:
    import pyarrow as pa

    from ottla.records import columns

    count, key, value, offsets, timestamps, kinds, headers, next_offset, bytes_read = found
    arrays = [
        _adopt(pa.binary(), count, key),
        _adopt(pa.binary(), count, value),
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(offsets)], 0),
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(timestamps)], 0),
        pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(kinds)], 0),
    ]
    schema = columns.SCHEMA
    if headers is not None:
        without, valid, positions, total, key_positions, keys, header_value = headers
        names = _adopt(pa.string(), total, (0, b"", key_positions, keys))
        kind = columns.HEADERS
        pairs = pa.StructArray.from_arrays([names, _adopt(pa.binary(), total, header_value)], fields=kind.value_type)
        buffers = [pa.py_buffer(valid) if without else None, pa.py_buffer(positions)]
        arrays.append(pa.Array.from_buffers(kind, count, buffers, without, children=[pairs]))
        schema = columns.SCHEMA_WITH_HEADERS
    return columns.Columns(pa.record_batch(arrays, schema=schema), next_offset, bytes_read)


def _adopt(kind: pa.DataType, count: int, column: tuple[int, Region, Region, Region]) -> pa.Array:
    import pyarrow as pa

    nulls, valid, positions, data = column
    buffers = [pa.py_buffer(valid) if nulls else None, pa.py_buffer(positions), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, count, buffers, nulls)


def _encode(crate: Crate, given: Rows, target: EncodeOptions) -> dict[int, list[bytes]]:
    return crate.encode(*_arrays(given), target)


def _arrays(given: Rows) -> tuple[Blobs, Blobs, Pairs | None, Numbers | None, Numbers | None]:
    headers = None
    if given.headers is not None:
        valid, positions = given.headers.buffers()[:2]
        pairs = given.headers.values
        headers = ((valid, positions, given.headers.offset), _blobs(pairs.field(0)), _blobs(pairs.field(1)))
    timestamps, partitions = (
        None if numbers is None else (*numbers.buffers(), numbers.offset)
        for numbers in (given.timestamps, given.partitions)
    )
    return _blobs(given.keys), _blobs(given.values), headers, timestamps, partitions


def _blobs(array: pa.BinaryArray | pa.StringArray) -> Blobs:
    valid, positions, data = array.buffers()
    return (valid, positions or bytes(4), data or b"", array.offset, len(array))
