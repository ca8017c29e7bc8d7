"""Print results to stdout, as a table or JSON, and messages to stderr."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import NoneType
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """Numbers are right-aligned. Without a terminal, the table may be of any width."""
    here = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    here.show_header = any(columns)
    for index, column in enumerate(columns):
        numbers = {type(row[index]) for row in rows} - {NoneType} in ({int}, {float})
        here.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        here.add_row(*(format_cell(value) for value in row))
    console = Console(soft_wrap=False) if sys.stdout.isatty() else Console(width=10_000)
    console.print(here, highlight=False, markup=False)


def format_cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(str(part) for part in value)
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def document(value: Any) -> None:
    print(json.dumps(value, indent=2))


def say(message: str) -> None:
    print(message)


def warn(message: str) -> None:
    print(f"ottla: {message}", file=sys.stderr)


@contextmanager
def until_reader_leaves() -> Iterator[None]:
    """End normally when the reader of stdout closes it, as in `ottla consume ... | head`."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes stdout once more at exit


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr; call the yielded function with the amount done. Does nothing without a terminal."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
