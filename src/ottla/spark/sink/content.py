"""What an epoch has written, as stored in its decision, and whether a repetition would write the same.

An epoch that is decided is not written again. That is right if it is the same epoch. It loses rows if the epoch's
number was reused for other input: a checkpoint was restored from a backup, its last files were removed, it was copied
for another query, or one `ottla.write.id` is used for two topics. So a task or driver that finds an epoch decided
computes what it would write, and compares:

    topics     must be the same, if there are rows
    plan       the file that Spark wrote for the batch before it ran (offsets/N of the checkpoint): the same file is the
               same batch, even if its rows come out differently this time, as with rand() in the query
    digest     otherwise the rows must be the same, in any order and split into any tasks: see `ottla.records.digest`

Pure, except `BatchPlan.read`.
"""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.client.failure import Failed
from ottla.spark.source.checkpoint import load as position

log = logging.getLogger(__name__)

FILE: Final = "file:"
ENDS_MAX: Final = 4096  # characters of offsets in a decision: longer ones are useless in a message
SHOWN: Final = 5  # topics in a message


class BatchPlan(NamedTuple):
    """A batch as Spark planned it."""

    digest: str
    ends: str  # where each of its sources ends; empty if that is too long

    @classmethod
    def read(cls, checkpoint: str | None, epoch: int) -> BatchPlan | None:
        """From the checkpoint of a query; None if that is not on this machine's file system."""
        if checkpoint is None:
            return None
        folder = checkpoint.removeprefix(FILE)
        if folder.startswith("//"):
            folder = "/" + folder.lstrip("/")
        try:
            data = (Path(folder) / "offsets" / str(epoch)).read_bytes()
        except (OSError, ValueError):
            return None
        return cls(hashlib.sha256(data).hexdigest()[:32], ends(data))


def ends(data: bytes) -> str:
    """The offsets in one of Spark's offset files: after the version and one line about the batch, one line for each
    source."""
    found = [format_offset(line) for line in data.decode(errors="replace").splitlines()[2:]]
    told = " and ".join(found)
    return told if len(told) <= ENDS_MAX else ""


def format_offset(line: str) -> str:
    """Ottla's own offsets in the form of `startingOffsets`, others as they are."""
    try:
        given = json.loads(line)
        offsets = position(given).offsets
    except (ValueError, Failed):
        return line
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(topics)


class EpochContent(NamedTuple):
    """What all tasks of an epoch have written together."""

    rows: int
    digest: int
    topics: tuple[str, ...]
    plan: BatchPlan | None = None


def load(given: dict[str, Any]) -> EpochContent:
    """The content from its JSON form."""
    plan = given["plan"]
    return EpochContent(
        given["rows"], given["digest"], tuple(given["topics"]), BatchPlan(*plan) if plan is not None else None
    )


def compare(query: str, epoch: int, there: EpochContent, now: EpochContent) -> None:
    """Raise Failed if an epoch that is already in its topics would have other content now."""
    if there.topics and now.topics and there.topics != now.topics:
        raise Failed(
            f"batch {epoch} of query {query} is already in {join_names(there.topics)}, but would now be written to "
            f"{join_names(now.topics)}: nothing was written. A query whose checkpoint is a copy of another one's needs "
            "its own checkpoint; writes to different topics need one ottla.write.id each; a topic can be changed "
            f"once the previous batch is done: {going_on(epoch)}"
        )
    if there.plan is not None and there.plan == now.plan:
        if (there.rows, there.digest) != (now.rows, now.digest):
            log.warning(
                "batch %s of query %s is already in its topic, and came out with other rows when it was repeated: "
                "the rows in the topic stay",
                epoch,
                query,
            )
        return
    if (there.rows, there.digest) == (now.rows, now.digest):
        return
    begin = f", for which startingOffsets is {there.plan.ends}" if there.plan is not None and there.plan.ends else ""
    raise Failed(
        f"batch {epoch} of query {query} is already in {join_names(there.topics)} with {there.rows} rows, and now has "
        f"{now.rows}{' others' if there.rows == now.rows else ''}: nothing was written. Its number was reused for "
        "other input, as when a checkpoint is an old copy, or files were removed from it: continue with the newest "
        f"checkpoint, or start with a new one where that batch ended{begin}. If the input is the same and only the "
        f"rows come out differently each time: {going_on(epoch)}"
    )


def going_on(epoch: int) -> str:
    return f"to keep the rows in the topic and skip the new ones, set ottla.kept.batch={epoch}"


def join_names(topics: tuple[str, ...]) -> str:
    """Names for a message."""
    if not topics:
        return "no topic"
    more = f" and {len(topics) - SHOWN} more" if len(topics) > SHOWN else ""
    return f"topic{'s' if len(topics) > 1 else ''} {', '.join(topics[:SHOWN])}{more}"
