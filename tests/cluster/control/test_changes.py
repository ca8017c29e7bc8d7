"""When a requested topic counts as created."""

import pytest

from ottla.cluster.control.changes import is_led
from ottla.cluster.image import EMPTY, Partition, Topic

WANTED = Topic("t", b"i" * 16, (Partition(0, (0,), (0,), 0, 0, 0),), {})


@pytest.mark.parametrize(("known_id", "led"), [(b"i" * 16, True), (bytes(16), True), (b"j" * 16, False)])
def test_a_topic_is_known_by_its_id_or_by_its_name_where_no_id_is_told(known_id: bytes, *, led: bool) -> None:
    known = EMPTY.with_topics(WANTED._replace(id=known_id))
    assert is_led(known, WANTED) is led


def test_a_partition_without_a_leader() -> None:
    state = WANTED.partitions[0]._replace(leader=-1)
    assert not is_led(EMPTY.with_topics(WANTED._replace(partitions=(state,))), WANTED)
    assert not is_led(EMPTY, WANTED)
