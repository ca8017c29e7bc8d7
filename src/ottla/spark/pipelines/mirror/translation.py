"""Translates an offset at the source to the offset at the target where a consumer continues.

A mirror keeps the order of records but not their offsets: compaction, transaction markers and aborted records take
offsets at the source, the markers of the mirror's own transactions take some at the target. So each partition has a map
of runs: records that were copied without a gap on either side:

    Run(source, target, count)     records source … source + count - 1 are records target … target + count - 1

    committed at the source        continues at the target
    inside a run                   at exactly that record
    after a run, before the next   where that run ends: there is no copied record in between, or it is read again
    before the first run           where the first run begins
    beyond what was copied         where the copy ends

The rule: a translated offset is never after a record that the group has not read. In doubt, records are read twice.

The map is the metadata of the position that the mirror commits, in the same transaction. So it needs no separate topic
and is right whenever the position is. Metadata is small (4096 bytes, `offset.metadata.max.bytes`), so the map is
thinned: the newest runs are kept, older ones more and more sparsely, like MirrorMaker's offset syncs. A group in a
dropped run goes back to the end of the run before. The first run stays.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

METADATA_SIZE_MAX: Final = 3900  # below the brokers' default limit, with some reserve
RUNS_MAX: Final = 96
RUNS_RECENT: Final = 16  # none of these is dropped: groups are mostly close to the end
FORMAT: Final = 1
IDS: Final = 2  # how the writer's transactional id was made: before 0.1.0 differently, and not stored


class OffsetRun(NamedTuple):
    source: int
    target: int
    count: int  # type: ignore[assignment]  # a tuple's own count() is of no use here


class OffsetMap:
    def __init__(self, runs: Iterable[OffsetRun] = ()) -> None:
        self._runs = list(runs)

    @property
    def runs(self) -> tuple[OffsetRun, ...]:
        return tuple(self._runs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetMap) and self._runs == other._runs

    __hash__ = None  # type: ignore[assignment]  # it grows

    def add(self, source: int, target: int, count: int) -> None:
        """Records that were copied after all that were added before."""
        if self._runs:
            last = self._runs[-1]
            assert source >= last.source + last.count, f"offset {source} was copied before"
            assert target >= last.target + last.count, f"offset {target} at the target was taken before"
            if source == last.source + last.count and target == last.target + last.count:
                self._runs[-1] = last._replace(count=last.count + count)
                return
        self._runs.append(OffsetRun(source, target, count))
        if len(self._runs) > RUNS_MAX:
            self._thin()

    def translate(self, offset: int) -> int | None:
        """None: nothing has been copied yet, so the target offset is unknown."""
        if not self._runs:
            return None
        index = bisect_right(self._runs, offset, key=lambda run: run.source) - 1
        if index < 0:
            return self._runs[0].target
        run = self._runs[index]
        return run.target + min(offset - run.source, run.count)

    def _thin(self) -> None:
        """Drop the least useful run: an old one whose neighbours are close, relative to its distance."""
        end = self._runs[-1].source + self._runs[-1].count
        candidates = range(1, len(self._runs) - RUNS_RECENT)
        runs = self._runs
        least = min(candidates, key=lambda i: (runs[i + 1].source - runs[i - 1].source) / (end - runs[i].source))
        del runs[least]


class MirrorPosition(NamedTuple):
    """A mirror's position in a partition: committed at the target as metadata of the source offset."""

    offset: int
    cluster: str
    topic_id: str
    offsets: OffsetMap
    older: bool = False  # committed under a transactional id in the form before 0.1.0

    def metadata(self) -> str:
        """Small enough for any broker: numbers relative to the run before, and fewer runs if needed."""
        kept = OffsetMap(self.offsets.runs)
        while True:
            rows, source, target = [], 0, 0
            for run in kept.runs:
                rows.append([run.source - source, run.target - target, run.count])
                source, target = run.source + run.count, run.target + run.count
            document = {"format": FORMAT, "ids": IDS, "cluster": self.cluster, "topic": self.topic_id, "runs": rows}
            text = json.dumps(document, separators=(",", ":"))
            if len(text.encode()) <= METADATA_SIZE_MAX or len(rows) <= RUNS_RECENT + 2:
                return text
            kept._thin()

    @classmethod
    def parse(cls, offset: int, metadata: str) -> MirrorPosition | None:
        """None: no mirror wrote this."""
        try:
            document = json.loads(metadata)
            if document["format"] != FORMAT:
                return None
            runs, source, target = [], 0, 0
            for skipped, beside, count in document["runs"]:
                run = OffsetRun(source + skipped, target + beside, count)
                runs.append(run)
                source, target = run.source + count, run.target + count
            older = document.get("ids") != IDS
            return cls(offset, document["cluster"], document["topic"], OffsetMap(runs), older)
        except (ValueError, KeyError, TypeError):
            return None


class TranslatedCommit(NamedTuple):
    """What a group should have committed for a partition at the target, and the source offset that it stands for."""

    offset: int
    source: int

    def metadata(self, mirror: str) -> str:
        return f"{MARK}{mirror} {self.source}"


MARK: Final = "mirrored by "


def committing_mirror(metadata: str) -> str | None:
    """The mirror that committed this. Its name may have spaces, the offset after it has none."""
    return metadata.removeprefix(MARK).rpartition(" ")[0] if metadata.startswith(MARK) else None


def translate_commit(
    position: MirrorPosition, committed: int, *, mirror: str, there: tuple[int, str] | None, start: int
) -> TranslatedCommit | None:
    """What to commit at the target for a group whose offset is `committed`, now or again; None to leave it alone.

    `there` is what the group has committed at the target, with its metadata. If no mirror wrote it, it is the group's
    own progress there, and must not be touched. `start` is the current log start at the target.
    """
    if there is not None and committing_mirror(there[1]) != mirror:
        return None
    translated = position.offsets.translate(min(committed, position.offset))
    if translated is None:
        return None
    found = TranslatedCommit(max(translated, start), committed)
    if there is not None and there[1] == found.metadata(mirror) and there[0] >= found.offset:
        return TranslatedCommit(there[0], committed)  # it stands for the same offset; the map was finer then
    return found
