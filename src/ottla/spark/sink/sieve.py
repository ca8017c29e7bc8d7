"""Finds rows that cannot be written before they are sent, so that they can go to a dead-letter topic.

Only with `ottla.dead.letter`; without it the first such row fails its task. Found are: no topic, a topic that does not
exist, a partition that the topic does not have, a timestamp that the topic does not accept, no key for a compacted
topic, a header without a name, a record that is too large. If the cluster refuses a row for another reason (rights,
disks), that is not the row's fault and fails the task as before.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ottla.records.columns import HEADERS, NO_TIMESTAMP
from ottla.spark import dead_letter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)

OVERHEAD: Final = 200  # of a batch with one record, at most
LETTER_OVERHEAD: Final = 2_000  # of a dead letter: our headers, the longest reason
HEADER_OVERHEAD: Final = 10


class TopicLimits(NamedTuple):
    """What a topic accepts."""

    partitions: int
    record_bytes: int  # after compression
    batch_bytes: int  # before compression: a larger record is alone in its batch
    needs_key: bool = False
    before_ms: int | None = None  # how old a timestamp may be; None: no limit
    after_ms: int | None = None

    @classmethod
    def of(cls, partitions: int, record_bytes: int, batch_bytes: int, configs: dict[str, str]) -> TopicLimits:
        before_ms = after_ms = None
        if configs.get("message.timestamp.type") != "LogAppendTime":
            before_ms, after_ms = (
                int(value) if (value := configs.get(f"message.timestamp.{name}.max.ms")) is not None else None
                for name in ("before", "after")
            )
        needs_key = "compact" in configs.get("cleanup.policy", "")
        return cls(partitions, record_bytes, batch_bytes, needs_key, before_ms, after_ms)


class CheckedRows(NamedTuple):
    good: pa.Table
    bad: pa.Table
    reasons: list[str]  # of the bad rows, one each


def sift(rows: pa.Table, found: Iterator[tuple[pa.Array | pa.ChunkedArray, str]]) -> CheckedRows:
    """The rows that no mask of `found` marks, and the marked ones, each with its first reason."""
    reasons: dict[int, str] = {}
    for mask, reason in found:
        for index in pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist():
            reasons.setdefault(index, reason)
    if not reasons:
        return CheckedRows(rows, rows.slice(0, 0), [])
    order = sorted(reasons)
    bad = pa.array(order, pa.int64())
    keep = pc.invert(pc.is_in(pa.array(range(rows.num_rows), pa.int64()), value_set=bad))
    return CheckedRows(rows.filter(keep), rows.take(bad), [reasons[index] for index in order])


def faults(
    topic: str,
    columns: dict[str, pa.ChunkedArray],
    partitions: pa.ChunkedArray | pa.Array | None,
    limits: TopicLimits,
    now_ms: int,
    encoded_size: Callable[[int], int],
) -> Iterator[tuple[pa.Array | pa.ChunkedArray, str]]:
    """Masks of rows that cannot be written to this topic, each with its reason."""
    if partitions is not None:
        outside = pc.or_(pc.less(partitions, 0), pc.greater_equal(partitions, limits.partitions))
        yield outside, f"topic {topic} has partitions 0 to {limits.partitions - 1} only"
    if "timestamp" in columns:
        yield from _times(topic, columns["timestamp"], limits, now_ms)
    if limits.needs_key:
        reason = f"topic {topic} is compacted, and accepts no record without a key"
        keys = columns.get("key")
        yield (pc.is_null(keys) if keys is not None else pa.array([True] * len(columns["value"]))), reason
    if "headers" in columns:
        yield _nameless(columns["headers"]), "it has a header without a name"
    large = pc.greater(sizes(columns), limits.batch_bytes - OVERHEAD)
    for index in pc.indices_nonzero(large).to_pylist():
        size = encoded_size(index)
        if size > limits.record_bytes:
            mask = pc.equal(pa.array(range(len(large)), pa.int64()), index)
            yield (
                mask,
                f"it makes a batch of {size} bytes, and topic {topic} or this sink accepts {limits.record_bytes}",
            )


def _times(
    topic: str, times: pa.ChunkedArray, limits: TopicLimits, now_ms: int
) -> Iterator[tuple[pa.Array | pa.ChunkedArray, str]]:
    yield pc.less(times, NO_TIMESTAMP), "its timestamp is before 1970"
    known = pc.not_equal(times, NO_TIMESTAMP)
    if limits.before_ms is not None and limits.before_ms <= now_ms:
        old = pc.and_(known, pc.less(times, now_ms - limits.before_ms))
        yield old, f"its timestamp is older than topic {topic} accepts (message.timestamp.before.max.ms)"
    if limits.after_ms is not None:
        new = pc.greater(times, min(now_ms + limits.after_ms, 2**63 - 1))
        yield new, f"its timestamp is further ahead than topic {topic} accepts (message.timestamp.after.max.ms)"


def _nameless(headers: pa.ChunkedArray) -> pa.Array:
    whole = one(headers)
    entries = whole.flatten()
    wrong = pc.or_(pc.is_null(entries), pc.is_null(pc.struct_field(entries, [0])))
    rows = pc.list_parent_indices(whole).filter(wrong)
    return pc.is_in(pa.array(range(len(whole)), pa.int64()), value_set=rows.cast(pa.int64()))


def sizes(columns: dict[str, pa.ChunkedArray]) -> pa.Array:
    """Approximate size of each row in bytes."""
    total = pa.nulls(len(columns["value"]), pa.int64()).fill_null(0)
    for name in ("key", "value"):
        if name in columns:
            total = pc.add(total, _lengths(one(columns[name])))
    if "headers" in columns:
        total = pc.add(total, _header_sizes(one(columns["headers"])))
    return total


def _lengths(blobs: pa.Array) -> pa.Array:
    return pc.fill_null(pc.binary_length(blobs).cast(pa.int64()), 0)


def _header_sizes(headers: pa.Array) -> pa.Array:
    entries = headers.values
    each = pc.add(pc.add(_lengths(entries.field(0)), _lengths(entries.field(1))), HEADER_OVERHEAD)
    until = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(each)])
    return pc.subtract(until.take(headers.offsets.slice(1)), until.take(headers.offsets.slice(0, len(headers))))


def _header_size(headers: list[dict[str, Any]]) -> int:
    return sum(HEADER_OVERHEAD + len(one["key"].encode()) + len(one["value"] or b"") for one in headers)


def one(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    whole = column.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


def letters(
    bad: pa.Table,
    reasons: list[str],
    columns: frozenset[str],
    topic: str | None,
    partitions: list[int | None] | None,
    room: int,
    *,
    stage: str = dead_letter.WRITE,
    offsets: list[int] | None = None,
) -> pa.Table:
    """Dead letters for these rows: their key, value and headers as far as there is room, and the reason.

    `partitions` and `offsets` are those of the rows, where known."""
    room -= LETTER_OVERHEAD
    keys, values, headers = [], [], []
    given = {name: bad.column(name).to_pylist() if name in columns else None for name in ("key", "value", "headers")}
    for index, reason in enumerate(reasons):
        key, value, own = (column[index] if column is not None else None for column in given.values())
        key, value = (one.encode() if isinstance(one, str) else one for one in (key, value))
        kept = [one for one in own or () if one and one["key"] is not None]
        size = len(value) if value is not None and len(value) > room // 2 else None
        told = dead_letter.headers(
            reason,
            stage=stage,
            topic=topic,
            partition=partitions[index] if partitions is not None else None,
            offset=offsets[index] if offsets is not None else None,
            size=size,
        )
        keys.append(key if key is None or len(key) <= room // 4 else None)
        values.append(value[: room // 2] if value is not None and size is not None else value)
        kept = kept if _header_size(kept) <= room // 4 else []
        headers.append([*kept, *({"key": name, "value": text} for name, text in told)])
    log.warning("%d rows go to the dead-letter topic; reason of the first: %s", len(reasons), reasons[0])
    return pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary()),
                     "headers": pa.array(headers, HEADERS)})  # fmt: skip
