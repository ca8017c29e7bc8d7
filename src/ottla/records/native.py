"""The only access to native code for records: a checksum, the check of a produced batch, single records of a stored
batch, and whole batches ↔ Arrow columns.

CRC-32C (Castagnoli) protects every v2 batch. With the processor's own instruction it runs at more than 10 GB/s; a
Python loop would be ten thousand times slower. Only this file knows which library is used.

That extension is loaded from its file, bypassing the `__init__` of its package, which imports a command line and the
readers of package metadata: 40 ms, an eighth of the broker's startup time.

Everything else is in the crate under `native/`. If it is not built, or built for another version of this file, Python
modules give the same results slowly and with lower limits: `check` and `pick` for the broker, `columns` for readers and
writers of many records (Spark, pandas). The crate creates no Python object per record and releases the GIL where that
pays off. Its columns are plain buffers that pyarrow uses without a copy: both sides know Arrow's layout, so neither
needs the other's library. All modules are imported at the first call.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from ottla.records.compress import SIZE_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from logging import Logger

    import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
    from crc32c import crc32c

    from ottla.records.check import RecordLimits, Rules, Verdict
    from ottla.records.columns import Columns, EncodeOptions, Rows
    from ottla.records.compress import Buffer
    from ottla.records.own_batch import OwnRecord
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
    "own_batch",
    "portion",
    "produce_reader",
    "sender_class",
    "since",
    "transcode",
    "walk_log",
    "warn_if_missing",
]


def check(data: Buffer, rules: Rules, limits: RecordLimits, *, release: bool = False) -> Verdict:
    """Check one batch of magic 2, as `ottla.records.check` does. `release`: release the GIL; for calls in a thread."""
    crate = _crate()
    if crate is None:
        from ottla.records import check as twin

        return twin.check(data, rules, limits if release else twin.on_loop(limits))
    return crate.check(data, rules, limits, release)


def transcode(
    data: Buffer,
    rules: Rules,
    limits: RecordLimits,
    *,
    codec: int,
    level: int | None,
    size_max: int,
    release: bool = False,
) -> tuple[Verdict, bytes]:
    """The same, and recompress the batch's records with another codec into at most `size_max` bytes."""
    crate = _crate()
    if crate is None:
        from ottla.records import check as twin

        return twin.transcode(data, rules, limits if release else twin.on_loop(limits), codec, level, size_max)
    return crate.transcode(data, rules, limits, release, codec, level, size_max)


def since(
    data: Buffer, timestamp: int, start: int, limits: RecordLimits, *, release: bool = False
) -> tuple[int, str, tuple[int, int] | None]:
    """The first record of a batch of magic 2, from offset `start` on, whose timestamp is not below. Returns state and
    detail as in a verdict, then its offset and timestamp."""
    crate = _crate()
    if crate is None:
        from ottla.records import pick as twin

        return twin.since(data, timestamp, start, limits)
    return crate.since(data, timestamp, start, limits, release)


