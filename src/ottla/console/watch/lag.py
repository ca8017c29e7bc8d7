"""The lag of groups, in records and in seconds. No side effects.

records   end - committed; from the start of the log for a partition that the group reads but has not committed.
seconds   age of the first unconsumed record; 0 if there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.cluster import TopicPartition
from ottla.console.watch.snapshot import Lag

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.console.watch.asking import GroupFacts
    from ottla.console.watch.snapshot import Topic


def places(facts: GroupFacts, topics: Mapping[str, Topic]) -> list[TopicPartition]:
    """The partitions that a group reads: those assigned, and all partitions of topics it has committed for."""
    names = {where.topic for where in facts.commits or ()}
    names |= {where.topic for member in facts.members for where in member.partitions}
    found = []
    for name in sorted(names):
        topic = topics.get(name)
        if topic is not None:
            found += [TopicPartition(name, one.number) for one in topic.partitions]
    return found


def lags(
    facts: GroupFacts, topics: Mapping[str, Topic], age: Callable[[TopicPartition, int], float | None]
) -> tuple[Lag, ...]:
    owners = {where: member.client or member.id for member in facts.members for where in member.partitions}
    commits = facts.commits or {}
    found = []
    for where in places(facts, topics):
        part = topics[where.topic].partitions[where.partition]
        commit = commits.get(where)
        first = commit.offset if commit is not None else part.start
        records = None if part.end < 0 or first < 0 else max(0, part.end - max(first, part.start))
        seconds = None if records is None else 0.0 if records == 0 else age(where, max(first, part.start))
        found.append(
            Lag(
                where,
                commit.offset if commit else None,
                part.start,
                part.end,
                records,
                seconds,
                owners.get(where, ""),
                commit.metadata if commit else "",
            )
        )
    return tuple(found)
