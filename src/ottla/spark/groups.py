"""Consumer groups to which jobs commit their progress, so that lag can be monitored. A group is checked before its
first commit.

Others may use a group of that name, and commits would move their consumers. Ottla recognises its own groups by the
metadata of their offsets, a JSON object with the keys below. `check` refuses all others.

    query     ottla-spark-<name>       {"query", "run", "batch", ...}     source/progress.py
    mirror    ottla-mirrored-<name>    {"mirror"}                         at the source; its positions are at the target
    export    ottla-export-<name>      {"export"}
    letters   ottla-letters-<table>    {"letters", "topic"}               export/letters.py; decides, not only shows

No name of one kind can be a name of another kind, whatever follows the prefix.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from ottla.client.failure import Failed
from ottla.client.groups import Committed, commit, membership, read_offsets

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ottla.client.cluster import Cluster, TopicPartition

QUERY: Final = "ottla-spark-"
MIRROR: Final = "ottla-mirrored-"
EXPORT: Final = "ottla-export-"
LETTERS: Final = "ottla-letters-"
PREFIXES: Final = (QUERY, MIRROR, EXPORT, LETTERS)  # their commits mean nothing on another cluster
SHOWN_MAX: Final = 60  # characters of foreign metadata in a message


class Foreign(Failed):
    """The group belongs to somebody else."""


def check(cluster: Cluster, group: str, keys: Collection[str]) -> None:
    """Raise Foreign, unless the group does not exist or its offsets were written with these keys."""
    fix = "give another name for the group, or delete this one if nobody needs it"
    who = membership(cluster, group)
    if who.members:
        raise Foreign(f"{who.members} consumers use this group, {group}: {fix}")
    offsets = read_offsets(cluster, group, stable=False)
    if not offsets and who.kind:
        raise Foreign(f"group {group} belongs to consumers ({who.kind}) that are not running: {fix}")
    for where, found in sorted(offsets.items()):
        if not is_ours(found.metadata, keys):
            text = found.metadata if len(found.metadata) <= SHOWN_MAX else f"{found.metadata[:SHOWN_MAX]}..."
            raise Foreign(
                f"group {group} belongs to somebody else: it is at offset {found.offset} of {where.topic} partition "
                f"{where.partition} with metadata {text!r}, which is not Ottla's; {fix}"
            )


def is_ours(metadata: str, keys: Collection[str]) -> bool:
    try:
        found: Any = json.loads(metadata)
    except ValueError:
        return False
    return isinstance(found, dict) and found.keys() <= set(keys)


class Shown:
    """The group that shows the progress of one job. Its owner is checked once."""

    def __init__(self, prefix: str, kind: str, name: str) -> None:
        self.group = f"{prefix}{name}"
        self._metadata = json.dumps({kind: name}, separators=(",", ":"))
        self._keys = {kind}
        self._ours: bool | None = None

    def tell(self, cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit these offsets, or raise Failed. Foreign is raised once; later calls do nothing."""
        if self._ours is None:
            try:
                check(cluster, self.group, self._keys)
            except Foreign:
                self._ours = False
                raise
            self._ours = True
        if not self._ours:
            return
        commit(cluster, self.group, {where: Committed(offset, self._metadata) for where, offset in offsets.items()})
