"""`ottla transactions`: list, describe, producers, abort. Uses Ottla's client, as librdkafka has no such calls."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from ottla.client.fencing import fence
from ottla.tools.moment import duration_ms
from ottla.tools.output import document, say, table
from ottla.tools.session import BOOTSTRAP, Bootstrap, Json, Properties, wire
from ottla.tools.transaction import Filters, abort_hanging, facts, find_transactions
from ottla.tools.transaction import producers as producers_of

app = typer.Typer(no_args_is_help=True, help="List, describe and abort transactions.")


@app.command("list")
def list_transactions(
    state: Annotated[list[str], typer.Option("--state", help="In this state: Ongoing, Empty, ...; repeatable")] = [],  # noqa: B006 - Typer reads the default and hands out a new list
    producer_id: Annotated[list[int], typer.Option("--producer-id", help="Of this producer; repeatable")] = [],  # noqa: B006
    longer_than: Annotated[
        str | None, typer.Option("--longer-than", help="Only transactions open for longer: 30s, 5m, PT5M")
    ] = None,
    match: Annotated[str | None, typer.Option("--match", help="Only ids matching this regular expression")] = None,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """List the transactional ids known to the cluster."""
    try:
        duration = -1 if longer_than is None else duration_ms(longer_than)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    with wire(bootstrap, properties) as cluster:
        rows = find_transactions(cluster, Filters(state, producer_id, duration, match))
    if json:
        document(rows)
    else:
        table(("transactional id", "coordinator", "producer id", "state"), [list(row.values()) for row in rows])


@app.command()
def describe(
    names: Annotated[list[str], typer.Argument(metavar="TRANSACTIONAL_ID...")],
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Show state, producer, timeout, age and partitions of transactional ids."""
    with wire(bootstrap, properties) as cluster:
        described = [facts(cluster, name) for name in names]
    if json:
        document(described)
    else:
        for one in described:
            show(one)


def show(one: dict[str, Any]) -> None:
    say(f"{one['transactional_id']}  {one['state']}  coordinator {one['coordinator']}")
    say(f"  producer {one['producer_id']} epoch {one['producer_epoch']}  timeout {one['timeout_ms'] / 1000:g} s")
    if one["started_ms"] is not None:
        age = "" if one["age_seconds"] is None else f", open for {one['age_seconds']:,.1f} s"
        say(f"  begun {moment(one['started_ms'])}{age}")
    if one["partitions"]:
        table(("topic", "partition", "start offset"), [list(partition.values()) for partition in one["partitions"]])


def moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@app.command()
def producers(
    topic: str,
    partition: Annotated[
        list[int], typer.Option("--partition", "-p", help="Only this partition; repeatable (default: all)")
    ] = [],  # noqa: B006
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Show the producers of a topic, and the start offsets of its open transactions."""
    with wire(bootstrap, properties) as cluster:
        indexes = partition or sorted(cluster.leaders(topic))
        found = producers_of(cluster, [(topic, index) for index in indexes])
    rows: list[dict[str, Any]] = [
        {
            "partition": index,
            "producer_id": one.producer_id,
            "producer_epoch": one.producer_epoch,
            "last_sequence": one.last_sequence,
            "last_timestamp": one.last_timestamp,
            "coordinator_epoch": one.coordinator_epoch if one.coordinator_epoch >= 0 else None,
            "start_offset": one.current_txn_start_offset if one.current_txn_start_offset >= 0 else None,
        }
        for (_, index), active in found.items()
        for one in active
    ]
    if json:
        document(rows)
        return
    for row in rows:
        row["last_timestamp"] = moment(row["last_timestamp"])
    columns = (
        "partition",
        "producer id",
        "epoch",
        "last sequence",
        "last written",
        "coordinator epoch",
        "start offset",
    )
    table(columns, [list(row.values()) for row in rows])


@app.command()
def abort(
    name: Annotated[
        str | None,
        typer.Argument(metavar="TRANSACTIONAL_ID", help="Abort its open transaction and fence its producer"),
    ] = None,
    transactional_id: Annotated[str | None, typer.Option("--transactional-id", help="The same as an option")] = None,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Topic of a hanging transaction")] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0)] = None,
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", min=0, help="Its start offset; see `producers`")
    ] = None,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Abort the open transaction of a transactional id, or a hanging one in a partition."""
    if name is not None and transactional_id is not None:
        raise typer.BadParameter("give the transactional id once")
    with wire(bootstrap, properties) as cluster:
        match name or transactional_id, topic, partition, start_offset:
            case str(identity), None, None, None:
                fence(cluster, identity)
                done: dict[str, Any] = {"transactional_id": identity}
                story = f"aborted the transaction of {identity}; its producer is fenced"
            case None, str(place), int(index), int(offset):
                producer = abort_hanging(cluster, (place, index), offset)
                done = {"topic": place, "partition": index, "start_offset": offset, "producer_id": producer}
                story = f"aborted the transaction of producer {producer} in {place} partition {index}"
            case _:
                raise typer.BadParameter("give a transactional id, or --topic, --partition and --start-offset")
    if json:
        document({"aborted": done})
    else:
        say(story)
