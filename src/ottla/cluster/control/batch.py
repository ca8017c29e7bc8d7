"""The requests of one event, grouped by broker, so that each broker gets few.

Only keys are kept here; the states are read from memory when the batch is sent, so a partition that changed twice in
one event is sent once. Order for each broker: LeaderAndIsr, UpdateMetadata, StopReplica.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.cluster.control.memory import Key


class RequestBatch:
    def __init__(self) -> None:
        self.leads: dict[int, dict[Key, bool]] = {}  # by broker; whether the replica is new there
        self.news: dict[Key, None] = {}  # partitions in UpdateMetadata to every broker
        self.everything: Iterable[Key] = ()  # partitions in the full UpdateMetadata to `full` brokers
        self.full: dict[int, None] = {}  # brokers that get a full update: they forget topics that are not in it
        self.brokers_changed = False  # send the broker list to all, even when no partition has changed
        self.stops: dict[int, dict[Key, bool]] = {}  # by broker; whether to delete

    def lead(self, brokers: Iterable[int], key: Key, *, new: bool = False) -> None:
        """Send LeaderAndIsr for the partition to these brokers, and UpdateMetadata to all."""
        for broker in brokers:
            told = self.leads.setdefault(broker, {})
            told[key] = new or told.get(key, False)
        self.news[key] = None

    def stop(self, broker: int, key: Key, *, delete: bool) -> None:
        told = self.stops.setdefault(broker, {})
        told[key] = delete or told.get(key, False)

    def tell(self, keys: Iterable[Key]) -> None:
        """Send the newest state of these partitions to every broker."""
        self.news.update(dict.fromkeys(keys))

    def tell_everything(self, broker: int, keys: Iterable[Key]) -> None:
        """Send a full update to one broker: `keys` are all partitions that have a leader or had one."""
        self.full[broker] = None
        self.everything = keys

    def announce(self) -> None:
        """Send the list of brokers to every broker."""
        self.brokers_changed = True

    @property
    def empty(self) -> bool:
        return not (self.leads or self.news or self.full or self.stops or self.brokers_changed)
