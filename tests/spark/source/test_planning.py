"""Splits: every offset in exactly one, about equal in bytes, as many as were asked for."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.client.cluster import TopicPartition
from ottla.spark.source.planning import Profile, Range, Split, even, splits

ID = UUID(int=7)


@st.composite
def planned(draw: st.DrawFn) -> tuple[list[Range], dict[TopicPartition, Profile]]:
    """Ranges anywhere, and for some of them a profile of any shape: gaps, cliffs, nothing at all."""
    ranges, profiles = [], {}
    for index in range(draw(st.integers(0, 5))):
        start = draw(st.integers(0, 2**62))
        stop = start + draw(st.integers(-3, 5000) | st.integers(0, 2**40))
        one = Range(TopicPartition("t", index), start, stop, ID)
        ranges.append(one)
        if start < stop and draw(st.booleans()):
            inner = sorted(draw(st.sets(st.integers(start + 1, max(stop - 1, start + 1)), max_size=8)) - {stop})
            steps = draw(st.lists(st.floats(0, 1e12), min_size=len(inner) + 1, max_size=len(inner) + 1))
            sizes = [0.0]
            for step in steps:
                sizes.append(sizes[-1] + step)
            profiles[one.where] = Profile([start, *inner, stop], sizes)
    return ranges, profiles


@given(planned(), st.integers(1, 2**40), st.none() | st.integers(1, 60), st.none() | st.integers(1, 2**39))
def test_every_offset_is_in_exactly_one_split(
    plan: tuple[list[Range], dict[TopicPartition, Profile]],
    split_bytes: int,
    least: int | None,
    records_max: int | None,
) -> None:
    ranges, profiles = plan
    # Far too many pieces for a test are no different from many.
    split_bytes = max(split_bytes, int(sum(one.size for one in profiles.values()) / 100))
    split_bytes = max(split_bytes, max((one.stop - one.start for one in ranges), default=0) // 100)
    if records_max is not None:
        records_max = max(records_max, max((one.stop - one.start for one in ranges), default=0) // 100)
    made = splits(ranges, profiles, split_bytes=split_bytes, least=least, records_max=records_max)
    for one in ranges:
        mine = [split for split in made if split.where == one.where]
        position = one.start
        for split in mine:
            assert split.start == position, "no gap and no overlap"
            assert split.start < split.stop, "none is empty"
            assert split.topic_id == ID
            assert records_max is None or split.stop - split.start <= records_max
            position = split.stop
        assert position == max(one.start, one.stop)


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=6), st.integers(1, 80))
@example([22], 22)
def test_there_are_at_least_as_many_as_asked_for_where_there_are_offsets_enough(counts: list[int], least: int) -> None:
    ranges = [Range(TopicPartition("t", index), 5, 5 + count) for index, count in enumerate(counts)]
    made = splits(ranges, {}, split_bytes=2**40, least=least)
    assert len(made) >= min(least, sum(counts))
    assert len(made) == max(min(least, sum(counts)), len(counts))


def test_the_bytes_decide_where_a_range_is_cut() -> None:
    where = TopicPartition("t", 0)
    profile = Profile([0, 900, 1000], [0.0, 100.0, 1100.0])  # small at first, then huge
    made = splits([Range(where, 0, 1000)], {where: profile}, split_bytes=110)
    assert len(made) == 10
    assert made[0] == Split("t", 0, 0, 901)
    assert [split.stop - split.start for split in made[1:]] == [11] * 9


def test_nothing_is_cut_inside_a_gap_or_for_nothing() -> None:
    where = TopicPartition("t", 0)
    gap = Profile([0, 10, 1_000_000, 1_000_010], [0.0, 100.0, 100.0, 200.0])
    made = splits([Range(where, 0, 1_000_010)], {where: gap}, split_bytes=100)
    assert [(split.start, split.stop) for split in made] == [(0, 1_000_000), (1_000_000, 1_000_010)]
    assert len(splits([Range(where, 0, 10)], {where: even(0, 10, 99)}, split_bytes=100)) == 1
    empty = Profile([0, 10], [0.0, 0.0])
    assert len(splits([Range(where, 0, 10)], {where: empty}, split_bytes=100)) == 1


def test_the_largest_partitions_are_cut_first() -> None:
    ranges = [Range(TopicPartition("t", index), 0, size) for index, size in enumerate((10, 1000, 100))]
    made = splits(ranges, {}, split_bytes=10_000, least=6)
    assert [sum(split.partition == index for split in made) for index in range(3)] == [1, 4, 1]


@pytest.mark.parametrize("records_max", [1, 3, 4, 10])
def test_a_limit_of_records_divides_evenly(records_max: int) -> None:
    made = splits([Range(TopicPartition("t", 0), 0, 10)], {}, split_bytes=100, records_max=records_max)
    sizes = [split.stop - split.start for split in made]
    assert len(sizes) == -(-10 // records_max)
    assert max(sizes) - min(sizes) <= 1
