"""The pages of the report: cards in full rows, and the time of the report."""

import re

from ottla.spark.pipelines.activity.pages import FIGURES, day_page

EMPTY = {name: [] for name in ("days", "hours", "pages", "searches", "referrers", "funnel")}


def test_no_card_stands_alone_in_its_row() -> None:
    page = day_page({"day": "2026-01-31", "visits": 7}, EMPTY)
    rows = [int(number) for number in re.findall(r"repeat\((\d), 1fr\)", page)]
    assert rows
    assert not [row for row in rows if len(FIGURES) % row]


def test_a_page_says_when_it_was_made() -> None:
    assert re.search(r"Made \d{4}-\d\d-\d\d \d\d:\d\d UTC", day_page({"day": "2026-01-31"}, EMPTY))
