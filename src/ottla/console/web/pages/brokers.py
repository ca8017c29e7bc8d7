"""Brokers: who answers, leadership and disk skew, the options of each with their sources, and live change of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import ui

from ottla.client.options import BROKER
from ottla.console.web import units
from ottla.console.web.frame import Stat, chip, empty, frame, live
from ottla.console.web.options_table import OptionsTable
from ottla.console.web.table import Column, Paged

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.console.console import Console
    from ottla.console.watch.snapshot import Broker, Snapshot

LEADS, SIZE = 0, 1


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
    """How far from the average, in percent."""
    values = [(each.leads, each.size)[what] for each in snapshot.brokers.values()]
    average = sum(values) / len(values) if values else 0
    return 100 * ((one.leads, one.size)[what] - average) / average if average else 0.0


def percent(value: float) -> str:
    return f"{value:+.0f} %" if abs(value) >= 0.5 else "even"


def state(one: Broker) -> str:
    return "does not answer" if one.silence else "answers"


def show_all(console: Console) -> None:
    with ui.element("div").classes("o-card"):

        def items() -> list[Broker]:
            return list(console.watch.snapshot.brokers.values())

        def now() -> Snapshot:
            return console.watch.snapshot

        known = any(one.rack for one in items())
        racks: list[Column[Broker]] = [
            Column("Rack", lambda one: one.rack or "—", lambda one: one.rack or "", wide=True)
        ]
        table: Paged[Broker] = Paged(
            [
                Column(
                    "Broker", lambda one: str(one.node), lambda one: one.node, link=lambda one: f"/brokers/{one.node}"
                ),
                Column("Address", lambda one: one.name, lambda one: one.name),
                Column("State", state, state, tone=lambda one: "o-chip o-bad" if one.silence else "o-chip o-good"),
                Column(
                    "Role",
                    lambda one: "controller" if one.node == now().controller else "",
                    wide=True,
                    tone=lambda one: "o-note",
                ),
                *(racks if known else []),
                Column("Leads", lambda one: units.number(one.leads), lambda one: one.leads, right=True),
                Column(
                    "Skew",
                    lambda one: percent(skew(now(), one, LEADS)),
                    right=True,
                    wide=True,
                    tone=lambda one: "o-warn" if abs(skew(now(), one, LEADS)) > 30 else "o-soft",
                ),
                Column(
                    "Copies", lambda one: units.number(one.replicas), lambda one: one.replicas, right=True, wide=True
                ),
                Column(
                    "Not in sync",
                    lambda one: units.number(one.behind),
                    lambda one: one.behind,
                    right=True,
                    tone=lambda one: "o-bad" if one.behind else "o-soft",
                ),
                Column("Data", lambda one: units.size(one.size), lambda one: one.size, right=True),
                Column(
                    "Data skew",
                    lambda one: percent(skew(now(), one, SIZE)),
                    right=True,
                    wide=True,
                    tone=lambda one: "o-warn" if abs(skew(now(), one, SIZE)) > 30 else "o-soft",
                ),
                Column("Disk free", free, right=True, wide=True),
                Column("Records in", lambda one: units.rate(one.rate), lambda one: one.rate, right=True, wide=True),
            ],
            items,
            key=lambda one: str(one.node),
            nothing="No broker has answered yet.",
            mark="brokers",
        )
    with ui.element("div").classes("o-two"):
        leads = bars("Partitions led", lambda one: one.leads)
        data = bars("Data, in MiB", lambda one: round(one.size / (1 << 20), 1))

    def update(snapshot: Snapshot) -> None:
        table.update()
        leads(snapshot)
        data(snapshot)

    live(console, update)


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
        leads, copies, behind = Stat("Partitions led"), Stat("Copies"), Stat("Not in sync")
        data, disk, flow = Stat("Data"), Stat("Disk free"), Stat("Records in")
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
