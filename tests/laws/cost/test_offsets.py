"""Deleting a topic visits only the groups that have offsets for it: the index gives the same result as a full scan."""

from random import Random

import pytest

from ottla.coord.formats import OffsetCommitKey, OffsetCommitValue
from ottla.coord.groups.offsets import NOBODY, Offsets

VALUE = OffsetCommitValue(offset=5, leader_epoch=0, metadata="", commit_timestamp=0)


@pytest.mark.parametrize("seed", range(30))
def test_the_offsets_of_a_topic_are_those_that_a_walk_finds(seed: int) -> None:
    random, offsets = Random(seed), Offsets()
    for at in range(200):
        if random.random() < 0.1:
            offsets.end_transaction(random.randrange(3), committed=random.random() < 0.5)
        else:
            key = OffsetCommitKey(group=random.choice("gh"), topic=random.choice("tuv"), partition=random.randrange(2))
            value, producer = (None, NOBODY) if random.random() < 0.4 else (VALUE, random.choice([NOBODY, 0, 1, 2]))
            offsets.apply(key, value, at, producer)
        groups = {*offsets.by_group, *offsets.open}
        for topic in "tuv":
            walked = {(group, index) for group in groups for name, index in offsets.partitions(group) if name == topic}
            assert sorted(walked) == sorted(offsets.of_topic(topic, at + 1))
    for producer in range(3):
        offsets.end_transaction(producer, committed=False)
    for group in list(offsets.by_group):
        for topic, index in list(offsets.partitions(group)):
            offsets.apply(OffsetCommitKey(group=group, topic=topic, partition=index), None, 999, NOBODY)
    assert not offsets._groups, "nothing is remembered of what is gone"
