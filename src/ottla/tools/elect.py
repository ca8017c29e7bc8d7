"""`ottla elect`: make preferred replicas leaders, or any replica where none is in sync."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.client.election import Election
from ottla.client.election import elect as ask
from ottla.client.layout import read_layout
from ottla.tools.group import parse_topics
from ottla.tools.output import document, say, table, warn
from ottla.tools.plan_file import read_partitions
from ottla.tools.session import BOOTSTRAP, Bootstrap, Failed, Json, Properties, wire

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.client.placement import Place

HEARD_S = 10.0
POLL_S = 0.1

app = typer.Typer(no_args_is_help=True, help="Elect partition leaders.")

Topics = Annotated[
    list[str],
    typer.Option("--topic", "-t", metavar="TOPIC[:P,P]", help="A topic, or some of its partitions; repeatable"),
]
File = Annotated[
    Path | None, typer.Option("--file", help='Partitions as {"partitions": [{"topic": "NAME", "partition": 0}]}')
]
All = Annotated[bool, typer.Option("--all", "-a", help="Every partition of the cluster")]


@app.command()
def preferred(
    topic: Topics = [],  # noqa: B006 - Typer reads the default and hands out a new list
    file: File = None,
    all_partitions: All = False,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Make the preferred (first) replica of each partition its leader, if it is in sync."""
    run(Election.PREFERRED, topic, file, all_partitions, json, bootstrap, properties)


@app.command()
def unclean(
    topic: Topics = [],  # noqa: B006
    file: File = None,
    all_partitions: All = False,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Make an out-of-sync replica the leader where no replica is in sync. Records it lacks are lost."""
    run(Election.UNCLEAN, topic, file, all_partitions, json, bootstrap, properties)


def run(
    kind: Election,
    topic: list[str],
    file: Path | None,
    all_partitions: bool,
    json: bool,
    bootstrap: str,
    properties: list[str],
) -> None:
    if bool(topic or file) == all_partitions:
        raise typer.BadParameter("give --topic or --file, or --all")
    with wire(bootstrap, properties) as cluster:
        layout = read_layout(cluster)
        places: list[Place] | None = None
        if not all_partitions:
            places = read_partitions(file) if file else []
            for name, indexes in parse_topics(topic).items():
                there = [place for place in layout.partitions if place[0] == name]
                places += there if indexes is None else [(name, index) for index in indexes]
            if missing := [place for place in places if place not in layout.partitions]:
                raise Failed(f"{missing[0][0]} has no partition {missing[0][1]}")
        elected, failed = ask(cluster, kind, places)
        leaders = read_leaders(cluster, kind, elected) if elected else {}
    rows = [{"topic": name, "partition": index, "leader": leaders[name, index]} for name, index in elected]
    if json:
        refused = [{"topic": name, "partition": index, "reason": str(why)} for (name, index), why in failed.items()]
        document({"elected": rows, "failed": refused})
    elif rows:
        table(("topic", "partition", "leader"), [list(row.values()) for row in rows])
    else:
        say("No partition needed a new leader." if not failed else "No leader was elected.")
    for why in failed.values():
        warn(str(why))
    if failed:
        raise Failed(f"{len(failed)} partitions could not get a leader")


def read_leaders(cluster: "Cluster", kind: Election, elected: "list[Place]") -> "dict[Place, int]":
    """The leaders now. The broker may learn of an election after us, so this waits for a while."""
    deadline = time.monotonic() + HEARD_S
    while True:
        parts = read_layout(cluster, {name for name, _ in elected}).partitions
        found = {place: parts[place].leader for place in elected}
        heard = all(
            leader >= 0 and (kind != Election.PREFERRED or leader == parts[place].replicas[0])
            for place, leader in found.items()
        )
        if heard or time.monotonic() > deadline:
            return found
        time.sleep(POLL_S)
