"""`ottla top`: show the cluster live in a terminal. Rates are differences between two samples."""

import sys
import time
from typing import Annotated, Any, NamedTuple

import typer
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ottla.client import offsets
from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.failure import Failed
from ottla.client.group_list import list_committed
from ottla.client.layout import Layout, read_layout, replica_sizes
from ottla.client.placement import Place
from ottla.size import format_size
from ottla.tools.output import document, format_cell
from ottla.tools.session import BOOTSTRAP, Bootstrap, Json, Properties, wire

ROWS = 15
Row = dict[str, Any]


class ClusterSample(NamedTuple):
    """One sample of the cluster."""

    at_s: float
    layout: Layout
    ends: dict[Place, int]
    sizes: dict[Place, dict[int, int]]
    commits: dict[str, dict[Place, int]]  # group, partition, offset
    states: dict[str, str]


def top(
    interval: Annotated[float, typer.Option("--interval", "-i", min=0.2, help="Seconds between updates")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit")] = False,
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="Maximum topics and groups to show")] = ROWS,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006 - Typer reads the default and hands out a new list
) -> None:
    """Show brokers, topics and groups live: leaders, rates and lag. Stop with Ctrl-C."""
    with wire(bootstrap, properties) as cluster:
        before = look(cluster)
        time.sleep(interval)
        now = look(cluster)
        if json:
            document({"brokers": brokers(now), "topics": topics(before, now), "groups": groups(before, now)})
            return
        if once or not sys.stdout.isatty():  # no terminal: nothing to update
            Console().print(screen(before, now, rows, ""))
            return
        with Live(screen(before, now, rows, ""), screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(interval)
                trouble = ""
                try:
                    before, now = now, look(cluster)
                except Failed as error:  # show it and go on: the cluster may recover
                    trouble = str(error)
                live.update(screen(before, now, rows, trouble), refresh=True)


def look(cluster: Cluster) -> ClusterSample:
    layout = read_layout(cluster)
    led = [TopicPartition(*place) for place, one in layout.partitions.items() if one.leader >= 0]
    ends: dict[Place, int] = dict(offsets.latest(cluster, led).items())
    commits: dict[str, dict[Place, int]] = {}
    states = {}
    for name, group in sorted(list_committed(cluster).items()):
        commits[name] = {where: one.offset for where, one in group.committed.items()}
        states[name] = group.listed.state
    return ClusterSample(time.monotonic(), layout, ends, replica_sizes(cluster), commits, states)


def brokers(now: ClusterSample) -> list[Row]:
    partitions = now.layout.partitions
    return [
        {
            "broker": broker,
            "address": f"{node.host}:{node.port}",
            "controller": broker == now.layout.controller,
            "leads": sum(one.leader == broker for one in partitions.values()),
            "replicas": sum(broker in one.replicas for one in partitions.values()),
            "out_of_sync": sum(broker in one.replicas and broker not in one.isr for one in partitions.values()),
            "bytes": sum(some.get(broker, 0) for some in now.sizes.values()),
        }
        for broker, node in now.layout.brokers.items()
    ]


def topics(before: ClusterSample, now: ClusterSample) -> list[Row]:
    """Busiest first."""
    rows: dict[str, Row] = {}
    seconds = max(now.at_s - before.at_s, 1e-9)
    for place, one in now.layout.partitions.items():
        row = rows.setdefault(
            place[0],
            {"topic": place[0], "partitions": 0, "records_per_s": 0.0, "bytes": 0, "under_replicated": 0},
        )
        row["partitions"] += 1
        row["records_per_s"] += advance(before.ends, now.ends, place) / seconds
        row["bytes"] += now.sizes.get(place, {}).get(one.leader, 0)
        row["under_replicated"] += len(one.isr) < len(one.replicas)
    return sorted(rows.values(), key=lambda row: (-row["records_per_s"], -row["bytes"], row["topic"]))


def groups(before: ClusterSample, now: ClusterSample) -> list[Row]:
    """Largest lag first. `clear_s` is known only for a group that reads faster than its topics grow."""
    rows: list[Row] = []
    seconds = max(now.at_s - before.at_s, 1e-9)
    for name, commits in now.commits.items():
        lag = sum(max(0, now.ends[place] - offset) for place, offset in commits.items() if place in now.ends)
        earlier = before.commits.get(name, {})
        read = sum(advance(earlier, commits, place) for place in commits) / seconds
        written = sum(advance(before.ends, now.ends, place) for place in commits) / seconds
        gain = read - written
        rows.append(
            {
                "group": name,
                "state": now.states.get(name, ""),
                "lag": lag,
                "records_per_s": read,
                "clear_s": 0.0 if lag == 0 else lag / gain if gain > 0 else None,
            }
        )
    return sorted(rows, key=lambda row: (-row["lag"], row["group"]))


def advance(before: dict[Place, int], now: dict[Place, int], place: Place) -> int:
    """By how much an offset grew; 0 for a new or recreated partition."""
    return max(0, now.get(place, 0) - before.get(place, now.get(place, 0)))


def screen(before: ClusterSample, now: ClusterSample, rows: int, trouble: str) -> Group:
    layout = now.layout
    under = sum(len(one.isr) < len(one.replicas) for one in layout.partitions.values())
    leaderless = sum(one.leader < 0 for one in layout.partitions.values())
    health = "healthy" if not under and not leaderless else f"{under} under-replicated, {leaderless} without a leader"
    head = Text(f"{len(layout.brokers)} brokers  {len(layout.partitions)} partitions  {health}", style="bold")
    parts: list[Any] = [head]
    if trouble:
        parts.append(Text(trouble, style="bold red"))
    for title, found in (("brokers", brokers(now)), ("topics", topics(before, now)), ("groups", groups(before, now))):
        parts += [Text(), draw(title, found, len(found) if title == "brokers" else rows)]
    return Group(*parts)


def draw(title: str, found: list[Row], rows: int) -> Table | Text:
    if not found:
        return Text(f"no {title}", style="dim")
    here = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, value in found[0].items():
        here.add_column(heading(name), justify="left" if isinstance(value, (str, bool)) else "right")
    for row in found[:rows]:
        here.add_row(*(Text(cell(name, value)) for name, value in row.items()))
    if len(found) > rows:
        here.caption = f"and {len(found) - rows} more {title}"
    return here


def heading(name: str) -> str:
    return {"records_per_s": "records/s", "clear_s": "clear in"}.get(name, name.replace("_", " "))


def cell(name: str, value: Any) -> str:
    if name == "bytes":
        return format_size(value)
    if name == "clear_s" and value is not None:
        return f"{value:,.0f} s"
    return format_cell(value)
