"""Overview: is all well, how much flows, what needs attention and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import ui

from ottla.console.watch.attention import findings, health
from ottla.console.web import units
from ottla.console.web.charts import Plot
from ottla.console.web.frame import Stat, empty, frame, live

if TYPE_CHECKING:
    from ottla.console.console import Console
    from ottla.console.history import Point
    from ottla.console.watch.snapshot import Snapshot

ICONS = {"bad": "error", "warn": "warning", "note": "info", "good": "check_circle"}
SHOWN = 12


def add(console: Console) -> None:
    @ui.page("/")
    def overview() -> None:
        with frame(console, "Overview", "/", trouble=False):
            show(console)


def show(console: Console) -> None:
    with ui.element("div").classes("o-card"), ui.row().classes("items-center no-wrap gap-3"):
        icon = ui.icon("hourglass_empty", size="28px")
        sentence = ui.label().classes("o-head o-wrap").props("data-mark=health")
    with ui.element("div").classes("o-grid"):
        brokers, controller, topics = Stat("Brokers"), Stat("Controller"), Stat("Topics")
        flow, data, lag = Stat("Records in"), Stat("Data"), Stat("Lag of all groups")
    with ui.element("div").classes("o-two"):

        def read(since: int) -> list[Point]:
            return console.history.points(console.watch.snapshot.cluster, "cluster", "", since)

        Plot("Throughput", read, [("records a second", lambda point: point.a)])
        Plot("Lag of all groups", read, [("records", lambda point: point.b)])
    with ui.element("div").classes("o-card"):
        ui.label("What needs attention").classes("o-head q-mb-sm")
        todo = ui.column().classes("w-full gap-0").props("data-mark=attention")

    shown: list[object] = [None]

    def update(snapshot: Snapshot) -> None:
        level, text = health(snapshot)
        icon.props(f"name={ICONS[level]}").classes(replace=f"o-{level}")
        sentence.set_text(text)
        silent = len(snapshot.silent)
        brokers.set(
            f"{len(snapshot.brokers) - silent} of {len(snapshot.brokers)}",
            "answer" if silent else "all answer",
            "o-bad" if silent else "",
        )
        found = snapshot.brokers.get(snapshot.controller)
        controller.set(
            f"broker {found.node}" if found else "none", found.name if found else "", "" if found else "o-bad"
        )
        partitions = sum(len(topic.partitions) for topic in snapshot.topics.values())
        topics.set(f"{len(snapshot.topics):,}", f"{partitions:,} partitions")
        traffic = console.scraping.traffic
        told = f"about {units.size(bytes_in(snapshot))}/s"
        if traffic is not None:
            told = f"{units.size(traffic.into)}/s in, {units.size(traffic.out)}/s out"
        flow.set(units.rate(snapshot.rate), told)
        data.set(units.size(snapshot.size), "all copies")
        total = sum(group.lag for group in snapshot.groups.values())
        lag.set(units.number(total), f"{len(snapshot.groups):,} groups")
        now = findings(snapshot)
        if now != shown[0]:
            shown[0] = now
            todo.clear()
            with todo:
                if not now:
                    empty("Nothing. All partitions are led and replicated, and no group falls behind.", "check_circle")
                for one in now[:SHOWN]:
                    with ui.row().classes("items-start no-wrap w-full gap-3 q-py-sm"):
                        ui.icon(ICONS[one.level], size="20px").classes(f"o-{one.level}")
                        with ui.column().classes("gap-0 min-w-0"):
                            ui.label(one.what).classes("o-wrap")
                            ui.label(one.advice).classes("o-soft o-wrap")
                        ui.space()
                        ui.link("Look", one.link).classes("o-link")

    live(console, update)


def bytes_in(snapshot: Snapshot) -> float:
    """Bytes a second, from the records a second and the average size of what is stored."""
    total = 0.0
    for topic in snapshot.topics.values():
        if topic.rate and (records := topic.records):
            total += topic.rate * topic.size / records
    return total
