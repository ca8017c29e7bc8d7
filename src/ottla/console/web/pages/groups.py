"""Groups: all of them, by lag."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from nicegui import ui

from ottla.console.watch.attention import is_late
from ottla.console.web import units
from ottla.console.web.frame import frame, live
from ottla.console.web.table import Column, Paged, numeric

if TYPE_CHECKING:
    from ottla.console.console import Console
    from ottla.console.watch.snapshot import Group


def add(console: Console) -> None:
    @ui.page("/groups")
    def groups() -> None:
        with frame(console, "Groups", "/groups"):
            show(console)


def place(name: str) -> str:
    return f"/groups/{quote(name, safe='')}"


def tone(group: Group) -> str:
    state = group.state.lower()
    return "o-chip " + ("o-good" if state == "stable" else "o-warn" if "rebalance" in state else "")


def clear(group: Group) -> str:
    """When the lag will be 0, at this pace."""
    if not group.lag:
        return "caught up"
    return "not at this pace" if group.clear_s is None else f"in {units.span(group.clear_s)}"


def show(console: Console) -> None:
    with ui.element("div").classes("o-card"):
        table: Paged[Group] = Paged(
            columns(),
            lambda: list(console.watch.snapshot.groups.values()),
            key=lambda one: one.name,
            find=lambda one: f"{one.name} {' '.join(one.topics)}",
            sort=5,
            descending=True,
            hint="Search groups and topics",
            nothing="No group has committed or joined yet.",
            mark="groups",
        )

    live(console, lambda snapshot: table.update())


def columns() -> list[Column[Group]]:
    def late(one: Group) -> str:
        return "o-warn" if is_late(one) else ""

    return [
        Column("Group", lambda one: one.name, lambda one: one.name, link=lambda one: place(one.name)),
        Column("State", lambda one: one.state or "—", lambda one: one.state, tone=tone),
        Column("Kind", lambda one: one.kind, lambda one: one.kind, wide=True),
        numeric("Members", lambda one: len(one.members), wide=True),
        Column("Topics", lambda one: units.brief(", ".join(one.topics), 40) or "—", lambda one: one.topics, wide=True),
        numeric("Lag", lambda one: one.lag, tone=late),
        numeric("Behind", lambda one: one.seconds, units.span, tone=late),
        numeric("Consumes", lambda one: one.rate, units.rate, wide=True),
        numeric("Trend", lambda one: one.trend, units.change, wide=True),
        Column("Caught up", clear, lambda one: 1e18 if one.clear_s is None else one.clear_s, right=True, wide=True),
    ]
