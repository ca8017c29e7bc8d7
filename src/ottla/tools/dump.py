"""Print the files of a log (segments, indexes, snapshots, checkpoints), and check that they agree with each other.

Each file is read as rows with a kind and fields, which are printed one per line, as text or JSON. A row of kind
`problem` describes an error; one such row makes the exit code 1. Checks:

    always          a file that is not what its name says, bytes after the last complete batch, a broken snapshot
    with --verify   checksums; offsets that increase and end before the next segment; index entries that ascend and
                    point at their batch; timestamps that match the time index; a marker for each aborted transaction

It only reads files, so it does not disturb a running broker. The last entries of an active segment may be missing.
"""

from __future__ import annotations

import errno
import json as formats
import os
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.disk import File, RealDisk
from ottla.errors import BrokerError
from ottla.log import checkpoints
from ottla.log.directory import parse
from ottla.log.index import OFFSET_ENTRY, OFFSET_SUFFIX, TIME_ENTRY, TIME_SUFFIX
from ottla.log.recovery import checksum_ok
from ottla.log.segment import CLEANED, DELETED, LOG_SUFFIX, SWAP
from ottla.log.snapshots import SUFFIX as SNAPSHOT_SUFFIX
from ottla.log.snapshots import CorruptSnapshotError, decode_snapshot
from ottla.log.spans import walk
from ottla.log.transactions import SUFFIX as TRANSACTION_SUFFIX
from ottla.log.transactions import CorruptTransactionIndexError, decode
from ottla.records import batch, legacy
from ottla.records.compress import Codec
from ottla.records.markers import read_marker
from ottla.tools.record import header as shown

if TYPE_CHECKING:
    import struct
    from collections.abc import Callable, Iterator, Sequence
    from typing import TextIO

    from ottla.log.spans import FoundSpan, Span

    Rows = Iterator["DumpRow"]

_DIGITS = 20
_WINDOW = 1 << 20


class DumpRow(NamedTuple):
    kind: str
    fields: dict[str, Any]


class SegmentHeaders(NamedTuple):
    """The batch headers of a .log file, to compare indexes with."""

    by_position: dict[int, Span]
    by_last: dict[int, Span]


class DumpContext(NamedTuple):
    """What to print and check, and the segments read so far."""

    records: bool
    verify: bool
    disk: RealDisk
    segments: dict[str, SegmentHeaders]


def dump(paths: Sequence[str | os.PathLike[str]], *, records: bool, json: bool, verify: bool, out: TextIO) -> int:
    """Print the rows of every file. Returns 0, or 1 if there was a problem."""
    look = DumpContext(records, verify, RealDisk(), {})
    problems = 0
    for path in chain.from_iterable(_files(os.fspath(path)) for path in paths):
        if not json:
            print(path, file=out)
        for kind, fields in _rows(path, look):
            problems += kind == "problem"
            print(_as_json(path, kind, fields) if json else _as_line(kind, fields), file=out)
    return 1 if problems else 0


def _as_json(path: str, kind: str, fields: dict[str, Any]) -> str:
    return formats.dumps({"file": path, "kind": kind, **fields}, ensure_ascii=False)


def _as_line(kind: str, fields: dict[str, Any]) -> str:
    if kind == "problem":
        return f"  PROBLEM {fields['problem']}"
    words = (f"{name}={formats.dumps(value, ensure_ascii=False)}" for name, value in fields.items())
    return f"  {'  ' if kind == 'record' else ''}{kind} {' '.join(words)}"


# Which files, and how to read each.


def _files(path: str) -> Iterator[str]:
    """The path itself if it is a file; of a folder, its log files and those of partition folders in it."""
    if not os.path.isdir(path):
        yield path
        return
    entries = sorted(RealDisk().scan(path), key=lambda entry: entry.name)
    yield from (entry.path for entry in entries if not entry.is_dir() and _reader(entry.name) is not None)
    for entry in entries:
        if entry.is_dir() and parse(entry.name) is not None:
            yield from _files(entry.path)


def _reader(name: str) -> Callable[[str, DumpContext], Rows] | None:
    for suffix in (DELETED, CLEANED, SWAP):
        name = name.removesuffix(suffix)
    if name[:_DIGITS].isdecimal() and len(name) > _DIGITS:
        return _BY_SUFFIX.get(name[_DIGITS:])
    if name.endswith("-offset-checkpoint"):
        return _offsets
    return _BY_NAME.get(name)


