"""The requests that one event makes, gathered by broker, so that each broker gets few.

Only what is to be said is kept here; the states themselves are read from memory when the batch is sent, so a partition
that changed twice in one event is told once. Order to each broker: who leads, what everybody should know, what stops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.cluster.control.memory import Key


class RequestBatch:
    def __init__(self) -> None:
        self.leads: dict[int, dict[Key, bool]] = {}  # by broker; whether the replica is new there
        self.news: dict[Key, None] = {}  # partitions that every broker is told about
        self.everything: Iterable[Key] = ()  # partitions that `full` brokers are told about
        self.full: dict[int, None] = {}  # brokers that are told everything: what they know and is not said, is gone
        self.brokers_changed = False  # everybody is told who is there, even when no partition has changed
        self.stops: dict[int, dict[Key, bool]] = {}  # by broker; whether to delete

    def lead(self, brokers: Iterable[int], key: Key, *, new: bool = False) -> None:
        """Tell these brokers who leads the partition; everybody hears of it."""
        for broker in brokers:
            told = self.leads.setdefault(broker, {})
            told[key] = new or told.get(key, False)
        self.news[key] = None

    def stop(self, broker: int, key: Key, *, delete: bool) -> None:
        told = self.stops.setdefault(broker, {})
        told[key] = delete or told.get(key, False)

    def tell(self, keys: Iterable[Key]) -> None:
        """Have every broker know the newest state of these partitions."""
        self.news.update(dict.fromkeys(keys))

    def tell_everything(self, broker: int, keys: Iterable[Key]) -> None:
        """Have one broker know these partitions, which are all there are, and forget others."""
        self.full[broker] = None
        self.everything = keys

    def announce(self) -> None:
        """Have every broker know which brokers there are."""
        self.brokers_changed = True

    @property
    def empty(self) -> bool:
        return not (self.leads or self.news or self.full or self.stops or self.brokers_changed)
