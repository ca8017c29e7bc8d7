"""Transactions: open ones with their age and partitions; abort those whose producers are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import ui

from ottla.console.web import units
from ottla.console.web.frame import attempt, frame, live, sure, user
from ottla.console.web.table import Column, Paged, numeric

if TYPE_CHECKING:
    from ottla.console.console import Console
    from ottla.console.watch.snapshot import Snapshot, Transaction

OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")


def add(console: Console) -> None:
    @ui.page("/transactions")
    def transactions() -> None:
        with frame(console, "Transactions", "/transactions"):
            show(console)


def age_s(snapshot: Snapshot, one: Transaction) -> float | None:
    return None if one.started_ms is None else max(0.0, (snapshot.at_ms - one.started_ms) / 1000)


def show(console: Console) -> None:
    every = {"all": False}

    def items() -> list[Transaction]:
        return [one for one in console.watch.snapshot.transactions if every["all"] or one.state in OPEN]

    def choose(value: object) -> None:
        every["all"] = bool(value)
        table.update()

    def tools() -> None:
        ui.switch("Include ended ones", on_change=lambda event: choose(event.value)).props("dense").props(
            "data-mark=txn-all"
        )
        if console.actions.allowed:
            ui.label("Click an open transaction to abort it.").classes("o-soft")

    with ui.element("div").classes("o-card"):
        table: Paged[Transaction] = Paged(
            columns(console),
            items,
            key=lambda one: one.name,
            find=lambda one: one.name,
            hint="Search transactional ids",
            nothing="No transaction is open.",
            on_click=(lambda one: abort(console, one)) if console.actions.allowed else None,
            mark="transactions",
            tools=tools,
        )
    live(console, lambda snapshot: table.update())


def columns(console: Console) -> list[Column[Transaction]]:
    def age(one: Transaction) -> str:
        return units.span(age_s(console.watch.snapshot, one)) if one.state in OPEN else "—"

    def tone(one: Transaction) -> str:
        return "o-chip " + ("o-note" if one.state in OPEN else "")

    return [
        Column("Transactional id", lambda one: one.name, lambda one: one.name),
        Column("State", lambda one: one.state, lambda one: one.state, tone=tone),
        Column("Open for", age, lambda one: -(one.started_ms or 1 << 60), right=True),
        numeric("Timeout", lambda one: one.timeout_ms / 1000 if one.timeout_ms else None, units.span, wide=True),
        Column("Partitions", partitions, wide=True),
        Column("Producer", producer, wide=True),
        numeric("Coordinator", lambda one: one.coordinator, str, wide=True),
    ]


async def abort(console: Console, one: Transaction) -> None:
    who = user()
    if one.state != "Ongoing":
        ui.notify(f"{one.name} has no open transaction now.", type="warning")
        return
    question = f"Abort the transaction of {one.name}? Its producer is fenced, and its records are discarded."
    if await sure(question, "Abort"):
        await attempt(console.actions.abort, who, one.name, done=f"The transaction of {one.name} is aborted")


def producer(one: Transaction) -> str:
    return f"{one.producer}, epoch {one.epoch}" if one.epoch >= 0 else str(one.producer)


def partitions(one: Transaction) -> str:
    return units.brief(", ".join(f"{where.topic}-{where.partition}" for where in one.partitions), 60) or "—"
