"""One topic: partitions, throughput, readers and options; add partitions, delete it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from nicegui import ui

from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed
from ottla.client.options import TOPIC
from ottla.console.web import units
from ottla.console.web.charts import Plot
from ottla.console.web.frame import StatCard, attempt, chip, empty, frame, live, sure, user
from ottla.console.web.options_table import OptionsTable
from ottla.console.web.pages.groups import place as group_place
from ottla.console.web.pages.topics import tone, trouble, whole
from ottla.console.web.table import Column, Paged, numeric

if TYPE_CHECKING:
    from ottla.console.console import Console
    from ottla.console.history import Point
    from ottla.console.watch.snapshot import Group, Partition, Snapshot, Topic


def add(console: Console) -> None:
    @ui.page("/topics/{name}")
    def topic(name: str) -> None:
        with frame(console, name, "/topics"):
            if name in console.watch.snapshot.topics:
                show(console, name)
            else:
                waiting(console, name)


def waiting(console: Console, name: str) -> None:
    """Wait for a topic that was just created: the next snapshot has it."""
    with ui.column().classes("w-full") as place:
        empty(f"There is no topic {name}, or it is not known yet.", "hourglass_empty")

    def look() -> None:
        if name in console.watch.snapshot.topics:
            timer.cancel()
            place.clear()
            with place:
                show(console, name)

    timer = ui.timer(0.5, look)


def show(console: Console, name: str) -> None:
    def now() -> Topic | None:
        return console.watch.snapshot.topics.get(name)

    with ui.row().classes("items-center gap-2 w-full"):
        state, kind = chip(""), chip("internal")
        ui.space()
        ui.button(
            "Messages", icon="mail", on_click=lambda: ui.navigate.to(f"/messages?topic={quote(name, safe='')}")
        ).props("flat")
        if console.actions.allowed:
            ui.button("Add partitions", icon="add", on_click=lambda: grow(console, name)).props("flat").props(
                "data-mark=grow"
            )
            ui.button("Delete", icon="delete", on_click=lambda: delete(console, name)).props(
                "flat color=negative"
            ).props("data-mark=delete")
    with ui.element("div").classes("o-grid"):
        partitions, records, flow = StatCard("Partitions"), StatCard("Records"), StatCard("Records in")
        size, kept, sync = StatCard("Size"), StatCard("Kept for"), StatCard("Min. in sync")
    with ui.tabs().props("align=left dense no-caps inline-label").classes("w-full") as tabs:
        first = ui.tab("Partitions")
        flows = ui.tab("Flow")
        readers = ui.tab("Readers")
        options = ui.tab("Options")
    with ui.tab_panels(tabs, value=first).classes("w-full bg-transparent").props("animated=false"):
        with ui.tab_panel(first).style("padding:0"), ui.element("div").classes("o-card"):
            parts = partition_table(console, name)
        with ui.tab_panel(flows).style("padding:0"), ui.element("div").classes("o-two"):
            identity = f"{name}/{found.id}" if (found := now()) else name

            def read(since: int) -> list[Point]:
                return console.history.points(console.watch.snapshot.cluster, "topic", identity, since)

            Plot("Records in", read, [("records per second", lambda point: point.a)])
            Plot("Size", read, [("bytes", lambda point: point.c)], unit="B")
        with ui.tab_panel(readers).style("padding:0"), ui.element("div").classes("o-card"):
            groups = reader_table(console, name)
        with ui.tab_panel(options).style("padding:0"), ui.element("div").classes("o-card"):
            OptionsTable(console, TOPIC, name)

    def update(snapshot: Snapshot) -> None:
        one = snapshot.topics.get(name)
        if one is None:
            state.set_text("deleted")
            state.classes(replace="o-chip o-bad")
            return
        state.set_text(trouble(one))
        state.classes(replace=tone(one))
        kind.set_visibility(one.internal)
        partitions.set(
            units.number(len(one.partitions)), f"{one.copies} {'replica' if one.copies == 1 else 'replicas'} each"
        )
        records.set(units.number(one.records), f"{units.size(one.size / one.records)} each" if one.records else "")
        flow.set(units.rate(one.rate))
        size.set(units.size(one.size), "one replica")
        kept.set(units.retention(one.retention_ms), one.cleanup)
        sync.set(units.number(one.min_isr), "min.insync.replicas")
        parts.update()
        groups.update()

    live(console, update)


def partition_table(console: Console, name: str) -> Paged[Partition]:
    def items() -> list[Partition]:
        topic = console.watch.snapshot.topics.get(name)
        return list(topic.partitions) if topic else []

    if console.actions.allowed:
        ui.button("Elect preferred leaders", on_click=lambda: elect(console, name)).props("flat dense icon=how_to_vote")
    return Paged(partition_columns(), items, key=lambda one: str(one.number), mark="partitions")


def partition_columns() -> list[Column[Partition]]:
    return [
        Column("Partition", lambda one: str(one.number), lambda one: one.number),
        Column("State", lambda one: state_of(one)[0], lambda one: state_of(one)[0], tone=lambda one: state_of(one)[1]),
        numeric("Leader", lambda one: one.leader, lambda node: str(node) if node >= 0 else "none"),
        Column("Replicas", lambda one: ", ".join(map(str, one.replicas)), lambda one: one.replicas, wide=True),
        Column(
            "In sync",
            lambda one: ", ".join(map(str, one.isr)),
            lambda one: one.isr,
            wide=True,
            tone=lambda one: "o-warn" if one.under_replicated else "",
        ),
        numeric("Start", lambda one: one.start, wide=True),
        numeric("End", lambda one: one.end),
        numeric("Records", lambda one: one.end - one.start, wide=True),
        numeric("Size", lambda one: one.size, units.size, wide=True),
        numeric("Epoch", lambda one: one.epoch, str, wide=True),
    ]


def state_of(one: Partition) -> tuple[str, str]:
    """A word for the state, and its colour."""
    if one.leader < 0:
        return "no leader", "o-chip o-bad"
    if one.under_replicated:
        return "under-replicated", "o-chip o-warn"
    return ("in sync", "o-chip o-good") if one.preferred else ("not preferred", "o-chip o-note")


def reader_table(console: Console, name: str) -> Paged[Group]:
    def items() -> list[Group]:
        return [group for group in console.watch.snapshot.groups.values() if name in group.topics]

    def lag(group: Group) -> int:
        return sum(one.records or 0 for one in group.lags if one.where.topic == name)

    return Paged(
        [
            Column("Group", lambda one: one.name, lambda one: one.name, link=lambda one: group_place(one.name)),
            Column("State", lambda one: one.state, lambda one: one.state),
            numeric("Members", lambda one: len(one.members)),
            numeric("Lag here", lag),
            numeric("Consumes", lambda one: one.rate, units.rate, wide=True),
        ],
        items,
        key=lambda one: one.name,
        nothing="No group reads this topic.",
        mark="readers",
    )


async def elect(console: Console, name: str) -> None:
    topic = console.watch.snapshot.topics.get(name)
    if topic is None:
        return
    wheres = [TopicPartition(name, one.number) for one in topic.partitions]
    done, count = await attempt(console.actions.elect, user(), wheres)
    if done:
        ui.notify(f"{count} leaders elected" if count else "Every partition already has its preferred leader.")


async def grow(console: Console, name: str) -> None:
    topic, who = console.watch.snapshot.topics.get(name), user()
    have = len(topic.partitions) if topic else 1
    with ui.dialog() as dialog, ui.card().classes("o-card"):
        ui.label(f"Partitions of {name}").classes("o-head")
        ui.label("Partitions can be added, not removed. Afterwards keys map to other partitions.").classes("o-soft")
        count = (
            ui.number("Partitions", value=have + 1, min=have + 1, format="%d")
            .classes("w-full")
            .props("data-mark=grow-count")
        )
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat")
            ui.button("Add", on_click=lambda: dialog.submit(True)).props("unelevated").props("data-mark=grow-do")
    wanted, value = await dialog, count.value
    dialog.delete()
    if wanted:
        try:
            target = whole(value, "partitions")
        except Failed as error:
            ui.notify(str(error), type="negative")
            return
        await attempt(console.actions.grow_topic, who, name, target, done=f"{name} has {target} partitions")


async def delete(console: Console, name: str) -> None:
    who = user()
    question = f"Delete {name} with all its records? This cannot be undone."
    if await sure(question, "Delete", typed=name):
        done, _ = await attempt(console.actions.delete_topic, who, name, done=f"{name} is deleted")
        if done:
            ui.navigate.to("/topics")
