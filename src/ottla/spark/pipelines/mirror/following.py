"""Translates the offsets of groups from the source to the target, so that consumers can move and miss nothing.

Regularly, each group's committed offsets of mirrored topics are translated (see `translation`) and committed at the
target under the same group name. A group that has members at the target is left alone: the broker itself refuses the
commit. So is a group that has committed anything there by itself, because that is its own progress. Translated offsets
of an idle group are committed again from time to time, and whenever a run begins, because they would expire.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

from ottla.client import offsets
from ottla.client.failure import Failed, Refused
from ottla.client.group_list import list_groups
from ottla.client.groups import Committed, commit, read_offsets
from ottla.errors import ErrorCode
from ottla.spark.groups import PREFIXES
from ottla.spark.pipelines.mirror.mirroring import GROUP, KEPT_S
from ottla.spark.pipelines.mirror.translation import MirrorPosition, translate_commit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.client.cluster import Cluster, TopicPartition

ACTIVE: Final = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
}


class Followed:
    """The last translations, so that an idle group costs one request."""

    def __init__(self, mirror: str, pattern: str) -> None:
        try:
            self._pattern = re.compile(pattern)
        except re.error as error:
            raise Failed(
                f"groups={pattern} is not a regular expression ({error}): use .* for all, or names with |"
            ) from None
        self._mirror = mirror
        self._done: dict[str, tuple[float, dict[TopicPartition, tuple[int, int | None]]]] = {}  # when, and what

    @property
    def groups(self) -> int:
        """How many groups have been translated so far."""
        return len(self._done)

    def follow(
        self,
        source: Cluster,
        target: Cluster,
        positions: Mapping[TopicPartition, tuple[TopicPartition, MirrorPosition]],
    ) -> tuple[int, list[str]]:
        """How many groups were moved or renewed at the target, and the errors.

        Positions: source → (target, position).
        """
        moved, notes = 0, []
        starts = offsets.earliest(target, [to for to, _ in positions.values()])
        for group in self._choose(list_groups(source)):
            try:
                stands = {where: one.offset for where, one in read_offsets(source, group).items() if where in positions}
                moved += bool(stands) and self._move(group, stands, target, positions, starts)
            except Refused as error:
                if error.code not in ACTIVE:
                    notes.append(f"group {group} was not translated: {error}")
        return moved, notes

    def _choose(self, names: Iterable[str]) -> list[str]:
        """Without the groups that only show progress: they mean nothing on another cluster."""
        ours = (GROUP, *PREFIXES)
        return sorted(name for name in names if self._pattern.fullmatch(name) and not name.startswith(ours))

    def _move(
        self,
        group: str,
        stands: Mapping[TopicPartition, int],
        target: Cluster,
        positions: Mapping[TopicPartition, tuple[TopicPartition, MirrorPosition]],
        starts: Mapping[TopicPartition, int],
    ) -> bool:
        # The group has not moved, and its offset is translated as before: no need to ask the target.
        now = {
            where: (offset, positions[where][1].offsets.translate(min(offset, positions[where][1].offset)))
            for where, offset in stands.items()
        }
        at, done = self._done.get(group, (0.0, None))
        if done == now and time.monotonic() - at <= KEPT_S:
            return False
        there = read_offsets(target, group, [positions[where][0] for where in stands])
        changes: dict[TopicPartition, Committed] = {}
        for where, offset in stands.items():
            to, position = positions[where]
            held = there.get(to)
            found = translate_commit(
                position,
                offset,
                mirror=self._mirror,
                there=(held.offset, held.metadata) if held else None,
                start=starts[to],
            )
            if found is not None:
                changes[to] = Committed(found.offset, found.metadata(self._mirror))
        commit(target, group, changes)
        self._done[group] = (time.monotonic(), now)
        return bool(changes)
