"""Reassignment: propose a plan, see its changes and bytes, throttle, run, follow, cancel; preferred election."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from nicegui import run, ui

from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed
from ottla.client.placement import PlacementError, ReplicaChange, changes, propose
from ottla.console.web import units
from ottla.console.web.frame import attempt, chip, frame, live, sure, user
from ottla.console.web.table import Column, Paged

if TYPE_CHECKING:
    from ottla.client.placement import Place, Replicas
    from ottla.console.console import Console
    from ottla.console.watch.snapshot import Move, Partition, Snapshot

WAYS = {
    "spread": "Spread evenly, with the fewest moves",
    "drain": "Drain a broker",
    "copies": "Change the replication factor",
}
THROTTLE_MB = 50
AT_ONCE_MAX = 5000


def add(console: Console) -> None:
    @ui.page("/reassignment")
    def reassignment() -> None:
        with frame(console, "Reassignment", "/reassignment"):
            show_running(console)
            Proposal(console)
            show_elections(console)


def show_running(console: Console) -> None:
    with ui.element("div").classes("o-card") as card:
        with ui.row().classes("items-center w-full q-mb-xs"):
            ui.label("In progress").classes("o-head")
            total = ui.label().classes("o-soft").props("data-mark=moves-total")
            ui.space()
            if console.actions.allowed:
                ui.button("Cancel all", icon="cancel", on_click=lambda: cancel(console)).props(
                    "flat color=negative"
                ).props("data-mark=moves-cancel")
        bar = ui.linear_progress(0.0, show_value=False, size="8px").props("rounded")
        table: Paged[Move] = Paged(
            [
                Column("Partition", lambda one: f"{one.where.topic} / {one.where.partition}", lambda one: one.where),
                Column("Replicas", lambda one: join(one.replicas), wide=True),
                Column("Adding", lambda one: join(one.adding), tone=lambda one: "o-good" if one.adding else "o-soft"),
                Column(
                    "Removing",
                    lambda one: join(one.removing),
                    tone=lambda one: "o-warn" if one.removing else "o-soft",
                ),
                Column("Copied", lambda one: show_progress(console.watch.snapshot, one), right=True),
            ],
            lambda: console.watch.snapshot.moves,
            key=lambda one: str(one.where),
            size=10,
            mark="moves",
        )

    def update(snapshot: Snapshot) -> None:
        card.set_visibility(bool(snapshot.moves))
        done, all_bytes = progress(snapshot)
        bar.set_value(done / all_bytes if all_bytes else 0.0)
        total.set_text(f"{len(snapshot.moves):,} partitions, {units.size(done)} of {units.size(all_bytes)} copied")
        table.update()

    live(console, update)


def progress(snapshot: Snapshot) -> tuple[int, int]:
    """Bytes copied so far by the running moves, and bytes to copy."""
    done = total = 0
    for move in snapshot.moves:
        part = snapshot.partition(move.where)
        size = max(0, part.size) if part else 0
        for node in move.adding:
            total += size
            done += min(size, snapshot.sizes.get(node, {}).get(move.where, 0))
    return done, total


def show_progress(snapshot: Snapshot, move: Move) -> str:
    part = snapshot.partition(move.where)
    size = max(0, part.size) if part else 0
    have = [snapshot.sizes.get(node, {}).get(move.where, 0) for node in move.adding]
    return f"{units.size(min(have, default=0))} of {units.size(size)}"


def join(nodes: tuple[int, ...]) -> str:
    return ", ".join(map(str, nodes)) or "—"


async def cancel(console: Console) -> None:
    who = user()
    plan: dict[TopicPartition, tuple[int, ...] | None] = {move.where: None for move in console.watch.snapshot.moves}
    if plan and await sure(f"Cancel {len(plan)} moves? The old replicas stay.", "Cancel the moves"):
        await attempt(console.actions.reassign, who, plan, done="The moves are cancelled")


class Proposal:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._changes: list[ReplicaChange] = []
        brokers = {node: f"broker {node}" for node in console.watch.snapshot.brokers}
        with ui.element("div").classes("o-card"):
            ui.label("Propose").classes("o-head q-mb-sm")
            with ui.row().classes("w-full items-end gap-3"):
                self._way = ui.select(WAYS, value="spread", label="What").props("dense outlined options-dense")
                self._way.style("min-width:280px").props("data-mark=plan-way")
                self._topics = ui.input("Topics", value="*", placeholder="orders, logs-*").props(
                    "dense outlined maxlength=500"
                )
                self._topics.style("min-width:180px").props("data-mark=plan-topics")
                self._leaving = ui.select(brokers, multiple=True, label="Brokers to drain").props(
                    "dense outlined options-dense"
                )
                self._leaving.style("min-width:170px").bind_visibility_from(self._way, "value", value="drain").props(
                    "data-mark=plan-leaving"
                )
                self._copies = ui.number("Replicas", value=3, min=1, max=len(brokers) or 1, format="%d").props(
                    "dense outlined"
                )
                self._copies.style("width:110px").bind_visibility_from(self._way, "value", value="copies").props(
                    "data-mark=plan-copies"
                )
                ui.button("Propose", icon="lightbulb", on_click=self.propose).props("unelevated").props(
                    "data-mark=plan-propose"
                )
            self._said = ui.label("Racks are respected, and replicas stay where they are if possible.").classes(
                "o-soft q-mt-sm"
            )
            self._said.props("data-mark=plan-said")
            with ui.column().classes("w-full gap-2") as self._result:
                self._table: Paged[ReplicaChange] = Paged(
                    [
                        Column("Partition", lambda one: f"{one.place[0]} / {one.place[1]}", lambda one: one.place),
                        Column("Now", lambda one: join(one.old)),
                        Column("Then", lambda one: join(one.new), tone=lambda one: "o-note"),
                        Column(
                            "To copy",
                            lambda one: units.size(one.bytes_to_copy),
                            lambda one: one.bytes_to_copy,
                            right=True,
                        ),
                    ],
                    lambda: self._changes,
                    key=lambda one: str(one.place),
                    size=10,
                    mark="plan",
                )
                if console.actions.allowed:
                    with ui.row().classes("w-full items-end justify-end gap-3"):
                        self._throttle = ui.number("Throttle, MB/s for each broker", value=THROTTLE_MB, min=0.01)
                        self._throttle.props("dense outlined").style("width:230px").props("data-mark=plan-throttle")
                        ui.button("Run", icon="play_arrow", on_click=self.run).props("unelevated").props(
                            "data-mark=plan-run"
                        )
                else:
                    chip("This console is read-only: start it with --allow-changes to run a plan.", "o-note")
            self._result.set_visibility(False)

    async def propose(self) -> None:
        snapshot = self._console.watch.snapshot
        way = str(self._way.value)
        patterns = [text.strip() for text in str(self._topics.value or "*").split(",") if text.strip()]
        leaving = {int(node) for node in self._leaving.value or ()} if way == "drain" else set()
        copies = int(self._copies.value or 1) if way == "copies" else None
        if way == "drain" and not leaving:
            ui.notify("Choose a broker to drain.", type="warning")
            return
        try:
            found = await run.io_bound(plan_moves, *planner_input(snapshot), patterns, leaving, copies, way == "spread")
        except Failed as error:
            ui.notify(str(error), type="negative", multi_line=True)
            return
        self._changes = found or []
        self._result.set_visibility(bool(self._changes))
        total, moved = sum(one.bytes_to_copy for one in self._changes), sum(bool(one.added) for one in self._changes)
        self._said.set_text(
            f"{len(self._changes):,} partitions change, {moved:,} of them are copied: {units.size(total)} in total."
            if self._changes
            else "Nothing to do: the assignment is already as requested."
        )
        self._table.update()

    async def run(self) -> None:
        if not self._changes:
            return
        who = user()
        total = sum(one.bytes_to_copy for one in self._changes)
        limit: Any = self._throttle.value
        throttle = int(float(limit) * 1_000_000) if limit else None
        question = f"Move {len(self._changes):,} partitions, {units.size(total)}" + (
            f", at most {limit:g} MB/s for each broker?" if throttle else ", without a throttle?"
        )
        if not await sure(question, "Run"):
            return
        plan: dict[TopicPartition, tuple[int, ...] | None] = {
            TopicPartition(*one.place): one.new for one in self._changes
        }
        done, _ = await attempt(self._console.actions.reassign, who, plan, throttle, done="The moves have started")
        if done:
            self._changes = []
            self._result.set_visibility(False)
            self._said.set_text("The moves have started; the throttle is removed when they are done.")


def planner_input(snapshot: Snapshot) -> tuple[dict[Any, Any], dict[int, str | None], dict[Any, int]]:
    """The input of the planner."""
    current, sizes = {}, {}
    for topic in snapshot.topics.values():
        for part in topic.partitions:
            where = TopicPartition(topic.name, part.number)
            current[where] = part.replicas
            sizes[where] = max(0, part.size)
    brokers = {one.node: one.rack for one in snapshot.brokers.values() if one.listed and one.silence is None}
    return current, brokers, sizes


def plan_moves(
    current: dict[Place, Replicas],
    brokers: dict[int, str | None],
    sizes: dict[Place, int],
    patterns: list[str],
    leaving: set[int],
    copies: int | None,
    balance: bool,
) -> list[ReplicaChange]:
    chosen = {
        where: replicas
        for where, replicas in current.items()
        if any(fnmatchcase(where[0], pattern) for pattern in patterns) and (not leaving or leaving & set(replicas))
    }
    if not chosen:
        raise Failed("no partition matches these topics and brokers")
    left = {node: rack for node, rack in brokers.items() if node not in leaving}
    try:
        plan = propose(chosen, left, replicas=copies, sizes=sizes, spread=balance)
    except PlacementError as error:
        raise Failed(str(error)) from None
    return changes(chosen, plan, sizes)[:AT_ONCE_MAX]


def show_elections(console: Console) -> None:
    def items() -> list[tuple[TopicPartition, Partition]]:
        return [
            (TopicPartition(topic.name, part.number), part)
            for topic in console.watch.snapshot.topics.values()
            for part in topic.partitions
            if part.leader >= 0 and not part.preferred
        ]

    with ui.element("div").classes("o-card"):
        ui.label("Preferred leaders").classes("o-head q-mb-xs")

        def tools() -> None:
            count.append(ui.label().classes("o-soft").props("data-mark=elect-count"))
            ui.space()
            if console.actions.allowed:
                ui.button("Elect selected", on_click=lambda: choose()).props("outline").props("data-mark=elect-chosen")
                ui.button("Elect all", on_click=lambda: elect(None)).props("unelevated").props("data-mark=elect-all")

        count: list[Any] = []
        table: Paged[tuple[TopicPartition, Partition]] = Paged(
            [
                Column("Partition", lambda one: f"{one[0].topic} / {one[0].partition}", lambda one: one[0]),
                Column("Leader", lambda one: str(one[1].leader), lambda one: one[1].leader, right=True),
                Column("Preferred", lambda one: str(one[1].replicas[0]), lambda one: one[1].replicas[0], right=True),
                Column("In sync", lambda one: join(one[1].isr), wide=True),
            ],
            items,
            key=lambda one: f"{one[0].topic}/{one[0].partition}",
            find=lambda one: one[0].topic,
            size=10,
            hint="Search topics",
            selection=console.actions.allowed,
            nothing="Every partition has its preferred leader.",
            mark="elect",
            tools=tools,
        )

    async def elect(wheres: list[TopicPartition] | None) -> None:
        done, elected = await attempt(console.actions.elect, user(), wheres)
        if done:
            table.clear()
            ui.notify(f"{elected} leaders elected" if elected else "Nothing to elect", type="positive")

    async def choose() -> None:
        if not table.chosen:
            ui.notify("Select partitions first.", type="warning")
            return
        await elect([one[0] for one in table.chosen])

    def update(snapshot: Snapshot) -> None:
        table.update()
        total = len(items())
        count[0].set_text(f"{total:,} not led by the preferred broker" if total else "")

    live(console, update)
