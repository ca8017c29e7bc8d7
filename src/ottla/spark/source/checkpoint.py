"""The position of a streaming query, and the JSON form of it that Spark writes into the query's checkpoint.

    {"version": 1, "cluster": "q1Sh-9ZMSZ6dxvYL9JHwSA", "token": "5f1c0f4a9d1e",
     "topics": {"visits": {"id": "0f…", "partitions": {"0": 1200, "1": 1187}, "begun": {"1": 0}}}}

partitions  the next offset to read of each partition.
begun       where the batch that ends here began, if that is not where the batch before it ended: for a partition seen
            for the first time, or one whose records are gone up to there. So the records of a batch depend on the
            checkpoint alone, and a batch that is repeated after a crash reads the same ones. That includes the first
            batch, although `startingOffsets=latest` would by then resolve to another offset.
id          the topic's id. A recreated topic has another one, and its offsets mean other records.
token       a random string, made once for each checkpoint. The query's tasks and its planner find each other by it.

Spark compares offsets as text, so equal positions must give equal text. The checkpoint format of Spark's own Kafka
source, `{"visits": {"0": 1200}}`, can be read too, so a query can move here with its checkpoint. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION: Final = 1
OFFSET_MAX: Final = 2**63 - 1
TOKEN: Final = re.compile(r"[0-9a-f]{0,32}")
FIX: Final = "restore the checkpoint folder from a copy, or start with a new checkpointLocation"


@dataclass(frozen=True)
class Position:
    """The next offset of each partition, and the ids that tie the offsets to the same records later."""

    offsets: Mapping[TopicPartition, int]
    begun: Mapping[TopicPartition, int] = field(default_factory=dict)
    ids: Mapping[str, UUID | None] = field(default_factory=dict)
    cluster: str | None = None
    token: str = ""

    def same_place(self, other: Position) -> bool:
        """Whether there is nothing to read and nothing to store between the two."""
        return (self.offsets, self.ids, self.cluster) == (other.offsets, other.ids, other.cluster)

    def dump(self) -> dict[str, Any]:
        topics: dict[str, Any] = {}
        begun = _by_topic(self.begun)
        for topic, partitions in _by_topic(self.offsets).items():
            known = self.ids.get(topic)
            entry: dict[str, Any] = {"id": str(known)} if known else {}
            entry["partitions"] = partitions
            topics[topic] = entry | ({"begun": begun[topic]} if topic in begun else {})
        cluster = {"cluster": self.cluster} if self.cluster else {}
        return {"version": VERSION, **cluster, "token": self.token, "topics": topics}


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """By topic and partition, in order."""
    found: dict[str, dict[str, int]] = {}
    for where in sorted(offsets):
        found.setdefault(where.topic, {})[str(where.partition)] = offsets[where]
    return found


def load(given: Any) -> Position:
    """The position that `dump` wrote. Raises Failed, in one sentence, for anything else."""
    if not isinstance(given, dict):
        raise _unreadable(f"it is {_abbreviate(given)}, not an object")
    if not isinstance(given.get("version", {}), dict):
        return _load_ours(given)
    return Position(_offsets(given, {name: name for name in given}))


def _load_ours(given: dict[str, Any]) -> Position:
    version, cluster, token = given["version"], given.get("cluster"), given.get("token")
    if version != VERSION or isinstance(version, bool):
        raise Failed(
            f"the offset in the checkpoint has version {_abbreviate(version)}, and this Ottla reads version {VERSION}: "
            "run the Ottla that wrote it, or a newer one, or start with a new checkpointLocation"
        )
    if not isinstance(cluster, str | None):
        raise _unreadable(f"cluster is {_abbreviate(cluster)}, not text")
    if not isinstance(token, str) or not TOKEN.fullmatch(token):
        raise _unreadable(f"token is {_abbreviate(token)}, not hexadecimal digits")
    topics = given.get("topics")
    if not isinstance(topics, dict):
        raise _unreadable(f"topics is {_abbreviate(topics)}, not an object")
    for name, entry in topics.items():
        if not isinstance(entry, dict) or "partitions" not in entry:
            raise _unreadable(f"topics.{name} is {_abbreviate(entry)}, not an object with partitions")
    offsets = _offsets({name: entry["partitions"] for name, entry in topics.items()}, _paths(topics, "partitions"))
    begun = _offsets({name: entry.get("begun", {}) for name, entry in topics.items()}, _paths(topics, "begun"))
    for where, offset in begun.items():
        if where not in offsets or offset > offsets[where]:
            raise _unreadable(f"topics.{where.topic}.begun.{where.partition} is {offset}, behind the next offset")
    ids = {name: _id(name, entry.get("id")) for name, entry in topics.items() if entry["partitions"]}
    return Position(offsets, begun, ids, cluster, token)


def _paths(topics: dict[str, Any], part: str) -> dict[str, str]:
    return {name: f"topics.{name}.{part}" for name in topics}


def _offsets(given: dict[str, Any], paths: dict[str, str]) -> dict[TopicPartition, int]:
    found = {}
    for topic, partitions in given.items():
        if not isinstance(partitions, dict):
            raise _unreadable(f"{paths[topic]} is {_abbreviate(partitions)}, not an object")
        for number, offset in partitions.items():
            if not re.fullmatch(r"0|[1-9][0-9]{0,9}", number):
                raise _unreadable(f"{paths[topic]} has {_abbreviate(number)} where a partition should be")
            if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= OFFSET_MAX:
                raise _unreadable(f"{paths[topic]}.{number} is {_abbreviate(offset)}, not an offset")
            found[TopicPartition(topic, int(number))] = offset
    return found


def _id(topic: str, given: Any) -> UUID | None:
    if given is None:
        return None
    try:
        return UUID(given)
    except (ValueError, AttributeError, TypeError):
        raise _unreadable(f"topics.{topic}.id is {_abbreviate(given)}, not the id of a topic") from None


def _unreadable(why: str) -> Failed:
    return Failed(f"the offset in the checkpoint cannot be read, {why}: {FIX}")


def _abbreviate(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
