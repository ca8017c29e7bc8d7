"""Collectors of groups that this broker coordinates: states, committed offsets and lag."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.coord.groups.classic import ClassicGroup
from ottla.metrics import catalogue
from ottla.metrics.family import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ottla.coord.groups.machine import GroupMachine
    from ottla.metrics.sources import Sources
    from ottla.replica.partition import Partition

    Hosted = Mapping[str, Mapping[int, Partition]]


def groups(sources: Sources) -> Iterator[Sample | None]:
    """Yields None as a pause point."""
    if sources.parts is None:
        return
    hosted: Hosted = dict(sources.parts.replicas.topics())
    states: Counter[str] = Counter()
    left, left_out = sources.config.ottla_metrics_groups_max, 0
    for _, machine in list(sources.parts.groups.runtime.machines()):
        for group in list(machine.groups.values()):
            states[group.phase] += 1
            count = sum(map(len, machine.offsets.by_group.get(group.id, {}).values()))
            if left < max(1, count):  # a group is shown completely or not at all
                left_out += max(1, count)
                yield None
                continue
            left -= max(1, count)
            members = group.roster.members if isinstance(group, ClassicGroup) else group.members
            yield Sample(catalogue.GROUP_MEMBERS, (group.id,), len(members))
            yield from offsets(machine, group.id, hosted)
    for state, number in states.items():
        yield Sample(catalogue.GROUP_COUNT, (state,), number)
    yield Sample(catalogue.LEFT_OUT, ("groups",), left_out)


def offsets(machine: GroupMachine, group: str, hosted: Hosted) -> Iterator[Sample]:
    committed = [
        (topic, index, one.offset)
        for topic, partitions in machine.offsets.by_group.get(group, {}).items()
        for index, one in partitions.items()
    ]
    for topic, index, offset in committed:
        labels = group, topic, str(index)
        yield Sample(catalogue.GROUP_COMMITTED, labels, offset)
        partition = hosted.get(topic, {}).get(index)
        if partition is not None and partition.led:
            yield Sample(catalogue.GROUP_LAG, labels, max(0, partition.high - max(offset, partition.log.start)))
