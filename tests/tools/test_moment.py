from datetime import datetime

import pytest

from ottla.tools.moment import End, Last, Offset, Time, duration_ms, milliseconds, moment

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", Offset(0)),
        ("end", End()),
        ("17", Offset(17)),
        ("-10", Last(10)),
        ("-30s", Time(NOW_MS - 30_000)),
        ("-5m", Time(NOW_MS - 300_000)),
        ("-2h", Time(NOW_MS - 7_200_000)),
        ("-1d", Time(NOW_MS - 86_400_000)),
        ("2026-11-15T09:30:00Z", Time(1794735000000)),
        ("2026-11-15T09:30:00.250+01:00", Time(1794731400250)),
    ],
)
def test_where_to_begin_is_understood(text: str, expected: object) -> None:
    assert moment(text, NOW_MS) == expected


def test_a_time_without_zone_is_local() -> None:
    assert moment("2026-11-15", NOW_MS) == Time(int(datetime(2026, 11, 15).timestamp() * 1000))


@pytest.mark.parametrize("text", ["", "bananas", "-5x", "5m", "2026-13-01", "--5"])
def test_what_makes_no_sense_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="expected beginning, end, an offset"):
        moment(text, NOW_MS)


def test_a_bare_number_is_a_time_where_a_time_is_wanted() -> None:
    assert milliseconds("1794735000000", NOW_MS) == 1794735000000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", 30_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("0s", 0),
        ("PT5M", 300_000),
        ("PT30S", 30_000),
        ("P1D", 86_400_000),
        ("P1DT2H3M4S", 93_784_000),
    ],
)
def test_spans_of_time_are_understood(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "5", "m", "-5m", "P", "PT", "P1DT", "PT5", "5M", "1.5h", "PT5M "])
def test_what_is_no_span_of_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        duration_ms(text)
