"""Topics: all of them, with problems highlighted; create a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from nicegui import ui

from ottla.client.failure import Failed
from ottla.console.web import units
from ottla.console.web.frame import attempt, frame, live, user
from ottla.console.web.table import Column, Paged, numeric

if TYPE_CHECKING:
    from ottla.console.console import Console
    from ottla.console.watch.snapshot import Topic

SHOWS = {"all": "All", "trouble": "With problems", "internal": "With internal ones"}
PARTITIONS_MAX = 10_000


def add(console: Console) -> None:
    @ui.page("/topics")
    def topics(only: str = "all") -> None:
        with frame(console, "Topics", "/topics"):
            show(console, only if only in SHOWS else "all")


def place(name: str) -> str:
    return f"/topics/{quote(name, safe='')}"


def trouble(topic: Topic) -> str:
    if topic.offline:
        return f"{topic.offline} without leader"
    if topic.under_min_isr:
        return f"{topic.under_min_isr} under min ISR"
    if topic.under_replicated:
        return f"{topic.under_replicated} under-replicated"
    if len(topic.partitions) and is_skewed(topic):
        return "skewed"
    return "healthy"


def is_skewed(topic: Topic) -> bool:
    """One partition has more than twice its share of the records."""
    records = [one.end - one.start for one in topic.partitions if one.end >= 0 and one.start >= 0]
    return len(records) > 1 and sum(records) > 1000 and max(records) > 2 * sum(records) / len(records)


def tone(topic: Topic) -> str:
    bad = topic.offline or topic.under_min_isr
    return "o-chip " + ("o-bad" if bad else "o-warn" if topic.under_replicated or is_skewed(topic) else "o-good")


def badness(topic: Topic) -> tuple[int, int, int, bool]:
    return topic.offline, topic.under_min_isr, topic.under_replicated, is_skewed(topic)


def show(console: Console, only: str) -> None:
    chosen = {"only": only}

    def items() -> list[Topic]:
        every = console.watch.snapshot.topics.values()
        if chosen["only"] == "internal":
            return list(every)
        if chosen["only"] == "trouble":
            return [one for one in every if any(badness(one))]
        return [one for one in every if not one.internal]

    with ui.element("div").classes("o-card"):

        def tools() -> None:
            ui.select(SHOWS, value=only, on_change=lambda event: choose(str(event.value))).props(
                "dense outlined options-dense"
            ).style("min-width:190px").props("data-mark=topics-only")
            ui.space()
            if console.actions.allowed:
                ui.button("Create topic", icon="add", on_click=lambda: create(console)).props("unelevated").props(
                    "data-mark=create"
                )

        table: Paged[Topic] = Paged(
            columns(),
            items,
            key=lambda one: one.name,
            find=lambda one: one.name,
            hint="Search topics",
            nothing="No topics yet.",
            mark="topics",
            tools=tools,
        )

    def choose(value: str) -> None:
        chosen["only"] = value
        table.update()

    live(console, lambda snapshot: table.update())


def columns() -> list[Column[Topic]]:
    return [
        Column("Topic", lambda one: one.name, lambda one: one.name, link=lambda one: place(one.name)),
        Column("State", trouble, badness, tone=tone),
        numeric("Partitions", lambda one: len(one.partitions), wide=True),
        numeric("Replicas", lambda one: one.copies, wide=True),
        numeric("Records", lambda one: one.records),
        numeric("Records in", lambda one: one.rate, units.rate),
        numeric("Size", lambda one: one.size, units.size, wide=True),
        Column("Clean-up", lambda one: one.cleanup or "—", lambda one: one.cleanup, wide=True),
        numeric("Kept for", lambda one: one.retention_ms, units.retention, wide=True),
    ]


async def create(console: Console) -> None:
    who = user()
    brokers = len(console.watch.snapshot.brokers)
    with ui.dialog() as dialog, ui.card().classes("o-card").style("min-width:min(460px,92vw)"):
        ui.label("Create topic").classes("o-head")
        name = ui.input("Name").props("maxlength=249 autofocus").classes("w-full").props("data-mark=topic-name")
        with ui.row().classes("w-full no-wrap"):
            count = ui.number("Partitions", value=3, min=1, max=PARTITIONS_MAX, format="%d").props(
                "data-mark=topic-partitions"
            )
            copies = ui.number("Replicas", value=min(3, max(1, brokers)), min=1, max=max(1, brokers), format="%d")
            for one in (count, copies):
                one.classes("col")  # half the width: a field as narrow as its number cuts off its label
        options = ui.textarea("Options", placeholder="retention.ms=86400000\ncleanup.policy=compact").classes("w-full")
        options.props("maxlength=10000 rows=3")
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat")
            ui.button("Create", on_click=lambda: dialog.submit(True)).props("unelevated").props(
                "data-mark=topic-create"
            )
    wanted = await dialog
    given = str(name.value or ""), count.value, copies.value, str(options.value or "")
    dialog.delete()
    if not wanted:
        return
    try:
        configs = pairs(given[3])
        partitions, factor = whole(given[1], "partitions"), whole(given[2], "replicas")
    except Failed as error:
        ui.notify(str(error), type="negative")
        return
    topic = given[0].strip()
    done, _ = await attempt(
        console.actions.create_topic, who, topic, partitions, factor, configs, done=f"{topic} is created"
    )
    if done:
        ui.navigate.to(place(topic))


def whole(value: object, what: str) -> int:
    try:
        return int(str(value).partition(".")[0])
    except ValueError:
        raise Failed(f"{value} is not a number of {what}") from None


def pairs(text: str) -> dict[str, str]:
    found = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise Failed(f"{line.strip()}: expected option=value")
        found[name.strip()] = value.strip()
    return found
