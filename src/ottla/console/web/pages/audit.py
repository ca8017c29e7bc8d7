"""Audit: what was changed from the page, by whom, and the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import run, ui

from ottla.console.web import units
from ottla.console.web.frame import frame
from ottla.console.web.table import Column, Paged

if TYPE_CHECKING:
    from ottla.console.console import Console
    from ottla.console.history import AuditEntry

REFRESH_S = 2.0


def add(console: Console) -> None:
    @ui.page("/audit")
    def audit() -> None:
        with frame(console, "Audit", "/audit"):
            show(console)


def details(one: AuditEntry) -> None:
    with ui.dialog(value=True) as dialog, ui.card().classes("o-card").style("width:min(720px,94vw)"):
        ui.label(f"{units.moment(one.at * 1000)} UTC, by {one.who}").classes("o-soft")
        ui.label(one.what).classes("o-head")
        ui.label(one.target).classes("o-wrap o-mono")
        ui.label(one.result).classes(f"o-wrap {'o-good' if one.ok else 'o-bad'}")
    dialog.on("hide", dialog.delete)


def show(console: Console) -> None:
    entries: list[AuditEntry] = []
    with ui.element("div").classes("o-card"):
        table: Paged[AuditEntry] = Paged(
            [
                Column("When (UTC)", lambda one: units.moment(one.at * 1000), lambda one: one.at),
                Column("Who", lambda one: units.brief(one.who, 30), lambda one: one.who, wide=True),
                Column("What", lambda one: one.what, lambda one: one.what),
                Column("Target", lambda one: units.brief(one.target, 120), lambda one: one.target, grow=True),
                Column(
                    "Result",
                    lambda one: units.brief(one.result, 40),
                    lambda one: one.ok,
                    tone=lambda one: "o-good" if one.ok else "o-bad",
                ),
            ],
            lambda: entries,
            key=lambda one: str(entries.index(one)),
            find=lambda one: f"{one.who} {one.what} {one.target} {one.result}",
            hint="Search",
            descending=True,
            nothing="Nothing was changed from this page yet.",
            on_click=details,
            mark="audit",
        )

    async def update() -> None:
        found = await run.io_bound(console.history.audit)
        if found is not None and found != entries:
            entries[:] = found
            table.update()

    ui.timer(0.05, update, once=True)
    ui.timer(REFRESH_S, update)
