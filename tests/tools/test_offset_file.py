import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ottla.tools.lag import Commit, Place
from ottla.tools.offset_file import read, to_csv, to_objects

PLACES = some.tuples(some.text(string.ascii_letters + string.digits + "._-", min_size=1), some.integers(0, 2**31 - 1))
OFFSETS = some.integers(0, 2**63 - 1)


@given(some.dictionaries(PLACES, OFFSETS.map(Commit), max_size=5))
def test_csv_comes_back(commits: dict[Place, Commit]) -> None:
    assert read(to_csv(commits), "g") == commits


@given(some.dictionaries(PLACES, some.builds(Commit, OFFSETS, some.none() | some.text(min_size=1)), max_size=5))
def test_json_comes_back_with_metadata(commits: dict[Place, Commit]) -> None:
    assert read(json.dumps(to_objects(commits)), "g") == commits


def test_the_form_is_that_of_kafkas_tool() -> None:
    assert to_csv({("t", 0): Commit(5, "metadata has no place here"), ("t", 1): Commit(7)}) == "t,0,5\nt,1,7\n"


def test_a_file_of_several_groups_is_read_for_one() -> None:
    assert read("g,t,0,5\nh,t,0,6\n\ng,t,1,7\n", "g") == {("t", 0): Commit(5), ("t", 1): Commit(7)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("t,0\n", "line 1: expected topic,partition,offset"),
        ("t,0,1\nt,1,one\n", "line 2: expected topic,partition,offset"),
        ("t,0,-1\n", "line 1: expected topic,partition,offset"),
        ("topic,partition,offset\n", "line 1"),
        ("t,0,1\nt,0,2\n", "entry 2: t partition 0 is a duplicate"),
        ('[{"topic": "t", "partition": 0}]', "entry 1: expected topic, partition and offset"),
        ('[{"topic": "t", "partition": 0, "offset": -1}]', "entry 1: partition and offset must not be negative"),
        ('[{"topic": "t", "partition": 0, "offset": 1, "metadata": 5}]', "entry 1: metadata must be a string"),
        ("[1, 2", "Expecting"),
    ],
)
def test_what_is_no_offset_is_named(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read(text, "g")
