"""Overview: health, throughput, and what needs attention, with advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import ui

from ottla.console.watch.attention import findings, health
from ottla.console.web import units
from ottla.console.web.charts import Plot
from ottla.console.web.frame import StatCard, empty, frame, live

if TYPE_CHECKING:
    from ottla.console.console import Console
    from ottla.console.history import Point
    from ottla.console.watch.attention import Finding
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
    figures = OverviewFigures(console)
    with ui.element("div").classes("o-two"):

        def read(since: int) -> list[Point]:
            return console.history.points(console.watch.snapshot.cluster, "cluster", "", since)

        Plot("Throughput", read, [("records per second", lambda point: point.a)])
        Plot("Lag of all groups", read, [("records", lambda point: point.b)])
    attention = Attention()

    def update(snapshot: Snapshot) -> None:
        level, text = health(snapshot)
        icon.props(f"name={ICONS[level]}").classes(replace=f"o-{level}")
        sentence.set_text(text)
        figures.update(snapshot)
        attention.update(findings(snapshot), known=bool(snapshot.taken))

    live(console, update)


class OverviewFigures:
    """Six numbers."""

    def __init__(self, console: Console) -> None:
        self._console = console
        with ui.element("div").classes("o-grid"):
            self._brokers, self._controller, self._topics = (
                StatCard("Brokers"),
                StatCard("Controller"),
                StatCard("Topics"),
            )
            self._flow, self._data, self._lag = StatCard("Records in"), StatCard("Data"), StatCard("Lag of all groups")

    def update(self, snapshot: Snapshot) -> None:
        if not snapshot.taken:
            return  # nothing is known
        silent, count = len(snapshot.silent), len(snapshot.brokers)
        said, tone = ("answer", "o-bad") if silent else ("all answer", "")
        self._brokers.set(f"{count - silent} of {count}", said, tone)
        found = snapshot.brokers.get(snapshot.controller)
        if found:
            self._controller.set(f"broker {found.node}", found.name)
        else:
            self._controller.set("none", "", "o-bad")
        partitions = sum(len(topic.partitions) for topic in snapshot.topics.values())
        self._topics.set(f"{len(snapshot.topics):,}", f"{partitions:,} partitions")
        traffic = self._console.scraping.traffic
        said = f"about {units.size(bytes_in(snapshot))}/s"
        if traffic is not None:
            said = f"{units.size(traffic.into)}/s in, {units.size(traffic.out)}/s out"
        self._flow.set(units.rate(snapshot.rate), said)
        self._data.set(units.size(snapshot.size), "all replicas")
        lag = sum(group.lag for group in snapshot.groups.values())
        self._lag.set(units.number(lag), f"{len(snapshot.groups):,} groups")


class Attention:
    """What is wrong, with advice; redrawn only when it changes."""

    def __init__(self) -> None:
        self._shown: tuple[list[Finding], bool] | None = None
        with ui.element("div").classes("o-card"):
            ui.label("What needs attention").classes("o-head q-mb-sm")
            self._rows = ui.column().classes("w-full gap-0").props("data-mark=attention")

    def update(self, found: list[Finding], *, known: bool) -> None:
        if (found, known) == self._shown:
            return
        self._shown = found, known
        self._rows.clear()
        with self._rows:
            if not found and not known:
                empty("No answer yet.", "hourglass_empty")
            elif not found:
                empty(
                    "Nothing. All partitions have leaders and are replicated, and no group falls behind.",
                    "check_circle",
                )
            for one in found[:SHOWN]:
                with ui.row().classes("items-start no-wrap w-full gap-3 q-py-sm"):
                    ui.icon(ICONS[one.level], size="20px").classes(f"o-{one.level}")
                    with ui.column().classes("gap-0 min-w-0"):
                        ui.label(one.what).classes("o-wrap")
                        ui.label(one.advice).classes("o-soft o-wrap")
                    ui.space()
                    ui.link("Look", one.link).classes("o-link")


def bytes_in(snapshot: Snapshot) -> float:
    """Bytes per second, estimated from records per second and the average stored record size."""
    total = 0.0
    for topic in snapshot.topics.values():
        if topic.rate and (records := topic.records):
            total += topic.rate * topic.size / records
    return total
