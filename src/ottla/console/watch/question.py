"""All requests to one broker in one round, and its answers."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.client.failure import Failed, Unreachable
from ottla.console.watch import asking, peeking

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.client.cluster import TopicPartition
    from ottla.console.watch.links import Link
    from ottla.console.watch.snapshot import Disk, Move, Transaction


@dataclass
class BrokerAnswers:
    """The answers of one broker in one round."""

    ends: dict[TopicPartition, int] = field(default_factory=dict)
    starts: dict[TopicPartition, int] | None = None
    disks: tuple[Disk, ...] | None = None
    sizes: dict[TopicPartition, int] = field(default_factory=dict)
    groups: list[asking.GroupFacts] | None = None
    transactions: list[Transaction] = field(default_factory=list)
    moves: tuple[Move, ...] | None = None
    asked: dict[TopicPartition, int] = field(default_factory=dict)  # offsets whose record times are wanted
    times: dict[TopicPartition, int] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    moment: float = 0.0


def ask_broker(
    node: int, led: list[TopicPartition], times: dict[TopicPartition, int], *, slow: bool, controls: bool
) -> Callable[[Link], BrokerAnswers]:
    """All requests to one broker in a round. After an error the others go on; without an answer the round ends."""

    def ask(link: Link) -> BrokerAnswers:
        found = BrokerAnswers(asked=times)

        def attempt(what: str, work: Callable[[], None]) -> None:
            try:
                work()
            except Failed as error:
                if isinstance(error, Unreachable):
                    raise
                found.missing[f"{what} of broker {node}"] = str(error)

        def offsets() -> None:
            found.ends = asking.ends(link, led)
            found.moment = time.monotonic()

        def logs() -> None:
            found.disks, found.sizes = asking.disks(link)

        def starts() -> None:
            found.starts = asking.ends(link, led, asking.EARLIEST)

        def groups() -> None:
            found.groups = asking.groups(link)
            found.transactions = asking.transactions(link, node)

        def moves() -> None:
            found.moves = asking.moves(link)

        def peeks() -> None:
            found.times = peeking.times(link, times)

        attempt("offsets", offsets)
        attempt("groups", groups)
        if controls:
            attempt("reassignments", moves)
        if times:
            attempt("record times", peeks)
        if slow:
            attempt("starts", starts)
            attempt("log folders", logs)
        return found

    return ask
