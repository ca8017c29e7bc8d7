"""Collectors of partitions: counts by state, and the metrics of each partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.metrics import catalogue
from ottla.metrics.family import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.metrics.sources import Sources
    from ottla.replica.partition import Partition


class Health:
    """Counts the partitions of a broker by state."""

    def __init__(self) -> None:
        self.partitions = 0
        self.leaders = 0
        self.under_replicated = 0
        self.under_min = 0
        self.at_min = 0
        self.waiting = 0

    def add(self, one: Partition) -> None:
        self.partitions += 1
        self.waiting += one.waiting
        if not one.led:
            return
        self.leaders += 1
        followers = one.followers
        replicas = in_sync = 1
        if followers is not None:
            replicas, in_sync = len(followers.followers) + 1, len(followers.isr)
        least = min(one.log.config.min_insync_replicas, replicas)
        self.under_replicated += in_sync < replicas
        self.under_min += in_sync < least
        self.at_min += in_sync == least

    def samples(self) -> Iterator[Sample]:
        yield Sample(catalogue.PARTITION_COUNT, (), self.partitions)
        yield Sample(catalogue.LEADER_COUNT, (), self.leaders)
        yield Sample(catalogue.UNDER_REPLICATED, (), self.under_replicated)
        yield Sample(catalogue.UNDER_MIN_ISR, (), self.under_min)
        yield Sample(catalogue.AT_MIN_ISR, (), self.at_min)
        yield Sample(catalogue.WAITING_PRODUCES, (), self.waiting)


def partitions(sources: Sources) -> Iterator[Sample]:
    if sources.parts is None:
        return
    replicas, health = sources.parts.replicas, Health()
    shown = sources.config.ottla_metrics_partitions_max
    for at, one in enumerate(list(replicas)):
        health.add(one)
        if at < shown:
            yield from details(one)
    yield from health.samples()
    yield Sample(catalogue.OFFLINE_REPLICAS, (), len(replicas.offline()))
    yield Sample(catalogue.LEFT_OUT, ("partitions",), max(0, health.partitions - shown))
    proposals = sources.proposals
    yield Sample(catalogue.ISR_SHRINKS, (), 0 if proposals is None else proposals.shrinks)
    yield Sample(catalogue.ISR_EXPANDS, (), 0 if proposals is None else proposals.expands)


def details(one: Partition) -> Iterator[Sample]:
    log, labels = one.log, (one.topic, str(one.index))
    high = one.high
    yield Sample(catalogue.LOG_START, labels, log.start)
    yield Sample(catalogue.LOG_END, labels, log.end)
    yield Sample(catalogue.HIGH_WATERMARK, labels, high)
    yield Sample(catalogue.LAST_STABLE, labels, log.last_stable(high))
    yield Sample(catalogue.LOG_BYTES, labels, log.size)
    yield Sample(catalogue.LOG_SEGMENTS, labels, len(log.segments))
    yield Sample(catalogue.IS_LEADER, labels, int(one.led))
    if not one.led:
        return
    followers = one.followers
    yield Sample(catalogue.REPLICAS, labels, 1 if followers is None else len(followers.followers) + 1)
    yield Sample(catalogue.IN_SYNC, labels, 1 if followers is None else len(followers.isr))
    if followers is not None:
        for replica, follower in list(followers.followers.items()):
            lag = log.end - max(follower.end, log.start)
            yield Sample(catalogue.FOLLOWER_LAG, (*labels, str(replica)), max(0, lag))
