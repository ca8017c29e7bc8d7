"""One group: members and assignments, lag in records and seconds with its trend, offset reset with a preview."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nicegui import ui

from ottla.client.failure import Failed
from ottla.console.web import units
from ottla.console.web.charts import Plot
from ottla.console.web.frame import StatCard, attempt, chip, empty, frame, live, sure, user
from ottla.console.web.pages.groups import clear, tone
from ottla.console.web.table import Column, Paged

if TYPE_CHECKING:
    from ottla.client.cluster import TopicPartition
    from ottla.console.console import Console
    from ottla.console.history import Point
    from ottla.console.watch.snapshot import Group, Lag, Member, Snapshot

WAYS = {
    "earliest": "The beginning",
    "latest": "The end",
    "time": "A time",
    "offset": "An offset",
    "shift": "Shift by a number of records",
}
ALL = "all topics"


def add(console: Console) -> None:
    @ui.page("/groups/{name:path}")
    def group(name: str) -> None:
        with frame(console, units.brief(name, 120), "/groups"):
            show(console, name)


def show(console: Console, name: str) -> None:
    def now() -> Group | None:
        return console.watch.snapshot.groups.get(name)

    if now() is None:
        empty("There is no such group now: it has no members and no offsets.", "groups")
        return
    with ui.row().classes("items-center gap-2 w-full"):
        state, kind, coordinator = chip(""), chip(""), ui.label().classes("o-soft")
        ui.space()
        if console.actions.allowed:
            ui.button("Reset offsets", icon="restart_alt", on_click=lambda: reset(console, name)).props("flat").props(
                "data-mark=reset"
            )
            ui.button("Delete", icon="delete", on_click=lambda: delete(console, name)).props(
                "flat color=negative data-mark=group-delete"
            )
    with ui.element("div").classes("o-grid"):
        lag, seconds, trend = StatCard("Lag"), StatCard("Behind by"), StatCard("Trend")
        flow, done, members = StatCard("Consumes"), StatCard("Caught up"), StatCard("Members")
    with ui.element("div").classes("o-two"):

        def read(since: int) -> list[Point]:
            return console.history.points(console.watch.snapshot.cluster, "group", name, since)

        Plot("Lag in records", read, [("records", lambda point: point.a)])
        Plot("Lag in seconds", read, [("seconds", lambda point: point.b)], unit=" s")
    with ui.element("div").classes("o-card"):
        ui.label("Partitions").classes("o-head q-mb-sm")
        lags: Paged[Lag] = lag_table(console, name)
    with ui.element("div").classes("o-card"):
        ui.label("Members").classes("o-head q-mb-sm")
        people: Paged[Member] = member_table(console, name)

    def update(snapshot: Snapshot) -> None:
        one = snapshot.groups.get(name)
        if one is None:
            state.set_text("gone")
            return
        state.set_text(one.state or "—")
        state.classes(replace=tone(one))
        kind.set_text(f"{one.kind}, {one.protocol}" if one.protocol else one.kind)
        coordinator.set_text(f"coordinator: broker {one.coordinator}")
        lag.set(units.number(one.lag), "records")
        seconds.set(units.span(one.seconds), "oldest unread record")
        trend.set(units.change(one.trend), "change of the lag", "o-warn" if one.trend > 0.5 and one.lag > 100 else "")
        flow.set(units.rate(one.rate))
        done.set(
            "—" if one.clear_s is None else clear(one), "not at this pace" if one.clear_s is None else "at this pace"
        )
        members.set(units.number(len(one.members)), f"{len(one.lags)} partitions")
        lags.update()
        people.update()

    live(console, update)


def lag_table(console: Console, name: str) -> Paged[Lag]:
    def items() -> list[Lag]:
        group = console.watch.snapshot.groups.get(name)
        return list(group.lags) if group else []

    return Paged(
        [
            Column("Topic", lambda one: one.where.topic, lambda one: one.where),
            Column("Partition", lambda one: str(one.where.partition), lambda one: one.where.partition, right=True),
            Column(
                "Committed",
                lambda one: "never" if one.committed is None else units.number(one.committed),
                lambda one: -1 if one.committed is None else one.committed,
                right=True,
                wide=True,
                tone=lambda one: "o-soft" if one.committed is None else "",
            ),
            Column("Start", lambda one: units.number(one.start), lambda one: one.start, right=True, wide=True),
            Column("End", lambda one: units.number(one.end), lambda one: one.end, right=True, wide=True),
            Column("Lag", lambda one: units.number(one.records), lambda one: one.records or 0, right=True),
            Column("Behind", lambda one: units.span(one.seconds), lambda one: one.seconds or 0, right=True),
            Column(
                "Read by",
                lambda one: units.brief(one.owner, 40) or "nobody",
                lambda one: one.owner,
                wide=True,
                tone=lambda one: "" if one.owner else "o-soft",
            ),
        ],
        items,
        key=lambda one: f"{one.where.topic}/{one.where.partition}",
        find=lambda one: one.where.topic,
        hint="Search topics",
        nothing="The group has committed nothing.",
        mark="lags",
    )


def member_table(console: Console, name: str) -> Paged[Member]:
    def items() -> list[Member]:
        group = console.watch.snapshot.groups.get(name)
        return list(group.members) if group else []

    def list_assigned(one: Member) -> str:
        topics: dict[str, list[int]] = {}
        for topic, index in one.partitions:
            topics.setdefault(topic, []).append(index)
        listed = "; ".join(f"{topic}: {', '.join(map(str, sorted(indexes)))}" for topic, indexes in topics.items())
        return units.brief(listed, 90) or "nothing"

    return Paged(
        [
            Column("Client", lambda one: units.brief(one.client, 50), lambda one: one.client),
            Column("Host", lambda one: one.host, lambda one: one.host, wide=True),
            Column("Assigned", list_assigned, lambda one: len(one.partitions)),
            Column("Instance id", lambda one: one.instance or "—", lambda one: one.instance or "", wide=True),
            Column(
                "Member id",
                lambda one: units.brief(one.id, 60),
                lambda one: one.id,
                wide=True,
                tone=lambda one: "o-mono",
            ),
        ],
        items,
        key=lambda one: one.id,
        nothing="The group has no members now.",
        mark="members",
    )


async def delete(console: Console, name: str) -> None:
    who = user()
    if await sure(f"Delete the group {name} with its offsets? Its consumers would start over.", "Delete", typed=name):
        done, _ = await attempt(console.actions.delete_group, who, name, done=f"{name} is deleted")
        if done:
            ui.navigate.to("/groups")


async def reset(console: Console, name: str) -> None:
    """A dialog: choose the target, preview every partition, then commit."""
    group, who = console.watch.snapshot.groups.get(name), user()
    if group is None:
        return
    planned: dict[TopicPartition, int] = {}
    with ui.dialog() as dialog, ui.card().classes("o-card").style("min-width:min(640px,94vw)"):
        ui.label(f"Reset offsets of {name}").classes("o-head o-wrap")
        if group.members:
            chip("The group has members: stop them first, or the cluster refuses.", "o-warn")
        with ui.row().classes("w-full items-end"):
            topic = ui.select([ALL, *group.topics], value=ALL, label="Topic").style("min-width:170px")
            way = ui.select(WAYS, value="earliest", label="To").style("min-width:190px").props("data-mark=reset-way")
            amount = (
                ui.input("2026-01-31 18:00 UTC, an offset, or -100")
                .style("min-width:200px")
                .props("data-mark=reset-amount")
            )
            amount.bind_visibility_from(way, "value", backward=lambda value: value in ("time", "offset", "shift"))
        preview: Paged[tuple[TopicPartition, int]] = Paged(
            [
                Column("Partition", lambda one: f"{one[0].topic} / {one[0].partition}", lambda one: one[0]),
                Column("Now", lambda one: before(group, one[0]), right=True),
                Column("Then", lambda one: units.number(one[1]), lambda one: one[1], right=True),
                Column("Difference", lambda one: difference(group, *one), right=True),
            ],
            lambda: list(planned.items()),
            key=lambda one: str(one[0]),
            size=10,
            nothing="Press Preview to see what would change.",
            mark="reset-preview",
        )

        async def look() -> None:
            chosen = {one.where: one.committed for one in group.lags if topic.value in (ALL, one.where.topic)}
            try:
                value = parse_amount(str(way.value), str(amount.value or ""))
            except Failed as error:
                ui.notify(str(error), type="negative")
                return
            done, found = await attempt(console.actions.targets, name, chosen, str(way.value), value)
            if done:
                planned.clear()
                planned.update(found)
                preview.update()
                button.enable()

        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat")
            ui.button("Preview", on_click=look).props("outline").props("data-mark=reset-look")
            button = (
                ui.button("Reset", on_click=lambda: dialog.submit(True)).props("unelevated").props("data-mark=reset-do")
            )
            button.disable()
    wanted = await dialog
    dialog.delete()
    if wanted and planned:
        await attempt(console.actions.reset, who, name, dict(planned), done=f"Offsets of {name} are reset")


def before(group: Group, where: TopicPartition) -> str:
    found = next((one.committed for one in group.lags if one.where == where), None)
    return "never" if found is None else units.number(found)


def difference(group: Group, where: TopicPartition, then: int) -> str:
    found = next((one.committed for one in group.lags if one.where == where), None)
    return "—" if found is None else "same" if found == then else f"{then - found:+,}"


def parse_amount(way: str, text: str) -> int:
    if way in ("earliest", "latest"):
        return 0
    if way == "time":
        try:
            moment = datetime.fromisoformat(text.strip().removesuffix("UTC").strip())
        except ValueError:
            raise Failed(f"{text!r} is not a time: write 2026-01-31 18:00, in UTC") from None
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    try:
        return int(text)
    except ValueError:
        raise Failed(f"{text!r} is not a number") from None
