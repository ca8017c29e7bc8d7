"""Which request versions a follower uses for a release of the inter-broker protocol."""

from __future__ import annotations

import pytest

from ottla.replica.releases import RELEASES, versions_of


@pytest.mark.parametrize(
    ("release", "versions"),
    [
        ("3.9", (17, 4, 9)),
        ("3.9-IV0", (17, 4, 9)),
        ("3.9.1", (17, 4, 9)),
        ("3.8", (16, 4, 8)),
        ("2.10", (12, 4, 6)),
        ("2.0", (8, 1, 3)),
        ("0.11.0", (5, 0, 2)),
        ("0.10.2", (5, 0, 1)),
        ("next", (17, 4, 9)),
        ("", (17, 4, 9)),
    ],
)
def test_versions_of_a_release(release: str, versions: tuple[int, int, int]) -> None:
    assert versions_of(release) == versions


def test_versions_only_grow_with_the_release() -> None:
    assert [first for first, _ in RELEASES] == sorted((first for first, _ in RELEASES), reverse=True)
    for column in range(3):
        numbers = [versions[column] for _, versions in RELEASES]
        assert numbers == sorted(numbers, reverse=True)
