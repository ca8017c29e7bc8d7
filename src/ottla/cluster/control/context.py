"""What the steps of a controller share: its memory, its term, and the requests collected so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.cluster.control import messages
from ottla.cluster.control.batch import RequestBatch
from ottla.cluster.control.effects import Pause, Send
from ottla.cluster.control.memory import Memory
from ottla.cluster.control.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ottla.cluster.control.effects import Task


PARTITIONS_AT_ONCE = 1000  # in one request, and without yielding to the event loop: some milliseconds
T = TypeVar("T")


class Deposed(Exception):
    """Another broker is controller: this one may not write any more."""


class Term(NamedTuple):
    """A term as controller: the epoch, and the version of its node, which every write checks."""

    controller: int
    epoch: int
    version: int


class ControlSettings(NamedTuple):
    unclean: bool = False  # default of unclean.leader.election.enable for topics without it
    deletion: bool = True  # whether topics may be deleted
    imbalance: int = 10  # percentage of a broker's preferred partitions that may have other leaders
    listener: str = "PLAINTEXT"
    versions: messages.ControlVersions = messages.ControlVersions()


class Context:
    """`settings` may be replaced between two events. `new_id` generates the id of a topic that has none."""

    def __init__(
        self, term: Term, settings: ControlSettings, new_id: Callable[[], bytes], tally: Tally | None = None
    ) -> None:
        self.term = term
        self.tally = tally or Tally()
        self.settings = settings
        self.new_id = new_id
        self.memory = Memory()
        self.batch = RequestBatch()

    def send(self) -> Task[None]:
        """Send the collected requests. Their content must already be in the store."""
        batch, self.batch = self.batch, RequestBatch()
        if batch.empty:
            return
        memory, settings = self.memory, self.settings
        header = messages.ControlHeader(self.term.controller, self.term.epoch, settings.versions, settings.listener)
        brokers = list(memory.brokers.values())
        for broker in brokers:
            for part in slices(list(batch.leads.get(broker.id, {}).items())):
                for request, version in messages.leader_and_isr(header, memory, broker, dict(part)):
                    yield Send(broker.id, request, version)
        others = [broker for broker in brokers if broker.id not in batch.full]
        news_keys = list(batch.news)
        for keys in slices(news_keys) if news_keys or not batch.brokers_changed else ([],):
            news = messages.News(header, memory)
            news.add(keys)
            for broker in others:
                yield Send(broker.id, *news.for_broker(broker))
        if batch.full:
            everything = messages.News(header, memory, full=True)
            for keys in slices(list({**dict.fromkeys(batch.everything), **batch.news})):
                everything.add(keys)
                yield Pause()
            for broker in brokers:
                if broker.id in batch.full:
                    yield Send(broker.id, *everything.for_broker(broker))
        for broker in brokers:
            if broker.id in batch.stops:
                for request, version in messages.stop_replica(header, memory, broker, batch.stops[broker.id]):
                    yield Send(broker.id, request, version)


def slices(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), PARTITIONS_AT_ONCE):
        yield items[start : start + PARTITIONS_AT_ONCE]
