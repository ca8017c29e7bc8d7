"""Committed offsets of groups: the last one of each partition, and those of open transactions.

Offsets of a transaction are pending until its marker is in the log. Then the record with the highest offset wins,
whether it belongs to a transaction or not; compaction relies on that. `offset_records.py` has the records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.coord.machine import NOBODY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.coord.formats import OffsetCommitKey, OffsetCommitValue

NO_EXPIRY = -1


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    time_ms: int
    expires_ms: int  # NO_EXPIRY: the group's retention applies
    topic_id: bytes
    at: int  # offset of the record


Topics = dict[str, dict[int, CommittedOffset]]  # topic → partition → what was committed


class Offsets:
    def __init__(self) -> None:
        self.by_group: dict[str, Topics] = {}
        self.pending: dict[int, dict[str, Topics]] = {}  # producer id → group → ...
        self.open: dict[str, set[int]] = {}  # group → producers with an open transaction that commits offsets of it
        self._groups: dict[str, set[str]] = {}  # topic → groups with committed or pending offsets of it

    def get(self, group: str, topic: str, index: int) -> CommittedOffset | None:
        topics = self.by_group.get(group)
        partitions = topics.get(topic) if topics is not None else None
        return partitions.get(index) if partitions is not None else None

    def unstable(self, group: str, topic: str, index: int) -> bool:
        """Whether an open transaction has a pending offset for this partition."""
        return any(index in self.pending[producer][group].get(topic, ()) for producer in self.open.get(group, ()))

    def partitions(self, group: str) -> Iterator[tuple[str, int]]:
        """The partitions with committed or pending offsets of the group."""
        found = {(topic, index) for topic, part in self.by_group.get(group, {}).items() for index in part}
        for producer in self.open.get(group, ()):
            found |= {(topic, index) for topic, part in self.pending[producer][group].items() for index in part}
        return iter(sorted(found))

    def of_topic(self, topic: str, before: int) -> Iterator[tuple[str, int]]:
        """Groups and partitions of a topic with a committed or pending offset whose record lies before `before`."""
        for group in tuple(self._groups.get(topic, ())):
            kept = self.by_group.get(group, {}).get(topic, {})
            found = {index for index, one in kept.items() if one.at < before}
            for producer in self.open.get(group, ()):
                coming = self.pending[producer][group].get(topic, {})
                found.update(index for index, one in coming.items() if one.at < before and index not in kept)
            yield from ((group, index) for index in sorted(found))

    # The only mutators, both live and during a load.

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None, at: int, producer_id: int) -> None:
        group, topic, index = key.group, key.topic, key.partition
        if value is None:
            self._remove(group, topic, index)
            return
        one = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            at,
        )
        self.put(group, topic, index, one, producer_id)

    def put(self, group: str, topic: str, index: int, one: CommittedOffset, producer_id: int) -> None:
        if producer_id == NOBODY:
            topics = self.by_group.get(group)
            if topics is not None and topic in topics:  # nearly always
                topics[topic][index] = one
                return
            topics = self.by_group.setdefault(group, {})
        else:
            topics = self.pending.setdefault(producer_id, {}).setdefault(group, {})
            self.open.setdefault(group, set()).add(producer_id)
        topics.setdefault(topic, {})[index] = one
        self._groups.setdefault(topic, set()).add(group)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        for group, topics in self.pending.pop(producer_id, {}).items():
            producers = self.open[group]
            producers.remove(producer_id)
            if not producers:
                del self.open[group]
            if committed:
                for topic, partitions in topics.items():
                    for index, one in partitions.items():
                        present = self.get(group, topic, index)
                        if present is None or one.at > present.at:
                            self.by_group.setdefault(group, {}).setdefault(topic, {})[index] = one
            for topic in topics:
                self._forget_group(group, topic)

    def _remove(self, group: str, topic: str, index: int) -> None:
        _discard(self.by_group.get(group, {}), topic, index)
        if group in self.by_group and not self.by_group[group]:
            del self.by_group[group]
        # The transaction stays open for the group until its marker is applied.
        for producer in self.open.get(group, ()):
            _discard(self.pending[producer][group], topic, index)
        self._forget_group(group, topic)

    def _forget_group(self, group: str, topic: str) -> None:
        """Forget that a group has offsets of a topic, unless it still has committed or pending ones."""
        left = topic in self.by_group.get(group, {})
        if not left and not any(topic in self.pending[producer][group] for producer in self.open.get(group, ())):
            groups = self._groups.get(topic, set())
            groups.discard(group)
            if not groups:
                self._groups.pop(topic, None)


def _discard(topics: Topics, topic: str, index: int) -> None:
    partitions = topics.get(topic)
    if partitions is not None:
        partitions.pop(index, None)
        if not partitions:
            del topics[topic]
