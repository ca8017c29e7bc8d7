"""The marker that ends a transaction in a partition: what it is, and how the partition's leader writes it.

A marker is a control batch of one record, with the producer's id and the epoch that ends the transaction. Its binary
format is in `records/markers.py`. In `ending.py` a coordinator sends one to every partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.records.markers import EndMarker, encode_marker

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ottla.clock import Clock
    from ottla.replica.partition import Partition
    from ottla.replica.replicas import Replicas

    Listener = Callable[[Partition, int, bool], None]


class Marker:
    """The end of one transaction, as its coordinator decided it."""

    __slots__ = ("commits", "coordinator_epoch", "epoch", "producer_id", "version")

    def __init__(self, producer_id: int, epoch: int, coordinator_epoch: int, version: int, *, commits: bool) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.version = version
        self.commits = commits


class MarkerWriter:
    """Writes markers to partitions that this broker leads."""

    def __init__(self, replicas: Replicas, clock: Clock) -> None:
        self._replicas = replicas
        self._clock = clock
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with the partition, the producer id and whether the end is a commit, after every marker."""
        self._listeners.append(listener)

    def write(self, topic: str, index: int, marker: Marker) -> asyncio.Future[None] | None:
        """Append the marker, and call the listeners.

        Returns None if it is committed, else a future for the commit; see `Partition.wait_for_commit`.
        """
        partition = self._replicas.require_led(topic, index)
        append(partition, marker, self._clock.now_ms())
        for listener in self._listeners:
            listener(partition, marker.producer_id, marker.commits)
        return partition.wait_for_commit(partition.log.end)


def append(partition: Partition, marker: Marker, now_ms: int) -> None:
    partition.log.producers.check_marker(
        marker.producer_id, marker.epoch, marker.coordinator_epoch, version=marker.version
    )
    end = EndMarker(marker.commits, marker.coordinator_epoch)
    partition.append_own((encode_marker(end),), now_ms, (marker.producer_id, marker.epoch), end)
