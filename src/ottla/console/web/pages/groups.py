"""Groups: all of them, by how far they are behind."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from nicegui import ui

from ottla.console.watch.attention import is_late
from ottla.console.web import units
from ottla.console.web.frame import frame, live
from ottla.console.web.table import Column, Paged

if TYPE_CHECKING:
    from ottla.console.console import Console
    from ottla.console.watch.snapshot import Group, Snapshot


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
    """When nothing will be left, at this pace."""
    if not group.lag:
        return "caught up"
    return "not at this pace" if group.clear_s is None else f"in {units.span(group.clear_s)}"


def show(console: Console) -> None:
    with ui.element("div").classes("o-card"):
        table: Paged[Group] = Paged(
            [
                Column("Group", lambda one: one.name, lambda one: one.name, link=lambda one: place(one.name)),
                Column("State", lambda one: one.state or "—", lambda one: one.state, tone=tone),
                Column("Kind", lambda one: one.kind, lambda one: one.kind, wide=True),
                Column(
                    "Members",
                    lambda one: units.number(len(one.members)),
                    lambda one: len(one.members),
                    right=True,
                    wide=True,
                ),
                Column(
                    "Topics",
                    lambda one: units.brief(", ".join(one.topics), 40) or "—",
                    lambda one: one.topics,
                    wide=True,
                ),
                Column(
                    "Lag",
                    lambda one: units.number(one.lag),
                    lambda one: one.lag,
                    right=True,
                    tone=lambda one: "o-warn" if is_late(one) else "",
                ),
                Column(
                    "Behind",
                    lambda one: units.span(one.seconds),
                    lambda one: one.seconds or 0,
                    right=True,
                    tone=lambda one: "o-warn" if is_late(one) else "",
                ),
                Column("Consumes", lambda one: units.rate(one.rate), lambda one: one.rate, right=True, wide=True),
                Column("Trend", lambda one: units.change(one.trend), lambda one: one.trend, right=True, wide=True),
                Column(
                    "Caught up",
                    clear,
                    lambda one: one.clear_s if one.clear_s is not None else 1e18,
                    right=True,
                    wide=True,
                ),
            ],
            lambda: list(console.watch.snapshot.groups.values()),
            key=lambda one: one.name,
            find=lambda one: f"{one.name} {' '.join(one.topics)}",
            sort=5,
            descending=True,
            hint="Search groups and topics",
            nothing="No group has committed or joined yet.",
            mark="groups",
        )

    def update(snapshot: Snapshot) -> None:
        table.update()

    live(console, update)
