"""Brokers: state, leadership and disk skew, and their options with sources, which can be changed live."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import ui

from ottla.client.options import BROKER
from ottla.console.web import units
from ottla.console.web.frame import StatCard, chip, empty, frame, live
from ottla.console.web.options_table import OptionsTable
from ottla.console.web.table import Column, Paged, numeric

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.console.console import Console
    from ottla.console.watch.snapshot import Broker, Snapshot

LEADS, SIZE = 0, 1
SKEW_MAX = 30  # percent; above this it is highlighted


def add(console: Console) -> None:
    @ui.page("/brokers")
    def brokers() -> None:
        with frame(console, "Brokers", "/brokers"):
            show_all(console)

    @ui.page("/brokers/{node}")
    def broker(node: int) -> None:
        with frame(console, f"Broker {node}", "/brokers"):
            show_one(console, node)


def skew(snapshot: Snapshot, one: Broker, what: int) -> float:
    """Deviation from the average, in percent."""
    values = [(each.leads, each.size)[what] for each in snapshot.brokers.values()]
    average = sum(values) / len(values) if values else 0
    return 100 * ((one.leads, one.size)[what] - average) / average if average else 0.0


def percent(value: float) -> str:
    return f"{value:+.0f} %" if abs(value) >= 0.5 else "even"


def state(one: Broker) -> str:
    return "does not answer" if one.silence else "answers"


def show_all(console: Console) -> None:
    with ui.element("div").classes("o-card"):
        table: Paged[Broker] = Paged(
            columns(console),
            lambda: list(console.watch.snapshot.brokers.values()),
            key=lambda one: str(one.node),
            nothing="No broker has answered yet.",
            mark="brokers",
        )
    with ui.element("div").classes("o-two"):
        leads = bars("Leader partitions", lambda one: one.leads)
        data = bars("Data, in MiB", lambda one: round(one.size / (1 << 20), 1))

    def update(snapshot: Snapshot) -> None:
        table.update()
        leads(snapshot)
        data(snapshot)

    live(console, update)


def columns(console: Console) -> list[Column[Broker]]:
    def role(one: Broker) -> str:
        return "controller" if one.node == console.watch.snapshot.controller else ""

    def skews(label: str, what: int) -> Column[Broker]:
        def value(one: Broker) -> float:
            return skew(console.watch.snapshot, one, what)

        return numeric(label, value, percent, wide=True, tone=lambda one: warn_if(abs(value(one)) > SKEW_MAX))

    racks = any(one.rack for one in console.watch.snapshot.brokers.values())
    rack: Column[Broker] = Column("Rack", lambda one: one.rack or "—", lambda one: one.rack or "", wide=True)
    return [
        Column("Broker", lambda one: str(one.node), lambda one: one.node, link=lambda one: f"/brokers/{one.node}"),
        Column("Address", lambda one: one.name, lambda one: one.name, wide=True),
        Column("State", state, state, tone=lambda one: "o-chip o-bad" if one.silence else "o-chip o-good"),
        Column("Role", role, wide=True, tone=lambda one: "o-note"),
        *([rack] if racks else []),
        numeric("Leads", lambda one: one.leads),
        skews("Skew", LEADS),
        numeric("Replicas", lambda one: one.replicas, wide=True),
        numeric("Not in sync", lambda one: one.behind, tone=lambda one: "o-bad" if one.behind else "o-soft"),
        numeric("Data", lambda one: one.size, units.size),
        skews("Data skew", SIZE),
        Column("Disk free", free, right=True, wide=True),
        numeric("Records in", lambda one: one.rate, units.rate, wide=True),
    ]


def warn_if(wrong: bool) -> str:
    return "o-warn" if wrong else "o-soft"


def free(one: Broker) -> str:
    disks = [disk for disk in one.disks if disk.total > 0]
    if not disks:
        return "—"
    left, total = sum(disk.free for disk in disks), sum(disk.total for disk in disks)
    return f"{units.size(left)}, {100 * left / total:.0f} %"


def bars(title: str, value: Callable[[Broker], float]) -> Callable[[Snapshot], None]:
    with ui.element("div").classes("o-card"):
        ui.label(title).classes("o-head")
        chart = (
            ui.echart(
                {
                    "animation": False,
                    "color": ["#2f6fde"],
                    "tooltip": {"renderMode": "richText"},
                    "grid": {"left": 8, "right": 40, "top": 8, "bottom": 4, "containLabel": True},
                    "xAxis": {
                        "type": "value",
                        "axisLabel": {"color": "#8a94a6"},
                        "splitLine": {"lineStyle": {"color": "rgba(127,140,160,.22)"}},
                    },
                    "yAxis": {
                        "type": "category",
                        "inverse": True,
                        "data": [],
                        "axisLabel": {"color": "#8a94a6"},
                        "axisTick": {"show": False},
                    },
                    "series": [
                        {
                            "type": "bar",
                            "data": [],
                            "barMaxWidth": 22,
                            "itemStyle": {"borderRadius": 4},
                            "label": {"show": True, "position": "right", "color": "#8a94a6"},
                        }
                    ],
                }
            )
            .classes("w-full")
            .style("height:180px")
        )

    def update(snapshot: Snapshot) -> None:
        chosen = list(snapshot.brokers.values())[:40]
        chart.options["yAxis"]["data"] = [f"broker {one.node}" for one in chosen]
        chart.options["series"][0]["data"] = [value(one) for one in chosen]
        chart.style(f"height:{max(120, 34 * len(chosen) + 40)}px")
        chart.update()

    return update


def show_one(console: Console, node: int) -> None:
    one = console.watch.snapshot.brokers.get(node)
    if one is None:
        empty(f"There is no broker {node}.", "dns")
        return
    with ui.row().classes("items-center gap-3"):
        address, answers, role = ui.label().classes("o-soft"), chip(""), chip("controller", "o-note")
    with ui.element("div").classes("o-grid"):
        leads, copies, behind = StatCard("Leader partitions"), StatCard("Replicas"), StatCard("Not in sync")
        data, disk, flow = StatCard("Data"), StatCard("Disk free"), StatCard("Records in")
    with ui.element("div").classes("o-card"):
        ui.label("Options").classes("o-head q-mb-sm")
        OptionsTable(console, BROKER, str(node))

    def update(snapshot: Snapshot) -> None:
        found = snapshot.brokers.get(node)
        if found is None:
            return
        address.set_text(found.name + (f", rack {found.rack}" if found.rack else ""))
        answers.set_text(found.silence or "answers")
        answers.classes(replace=f"o-chip {'o-bad' if found.silence else 'o-good'}")
        role.set_visibility(node == snapshot.controller)
        leads.set(units.number(found.leads), percent(skew(snapshot, found, LEADS)))
        copies.set(units.number(found.replicas))
        behind.set(units.number(found.behind), "", "o-bad" if found.behind else "")
        data.set(units.size(found.size), percent(skew(snapshot, found, SIZE)))
        disk.set(free(found).partition(",")[0], ", ".join(each.folder for each in found.disks))
        flow.set(units.rate(found.rate))

    live(console, update)
