"""Shows the progress of a run: a live table or a line every few seconds, and the state for `ottla pipeline status`."""

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ottla.spark.runner.meter import Meter
from ottla.spark.runner.state import QueryProgress, RunState, Tenure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.live import Live
    from rich.table import Table

    from ottla.spark.runner import Run

WRITE_S: Final = 1.0  # how often the state for other processes is written
LINE_S: Final = 5.0


class Board:
    """Called often by `Run.wait`; writes and draws at fixed intervals."""

    def __init__(self, tenure: Tenure, state: RunState) -> None:
        self.state = state
        self._tenure = tenure
        self._meter = Meter()
        self._written = self._printed = time.monotonic()
        self._live: Live | None = None
        tenure.write(state)

    def __call__(self, run: "Run") -> None:
        now = time.monotonic()
        if now - self._written < WRITE_S:
            return
        self._written = now
        self.state = replace(self.state, progress=self._meter.read(run.queries))
        self._tenure.write(self.state)
        if sys.stderr.isatty():
            self._draw()
        elif now - self._printed >= LINE_S and run.queries:
            self._printed = now
            print(format_line(self.state.progress), file=sys.stderr, flush=True)

    def end(self, run: "Run", state: str, reason: str = "") -> None:
        """Write the final state: the counts, and how the run ended."""
        if self._live:
            self._live.stop()
        self.state = replace(self.state, state=state, reason=reason, since=time.time())
        self._tenure.write(self.state)

    def last_look(self, run: "Run") -> None:
        """Read the last batches while Spark still answers."""
        self.state = replace(self.state, progress=self._meter.read(run.queries))

    def _draw(self) -> None:
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), auto_refresh=False)
            self._live.start()
        self._live.update(draw_table(self.state.progress), refresh=True)


def format_line(progress: "Sequence[QueryProgress]") -> str:
    return " | ".join(format_query(one) for one in progress)


def format_query(one: QueryProgress) -> str:
    if one.batch is None:
        return f"{one.query}: {format_batch(one)}"
    aside = f", {one.aside:,} put aside" if one.aside else ""
    lag = format_number(one.lag)
    return f"{one.query}: batch {one.batch:,}, {one.rows:,} rows, {one.rows_per_second:,.0f}/s, lag {lag}{aside}"


def draw_table(progress: "Sequence[QueryProgress]") -> "Table":
    from rich import box
    from rich.table import Table

    here = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    here.add_column("query")
    columns = ["batch", "rows", "rows/s", "lag", *(["aside"] if any(one.aside for one in progress) else [])]
    for column in columns:
        here.add_column(column, justify="right")
    for one in progress:
        cells = (
            format_batch(one),
            f"{one.rows:,}",
            f"{one.rows_per_second:,.0f}",
            format_number(one.lag),
            f"{one.aside:,}",
        )
        here.add_row(one.query, *cells[: len(columns)])
    return here


def format_batch(one: QueryProgress) -> str:
    """The number of the last batch. Before the first has ended, what Spark is doing."""
    if one.batch is not None:
        return format_number(one.batch)
    return f"first batch, {one.doing[:1].lower()}{one.doing[1:]}" if one.doing else "first batch"


def format_number(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"
