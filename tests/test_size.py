"""Sizes in text, as the tools and the console show and take them."""

import pytest

from ottla.size import format_size, parse_size


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        ((100 << 10) - 10, "100 KiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (1024, "1.0 KiB"),
        (100 << 10, "100 KiB"),
        (1536 << 10, "1.5 MiB"),
        (1 << 30, "1.0 GiB"),
        (5000 << 40, "5,000 TiB"),
        (-2048, "-2.0 KiB"),
    ],
)
def test_sizes_are_powers_of_1024(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("text", "size"), [("7", 7), ("500kB", 500_000), ("1.5 KiB", 1536), ("10MB/s", 10_000_000), ("1gib", 1 << 30)]
)
def test_both_kinds_of_units_are_taken(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1", "1 XB", "1e3"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="such as 500kB"):
        parse_size(text)
