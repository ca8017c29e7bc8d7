"""The `ottla` command tree: one group of commands per noun. `serve` is listed here; its code is in `ottla.serve`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ottla import __version__
from ottla.tools import (
    acl,
    brokers,
    cluster,
    configs,
    elect,
    groups,
    offsets,
    perf,
    pipeline,
    quotas,
    reassign,
    replicas,
    tokens,
    topics,
    transactions,
    users,
    zookeeper,
)
from ottla.tools.console import console
from ottla.tools.consume import consume
from ottla.tools.mirror import mirror
from ottla.tools.output import until_reader_leaves
from ottla.tools.produce import produce
from ottla.tools.serve_completion import ServeCommand
from ottla.tools.top import top

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


def print_version(wanted: bool) -> None:
    if wanted:
        print(f"ottla {__version__}")
        raise typer.Exit()


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit")
    ] = False,
) -> None:
    """Ottla: Kafka in Python. The commands work with Ottla and Apache Kafka clusters."""


app.add_typer(topics.app, name="topics")
app.add_typer(brokers.app, name="brokers")
app.add_typer(cluster.app, name="cluster")
app.add_typer(configs.app, name="configs")
app.add_typer(groups.app, name="groups")
app.add_typer(offsets.app, name="offsets")
app.add_typer(transactions.app, name="transactions")
app.add_typer(reassign.app, name="reassign")
app.add_typer(elect.app, name="elect")
app.add_typer(replicas.app, name="replicas")
app.add_typer(users.app, name="users")
app.add_typer(tokens.app, name="tokens")
app.add_typer(acl.app, name="acl")
app.add_typer(quotas.app, name="quotas")
app.add_typer(zookeeper.app, name="zookeeper")
app.command()(produce)
app.command()(consume)
app.command()(mirror)
app.command()(top)
app.command()(console)
app.command("logdirs")(brokers.folders)
app.add_typer(perf.app, name="perf")
app.add_typer(pipeline.app, name="pipeline")


@app.command(
    cls=ServeCommand, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False
)
def serve(context: typer.Context) -> None:
    """Run a broker; see `ottla serve --help`."""
    from ottla.serve import serve

    raise typer.Exit(serve(context.args))


@app.command()
def dump(
    paths: Annotated[list[Path], typer.Argument(help="Segment files, index files, or folders")],
    records: Annotated[bool, typer.Option("--records", "-r", help="Also print the records of each batch")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Check CRCs, offsets and indexes against the log")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line")] = False,
) -> None:
    """Print the contents of log files: segments, indexes, snapshots, checkpoints. Needs no broker."""
    from ottla.tools.dump import dump as show

    code = 0
    with until_reader_leaves():
        code = show(paths, records=records, json=json, verify=verify, out=sys.stdout)
    raise typer.Exit(code)
