"""Resolves the options to partitions and offsets: which partitions to read, from where to where."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ottla.client import offsets
from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed
from ottla.spark.source.parsing import EARLIEST, EARLIEST_OFFSET, LATEST_OFFSET, Bound, Offsets, Time, Times

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from ottla.client.cluster import Cluster, Topic
    from ottla.spark.source.options import SourceOptions


class SelectedPartitions(NamedTuple):
    """The partitions to read, with the ids of their topics (None if the cluster is too old for topic ids)."""

    partitions: list[TopicPartition]
    ids: dict[str, UUID | None]


def select_partitions(cluster: Cluster, options: SourceOptions) -> SelectedPartitions:
    """The partitions that subscribe, subscribePattern or assign select. Raises Failed for those that do not exist.

    As in Spark, a pattern may match anywhere in a name, but never matches Kafka's internal topics. It need not match
    any topic yet."""
    if options.subscribe_pattern is not None:
        found = cluster.topics()
        pattern = re.compile(options.subscribe_pattern)
        names = sorted(name for name, topic in found.items() if pattern.search(name) and not topic.internal)
    elif options.subscribe is not None:
        names = sorted(options.subscribe)
        found = _find_topics(cluster, names)
    else:
        assigned = options.assign or ()
        names = sorted({where.topic for where in assigned})
        found = _find_topics(cluster, names)
        for where in assigned:
            count = found[where.topic].partitions
            if not 0 <= where.partition < count:
                raise Failed(
                    f"topic {where.topic} has partitions 0 to {count - 1}, not {where.partition}: correct assign"
                )
        return SelectedPartitions(list(assigned), {name: found[name].id for name in names})
    return SelectedPartitions(
        [TopicPartition(name, index) for name in names for index in range(found[name].partitions)],
        {name: found[name].id for name in names},
    )


def _find_topics(cluster: Cluster, names: Collection[str]) -> dict[str, Topic]:
    found = cluster.topics(names)
    if missing := [name for name in names if name not in found]:
        what = f"topic {missing[0]} does" if len(missing) == 1 else f"topics {', '.join(missing)} do"
        raise Failed(f"{what} not exist at {cluster.bootstrap}: create what is missing, or correct the name")
    return found


def starts(
    cluster: Cluster, options: SourceOptions, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where to start in each partition, by startingOffsets and the related options."""
    return _resolve(cluster, options.starting, options, partitions, "startingOffsets")


def stops(
    cluster: Cluster, options: SourceOptions, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where a batch ends in each partition, by endingOffsets and the related options."""
    return _resolve(cluster, options.ending, options, partitions, "endingOffsets")


def _resolve(
    cluster: Cluster, bound: Bound, options: SourceOptions, partitions: Collection[TopicPartition], name: str
) -> dict[TopicPartition, int]:
    match bound:
        case Offsets(at):
            _check_named(at, partitions, name)
            found = dict(at)
        case Times(at):
            _check_named(at, partitions, f"{name}ByTimestamp")
            found = _at_times(cluster, at, options, name)
        case Time(ms):
            found = _at_times(cluster, dict.fromkeys(partitions, ms), options, name)
        case _:
            found = dict.fromkeys(partitions, EARLIEST_OFFSET if bound == EARLIEST else LATEST_OFFSET)
    for word, ask in ((EARLIEST_OFFSET, _earliest), (LATEST_OFFSET, _latest)):
        if unknown := [where for where, offset in found.items() if offset == word]:
            found |= ask(cluster, unknown, options)
    return found


def _earliest(
    cluster: Cluster, partitions: Collection[TopicPartition], options: SourceOptions
) -> dict[TopicPartition, int]:
    return offsets.earliest(cluster, partitions)


def _latest(
    cluster: Cluster, partitions: Collection[TopicPartition], options: SourceOptions
) -> dict[TopicPartition, int]:
    return offsets.latest(cluster, partitions, committed=options.committed)


def _at_times(
    cluster: Cluster, at: Mapping[TopicPartition, int], options: SourceOptions, name: str
) -> dict[TopicPartition, int]:
    """The first offset at or after the time. If there is none: the end, or Failed where that would hide a mistake."""
    made = {}
    for where, found in offsets.at_time(cluster, at, committed=options.committed).items():
        if found is None and name == "startingOffsets" and options.starting_strategy == "error":
            raise Failed(
                f"{where.topic} partition {where.partition} has no record at or after timestamp {at[where]}: set an "
                "earlier one, or startingOffsetsByTimestampStrategy to latest"
            )
        made[where] = LATEST_OFFSET if found is None else found[0]
    return made


def _check_named(at: Mapping[TopicPartition, int], partitions: Collection[TopicPartition], name: str) -> None:
    """Every partition must be named, and no others: a forgotten one would silently be read from somewhere else."""
    words = "" if name.endswith("ByTimestamp") else ", with -2 for earliest and -1 for latest"
    for topic, partition in sorted(set(partitions) - at.keys()):
        raise Failed(f"{name} does not name {topic} partition {partition}, which is read: name every partition{words}")
    for topic, partition in sorted(at.keys() - set(partitions)):
        raise Failed(f"{name} names {topic} partition {partition}, which is not read: leave it out")
