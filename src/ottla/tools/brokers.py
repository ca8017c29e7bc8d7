"""`ottla brokers`: list the brokers, their numbers of leaders and replicas, and their disk usage."""

from typing import Any

import typer

from ottla.client.layout import read_folders, read_layout
from ottla.errors import ErrorCode
from ottla.size import format_size
from ottla.tools.output import document, say, table
from ottla.tools.session import BOOTSTRAP, Bootstrap, Json, Properties, wire

app = typer.Typer(help="List the brokers and their log folders. Without a subcommand, runs `list`.")


@app.callback(invoke_without_command=True)
def brokers(
    context: typer.Context,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    if context.invoked_subcommand is None:
        list_brokers(json, bootstrap, properties)
    elif json or properties or bootstrap != BOOTSTRAP:
        raise typer.BadParameter(f"put the options after `{context.invoked_subcommand}`")


@app.command("list")
def list_brokers(
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006 - Typer reads the default and hands out a new list
) -> None:
    """List the brokers, and of how many partitions each is leader or replica."""
    with wire(bootstrap, properties) as cluster:
        layout = read_layout(cluster)
        identity = cluster.id
    partitions = layout.partitions.values()
    rows: list[dict[str, Any]] = [
        {
            "broker": broker,
            "address": f"{node.host}:{node.port}",
            "rack": node.rack,
            "controller": broker == layout.controller,
            "leads": sum(one.leader == broker for one in partitions),
            "replicas": sum(broker in one.replicas for one in partitions),
            "out_of_sync": sum(broker in one.replicas and broker not in one.isr for one in partitions),
        }
        for broker, node in layout.brokers.items()
    ]
    if json:
        document({"cluster": identity, "brokers": rows})
        return
    say(f"cluster {identity or '-'}")
    table([name.replace("_", " ") for name in rows[0]], [list(row.values()) for row in rows])


@app.command()
def folders(
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Show the log folders of every broker: replicas, size and free space."""
    with wire(bootstrap, properties) as cluster:
        found = read_folders(cluster)
    rows: list[dict[str, Any]] = [
        {
            "broker": folder.broker,
            "folder": folder.path,
            "error": ErrorCode(folder.error_code).name if folder.error_code else None,
            "replicas": len(folder.replicas),
            "bytes": sum(folder.replicas.values()),
            "disk_bytes": folder.total,
            "free_bytes": folder.usable,
        }
        for folder in found
    ]
    if json:
        document(rows)
        return
    sizes = ("bytes", "disk_bytes", "free_bytes")
    told = [
        [format_size(value) if name in sizes and value is not None else value for name, value in row.items()]
        for row in rows
    ]
    table(("broker", "folder", "error", "replicas", "holds", "disk", "free"), told)
