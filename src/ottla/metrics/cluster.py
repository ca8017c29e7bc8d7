"""Collectors of the cluster as this broker sees it, and of the controller if it runs on this broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster.image import NO_LEADER
from ottla.metrics import catalogue
from ottla.metrics.family import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.cluster.image import Topic
    from ottla.metrics.sources import Sources


def cluster(sources: Sources) -> Iterator[Sample | None]:
    """Yields None as a pause point: there may be many topics without a sample."""
    if sources.session is not None:
        yield from sources.session.samples()
    missing = sources.missing()
    yield Sample(catalogue.READY, (), int(not missing))
    parts = sources.parts
    if parts is None:
        return
    image = parts.metadata.image
    controls = image.controller_id == parts.node_id
    view = PartitionTally(count_all=controls)
    for topic in list(image.topics.values()):
        view.add(topic)
        yield None
    yield Sample(catalogue.BROKER, (str(parts.node_id), image.cluster_id), 1)
    yield Sample(catalogue.BROKERS, (), len(image.brokers))
    yield Sample(catalogue.TOPIC_COUNT, (), len(image.topics))
    yield from view.samples()
    yield from sample_controller(sources, controls=controls)


class PartitionTally:
    """Counts the partitions of the cluster. `count_all` only on the controller, so that sums over brokers are right."""

    def __init__(self, *, count_all: bool) -> None:
        self._count_all = count_all
        self._partitions = 0
        self._offline = 0
        self._elsewhere = 0
        self._moving = 0

    def add(self, topic: Topic) -> None:
        self._partitions += len(topic.partitions)
        if self._count_all:
            for state in topic.partitions:
                self._offline += state.leader == NO_LEADER
                self._elsewhere += bool(state.replicas) and state.leader != state.replicas[0]
                self._moving += bool(state.adding or state.removing)

    def samples(self) -> Iterator[Sample]:
        yield Sample(catalogue.ALL_PARTITIONS, (), self._partitions)
        yield Sample(catalogue.OFFLINE_PARTITIONS, (), self._offline)
        yield Sample(catalogue.NOT_PREFERRED, (), self._elsewhere)
        yield Sample(catalogue.MOVING, (), self._moving)


def sample_controller(sources: Sources, *, controls: bool) -> Iterator[Sample]:
    assert sources.parts is not None
    engine = getattr(sources.parts.controller, "engine", None)  # a standalone broker has none
    yield Sample(catalogue.ACTIVE_CONTROLLER, (), int(controls if engine is None else engine.in_office))
    yield Sample(catalogue.CONTROLLER_QUEUE, (), 0 if engine is None else engine.queued)
    yield Sample(catalogue.CONTROLLER_EPOCH, (), 0 if engine is None else engine.epoch)
    yield Sample(catalogue.ELECTIONS, (), 0 if engine is None else engine.tally.elections)
    yield Sample(catalogue.UNCLEAN_ELECTIONS, (), 0 if engine is None else engine.tally.unclean)