def portion(
    data: Buffer, start: int, *, records_max: int, bytes_max: int, limits: RecordLimits
) -> tuple[int, str, list[Picked]]:
    """The records of a batch of magic 2 from offset `start` on, at most `records_max` records and about `bytes_max`
    bytes. State and detail as in a verdict."""
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
    """The records at offsets start <= offset < stop in the Fetch response for one partition.

    `data` is a sequence of whole batches of any magic, at most 256 MiB, the last one perhaps incomplete; the first may
    begin before `start`. It must not change during the call, because other threads run meanwhile. Control batches are
    left out, and with `aborted`, the response's list of (producer id, first offset), also aborted records.

    Columns.batch        key, value, offset, timestamp, timestamp_type and, if requested, headers: see `columns`
    Columns.next_offset  start <= next_offset <= stop: where to continue. Beyond the last record if control, aborted or
                         compacted batches follow it; equal to `stop` if there is nothing left before it.
    Columns.bytes_read   size of the batches processed. 0 with next_offset < stop: not one whole batch, fetch more.

    `size_max` (at most 256 MiB) limits the decompressed size of one batch, and ends the call early when the columns
    have that size: then next_offset is in the rest of `data`, and another call with the same data and the same
    `aborted` continues there. ValueError, with the batch's offset: a wrong checksum, or malformed bytes.
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
        # it contains magic 0 or 1: too rare for a second implementation
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
    headers        list of (key: string, value: binary); a null list means no headers
    timestamps     a timestamp, or milliseconds as integers; null, or no column, is `now_ms`; -1 is no timestamp
    partitions     integers; null, or no column: murmur2 of the key, as in Kafka's Java clients. Rows without a key stay
                   on one partition until its batch is full, then use the next one. The first partition of a call is
                   `now_ms` modulo the count, so that calls differ without random numbers.

    A batch has at most `batch_bytes` before compression, including the header; a larger record gets its own batch.
    `base_sequences` is the next sequence of each partition (default 0), used only with a producer id. A ValueError
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
    """A 64-bit number that identifies these rows in any order. The numbers of parts add up, modulo 2**64, to that of
    the whole. The columns are those of `encode_columns`, plus topics if rows name theirs: see `digest`."""
    from ottla.records import columns
    from ottla.records import digest as twin

    given = columns.rows(keys, values, headers, timestamps, partitions)
    named = None if topics is None else columns.rows(topics, None, None, None, None).keys
    native: Callable[..., int] | None = getattr(_crate(), "digest", None)
    if native is None:
        return twin.digest(named, given)
    return native(None if named is None else _blobs(named), *_arrays(given))


def murmur2(keys: pa.Array | pa.ChunkedArray) -> pa.Int32Array:
    """The signed hash of each key, as Kafka's Java clients compute it; null for null. Its lower 31 bits, modulo the
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
    """Whether the crate is built. Otherwise Python does the work, about a hundred times slower."""
    return _crate() is not None


def missing() -> str | None:
    """Without the crate: a log line that says so and how to build it."""
    return None if is_built() else MISSING


@cache
def warn_if_missing(log: Logger) -> None:
    """Log it once per process, however many brokers start in it."""
    if line := missing():
        log.warning(line)


MISSING: Final = (
    "the native part of Ottla is missing, so Python does its work, several times slower; to build it, put Rust on the "
    "PATH and run `pip install --force-reinstall --no-deps --no-cache-dir ottla` (in a clone: `make setup`)"
)

# The crate: functions over buffers.

INTERFACE: Final = 3  # version of the functions below; a crate with another number is not used

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
    # headers: rows without, validity, positions; then their number, the keys' positions and bytes; the values
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

    # Verdicts and records are plain tuples with the fields of their classes.
    def check(self, data: Region, rules: Rules, limits: RecordLimits, release: bool) -> Verdict: ...

    def transcode(
        self,
        data: Region,
        rules: Rules,
        limits: RecordLimits,
        release: bool,
        codec: int,
        level: int | None,
        size_max: int,
    ) -> tuple[Verdict, bytes]: ...

    def since(
        self, data: Region, timestamp: int, start: int, limits: RecordLimits, release: bool
    ) -> tuple[int, str, tuple[int, int] | None]: ...

    def portion(
        self, data: Region, start: int, records_max: int, bytes_max: int, limits: RecordLimits
    ) -> tuple[int, str, list[Picked]]: ...


Sound = tuple[int, int, int]  # last offset delta, largest timestamp and producer id of a batch
# Topic (name or id), partition, start and end of its records in the frame, and the answer up to its result.
ProduceEntry = tuple["str | bytes", int, int, int, bytes]
ProduceRead = tuple[int, int, list[ProduceEntry], bytes]  # acks, timeout, partitions, and the end of the answer


