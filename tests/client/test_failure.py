"""What went wrong travels between processes, and says whether trying again may help."""

import pickle

import pytest

from ottla.client.failure import Failed, Refused, Unreachable, check, passes
from ottla.client.fetching import OutOfRange
from ottla.errors import ErrorCode


@pytest.mark.parametrize(
    "error",
    [
        Failed("so"),
        Unreachable("away"),
        Refused("topic t", ErrorCode.MESSAGE_TOO_LARGE, ": and more"),
        Refused("topic t", 12345),
        OutOfRange("topic t", ErrorCode.OFFSET_OUT_OF_RANGE, ": 7", 1, 5),
    ],
)
def test_it_travels(error: Failed) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_it_is_a_sentence() -> None:
    with pytest.raises(Refused, match=r"^t: no such topic or partition here \(UNKNOWN_TOPIC_OR_PARTITION\), alas$"):
        check("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ", alas")
    check("t", 0)
    assert str(Refused("t", 12345)) == "t: unknown error code 12345"


def test_what_passes() -> None:
    passing = [code for code in ErrorCode if passes(Refused("it", code))]
    assert {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.CONCURRENT_TRANSACTIONS} <= set(passing)
    lasting = {ErrorCode.CORRUPT_MESSAGE, ErrorCode.PRODUCER_FENCED, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NONE}
    assert not lasting & set(passing)
    assert passes(Unreachable("away"))
    assert not passes(Failed("so"))