def _rows(path: str, look: DumpContext) -> Rows:
    read = _reader(os.path.basename(path))
    if read is None:
        yield _problem("not a log file" if os.path.exists(path) else os.strerror(errno.ENOENT))
        return
    try:
        yield from read(path, look)
    except OSError as error:
        yield _problem(error.strerror or str(error))
    except BrokerError as error:
        yield _problem(error.message)
    except (CorruptSnapshotError, CorruptTransactionIndexError, checkpoints.CorruptCheckpointError) as error:
        yield _problem(str(error))


def _problem(text: str) -> DumpRow:
    return DumpRow("problem", {"problem": text})


# Segments.


def _segment(path: str, look: DumpContext) -> Rows:
    base, size, reached = _base(path), os.stat(path).st_size, 0
    end = base
    file = _open(path)
    try:
        for found in walk(look.disk, file, 0, size, whole=look.records or look.verify, window=_WINDOW):
            span = found.span
            yield _batch(found)
            if look.verify:
                if not checksum_ok(found):
                    yield _problem(f"the batch at position {span.position} fails its checksum")
                if span.base < end:
                    yield _problem(
                        f"the batch at position {span.position} begins at {span.base}, expected {end} or later"
                    )
            if look.records:
                yield from _records(found)
            end = span.last + 1
            reached = span.position + span.size
        rest = look.disk.pread(file.fd, _WINDOW, reached) if reached < size else b""
    finally:
        file.close()
    if rest.strip(b"\0"):
        yield _problem(f"{size - reached} bytes from position {reached} on are not a complete batch")
    following = _following(path)
    if look.verify and following is not None and end > following:
        yield _problem(f"the segment ends at {end}, but the next one begins at {following}")


def _open(path: str) -> File:
    # Read-only, which `disk` does not offer, so that no write permission is needed.
    return File(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)


def _batch(found: FoundSpan) -> DumpRow:
    span, buffer, at = found
    fields: dict[str, Any] = {"position": span.position, "size": span.size, "magic": span.magic}
    if span.magic < batch.MAGIC:
        outer = legacy.outer(buffer, at)
        fields |= {"offset": outer.offset, "codec": Codec(outer.codec).name.lower(), "timestamp": outer.timestamp}
        return DumpRow("message", fields | {"log_append_time": outer.log_append_time})
    head = batch.header(buffer, at)
    fields |= {
        "base": head.base_offset,
        "last": head.last_offset,
        "count": head.count,
        "codec": Codec(head.codec).name.lower() if head.codec in list(Codec) else head.codec,
        "leader_epoch": head.leader_epoch,
        "max_timestamp": head.max_timestamp,
        "log_append_time": head.log_append_time,
    }
    if head.producer_id >= 0:
        fields |= {"producer_id": head.producer_id, "producer_epoch": head.producer_epoch}
        fields |= {"base_sequence": head.base_sequence, "last_sequence": head.last_sequence}
    fields |= {"transactional": True} if head.transactional else {}
    fields |= {"control": True} if head.control else {}
    fields |= {} if head.delete_horizon is None else {"delete_horizon": head.delete_horizon}
    return DumpRow("batch", fields)


def _records(found: FoundSpan) -> Rows:
    span, buffer, at = found
    control = span.magic == batch.MAGIC and batch.header(buffer, at).control
    try:
        for record in batch.iterate(buffer, at):
            fields: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp}
            if control and (marker := read_marker(record.key, record.value)) is not None:
                fields |= {"marker": "commit" if marker.commit else "abort"}
                fields |= {"coordinator_epoch": marker.coordinator_epoch}
            else:
                fields |= {"key": shown(record.key), "value": shown(record.value)}
                fields |= {"headers": [[name, shown(value)] for name, value in record.headers]}
            yield DumpRow("record", fields)
    except BrokerError as error:
        yield _problem(f"the records at position {span.position} cannot be read: {error.message}")


# Indexes.


def _index(path: str, look: DumpContext) -> Rows:
    base, segment = _base(path), _beside(path, look)
    previous = (-1, -1)
    for relative, position in _entries(path, look, OFFSET_ENTRY):
        offset = base + relative
        yield DumpRow("index", {"offset": offset, "position": position})
        if segment is not None:
            span = segment.by_position.get(position)
            if span is None:
                yield _problem(f"no batch begins at position {position}")
            elif span.last != offset:
                yield _problem(f"the batch at position {position} ends with offset {span.last}, not {offset}")
            if offset <= previous[0] or position <= previous[1]:
                yield _problem(f"the entry after {previous[0]} at {previous[1]} does not ascend")
        previous = offset, position


