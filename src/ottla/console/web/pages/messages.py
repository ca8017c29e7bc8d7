"""Messages: browse from the newest, an offset, a time; filter; tail live; produce one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from nicegui import run, ui

from ottla.client.failure import Failed
from ottla.console.messages import reading as reader
from ottla.console.messages.filter import LENGTH_MAX, compile_filter
from ottla.console.messages.reading import Message, MessageQuery, Reading
from ottla.console.messages.values import KINDS, SCHEMA_MAX, Decoder
from ottla.console.web import units
from ottla.console.web.frame import attempt, frame, user
from ottla.console.web.table import Column, Paged

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.console.console import Console

STARTS = {
    reader.NEWEST: "The newest",
    reader.OLDEST: "The oldest",
    reader.OFFSET: "An offset",
    reader.TIME: "A time (UTC)",
}
SUGGESTIONS = 20
TAIL_S = 1.0
TAIL_MAX = 500
HELP = (
    'key = "customer-7"   value.total > 90 and header.source = "web"   value.customer.name contains "Ada"   '
    'not key ~ "^test-"   value matches "*error*"   partition = 3 or offset > 1000'
)


def add(console: Console) -> None:
    @ui.page("/messages")
    def messages(topic: str = "", filter: str = "") -> None:
        with frame(console, "Messages", "/messages"):
            Page(console, topic[:249], filter[:LENGTH_MAX])


class Page:
    def __init__(self, console: Console, topic: str, text: str) -> None:
        self._console = console
        self._found: list[Message] = []
        self._texts: dict[tuple[int, int], tuple[str, str]] = {}  # decoded texts of the found records, made in a thread
        self._reading: Reading | None = None
        self._decode = Decoder()
        self._decode_key = Decoder()
        self._cluster: Cluster | None = None
        self._tail: dict[int, int] | None = None
        self._busy = False
        with ui.element("div").classes("o-card"):
            self._controls(topic, text)
        with ui.element("div").classes("o-card"):
            with ui.row().classes("items-center w-full q-mb-xs"):
                self._status = (
                    ui.label("Choose a topic, then press Read.").classes("o-soft").props("data-mark=messages-status")
                )
                ui.space()
            self._table: Paged[Message] = Paged(
                [
                    Column("Time (UTC)", lambda one: units.precise(one.timestamp), lambda one: one.timestamp),
                    Column(
                        "Partition", lambda one: str(one.partition), lambda one: one.partition, right=True, wide=True
                    ),
                    Column(
                        "Offset", lambda one: units.number(one.offset), lambda one: one.offset, right=True, wide=True
                    ),
                    Column("Key", lambda one: line(self._text(one)[0], 40), tone=lambda one: "o-mono"),
                    Column("Value", lambda one: line(self._text(one)[1], 160), tone=lambda one: "o-mono", grow=True),
                    Column("Size", lambda one: units.size(one.size), lambda one: one.size, right=True, wide=True),
                ],
                lambda: self._found,
                key=lambda one: f"{one.partition}/{one.offset}",
                descending=True,
                nothing="No records.",
                on_click=self._show,
                mark="messages",
            )
        ui.timer(0.5, self._progress)
        ui.timer(TAIL_S, self._follow)
        ui.context.client.on_delete(self._close)
        if topic:
            ui.timer(0.1, self.read, once=True)

    def _controls(self, topic: str, text: str) -> None:
        with ui.row().classes("w-full items-end gap-3"):
            self._topic = (
                ui.input("Topic", value=topic, on_change=self._suggest).style("min-width:220px").classes("col-grow")
            )
            self._topic.props("dense outlined maxlength=249").props("data-mark=messages-topic")
            self._partition = (
                ui.input("Partition", placeholder="all").props("dense outlined maxlength=9").style("width:110px")
            )
            self._start = ui.select(STARTS, value=reader.NEWEST, label="From").props("dense outlined options-dense")
            self._start.style("min-width:150px").props("data-mark=messages-from")
            self._amount = ui.input("Offset or time", placeholder="42 or 2026-01-31 18:00").props("dense outlined")
            self._amount.props("data-mark=messages-amount").bind_visibility_from(
                self._start, "value", backward=lambda value: value in (reader.OFFSET, reader.TIME)
            )
            self._limit = ui.select([20, 50, 100, 200, 500], value=50, label="Records").props(
                "dense outlined options-dense"
            )
            self._limit.style("width:100px")
        with ui.row().classes("w-full items-end gap-3 q-mt-sm"):
            self._filter = ui.input("Filter", value=text, placeholder='value.total > 90 and key contains "7"')
            self._filter.props(f"dense outlined clearable maxlength={LENGTH_MAX}").classes("col-grow o-mono").props(
                "data-mark=filter"
            )
            with self._filter:
                ui.tooltip(HELP).classes("o-wrap")
            self._kind = ui.select(KINDS, value="auto", label="Show as", on_change=self._recode)
            self._kind.props("dense outlined options-dense").style("min-width:130px").props("data-mark=kind")
            self._go = ui.button("Read", icon="search", on_click=self.read).props("unelevated").props("data-mark=read")
            self._live = (
                ui.button("Tail", icon="play_arrow", on_click=self._toggle_tail)
                .props("outline")
                .props("data-mark=tail")
            )
            if self._console.actions.allowed:
                ui.button("Produce", icon="edit", on_click=self._produce).props("outline").props("data-mark=produce")
        with ui.column().classes("w-full gap-1") as given:
            self._schema = ui.textarea("Schema (empty: from the registry)", on_change=self._recode).classes(
                "w-full o-mono"
            )
            self._schema.props(f"dense outlined rows=4 maxlength={SCHEMA_MAX} debounce=500").props("data-mark=schema")
            self._message = ui.input("Message of the .proto file (empty: the first)", on_change=self._recode)
            self._message.props("dense outlined maxlength=200").classes("w-full")
        given.bind_visibility_from(self._kind, "value", backward=lambda value: value in ("avro", "protobuf"))

    def _suggest(self) -> None:
        text = str(self._topic.value or "").lower()
        names = [name for name in self._console.watch.snapshot.topics if text in name.lower()]
        self._topic.set_autocomplete(names[:SUGGESTIONS])

    def _query(self) -> MessageQuery:
        partition = str(self._partition.value or "").strip()
        if partition and not partition.isdecimal():
            raise Failed(f"{partition} is not a partition number")
        start, amount = str(self._start.value), str(self._amount.value or "").strip()
        return MessageQuery(
            str(self._topic.value or "").strip(),
            start,
            moment(start, amount),
            int(partition) if partition else None,
            int(self._limit.value or 50),
            compile_filter(str(self._filter.value or "")),
        )

    async def read(self) -> None:
        if self._busy:
            if self._reading is not None:
                self._reading.stop.set()
            return
        self._stop_tail()
        try:
            query = self._query()
        except Failed as error:
            ui.notify(str(error), type="negative", multi_line=True)
            return
        if not query.topic:
            ui.notify("Which topic?", type="warning")
            return
        reading = self._reading = Reading()
        self._busy = True
        self._go.set_text("Stop")
        try:
            done, _ = await attempt(self._read, query, reading)
        finally:
            self._busy = False
            self._go.set_text("Read")
        self._found = list(reading.found)
        await self._prepare(self._found)
        self._table.descending = query.start == reader.NEWEST
        self._table.page = 1
        self._table.update()
        self._status.set_text(describe_end(reading) if done else "Nothing was read.")

    def _read(self, query: MessageQuery, reading: Reading) -> None:
        with self._console.actions.cluster() as cluster:
            reader.read(cluster, query, reading)

    def _progress(self) -> None:
        if self._busy and self._reading is not None:
            found = len(self._reading.found)
            self._status.set_text(f"Reading: {self._reading.scanned:,} records scanned, {found:,} found…")

    # ------------------------------------------------------------------ tail

    async def _toggle_tail(self) -> None:
        if self._tail is not None:
            self._stop_tail()
            return
        try:
            query = self._query()
        except Failed as error:
            ui.notify(str(error), type="negative", multi_line=True)
            return
        done, positions = await attempt(self._ends, query)
        if done:
            self._tail = positions
            self._query_of_tail = query
            self._found = []
            self._table.descending = True
            self._table.update()
            self._live.set_text("Stop")
            self._live.props("icon=stop")
            self._status.set_text("Waiting for new records…")

    def _ends(self, query: MessageQuery) -> dict[int, int]:
        self._close()
        self._cluster = self._console.actions.cluster()
        return reader.ends_of(self._cluster, query.topic, query.partition)

    async def _follow(self) -> None:
        if self._tail is None or self._busy:
            return
        self._busy = True
        try:
            reading = await run.io_bound(self._follow_once, dict(self._tail))
        except Failed as error:
            self._status.set_text(f"Retrying: {error}")
            return
        finally:
            self._busy = False
        if reading is None or self._tail is None:
            return
        self._tail = reading.positions
        await self._prepare(reading.found)
        self._found = reader.newest([*reading.found, *self._found])[:TAIL_MAX]
        if reading.found:
            self._status.set_text(f"Live: {len(self._found):,} records, newest first.")
            self._table.update()

    def _follow_once(self, positions: dict[int, int]) -> Reading:
        if self._cluster is None:
            self._cluster = self._console.actions.cluster()
        return reader.follow(self._cluster, self._query_of_tail, positions)

    def _stop_tail(self) -> None:
        if self._tail is not None:
            self._tail = None
            self._live.set_text("Tail")
            self._live.props("icon=play_arrow")
            self._status.set_text("Stopped.")

    def _close(self) -> None:
        if self._reading is not None:
            self._reading.stop.set()
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()

    # ------------------------------------------------------------------ showing and writing

    def _text(self, one: Message) -> tuple[str, str]:
        return self._texts.get((one.partition, one.offset), ("…", "…"))

    async def _prepare(self, found: list[Message]) -> None:
        """Decode in a thread: it may fetch a schema from a registry, or compile one."""
        decode_key, decode = self._decode_key, self._decode

        def work() -> dict[tuple[int, int], tuple[str, str]]:
            return {(one.partition, one.offset): (decode_key(one.key), decode(one.value)) for one in found}

        made = await run.io_bound(work)
        kept = {(one.partition, one.offset) for one in (*self._found, *found)}
        self._texts = {place: text for place, text in {**self._texts, **(made or {})}.items() if place in kept}

    async def _recode(self) -> None:
        given = str(self._kind.value), str(self._schema.value or ""), str(self._message.value or "")
        done, decode = await attempt(Decoder, *given, self._console.options.registry)
        if done:
            self._decode = decode
            self._decode_key = Decoder("hex") if given[0] == "hex" else Decoder()
            await self._prepare(self._found)
            self._table.update()

    def _show(self, one: Message) -> None:
        with ui.dialog(value=True) as dialog, ui.card().classes("o-card").style("width:min(860px,94vw);max-width:94vw"):
            place = f"{self._topic.value}, partition {one.partition}, offset {one.offset:,}"
            with ui.row().classes("items-center w-full no-wrap"):
                ui.label(place).classes("o-head o-wrap")
                ui.space()
                ui.button(icon="close", on_click=dialog.close).props("flat round dense")
            ui.label(f"{units.precise(one.timestamp)} UTC, {units.size(one.size)}").classes("o-soft")
            ui.label("Key").classes("o-soft")
            ui.label(self._text(one)[0]).classes("o-mono o-wrap").props("data-mark=message-key")
            if one.headers:
                ui.label("Headers").classes("o-soft")
                for name, value in one.headers:
                    ui.label(f"{name}: {Decoder()(value)}").classes("o-mono o-wrap")
            ui.label("Value").classes("o-soft")
            with ui.scroll_area().style("height:min(46vh,420px)").classes("w-full"):
                ui.label(pretty(self._text(one)[1])).classes("o-mono o-wrap").props("data-mark=message-value")
        dialog.on("hide", dialog.delete)

    async def _produce(self) -> None:
        who = user()
        with ui.dialog() as dialog, ui.card().classes("o-card").style("min-width:min(560px,94vw)"):
            ui.label("Produce one record").classes("o-head")
            with ui.row().classes("w-full no-wrap"):
                topic = ui.input("Topic", value=self._topic.value).classes("col-grow").props("data-mark=produce-topic")
                partition = ui.input("Partition", placeholder="by the key").style("width:120px")
            key = ui.input("Key", placeholder="none").classes("w-full").props("data-mark=produce-key")
            headers = ui.textarea("Headers", placeholder="source=web").props("rows=2").classes("w-full")
            value = (
                ui.textarea("Value")
                .props("rows=6 maxlength=1000000")
                .classes("w-full o-mono")
                .props("data-mark=produce-value")
            )
            null = ui.checkbox("No value (tombstone)")
            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat")
                ui.button("Produce", on_click=lambda: dialog.submit(True)).props("unelevated").props(
                    "data-mark=produce-do"
                )
        wanted = await dialog
        given: list[Any] = [topic.value, partition.value, key.value, headers.value, value.value, null.value]
        dialog.delete()
        if not wanted:
            return
        where, index, name, lines, content = (str(each or "") for each in given[:5])
        if index.strip() and not index.strip().isdecimal():
            ui.notify(f"{index} is not a partition number", type="negative")
            return
        pairs = tuple(
            (part[0].strip(), part[2].strip().encode())
            for each in lines.splitlines()
            if (part := each.partition("="))[1]
        )
        done, written = await attempt(
            self._console.actions.produce,
            who,
            where.strip(),
            int(index) if index.strip() else None,
            name.encode() if name else None,
            None if given[5] else content.encode(),
            pairs,
        )
        if done:
            ui.notify(f"Written to {written.topic}, partition {written.partition}", type="positive")


def line(text: str, length: int) -> str:
    return units.brief(" ".join(text[: 4 * length].split()), length)


def pretty(text: str) -> str:
    import json

    try:
        return json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return text


def describe_end(reading: Reading) -> str:
    found = f"{len(reading.found):,} records found, {reading.scanned:,} scanned"
    why = {"all": ": all were read.", "enough": ".", "stopped": ": stopped."}
    return found + why.get(reading.ended, f": {reading.ended}. Narrow the time or the partition to find more.")


def moment(start: str, text: str) -> int:
    if start == reader.OFFSET:
        if not text.isdecimal() or len(text) > 18:
            raise Failed(f"{text!r} is not an offset")
        return int(text)
    if start == reader.TIME:
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            raise Failed(f"{text!r} is not a time: write 2026-01-31 18:00, in UTC") from None
        return max(0, int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000))
    return 0


def link(topic: str) -> str:
    return f"/messages?topic={quote(topic, safe='')}"
