"""The walk over a region of a log: the same as batch by batch, and the same in native code."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records import batch, native
from ottla.records.legacy import build as build_legacy
from ottla.records.walk import WINDOW, Walked, WalkState, walk

if TYPE_CHECKING:
    from collections.abc import Sequence

BEGIN = WalkState(end=0, offset_max=1 << 40, since=0, interval=300, timestamp=-1, timestamp_offset=0, epoch=-1)


def a_batch(base: int, *, time: int = 0, size: int = 10, **options: int | bool) -> bytes:
    records = [batch.Record(base, time, b"k", b"v" * size), batch.Record(base + 1, time + 1, None, b"")]
    return batch.build(records, **options)  # type: ignore[arg-type]


BATCHES = st.lists(
    st.builds(
        dict,
        time=st.integers(0, 50),
        size=st.integers(0, 400),
        leader_epoch=st.integers(-1, 4),
        producer_id=st.integers(-1, 2),
        transactional=st.booleans(),
    ),
    max_size=25,
)


def a_region(drawn: Sequence[dict[str, int]]) -> bytes:
    return b"".join(a_batch(at * 2, **options) for at, options in enumerate(drawn))


@given(BATCHES)
def test_it_finds_what_the_headers_say(drawn: list[dict[str, int]]) -> None:
    data = a_region(drawn)
    found = walk(data, BEGIN)
    headers = [batch.header(data, entry.position) for entry in batch.entries(data)]
    assert (found.size, found.sound, found.end) == (len(data), True, len(drawn) * 2)
    assert found.timestamp == max((header.max_timestamp for header in headers), default=-1)
    epochs = [-1]
    for header in headers:
        if header.leader_epoch > epochs[-1]:
            epochs.append(header.leader_epoch)
    assert [epoch for epoch, _ in found.epochs] == epochs[1:]
    positions = {entry.position: batch.header(data, entry.position) for entry in batch.entries(data)}
    for producer_id in range(3):
        own = [at for at, header in positions.items() if header.producer_id == producer_id]
        plain = [at for at in own if not positions[at].transactional]
        wanted = {*plain[-WINDOW:], *(at for at in own if positions[at].transactional)}
        assert wanted == {at for at in found.producers if positions[at].producer_id == producer_id}
    places = [0, *(at for _, at, _, _ in found.points)]
    assert all(after - before > BEGIN.interval for before, after in itertools.pairwise(places))


@given(BATCHES, st.integers(0, 3000), st.integers(0, 255))
def test_native_code_says_the_same_of_sound_and_of_broken_regions(
    drawn: list[dict[str, int]], at: int, value: int
) -> None:
    data = bytearray(a_region(drawn))
    assert native.walk_log(bytes(data), BEGIN) == walk(bytes(data), BEGIN)
    if at < len(data):
        data[at] = value
    assert native.walk_log(bytes(data), BEGIN) == walk(bytes(data), BEGIN)
    cut = bytes(data[:at])
    assert native.walk_log(cut, BEGIN) == walk(cut, BEGIN)


@given(BATCHES, st.data())
def test_in_pieces_it_is_the_same_as_at_once(drawn: list[dict[str, int]], data: st.DataObject) -> None:
    region = a_region(drawn)
    whole = walk(region, BEGIN)
    cut = data.draw(st.integers(0, len(region)))
    first = walk(region[:cut], BEGIN)
    latest = max((epoch for epoch, _ in first.epochs), default=-1)
    second = walk(
        region[first.size :],
        BEGIN._replace(
            end=first.end,
            since=first.since,
            timestamp=first.timestamp,
            timestamp_offset=first.timestamp_offset,
            epoch=latest,
        ),
    )
    assert first.size + second.size == whole.size
    assert first.epochs + second.epochs == whole.epochs
    moved = [(last, first.size + at, time, offset) for last, at, time, offset in second.points]
    assert first.points + moved == whole.points
    assert (second.end, second.since, second.timestamp) == (whole.end, whole.since, whole.timestamp)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats(magic: int) -> None:
    data = b"".join(build_legacy([batch.Record(at, 7, b"k", b"v")], magic=magic) for at in range(3))
    found = native.walk_log(data, BEGIN)
    assert (found.size, found.sound, found.end) == (len(data), True, 3)
    broken = data[:-1] + bytes([data[-1] ^ 1])
    assert native.walk_log(broken, BEGIN).size == len(data) // 3 * 2


def test_nothing_comes_of_nothing() -> None:
    assert native.walk_log(b"", BEGIN) == Walked(0, True, 0, 0, -1, 0, [], [], [])
