"""The table of the demo: redrawn in place on a terminal, printed every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final, Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.demo.watch import DemoView

PRINT_S: Final = 10.0
MARKERS: Final = (
    "Records and lag are counted by offsets. Each transaction ends with a marker, which takes an offset and is no "
    "record: a topic that was written exactly once shows more than it has, and a group that has read it all some lag."
)


class Screen:
    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._console = Console() if self._terminal else Console(width=100)
        self._live = Live(console=self._console, auto_refresh=False) if self._terminal else None
        self._printed = float("-inf")

    def show(self, views: Mapping[str, DemoView]) -> None:
        if self._live is not None:
            self._live.start()
            self._live.update(draw(views), refresh=True)
        elif time.monotonic() - self._printed >= PRINT_S:
            self.last(views)

    def last(self, views: Mapping[str, DemoView]) -> None:
        """Print the table once more, so that it stays on the terminal."""
        self._end()
        self._printed = time.monotonic()
        self._console.print(draw(views))
        sys.stdout.flush()

    def _end(self) -> None:
        if self._live is not None and self._live.is_started:
            self._live.update("", refresh=True)
            self._live.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()


def draw(views: Mapping[str, DemoView]) -> Group:
    topics = new_table("broker", "topic", numbers=("partitions", "records", "records/s"))
    groups = new_table("broker", "group", "reads", numbers=("committed", "lag", "records/s"))
    for name, view in views.items():
        for topic in view.topics:
            topics.add_row(name, topic.name, *map(show_number, (topic.partitions, topic.records, topic.per_second)))
        for group in view.groups:
            reads = ", ".join(group.topics)
            groups.add_row(name, group.name, reads, *map(show_number, (group.committed, group.lag, group.per_second)))
    return Group("", topics, "", groups, Text(MARKERS, style="dim"), "")


def new_table(*columns: str, numbers: tuple[str, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def show_number(number: float) -> str:
    return f"{number:,.0f}"
