"""What the steps of a controller share: its memory, its term of office, and the requests that gather meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.cluster.control import messages
from ottla.cluster.control.batch import Batch
from ottla.cluster.control.effects import Send
from ottla.cluster.control.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.cluster.control.effects import Task


class Deposed(Exception):
    """Another broker is controller: this one may not write any more."""


class Term(NamedTuple):
    """A term of office: the epoch, and the version of its node that every write checks."""

    controller: int
    epoch: int
    version: int


class Settings(NamedTuple):
    unclean: bool = False  # whether topics that say nothing may be led by a replica out of sync
    deletion: bool = True  # whether topics may be deleted
    imbalance: int = 10  # per cent of a broker's preferred partitions that others may lead
    listener: str = "PLAINTEXT"
    versions: messages.Versions = messages.Versions()


class Context:
    """`settings` may be replaced between two events. `new_id` makes up the id of a topic that has none."""

    def __init__(self, term: Term, settings: Settings, new_id: Callable[[], bytes]) -> None:
        self.term = term
        self.settings = settings
        self.new_id = new_id
        self.memory = Memory()
        self.batch = Batch()

    def send(self) -> Task[None]:
        """Send what has gathered. Whatever it says must be in the store by now."""
        batch, self.batch = self.batch, Batch()
        if batch.empty:
            return
        memory, settings = self.memory, self.settings
        header = messages.Header(self.term.controller, self.term.epoch, settings.versions, settings.listener)
        brokers = list(memory.brokers.values())
        for broker in brokers:
            if broker.id in batch.leads:
                for request, version in messages.leader_and_isr(header, memory, broker, batch.leads[broker.id]):
                    yield Send(broker.id, request, version)
        if batch.news or batch.brokers_changed:
            news = messages.News(header, memory, batch.news)
            for broker in brokers:
                if broker.id not in batch.full:
                    yield Send(broker.id, *news.for_broker(broker))
        if batch.full:
            everything = messages.News(header, memory, {**dict.fromkeys(batch.everything), **batch.news}, full=True)
            for broker in brokers:
                if broker.id in batch.full:
                    yield Send(broker.id, *everything.for_broker(broker))
        for broker in brokers:
            if broker.id in batch.stops:
                for request, version in messages.stop_replica(header, memory, broker, batch.stops[broker.id]):
                    yield Send(broker.id, request, version)
