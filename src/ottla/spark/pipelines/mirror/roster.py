"""Which topics a mirror copies, and their copies (twins) at the target, which are created, extended and registered
first.

A topic selected by name that does not exist, or that may not be copied, is an error. A pattern copies what it matches,
except what may not be copied, which is logged once.

A twin has as many partitions as the original, and its retention and size configs. Three are set differently: timestamps
are those of the records, codecs those of the batches, and no timestamp is too far ahead, because the source has already
accepted it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.client import offsets
from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed, Refused, check
from ottla.errors import ErrorCode
from ottla.spark.pipelines.mirror.provenance import MirrorRegistry, Provenance, refusal
from ottla.wire.messages.topics import CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.client.cluster import Cluster, Topic
    from ottla.spark.selection import TopicSelection

COPIED: Final = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "min.cleanable.dirty.ratio",
    "segment.bytes",
    "segment.ms",
    "max.message.bytes",
)
SIZE: Final = "max.message.bytes"
TIMES: Final = "message.timestamp.type"
FIXED: Final = {TIMES: "CreateTime", "compression.type": "producer"}
AHEAD: Final = "message.timestamp.after.max.ms"  # brokers before 3.6 do not know it, and have no such limit
UNLIMITED: Final = "9223372036854775807"


@dataclass(frozen=True)
class Mirrored:
    """A topic and its twin."""

    name: str
    twin: str
    topic_id: str
    partitions: int
    provenance: Provenance
    size_max: int


class Roster:
    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        selection: TopicSelection,
        *,
        mirror: str,
        replicas: int = -1,
        append: bool = False,
    ) -> None:
        self._source = source
        self._target = target
        self._selection = selection
        self._mirror = mirror
        self._replicas = replicas
        self._append = append
        self._there = MirrorRegistry(source)
        self._here = MirrorRegistry(target)
        self._known: dict[str, Mirrored] = {}
        self._said: set[str] = set()
        if not source.id or not target.id:
            raise Failed("a cluster does not report its id, so a loop could not be noticed: Kafka 0.11 and later do")
        if source.id == target.id:
            raise Failed(
                f"source and target are the same cluster ({source.id}): topics would be copied onto themselves for "
                "ever; give the address of another cluster in `to`"
            )
        self._source_id, self._target_id = source.id, target.id

    def refresh(self) -> tuple[list[Mirrored], list[str]]:
        """The current topics to copy, with their twins in place, and notes about others."""
        topics = self._source.topics()
        for name in self._selection.names:
            if name not in topics:
                raise Failed(f"topic {name} does not exist at the source: create it, or name a pattern that may match")
        chosen = self._selection.choose(topics)
        twins = self._target.topics()
        changed = [name for name in chosen if self._has_changed(topics[name], twins)]
        written = self._write(changed, twins)
        came_from = self._there.look()  # after our own write: of two mirrors that begin at once, one sees the other
        there, notes = self._here.look(), []
        for name, named in chosen.items():
            twin = self._selection.prefix + name
            path = (*_path(came_from, name), self._source_id)
            reason = refusal(name, self._target_id, mirror=self._mirror, path=path, here=there.get(twin))
            if reason is not None:
                self._known.pop(name, None)
                if twin in written:
                    self._here.write({twin: None})
                if named:
                    raise Failed(reason)
                if reason not in self._said:
                    self._said.add(reason)
                    notes.append(reason)
            elif name in changed:
                self._known[name] = self._place(topics[name], twins.get(twin), there[twin])
        for name in self._known.keys() - chosen.keys():
            del self._known[name]  # deleted at the source; the twin stays
        return [self._known[name] for name in sorted(self._known)], notes

    def _has_changed(self, topic: Topic, twins: Mapping[str, Topic]) -> bool:
        known = self._known.get(topic.name)
        if known is None or known.twin not in twins:
            return True
        return known.topic_id != str(topic.id) or known.partitions != topic.partitions

    def _write(self, names: list[str], twins: Mapping[str, Topic]) -> set[str]:
        """Register topics that are not registered. What may not be copied is left to `refresh` to refuse."""
        there, here = self._there.look(), self._here.look()
        new: dict[str, Provenance | None] = {}
        for name in names:
            twin = self._selection.prefix + name
            path = (*_path(there, name), self._source_id)
            known = here.get(twin)
            if refusal(name, self._target_id, mirror=self._mirror, path=path, here=known) is not None:
                continue
            if known is None or known.path != path:
                ends = known.ends if known else self._ends(twins.get(twin))
                new[twin] = Provenance(self._mirror, name, path, ends)
        self._here.write(new)
        return set(new)

    def _ends(self, twin: Topic | None) -> dict[int, int]:
        """The ends of an existing twin. Records that are not ours are an error unless they may stay."""
        if twin is None:
            return {}
        wheres = [TopicPartition(twin.name, index) for index in range(twin.partitions)]
        ends = offsets.latest(self._target, wheres)
        if any(ends.values()) and not self._append:
            raise Failed(
                f"topic {twin.name} at the target has records that no mirror wrote: choose a prefix, or set "
                "existing=append (`ottla mirror --append`) to copy after them"
            )
        return {where.partition: end for where, end in ends.items()}

    def _place(self, topic: Topic, twin: Topic | None, provenance: Provenance) -> Mirrored:
        name = self._selection.prefix + topic.name
        if twin is None:
            self._create(topic, name)
        elif twin.partitions < topic.partitions:
            self._grow(name, topic.partitions)
        elif twin.partitions > topic.partitions and topic.name not in self._known:
            raise Failed(
                f"topic {name} has {twin.partitions} partitions at the target and {topic.partitions} at the source: "
                "records would not stay with their keys; delete it there, or choose another prefix"
            )
        configs = self._target.configs(name)
        if configs.get(TIMES) == "LogAppendTime":
            raise Failed(
                f"topic {name} at the target has {TIMES}=LogAppendTime, so records would lose their timestamps: "
                "set it to CreateTime there"
            )
        size_max = int(configs.get(SIZE, "1048588"))
        return Mirrored(topic.name, name, str(topic.id), topic.partitions, provenance, size_max)

    def _create(self, topic: Topic, name: str) -> None:
        given = self._source.configs(topic.name)
        configs = {option: given[option] for option in COPIED if option in given} | FIXED
        newer = {AHEAD: UNLIMITED} if AHEAD in given else {}
        try:
            self._target.create(name, topic.partitions, replicas=self._replicas, configs=configs | newer)
        except Refused as error:
            if error.code != ErrorCode.INVALID_CONFIG or not newer:
                raise
            self._target.create(name, topic.partitions, replicas=self._replicas, configs=configs)

    def _grow(self, name: str, partitions: int) -> None:
        wanted = CreatePartitionsTopic(name=name, count=partitions, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=30_000, validate_only=False)
        what = f"adding partitions to {name} at the target"

        def attempt() -> None:
            code = int(ErrorCode.NOT_CONTROLLER)
            for broker in self._target.brokers().values():
                (answer,) = broker.ask(request, CreatePartitionsResponse).results
                code = answer.error_code
                if code != ErrorCode.NOT_CONTROLLER:
                    break
            grown = code == ErrorCode.INVALID_PARTITIONS and self._target.topics([name])[name].partitions >= partitions
            if not grown:
                check(what, code)

        self._target.retrying(attempt, what=what)


def _path(registry: Mapping[str, Provenance], name: str) -> tuple[str, ...]:
    found = registry.get(name)
    return found.path if found else ()
