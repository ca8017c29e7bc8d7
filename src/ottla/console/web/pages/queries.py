"""Queries: Spark's streaming queries, and the graph of readers and writers with rate and lag on each edge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

from ottla.console.watch.graph import GROUP, QUERY, TOPIC, edges, queries
from ottla.console.web import units
from ottla.console.web.frame import frame, live
from ottla.console.web.pages.groups import place as group_place
from ottla.console.web.table import Column, Paged

if TYPE_CHECKING:
    from ottla.console.console import Console
    from ottla.console.watch.graph import Edge, SparkQuery
    from ottla.console.watch.snapshot import Snapshot

EDGES_MAX = 60
COLOURS = {TOPIC: "#2f6fde", GROUP: "#2ba471", QUERY: "#e0823d"}
ROW = 46
PHONE = 500  # pixels


def add(console: Console) -> None:
    @ui.page("/queries")
    def page() -> None:
        with frame(console, "Queries and flows", "/queries"):
            show(console)


def show(console: Console) -> None:
    with ui.element("div").classes("o-card"):
        with ui.row().classes("items-center w-full gap-3"):
            ui.label("Who reads what").classes("o-head")
            note = ui.label().classes("o-soft")
            ui.space()
            for kind, colour in COLOURS.items():
                with ui.row().classes("items-center gap-1 no-wrap"):
                    ui.element("div").classes("o-dot").style(f"background:{colour}")
                    ui.label(kind).classes("o-soft")
        chart = ui.echart({"animation": False, "tooltip": {"renderMode": "richText"}, "series": []}).classes("w-full")
        chart.props("data-mark=graph")
    with ui.element("div").classes("o-card"):
        ui.label("Spark queries").classes("o-head q-mb-xs")
        table: Paged[SparkQuery] = Paged(
            [
                Column("Query", lambda one: one.name, lambda one: one.name, link=lambda one: group_place(one.group)),
                Column("Reads", lambda one: units.brief(", ".join(one.reads), 40), lambda one: one.reads),
                Column("Batch", lambda one: units.number(one.batch), lambda one: one.batch, right=True),
                Column("Rate", lambda one: units.rate(one.rate), lambda one: one.rate, right=True),
                Column("Lag", lambda one: units.number(one.lag), lambda one: one.lag, right=True),
                Column(
                    "Behind", lambda one: units.span(one.seconds), lambda one: one.seconds or 0, right=True, wide=True
                ),
                Column("Id", lambda one: one.id, wide=True, tone=lambda one: "o-mono"),
            ],
            lambda: queries(console.watch.snapshot),
            key=lambda one: one.group,
            nothing="No Spark query that uses Ottla's source commits to a group here.",
            mark="queries",
        )

    def update(snapshot: Snapshot) -> None:
        every = edges(snapshot, console.writers.pairs(snapshot.taken))
        drawn = every[:EDGES_MAX]
        note.set_text(f"the busiest {EDGES_MAX} of {len(every):,} edges" if len(every) > EDGES_MAX else "")
        options, height = graph(drawn)
        if options != {name: chart.options.get(name) for name in options}:
            chart.options.update(options)
            chart.style(f"height:{height}px")
            chart.update()
        table.update()

    live(console, update)


def graph(drawn: list[Edge]) -> tuple[dict[str, Any], int]:
    """Columns from left to right: topics read, their readers, topics written."""
    columns: list[list[tuple[str, str]]] = [[], [], []]
    written = {edge.target for edge in drawn if edge.target[0] == TOPIC}
    read = {edge.source for edge in drawn if edge.source[0] == TOPIC}
    for edge in drawn:
        for node, column in ((edge.source, 0 if edge.source[0] == TOPIC else 1), (edge.target, 1)):
            at = 2 if node in written - read else column
            if node[0] == TOPIC and node in read:
                at = 0
            if not any(node in nodes for nodes in columns):
                columns[at].append(node)
    tallest = max(map(len, columns), default=0)
    height = max(160, tallest * ROW + 40)
    places = {}
    for at, nodes in enumerate(columns):
        for row, node in enumerate(nodes):
            places[node] = (at, (row + 0.5) * ROW * tallest / len(nodes))
    data = [
        {
            "name": f"{kind}:{name}",
            "value": [x, y],
            "symbolSize": 16,
            "itemStyle": {"color": COLOURS[kind]},
            "label": {"formatter": units.brief(name, 36), "position": "right" if x else "left"},
        }
        for (kind, name), (x, y) in places.items()
    ]
    links = [
        {
            "source": ":".join(edge.source),
            "target": ":".join(edge.target),
            "label": {"show": True, "formatter": label_of(edge), "position": label_place(edge, drawn)},
            "lineStyle": {"width": 1 + min(4.0, edge.rate**0.5 / 4)},
        }
        for edge in drawn
    ]
    series = {
        "type": "graph",
        "layout": "none",
        "coordinateSystem": "cartesian2d",
        "cursor": "default",
        "data": data,
        "links": links,
        "edgeSymbol": ["none", "arrow"],
        "edgeSymbolSize": 8,
        "label": {"show": True, "color": "#8a94a6", "fontSize": 12},
        "edgeLabel": {"color": "#8a94a6", "fontSize": 12, "opacity": 1, "padding": [0, 14]},
        "lineStyle": {"color": "rgba(127,140,160,.6)", "curveness": 0.03},
    }
    # Beside the columns there are 22 % of the width: on a phone long names are cut at their end, not by the edge.
    phone = {"series": [{"label": {"width": 68, "overflow": "truncate"}, "edgeLabel": {"fontSize": 10}}]}
    hidden = {"show": False, "type": "value", "min": 0}
    last = 2 if columns[2] else 1
    return {
        "grid": {"left": "22%", "right": "22%", "top": 24, "bottom": 14},
        "xAxis": {**hidden, "max": last},
        "yAxis": {**hidden, "inverse": True, "max": max(1, tallest) * ROW},
        "series": [series],
        "media": [{"query": {"maxWidth": PHONE}, "option": phone}],
    }, height


def label_place(edge: Edge, drawn: list[Edge]) -> str:
    """Put the label at the end of the edge that no other edge shares."""
    if sum(other.target == edge.target for other in drawn) == 1:
        return "insideEndTop"
    return "insideStartTop" if sum(other.source == edge.source for other in drawn) == 1 else "middle"


def label_of(edge: Edge) -> str:
    return units.rate(edge.rate) + (f", lag {units.number(edge.lag)}" if edge.lag is not None else "")
