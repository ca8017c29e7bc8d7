"""What is shown to the user while a pipeline runs."""

import pytest

from ottla.spark.runner.board import format_query
from ottla.spark.runner.state import QueryProgress


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (QueryProgress("q", doing="Initializing sources"), "q: first batch, initializing sources"),
        (QueryProgress("q"), "q: first batch"),
        (QueryProgress("q", 14, 1301, 98.2, 12), "q: batch 14, 1,301 rows, 98/s, lag 12"),
        (QueryProgress("q", 0, 5, 0.0, None, 2), "q: batch 0, 5 rows, 0/s, lag -, 2 put aside"),
    ],
)
def test_a_line_says_how_far_a_query_is_or_what_it_does_meanwhile(progress: QueryProgress, line: str) -> None:
    assert format_query(progress) == line
