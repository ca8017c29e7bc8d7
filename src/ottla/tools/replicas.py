"""`ottla replicas verify`: check that all replicas hold the same records."""

from typing import Annotated, Any

import typer

from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.layout import PartitionLayout, read_layout
from ottla.client.replica_check import compare
from ottla.tools.output import document, progress, say, table
from ottla.tools.session import BOOTSTRAP, Bootstrap, Failed, Json, Properties, wire

app = typer.Typer(no_args_is_help=True, help="Compare the replicas of topics.")


@app.callback()
def replicas() -> None:
    """Compare the replicas of topics."""


@app.command()
def verify(
    topics: Annotated[list[str] | None, typer.Argument(metavar="TOPIC...")] = None,
    all_topics: Annotated[bool, typer.Option("--all", "-a", help="Every topic, the internal ones too")] = False,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006 - Typer reads the default and hands out a new list
) -> None:
    """Read every replica of these topics and compare offsets and checksums with the leader's. Fails if one differs.

    Out-of-sync replicas are compared, too. This loads the brokers like consumers do; the leader is read once per
    follower.
    """
    if bool(topics) == all_topics:
        raise typer.BadParameter("give the names of topics, or --all")
    with wire(bootstrap, properties) as cluster:
        layout = read_layout(cluster, topics or None)
        rows = []
        with progress("partitions", len(layout.partitions)) as bar:
            for number, ((topic, index), partition) in enumerate(layout.partitions.items()):
                bar(number)
                rows.append(check_partition(cluster, TopicPartition(topic, index), partition))
    wrong = [row for row in rows if row["faults"]]
    if json:
        document({"equal": not wrong, "partitions": rows})
    else:
        show(rows)
    if wrong:
        raise Failed(f"{len(wrong)} of {len(rows)} partitions have replicas that differ")


def check_partition(cluster: Cluster, where: TopicPartition, partition: PartitionLayout) -> dict[str, Any]:
    row: dict[str, Any] = {"topic": where.topic, "partition": where.partition, "leader": partition.leader}
    if partition.leader < 0:
        return {**row, "start": None, "end": None, "compared": 0, "faults": {"all": "no leader"}}
    compacted = "compact" in cluster.configs(where.topic).get("cleanup.policy", "")
    others = [broker for broker in partition.replicas if broker != partition.leader]
    found = compare(cluster, where, partition.leader, others, compacted=compacted)
    faults = {str(broker): fault for broker, fault in found.faults.items()}
    return {**row, "start": found.start, "end": found.end, "compared": found.records, "faults": faults}


def show(rows: list[dict[str, Any]]) -> None:
    columns = ("topic", "partition", "leader", "start", "end")
    told = [
        [*(row[name] for name in columns), "; ".join(f"{who}: {why}" for who, why in row["faults"].items()) or "equal"]
        for row in rows
    ]
    table((*columns, "replicas"), told)
    if not any(row["faults"] for row in rows):
        say(f"All replicas of {len(rows)} partitions are equal.")
