"""Groups copied to the target: when offsets are committed again there, and when no request is sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.client.cluster import TopicPartition
from ottla.client.groups import Committed
from ottla.spark.pipelines.mirror import following
from ottla.spark.pipelines.mirror.following import Followed
from ottla.spark.pipelines.mirror.mirroring import KEPT_S
from ottla.spark.pipelines.mirror.translation import MirrorPosition, OffsetMap, OffsetRun

if TYPE_CHECKING:
    from collections.abc import Mapping

WHERE = TopicPartition("t", 0)
TO = TopicPartition("west.t", 0)
POSITIONS = {WHERE: (TO, MirrorPosition(200, "c", "id", OffsetMap([OffsetRun(100, 0, 100)])))}


class Target:
    """The committed offsets of one group; nothing else of a cluster is needed."""

    def __init__(self) -> None:
        self.held: dict[TopicPartition, Committed] = {}
        self.commits = 0
        self.looks = 0

    def committed(self) -> dict[TopicPartition, Committed]:
        self.looks += 1
        return dict(self.held)

    def commit(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        self.held |= offsets
        self.commits += bool(offsets)


class World:
    """A group at the source, a target, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stands, self.now, self.target = 150, 0.0, Target()
        monkeypatch.setattr(following, "list_groups", lambda source: ["readers", "ottla-mirror-eu", "ottla-spark-q"])
        monkeypatch.setattr(following, "read_offsets", self._committed)
        monkeypatch.setattr(following, "commit", lambda cluster, group, offsets: cluster.commit(offsets))
        monkeypatch.setattr(following.offsets, "earliest", lambda cluster, wheres: dict.fromkeys(wheres, 0))
        monkeypatch.setattr(following, "time", SimpleNamespace(monotonic=lambda: self.now))

    def _committed(self, cluster: Any, group: str, wheres: object = None) -> dict[TopicPartition, Committed]:
        return cluster.committed() if cluster is self.target else {WHERE: Committed(self.stands)}

    def follow(self, followed: Followed) -> int:
        moved, notes = followed.follow(object(), self.target, POSITIONS)  # type: ignore[arg-type]
        assert notes == []
        return moved


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_group_that_stands_still_is_renewed_before_it_expires(world: World) -> None:
    followed = Followed("mirror", ".*")
    assert world.follow(followed) == 1
    first = world.target.held[TO]
    assert first.offset == 50
    world.now = KEPT_S
    assert world.follow(followed) == 0
    assert (world.target.looks, world.target.commits) == (1, 1), "nothing is asked while it is fresh"
    world.now = KEPT_S + 1
    assert world.follow(followed) == 1
    assert world.target.commits == 2
    assert world.target.held[TO] == first
    assert world.follow(followed) == 0, "and it is fresh again"


def test_a_run_that_begins_renews_what_the_one_before_has_committed(world: World) -> None:
    assert world.follow(Followed("mirror", ".*")) == 1
    assert world.follow(Followed("mirror", ".*")) == 1
    assert world.target.commits == 2


def test_a_group_that_goes_on_is_moved_at_once(world: World) -> None:
    followed = Followed("mirror", ".*")
    world.follow(followed)
    world.stands = 160
    assert world.follow(followed) == 1
    assert world.target.held[TO].offset == 60


def test_what_a_group_committed_at_the_target_itself_is_not_renewed(world: World) -> None:
    followed = Followed("mirror", ".*")
    world.follow(followed)
    world.target.held[TO] = Committed(70)
    world.now = KEPT_S + 1
    assert world.follow(followed) == 0
    assert world.target.held[TO] == Committed(70)
