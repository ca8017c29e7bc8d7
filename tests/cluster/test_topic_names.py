"""Which topic names are valid."""

import pytest

from ottla.cluster.topic_names import check_name, collision_key, is_internal
from ottla.errors import BrokerError, ErrorCode


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "...", "a" * 249, "__consumer_offsets"])
def test_good_names(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "the empty string"),
        (".", r"'.' is not allowed"),
        ("..", r"'..' is not allowed"),
        ("a" * 250, "longer than the max allowed length 249"),
        ("a b", "'a b' contains one or more characters"),
        ("é", "contains one or more characters"),
        ("a/b", "contains one or more characters"),
        ("a\0", "contains one or more characters"),
    ],
)
def test_bad_names(name: str, words: str) -> None:
    with pytest.raises(BrokerError, match=words) as raised:
        check_name(name)
    assert raised.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_names_that_metrics_cannot_tell_apart() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c") != collision_key("a-b_c")


def test_internal_topics() -> None:
    assert is_internal("__consumer_offsets")
    assert not is_internal("__mine")
