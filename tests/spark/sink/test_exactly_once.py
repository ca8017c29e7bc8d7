"""The exactly-once protocol with every kind of fault: each row of each epoch is in the topic once.

`SEEDS=4000 pytest tests/spark/test_exactly_once.py` runs more seeds. The same model must find every
protocol with one of its rules removed.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest
from spark.sink_model import QUERY, Cluster, World

from ottla.client.failure import Failed, Refused
from ottla.spark.sink import exactly_once
from ottla.spark.sink.decisions import (
    Prepared,
    SinkDecision,
    TaskAttempt,
    TaskPart,
    Ticket,
    attempts,
    decide,
    driver,
    epoch_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spark.sink_model import Port

    from ottla.client.transaction import ProducerIdentity

SEEDS: Final = int(os.environ.get("SEEDS", "200"))
MUTANT_SEEDS: Final = 1000


def wrong(world: World) -> str | None:
    """What is wrong at the end of a run: duplicate rows, or rows missing without an error."""
    if any(count > 1 for count in world.cluster.visible.values()):
        return "twice"
    if world.cluster.visible != world.rows and not world.lost:
        return "missing"
    return None


@pytest.mark.parametrize("timeouts", [False, True], ids=["two-phase", "timeouts"])
def test_each_row_once_whatever_happens(timeouts: bool) -> None:
    """If transactions time out, rows may be lost after the decision, but never silently."""
    lost = 0
    for seed in range(SEEDS):
        world = World(seed, timeouts=timeouts)
        world.run()
        assert wrong(world) is None, f"seed {seed}: {wrong(world)}"
        lost += bool(world.lost)
    assert lost <= (SEEDS // 10 if timeouts else 0)


class Direct:
    """The model's cluster without its actors."""

    def __init__(self) -> None:
        self.cluster = Cluster(random.Random(0), newer=True, two_phase=True)
        self.identify, self.end = self.cluster.identify, self.cluster.end
        self.states, self.ongoing = self.cluster.states, self.cluster.ongoing

    def last(self, query: str, *, surely: bool = True) -> SinkDecision | None:
        return self.cluster.last(True)

    def open(self, fence: ProducerIdentity, query: str) -> None:
        self.cluster.write(fence)

    def record(self, fence: ProducerIdentity, query: str, decision: SinkDecision | None) -> None:
        self.cluster.write(fence, decision=decision)
        self.cluster.end(fence)
        self.cluster.mark()

    def attempt(self, epoch: int, task: int) -> Prepared:
        part = exactly_once.begin(self, QUERY, epoch, task)
        assert part is not None
        identity = self.identify(part.name)
        self.cluster.write(identity, [(epoch, task)])
        part = part._replace(producer_id=identity.producer_id, epoch=identity.epoch)
        return Prepared(QUERY, epoch, 1, part=part)

    def commit(self, epoch: int, *messages: Prepared) -> None:
        exactly_once.commit(self, epoch, messages)


def test_what_a_dead_run_took_over_is_swept_though_its_task_has_no_rows_any_more() -> None:
    port = Direct()
    port.commit(0, port.attempt(0, 0), port.attempt(0, 5))
    port.attempt(1, 0), port.attempt(1, 5)  # and then the driver dies
    port.commit(1, port.attempt(1, 0), Prepared(QUERY, 1, 0))
    assert port.ongoing(attempts(QUERY)) == []
    port.commit(2, port.attempt(2, 0), port.attempt(2, 5))
    assert port.cluster.visible == Counter([(0, 0), (0, 5), (1, 0), (2, 0), (2, 5)])


