"""The versions of a follower's requests, by `inter.broker.protocol.version`, without asking leaders for theirs."""

from __future__ import annotations

from typing import NamedTuple

NAMED = 12  # the last version of Fetch with topic names; later ones use topic ids
TELLS_DIVERGING = 12  # the first whose responses report a diverging epoch


class FollowerVersions(NamedTuple):
    fetch: int
    offset_for_leader_epoch: int
    list_offsets: int


# By the first Kafka release that supports them, newest first.
RELEASES: tuple[tuple[tuple[int, ...], FollowerVersions], ...] = (
    ((3, 9), FollowerVersions(17, 4, 9)),
    ((3, 7), FollowerVersions(16, 4, 8)),
    ((3, 5), FollowerVersions(15, 4, 8)),
    ((3, 1), FollowerVersions(13, 4, 7)),
    ((3, 0), FollowerVersions(12, 4, 7)),
    ((2, 8), FollowerVersions(12, 4, 6)),
    ((2, 7), FollowerVersions(12, 3, 5)),
    ((2, 3), FollowerVersions(11, 3, 5)),
    ((2, 2), FollowerVersions(10, 2, 5)),
    ((2, 1), FollowerVersions(10, 2, 4)),
    ((2, 0), FollowerVersions(8, 1, 3)),
    ((1, 1), FollowerVersions(7, 0, 2)),
    ((0, 11), FollowerVersions(5, 0, 2)),
    ((0,), FollowerVersions(5, 0, 1)),  # the current record format needs version 4 of Fetch
)


def versions_of(release: str) -> FollowerVersions:
    """For a release such as 2.3 or 3.9-IV0; the newest if `release` is not one."""
    try:
        number = tuple(int(part) for part in release.partition("-")[0].split("."))
    except ValueError:
        return RELEASES[0][1]
    return next((versions for first, versions in RELEASES if number >= first), RELEASES[-1][1])
