"""Where the topics of a cluster were copied from: one record for each mirrored topic, kept in the cluster itself.

Records are copied unchanged, so they do not show that they are copies. A mirror from A to B and one from B to A would
send each other the same records for ever. So a mirror writes, at its target, before it copies:

    topic `ottla-mirrors`, compacted, one partition
    key      the name of the topic at this cluster
    value    {"mirror": name, "topic": its name at the source, "path": [cluster ids, the first origin first],
              "ends": {partition: where it ended before the mirror touched it}}

A topic may be copied to a cluster unless that cluster is on its path. Longer loops (A to B to C to A) are found in the
same way. Two mirrors that begin at the same moment both write first and look afterwards, so that at least one of them
sees the other, and removes what it wrote. A null value forgets a topic: that is how the direction of a mirror is
reversed.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ottla.client import offsets
from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed
from ottla.client.fetching import fetch
from ottla.client.producing import Sender
from ottla.records.native import decode_columns, encode_columns
from ottla.spark.selection import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.client.cluster import Cluster

WHERE: Final = TopicPartition(REGISTRY, 0)
SIZE_MAX: Final = 64 << 20


@dataclass(frozen=True)
class Provenance:
    mirror: str
    topic: str
    path: tuple[str, ...]  # ids of the clusters it was at before this one
    ends: Mapping[int, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        ends = {str(index): end for index, end in self.ends.items()}
        document = {"mirror": self.mirror, "topic": self.topic, "path": list(self.path), "ends": ends}
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def parse(cls, text: bytes) -> Provenance:
        try:
            found = json.loads(text)
            ends = {int(index): end for index, end in found["ends"].items()}
            return cls(found["mirror"], found["topic"], tuple(found["path"]), ends)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Failed(f"topic {REGISTRY} has a record that no mirror wrote: remove it, or that topic") from None


class MirrorRegistry:
    """The records of one cluster, read incrementally."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._next = 0
        self._found: dict[str, Provenance] = {}

    def look(self) -> dict[str, Provenance]:
        """Topic → where it came from, as of now."""
        if REGISTRY not in self._cluster.topics([REGISTRY]):
            self._next, self._found = 0, {}
            return {}
        stop = offsets.latest(self._cluster, [WHERE])[WHERE]
        if stop < self._next:
            self._next, self._found = 0, {}
        start = max(self._next, offsets.earliest(self._cluster, [WHERE])[WHERE])
        for piece in fetch(self._cluster, WHERE, start=start, stop=stop):
            columns = decode_columns(
                piece.data, start=piece.start, stop=stop, headers=False, aborted=None, size_max=SIZE_MAX
            )
            for row in columns.batch.select(["key", "value"]).to_pylist():
                name = (row["key"] or b"").decode(errors="replace")
                if row["value"] is None:
                    self._found.pop(name, None)
                else:
                    self._found[name] = Provenance.parse(row["value"])
        self._next = max(start, stop)
        return dict(self._found)

    def write(self, records: Mapping[str, Provenance | None]) -> None:
        """Record where topics come from, or None for those that are not copies. Acknowledged when this returns."""
        if not records:
            return
        self._cluster.create(REGISTRY, 1, configs={"cleanup.policy": "compact"})
        batches = encode_columns(
            pa.array([name.encode() for name in records]),
            pa.array([one and one.encode() for one in records.values()], pa.binary()),
            None,
            None,
            None,
            partition_count=1,
            codec=0,
            level=None,
            batch_bytes=1 << 19,
            now_ms=int(time.time() * 1000),
        )  # without a producer id: duplicates do not matter in a compacted topic
        with Sender(self._cluster) as sender:
            sender.send(WHERE, batches[0])
            sender.flush()


def refusal(topic: str, target: str, *, mirror: str, path: tuple[str, ...], here: Provenance | None) -> str | None:
    """Why the topic must not be copied to the cluster `target`, in a sentence, or None.

    `path` is where its records have been, the source last; `here` is the target's record of the topic there.
    """
    if target in path:
        return (
            f"topic {topic} comes from cluster {target} and would be copied back there for ever: exclude it from "
            "topics, or mirror it in one direction only"
        )
    if here is not None and (here.mirror != mirror or here.path[-1:] != path[-1:]):
        return (
            f"topic {topic} at the target is already filled by mirror {here.mirror} from cluster {here.path[-1]}: "
            "choose another prefix for this one"
        )
    return None
