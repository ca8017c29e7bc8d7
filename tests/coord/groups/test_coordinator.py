"""Which topics were deleted, so that their committed offsets are removed."""

import pytest

from ottla.cluster.image import Topic
from ottla.coord.groups.coordinator import is_gone

NO_ID, ONE, OTHER = bytes(16), b"1" * 16, b"2" * 16


@pytest.mark.parametrize(
    ("before", "after", "gone"),
    [
        (ONE, None, True),
        (ONE, OTHER, True),
        (ONE, ONE, False),
        (NO_ID, ONE, False),  # made by an old tool, and given an id by the controller
        (ONE, NO_ID, False),  # told by a controller of a version that knows no ids
    ],
)
def test_a_topic_is_gone_when_its_id_is_another_one(before: bytes, after: bytes | None, *, gone: bool) -> None:
    def a_topic(topic_id: bytes) -> Topic:
        return Topic("t", topic_id, (), {})

    assert is_gone(a_topic(before), None if after is None else a_topic(after)) is gone