def test_who_is_refused_as_too_old_finishes_what_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver of the later epoch died right after its decision, and its checkpoint was replaced by an old copy."""
    port = Direct()
    port.commit(0, port.attempt(0, 0))

    def die(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    later = port.attempt(1, 0)
    with monkeypatch.context() as patched:
        patched.setattr(exactly_once, "finish", die)
        with pytest.raises(KeyboardInterrupt):
            port.commit(1, later)
    assert port.cluster.visible == Counter([(0, 0)])
    old = Prepared(QUERY, 0, 1, decided=True)
    with pytest.raises(Failed, match=r"batch 0 of query .* is older than batch 1"):
        port.commit(0, old)
    exactly_once.abort(port, 0, [old])
    assert port.ongoing(attempts(QUERY)) == []
    assert port.cluster.visible == Counter([(0, 0), (1, 0)])


def decide_anew(
    last: SinkDecision | None, query: str, epoch: int, messages: Sequence[Prepared], *_: object, **__: object
) -> SinkDecision:
    return decide(None, query, epoch, messages)


def abort_at_once(port: Port, epoch: int, messages: Sequence[Prepared]) -> None:
    for message in messages:
        if message.part is not None:
            port.identify(message.part.name)


def commit_without_fence_first(port: Port, epoch: int, messages: Sequence[Prepared], **_: object) -> None:
    if (query := exactly_once.of(messages)) is None:
        return
    last = port.last(query)
    fence = port.identify(driver(query))
    decision = decide(last, query, epoch, messages)
    if decision is not last:
        exactly_once.record(port, fence, query, decision)
    exactly_once.finish(port, query, decision)


def commit_before_the_decision(port: Port, epoch: int, messages: Sequence[Prepared], **_: object) -> None:
    if (query := exactly_once.of(messages)) is None:
        return
    fence = port.identify(driver(query))
    last = port.last(query)
    decision = decide(last, query, epoch, messages)
    exactly_once.finish(port, query, decision)
    if decision is not last:
        exactly_once.record(port, fence, query, decision)


def finish_quietly(port: Port, query: str, decision: SinkDecision, **_: object) -> None:
    for identity in decision.transactions:
        try:
            port.end(identity)
        except Refused:
            continue


def sweep_the_younger_too(standing: SinkDecision, query: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name not in standing.names]


def sweep_what_is_decided(standing: SinkDecision, query: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if (epoch_of(query, name) or 0) <= standing.epoch]


def take_over_without_a_ticket(last: SinkDecision | None, me: TaskAttempt) -> str:
    parts: Sequence[TaskPart] = last.parts if last is not None else ()
    return next((part.name for part in parts if part.task == me.task), me.name)


def names_without_tickets(port: Port, query: str, epoch: int, task: int) -> TaskPart | None:
    last = port.last(query, surely=False)
    if last is not None and last.closes(epoch):
        return None
    return TaskPart(task, Ticket(0, 0), TaskAttempt(query, epoch, task, Ticket(0, 0)).name)


# What is broken, and whether transactions time out.
MUTANTS: Final[list[tuple[str, Any, bool]]] = [
    ("decide", decide_anew, False),
    ("abort", abort_at_once, False),
    ("commit", commit_without_fence_first, False),
    ("commit", commit_before_the_decision, False),
    ("finish", finish_quietly, True),
    ("dead", sweep_the_younger_too, False),
    ("dead", sweep_what_is_decided, False),
    ("choose_id", take_over_without_a_ticket, False),
    ("begin", names_without_tickets, False),
]


@pytest.mark.parametrize(("name", "mutant", "timeouts"), MUTANTS)
def test_a_broken_law_is_found_out(monkeypatch: pytest.MonkeyPatch, name: str, mutant: object, timeouts: bool) -> None:
    monkeypatch.setattr(exactly_once, name, mutant)
    for seed in range(MUTANT_SEEDS):
        world = World(seed, timeouts=timeouts, late_sweeps=0.5 if name == "dead" else None)
        try:
            world.run()
        except AssertionError:  # no end: what was decided cannot be finished, and that is rows missing, too
            return
        if wrong(world) is not None or (world.lost and not timeouts):
            return
    pytest.fail(f"{MUTANT_SEEDS} seeds found nothing")
