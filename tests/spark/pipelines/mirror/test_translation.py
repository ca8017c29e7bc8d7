"""Offsets translated from one cluster to another: checked record by record against the copy itself."""

import random

import pytest

from ottla.spark.pipelines.mirror.translation import (
    METADATA_SIZE_MAX,
    RUNS_MAX,
    MirrorPosition,
    OffsetMap,
    OffsetRun,
    translate_commit,
)


def test_within_a_run_it_is_exact() -> None:
    found = OffsetMap([OffsetRun(100, 0, 50), OffsetRun(150, 51, 10)])
    assert [found.translate(offset) for offset in (100, 125, 149, 150, 159)] == [0, 25, 49, 51, 60]


@pytest.mark.parametrize(("offset", "expected"), [(0, 0), (99, 0), (160, 61), (170, 61), (180, 70), (500, 75)])
def test_elsewhere_it_is_the_next_record_that_was_not_read(offset: int, expected: int) -> None:
    assert (
        OffsetMap([OffsetRun(100, 0, 50), OffsetRun(150, 51, 10), OffsetRun(180, 70, 5)]).translate(offset) == expected
    )


def test_nothing_copied_is_nothing_known() -> None:
    assert OffsetMap().translate(5) is None


def test_runs_that_touch_on_both_sides_are_one() -> None:
    found = OffsetMap()
    found.add(10, 0, 5)
    found.add(15, 5, 5)
    found.add(20, 11, 5)  # a marker lies between at the target
    found.add(26, 16, 5)  # one at the source
    assert found.runs == (OffsetRun(10, 0, 10), OffsetRun(20, 11, 5), OffsetRun(26, 16, 5))


def test_no_translation_skips_a_record() -> None:
    """For any history and any committed offset: every record at or after it lies at or after its translation."""
    for seed in range(30):
        chance = random.Random(seed)
        found, copied, source, target = OffsetMap(), [], chance.randrange(1000), chance.randrange(1000)
        for _ in range(chance.choice([3, 40, 400])):
            source += chance.choice([0, 0, 1, 30])
            target += chance.choice([0, 1, 1, 3])
            count = chance.randrange(1, 200)
            found.add(source, target, count)
            copied += [(source + index, target + index) for index in range(count)]
            source, target = source + count, target + count
        assert len(found.runs) <= RUNS_MAX
        assert found.runs[0].source == copied[0][0]
        position = MirrorPosition(source, "c", "t", found)
        kept = MirrorPosition.parse(source, position.metadata())
        assert kept is not None
        following = dict(zip((one for one, _ in copied), copied, strict=True))
        exact = 0
        for committed in range(source + 5):
            next_record = next((following[at] for at in range(committed, source) if at in following), None)
            for offsets in (found, kept.offsets):
                answer = offsets.translate(committed)
                assert answer is not None
                if next_record is not None:
                    assert answer <= next_record[1], (seed, committed)
            exact += next_record is not None and answer == next_record[1]
        assert exact, "some must be exact, or the map would be of no use"


def test_the_newest_are_exact_however_long_the_history() -> None:
    found = OffsetMap()
    for index in range(5000):
        found.add(1000 * index, 1001 * index, 1000)
    for offset in range(4_990_000, 5_000_000, 777):
        assert found.translate(offset) == offset + offset // 1000
    worst = max(offset - (found.translate(offset) or 0) for offset in range(0, 5_000_000, 999))
    assert worst < 2_000_000, "older ones are sparse, not gone"


def test_metadata_fits_and_comes_back() -> None:
    found = OffsetMap()
    for index in range(500):
        found.add(10**15 + 10**9 * index, 10**14 + 10**8 * index, 10**7)
    position = MirrorPosition(10**15 * 2, "MkU3OEVBNTcwNTJENDM2Qk", "0" * 36, found)
    text = position.metadata()
    assert len(text) <= METADATA_SIZE_MAX
    back = MirrorPosition.parse(10**15 * 2, text)
    assert back is not None
    assert back.offsets.runs[-10:] == found.runs[-10:]
    assert back[:3] == position[:3]


@pytest.mark.parametrize("text", ["", "{}", "[1]", "offset 5", '{"format":9}', '{"format":1,"runs":[[1]]}'])
def test_what_others_wrote_is_no_position(text: str) -> None:
    assert MirrorPosition.parse(5, text) is None


def test_a_group_is_moved_only_by_its_mirror() -> None:
    position = MirrorPosition(200, "c", "t", OffsetMap([OffsetRun(100, 0, 100)]))
    fresh = translate_commit(position, 150, mirror="mirror", there=None, start=0)
    assert fresh is not None
    assert fresh.offset == 50
    ours = (fresh.offset, fresh.metadata("mirror"))
    assert translate_commit(position, 150, mirror="mirror", there=ours, start=0) == fresh, (
        "it stands there already, and stays"
    )
    coarse = MirrorPosition(200, "c", "t", OffsetMap([OffsetRun(100, 0, 1)]))
    assert translate_commit(coarse, 150, mirror="mirror", there=ours, start=0) == fresh, (
        "a map that was thinned sets nobody back"
    )
    back = translate_commit(position, 120, mirror="mirror", there=ours, start=0)
    assert back is not None
    assert back.offset == 20, "a group that was set back is followed"
    assert translate_commit(position, 150, mirror="mirror", there=(10, ""), start=0) is None, (
        "its own progress at the target"
    )
    assert translate_commit(position, 150, mirror="mirror", there=(10, fresh.metadata("other")), start=0) is None
    assert translate_commit(position, 150, mirror="mirror", there=(10, fresh.metadata("mirror 2")), start=0) is None
    beyond = translate_commit(position, 900, mirror="mirror", there=None, start=0)
    assert beyond is not None
    assert beyond.offset == 100, "never beyond what was copied"
    late = translate_commit(position, 110, mirror="mirror", there=None, start=30)
    assert late is not None
    assert late.offset == 30, "what retention took at the target cannot be read there"
