"""The command line of a pipeline: numbers that no run can have are refused before anything starts."""

from __future__ import annotations

import pytest

from ottla.spark.runner import Pipeline, Run
from ottla.spark.runner.arguments import new_parser


def nothing(run: Run) -> None:
    pass


@pytest.mark.parametrize(
    ("flag", "text", "sentence"),
    [
        ("--count", "-5", "-5 is not a number from 1 on"),
        ("--count", "0", "0 is not a number from 1 on"),
        ("--count", "many", "invalid"),
        ("--rate", "0", "0 is not a number above 0"),
        ("--rate", "-1", "-1 is not a number above 0"),
        ("--rate", "nan", "nan is not a number above 0"),
        ("--every", "-1", "-1 is not a number from 0 on"),
    ],
)
def test_an_impossible_number_is_refused(
    flag: str, text: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A negative count would never be reached."""
    with pytest.raises(SystemExit) as ended:
        new_parser(Pipeline("made", "For tests.", nothing), "made").parse_args([flag, text])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_numbers_are_taken() -> None:
    parser = new_parser(Pipeline("made", "For tests.", nothing), "made")
    given = parser.parse_args(["--count", "1", "--rate", "0.5", "--every", "0"])
    assert (given.count, given.rate, given.every) == (1, 0.5, 0.0)