class ProduceReader(NamedTuple):
    """The functions behind `ottla.handlers.shortcut`. They have no Python version: without the crate there is no
    shortcut."""

    # The request in a frame, if it qualifies.
    read: Callable[[Region], ProduceRead | None]
    # (data, start, end, keyed, now_ms, before_ms, after_ms, zstd, inflated_max): None if it cannot be stored unchanged.
    check: Callable[[Region, int, int, bool, int, int, int, bool, int], Sound | None]
    # (data, entries, terms, now_ms, compressed): the same for the leading entries, up to the first that cannot be
    # stored unchanged, or until much has been decompressed. `compressed`: the largest size of a compressed batch, and
    # of the same batch decompressed, and whether zstd is allowed.
    check_each: Callable[
        [Region, Sequence[ProduceEntry], tuple[int, bool, int, int], int, tuple[int, int, bool]], list[Sound]
    ]


# Topic (name or id), partition, leader epoch, offset, max bytes.
FetchEntry = tuple["str | bytes", int, int, int, int]
# Correlation id, max wait, min and max bytes, read_committed or not, session and its epoch, whether a rack is given,
# partitions, and forgotten partitions.
FetchRead = tuple[int, int, int, int, bool, int, int, bool, list[FetchEntry], list[tuple["str | bytes", int]]]
# Partition, high watermark, last stable offset, log start, bytes of records.
FetchPart = tuple[int, int, int, int, int]


class FetchReader(NamedTuple):
    """The functions behind `ottla.handlers.fetch_shortcut`. They have no Python version either."""

    # The request in a frame, if it qualifies.
    read: Callable[[Region], FetchRead | None]
    # (version, correlation id, session, committed, topics): the pieces of the answer, with the records to go between
    # them.
    answer: Callable[[int, int, int, bool, list[tuple[str | bytes, list[FetchPart]]]], list[bytes] | None]
    # The same with the descriptor, position and size of each region of records: the answer in one piece; None if they
    # cannot be read.
    answer_whole: Callable[
        [int, int, int, bool, list[tuple[str | bytes, list[FetchPart]]], list[tuple[int, int, int]]], bytes | None
    ]


def fetch_reader() -> FetchReader | None:
    crate = _crate()
    if not hasattr(crate, "answer_fetch_whole"):
        return None
    return FetchReader(crate.read_fetch, crate.answer_fetch, crate.answer_fetch_whole)  # type: ignore[union-attr]


def produce_reader() -> ProduceReader | None:
    crate = _crate()
    if not hasattr(crate, "sound_each"):
        return None
    return ProduceReader(crate.read_produce, crate.sound, crate.sound_each)  # type: ignore[union-attr]


@cache
def batch_writer() -> Callable[[Region, Sequence[tuple[Any, ...]]], tuple[int, int, int]] | None:
    """Makes the writes of `ottla.log.planned_write`. Returns the number of complete writes before the first that
    failed; then, for that one, the bytes written and the system's error."""
    return getattr(_crate(), "write_planned", None)


@cache
def block_reserver() -> Callable[[int, int, int, int], bool] | None:
    """Allocates blocks after the end of a file: descriptor, position and size of the region, and how many bytes must be
    free. False if nothing was allocated."""
    return getattr(_crate(), "reserve_blocks", None)


def sender_class() -> Callable[[], Any] | None:
    """Makes the thread behind `ottla.net.region_sender`. None: this system has none."""
    return getattr(_crate(), "Sender", None)


def own_batch(
    records: Sequence[OwnRecord],
    base_offset: int,
    leader_epoch: int,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    attributes: int,
) -> bytes:
    """A batch of the broker's own records: see `own_batch`."""
    native: Callable[..., bytes] | None = getattr(_crate(), "own_batch", None)
    if native is None:
        from ottla.records import own_batch as twin

        native = twin.build
    return native(records, base_offset, leader_epoch, timestamp, producer_id, producer_epoch, attributes)


def walk_log(data: bytes, state: WalkState) -> Walked:
    """Check the batches of a region of a log file, and derive the recovery data from them: see `walk`.

    The crate does not support magic 0 or 1 here: too rare for a second implementation.
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
