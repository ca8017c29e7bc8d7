"""The ZooKeeper session: its state, and how often it changed to each state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster.metadata_store import SessionEvent
from ottla.metrics.catalogue import KEEPER_CHANGES, KEEPER_CONNECTED
from ottla.metrics.family import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.cluster.metadata_store import MetadataStore


class StoreSession:
    def __init__(self, store: MetadataStore) -> None:
        self.connected = False
        self._changes = dict.fromkeys(SessionEvent, 0)
        store.subscribe(self._listen)

    def _listen(self, event: SessionEvent) -> None:
        self.connected = event is SessionEvent.CONNECTED
        self._changes[event] += 1

    def samples(self) -> Iterator[Sample]:
        yield Sample(KEEPER_CONNECTED, (), int(self.connected))
        for event, count in self._changes.items():
            yield Sample(KEEPER_CHANGES, (event.value,), count)
