"""`ottla pipeline`: list, run, stop, status, new. `run` needs the extra `spark` and Java; the others need no Java."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ottla.client.failure import Failed
from ottla.tools.output import document, say, table, warn
from ottla.tools.session import Json

if TYPE_CHECKING:
    from ottla.spark.runner.state import RunState

app = typer.Typer(no_args_is_help=True, help="List, run, stop and create data pipelines on Spark.")

LIBRARIES: Final = {"pyspark", "py4j", "pyarrow", "pandas", "numpy", "deltalake"}
Folder = Annotated[Path | None, typer.Option("--folder", help="Folder of the run (default: under $OTTLA_PIPELINES)")]
RAW = {"allow_extra_args": True, "ignore_unknown_options": True}
HELP = ("--help", "-h")
USAGE = """Usage: ottla pipeline run NAME_OR_FILE [OPTIONS]

  Runs a pipeline until it is stopped, or with --once until it has processed the existing data.
  `ottla pipeline list` shows the names; `ottla pipeline run NAME_OR_FILE --help` shows a pipeline's options."""


@app.command("list")
def list_pipelines(json: Json = False) -> None:
    """List the pipelines that come with Ottla. With --json, also their options."""
    with extra():
        from ottla.spark.runner import catalogue

        pipelines = catalogue.load_builtins()
    if json:
        document(
            [
                {
                    "name": pipeline.name,
                    "summary": pipeline.summary,
                    "options": [vars(option) for option in pipeline.options],
                }
                for pipeline in pipelines.values()
            ]
        )
        return
    table(("name", "what it does"), [(pipeline.name, pipeline.summary) for pipeline in pipelines.values()])


@app.command(context_settings=RAW, add_help_option=False)
def run(context: typer.Context) -> None:
    """Run a pipeline until it is stopped; see `ottla pipeline run NAME_OR_FILE --help`."""
    # The options are those of the pipeline's file (`python file.py --help`), so its parser reads them.
    if not context.args or context.args[0] in HELP:
        say(USAGE)
        raise typer.Exit(0 if context.args else 2)
    name, *arguments = context.args
    if name.startswith("-"):
        raise typer.BadParameter("give the pipeline's name or file first, then its options")
    with extra():
        from ottla.spark.runner import UsageError, catalogue, running

        try:
            pipeline = catalogue.find(name)
        except UsageError as error:
            raise typer.Exit(running.complain(str(error), 2)) from None
    raise typer.Exit(running.run(pipeline, arguments, program=f"ottla pipeline run {name}"))


@app.command()
def stop(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    folder: Folder = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="Seconds to wait for the end")] = 120.0,
) -> None:
    """Stop a running pipeline after its current batches, and wait for the end."""
    from ottla.spark.runner import state

    here = place(name, folder)
    now = state.status(here)
    if now is None:
        raise Failed(f"{name} has never run in {here}: see `ottla pipeline status`, or --folder")
    if now.state != state.RUNNING:
        warn(f"{name} is not running: {story(now)}")
        return
    state.ask_to_stop(here)
    if not state.wait_for_end(here, timeout):
        raise Failed(
            f"{name} (process {now.pid} on {now.host}) is still running after {timeout:.0f} s; it was asked to stop"
        )
    end = state.status(here)
    assert end, "it has run"
    if end.state == state.FAILED:
        raise Failed(f"{name} failed while it stopped: {end.reason}")
    say(f"{name} {end.state}")


@app.command()
def status(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Default: all that have ever run")] = None,
    folder: Folder = None,
    json: Json = False,
) -> None:
    """Show state, progress, rate and lag of running pipelines, and how the others ended."""
    from ottla.spark.runner import state

    if name or folder:
        places = [place(name or "", folder)]
    else:
        root = state.default_folder(os.environ)
        places = sorted(path.parent for path in root.glob(f"*/{state.RUN}"))
    found = {here: now for here in places if (now := state.status(here))}
    if name and not found:
        raise Failed(f"{name} has never run in {places[0]}: see `ottla pipeline list`, or --folder")
    if json:
        document([{**now.document(), "folder": str(here)} for here, now in found.items()])
        return
    table(
        ("name", "state", "query", "batch", "rows/s", "lag", "since", "folder"),
        [row for here, now in found.items() for row in rows(here, now)],
    )
    for now in found.values():
        if now.reason:
            say(f"{now.name}: {now.reason}")


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the pipeline: letters, digits and hyphens")],
    folder: Annotated[Path, typer.Option("--folder", help="Write it here")] = Path(),
) -> None:
    """Create a pipeline file and its test as a starting point. Both run unchanged."""
    from ottla.spark.runner.template import write_files

    for path in write_files(name, folder):
        say(f"wrote {path}")
    stem = name.replace("-", "_")
    say(f"try it: ottla pipeline run {folder / stem}.py --generate, and pytest {folder / f'test_{stem}.py'}")


def rows(here: Path, now: "RunState") -> list[Sequence[object]]:
    from ottla.spark.runner.state import RUNNING

    since = moment(now.since)
    if not now.progress:
        return [(now.name, now.state, None, None, None, None, since, str(here))]
    return [
        (
            now.name,
            now.state,
            one.query,
            one.batch,
            one.rows_per_second if now.state == RUNNING else None,
            one.lag,
            since,
            str(here),
        )
        for one in now.progress
    ]


def story(now: "RunState") -> str:
    return f"{now.state} since {moment(now.since)}" + (f" ({now.reason})" if now.reason else "")


def moment(seconds: float) -> str:
    age = time.time() - seconds
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return f"{text} ({age:.0f} s)" if age < 600 else text


def place(name: str, folder: Path | None) -> Path:
    from ottla.spark.runner.state import default_folder

    if folder is None and name.endswith(".py"):
        with extra():
            from ottla.spark.runner import catalogue

            name = catalogue.find(name).name
    return (folder or default_folder(os.environ) / name).expanduser()


@contextmanager
def extra() -> Iterator[None]:
    """Turn a missing library into an error that names the extra `spark`."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in LIBRARIES:
            raise
        raise Failed(f"pipelines need {name}: pip install 'ottla[spark]'") from None