def _time_index(path: str, look: DumpContext) -> Rows:
    base, segment = _base(path), _beside(path, look)
    previous = -1
    for timestamp, relative in _entries(path, look, TIME_ENTRY):
        offset = base + relative
        yield DumpRow("time", {"timestamp": timestamp, "offset": offset})
        if segment is not None:
            span = segment.by_last.get(offset)
            if span is None:
                yield _problem(f"no batch ends with offset {offset}")
            elif span.max_timestamp != timestamp:
                yield _problem(f"the batch that ends with {offset} has timestamp {span.max_timestamp}, not {timestamp}")
            if timestamp <= previous:
                yield _problem(f"timestamp {timestamp} follows {previous}")
        previous = timestamp


def _entries(path: str, look: DumpContext, entry: struct.Struct) -> Iterator[tuple[int, int]]:
    """Entries up to the zero padding in the file of an active segment."""
    data = look.disk.read(path)
    whole = len(data) // entry.size * entry.size
    for at, (first, second) in enumerate(entry.iter_unpack(data[:whole])):
        if first == second == 0 and (at or not data.strip(b"\0")):
            return
        yield first, second


def _transactions(path: str, look: DumpContext) -> Rows:
    segment = _beside(path, look)
    for entry in decode(look.disk.read(path), _base(path)):
        yield DumpRow("aborted", entry._asdict())
        if segment is not None and entry.last not in segment.by_last:
            yield _problem(f"there is no marker at offset {entry.last}")


def _beside(path: str, look: DumpContext) -> SegmentHeaders | None:
    """The segment of an index; None without --verify."""
    if not look.verify:
        return None
    log = _stem(path) + LOG_SUFFIX + _aside(path)
    if log not in look.segments:
        file = _open(log)
        spans = [found.span for found in walk(look.disk, file, 0, os.stat(log).st_size, window=_WINDOW)]
        file.close()
        look.segments[log] = SegmentHeaders(
            {span.position: span for span in spans}, {span.last: span for span in spans}
        )
    return look.segments[log]


# Small files.


def _snapshot(path: str, look: DumpContext) -> Rows:
    for producer in decode_snapshot(look.disk.read(path)):
        fields = {"producer_id": producer.producer_id, "epoch": producer.epoch, "timestamp": producer.timestamp}
        fields |= {"coordinator_epoch": producer.coordinator_epoch, "transaction_first": producer.first}
        if producer.batches:
            first_sequence, last_sequence, base, last, _ = producer.batches[-1]
            fields |= {"first_sequence": first_sequence, "last_sequence": last_sequence, "base": base, "last": last}
        yield DumpRow("producer", fields)


def _offsets(path: str, look: DumpContext) -> Rows:
    for (topic, partition), offset in checkpoints.read_offsets(look.disk, path).items():
        yield DumpRow("checkpoint", {"topic": topic, "partition": partition, "offset": offset})


def _epochs(path: str, look: DumpContext) -> Rows:
    for epoch, offset in checkpoints.read_epochs(look.disk, path):
        yield DumpRow("epoch", {"epoch": epoch, "offset": offset})


def _metadata(path: str, look: DumpContext) -> Rows:
    topic_id = checkpoints.read_topic_id(look.disk, os.path.dirname(path))
    yield DumpRow("partition", {"topic_id": None if topic_id is None else checkpoints.id_to_text(topic_id)})


def _properties(path: str, look: DumpContext) -> Rows:
    meta = checkpoints.read_meta(look.disk, os.path.dirname(path))
    yield DumpRow("directory", meta._asdict() if meta is not None else {})


_BY_SUFFIX: dict[str, Callable[[str, DumpContext], Rows]] = {
    LOG_SUFFIX: _segment,
    OFFSET_SUFFIX: _index,
    TIME_SUFFIX: _time_index,
    TRANSACTION_SUFFIX: _transactions,
    SNAPSHOT_SUFFIX: _snapshot,
}
_BY_NAME: dict[str, Callable[[str, DumpContext], Rows]] = {
    checkpoints.LEADER_EPOCHS: _epochs,
    checkpoints.PARTITION_METADATA: _metadata,
    checkpoints.META_PROPERTIES: _properties,
}


# Names.


def _base(path: str) -> int:
    return int(os.path.basename(path)[:_DIGITS])


def _stem(path: str) -> str:
    return os.path.join(os.path.dirname(path), os.path.basename(path)[:_DIGITS])


def _aside(path: str) -> str:
    """The suffix of a file that is no longer in use, such as ".deleted"."""
    return next((suffix for suffix in (DELETED, CLEANED, SWAP) if path.endswith(suffix)), "")


def _following(path: str) -> int | None:
    """Where the next segment of the folder begins. A file that is not in use has none."""
    if _aside(path):
        return None
    bases = [_base(name) for name in os.listdir(os.path.dirname(path) or ".") if name.endswith(LOG_SUFFIX)]
    return min((base for base in bases if base > _base(path)), default=None)
