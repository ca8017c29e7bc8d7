"""The offset of a streaming query: written, read again, and refused in one sentence after a wrong edit."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed
from ottla.spark.source.checkpoint import Position, load

VISITS = UUID(int=7)
wheres = st.builds(TopicPartition, st.sampled_from(["visits", "clicks", "version", "a.b_c-d"]), st.integers(0, 20))
offsets = st.dictionaries(wheres, st.integers(0, 2**63 - 1), max_size=8)


@st.composite
def positions(draw: st.DrawFn) -> Position:
    found = draw(offsets)
    begun = {where: draw(st.integers(0, found[where])) for where in found if draw(st.booleans())}
    topics = sorted({where.topic for where in found})
    ids = {topic: draw(st.none() | st.uuids()) for topic in topics}
    return Position(found, begun, ids, draw(st.none() | st.just("cluster")), draw(st.sampled_from(["", "5f1c"])))


@given(positions())
def test_what_is_written_is_read(position: Position) -> None:
    text = json.dumps(position.dump())
    assert load(json.loads(text)) == position


@given(positions(), st.randoms())
def test_the_same_position_is_the_same_text(position: Position, random: Any) -> None:
    shuffled = list(position.offsets.items())
    random.shuffle(shuffled)
    other = Position(dict(shuffled), position.begun, position.ids, position.cluster, position.token)
    assert json.dumps(other.dump()) == json.dumps(position.dump())


def test_the_text() -> None:
    position = Position(
        {TopicPartition("visits", 10): 5, TopicPartition("visits", 2): 1200, TopicPartition("clicks", 0): 0},
        {TopicPartition("visits", 10): 3},
        {"visits": VISITS, "clicks": None},
        "q1Sh",
        "5f1c",
    )
    assert json.dumps(position.dump()) == (
        '{"version": 1, "cluster": "q1Sh", "token": "5f1c", "topics": {"clicks": {"partitions": {"0": 0}}, "visits": '
        '{"id": "00000000-0000-0000-0000-000000000007", "partitions": {"2": 1200, "10": 5}, "begun": {"10": 3}}}}'
    )


class Counted(dict[TopicPartition, int]):
    """Offsets that count how often all of them are visited."""

    walks = 0

    def __iter__(self) -> Iterator[TopicPartition]:
        self.walks += 1
        return super().__iter__()


def test_many_topics_are_written_in_one_walk() -> None:
    """With one pass for each topic, a micro-batch would take seconds with a few thousand topics."""
    found = Counted({TopicPartition(f"topic-{index}", 0): index for index in range(100)})
    assert len(Position(found, found).dump()["topics"]) == 100
    assert found.walks <= 4


@given(offsets)
def test_a_checkpoint_of_sparks_own_source_is_understood(found: dict[TopicPartition, int]) -> None:
    text: dict[str, dict[str, int]] = {}
    for where, offset in found.items():
        text.setdefault(where.topic, {})[str(where.partition)] = offset
    assert load(text) == Position(found)


GOOD = {
    "version": 1,
    "cluster": "q1Sh",
    "token": "5f1c",
    "topics": {"visits": {"id": str(VISITS), "partitions": {"0": 7}, "begun": {"0": 3}}},
}


def test_the_example_is_good() -> None:
    assert load(GOOD).offsets == {TopicPartition("visits", 0): 7}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "has version 2, and this Ottla reads version 1: run the Ottla that wrote it, or a newer one"),
        ({"version": "1"}, "has version '1'"),
        ({"version": True}, "has version True"),
        ({"version": None}, "has version None"),
        ({"cluster": 5}, "cluster is 5, not text"),
        ({"token": "x y"}, "token is 'x y', not hexadecimal digits"),
        ({"token": None}, "token is None, not hexadecimal digits"),
        ({"topics": None}, "topics is None, not an object"),
        ({"topics": {"visits": 5}}, "topics.visits is 5, not an object with partitions"),
        ({"topics": {"visits": {"partitions": [7]}}}, "topics.visits.partitions is [7], not an object"),
        (
            {"topics": {"visits": {"partitions": {"x": 7}}}},
            "topics.visits.partitions has 'x' where a partition should be",
        ),
        ({"topics": {"visits": {"partitions": {"01": 7}}}}, "has '01' where a partition should be"),
        ({"topics": {"visits": {"partitions": {"0": "7"}}}}, "topics.visits.partitions.0 is '7', not an offset"),
        ({"topics": {"visits": {"partitions": {"0": -1}}}}, "topics.visits.partitions.0 is -1, not an offset"),
        (
            {"topics": {"visits": {"partitions": {"0": 2**63}}}},
            "topics.visits.partitions.0 is 9223372036854775808, not an",
        ),
        ({"topics": {"visits": {"partitions": {"0": True}}}}, "topics.visits.partitions.0 is True, not an offset"),
        ({"topics": {"visits": {"partitions": {"0": 1.5}}}}, "topics.visits.partitions.0 is 1.5, not an offset"),
        ({"topics": {"visits": {"partitions": {"0": 7}, "begun": {"0": 8}}}}, "begun.0 is 8, behind the next offset"),
        ({"topics": {"visits": {"partitions": {"0": 7}, "begun": {"1": 8}}}}, "begun.1 is 8, behind the next offset"),
        ({"topics": {"visits": {"partitions": {"0": 7}, "id": "7"}}}, "topics.visits.id is '7', not the id of a topic"),
        ({"topics": {"visits": {"partitions": {"0": 7}, "id": 7}}}, "topics.visits.id is 7, not the id of a topic"),
    ],
)
def test_junk_is_told_in_one_sentence(change: dict[str, Any], said: str) -> None:
    with pytest.raises(Failed) as failed:
        load({**GOOD, **change})
    text = str(failed.value)
    assert said in text
    assert text.endswith("start with a new checkpointLocation")
    assert "\n" not in text


@pytest.mark.parametrize("given", [None, [], "x", 5, {"visits": 5}, {"visits": {"0": "5"}}, {"visits": {"zero": 5}}])
def test_what_is_no_offset_at_all(given: Any) -> None:
    with pytest.raises(
        Failed, match=r"^the offset in the checkpoint cannot be read, .*: restore the checkpoint folder"
    ):
        load(given)
