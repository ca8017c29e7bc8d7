"""`ottla topics`: list, describe, create, delete and alter topics, and delete their oldest records."""

import time
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaError, TopicCollection, TopicPartition, Uuid
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType

from ottla.tools.configs import change, overrides
from ottla.tools.moment import Offset, moment
from ottla.tools.output import document, say, table
from ottla.tools.reader import choose_partitions, new_consumer, positions, watermarks
from ottla.tools.session import BOOTSTRAP, TIMEOUT_S, Bootstrap, Failed, Json, Properties, admin, pairs, settle

app = typer.Typer(
    no_args_is_help=True, help="List, describe, create, delete and alter topics, and delete their oldest records."
)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC...")]
Configs = Annotated[list[str], typer.Option("--config", metavar="NAME=VALUE", help="Set a topic option; repeatable")]


@app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics")] = False,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006 - Typer reads the default and hands out a new list
) -> None:
    """List the topics."""
    found = admin(bootstrap, properties).list_topics(timeout=TIMEOUT_S).topics
    rows = [
        {
            "topic": name,
            "partitions": len(topic.partitions),
            "replicas": max((len(partition.replicas) for partition in topic.partitions.values()), default=0),
            "under_replicated": sum(len(p.isrs) < len(p.replicas) for p in topic.partitions.values()),
        }
        for name, topic in sorted(found.items())
        if internal or not name.startswith("__")
    ]
    if json:
        document(rows)
    else:
        table(("topic", "partitions", "replicas", "under-replicated"), [list(row.values()) for row in rows])


@app.command()
def describe(
    names: Names,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Show partitions, leaders, replicas, offsets and the options that differ from the default."""
    cluster = admin(bootstrap, properties)
    described = [facts(cluster, name) for name in names]
    if json:
        document(described)
        return
    for topic in described:
        say(f"{topic['topic']}  id {topic['id']}")
        for name, value in topic["configs"].items():
            say(f"  {name} = {value}")
        columns = ("partition", "leader", "replicas", "isr", "start", "end")
        table(columns, [[partition[column] for column in columns] for partition in topic["partitions"]])


def spell_id(topic_id: Uuid) -> str:
    """As Kafka and its files do: librdkafka has another alphabet."""
    return str(topic_id).replace("+", "-").replace("/", "_")


def facts(cluster: AdminClient, name: str) -> dict[str, Any]:
    topic = settle(cluster.describe_topics(TopicCollection([name]), request_timeout=TIMEOUT_S))[name]
    partitions = [TopicPartition(name, partition.id) for partition in topic.partitions]
    starts = bounds(cluster, partitions, OffsetSpec.earliest())
    ends = bounds(cluster, partitions, OffsetSpec.latest())
    return {
        "topic": name,
        "id": spell_id(topic.topic_id),
        "internal": topic.is_internal,
        "configs": overrides(cluster, name),
        "partitions": [
            {
                "partition": partition.id,
                "leader": partition.leader.id if partition.leader else None,
                "replicas": [node.id for node in partition.replicas],
                "isr": [node.id for node in partition.isr],
                "start": starts[partition.id],
                "end": ends[partition.id],
            }
            for partition in topic.partitions
        ],
    }


def bounds(cluster: AdminClient, partitions: list[TopicPartition], spec: OffsetSpec) -> dict[int, int]:
    answers = settle(cluster.list_offsets(dict.fromkeys(partitions, spec), request_timeout=TIMEOUT_S))
    return {partition.partition: answer.offset for partition, answer in answers.items()}


@app.command()
def create(
    names: Names,
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="How many; -1: the broker's default")] = -1,
    replicas: Annotated[
        int, typer.Option("--replicas", "-r", help="Replication factor; -1: the broker's default")
    ] = -1,
    assign: Annotated[
        list[str],
        typer.Option("--assign", metavar="BROKER,...", help="Brokers of one partition; repeat for each partition"),
    ] = [],  # noqa: B006
    config: Configs = [],  # noqa: B006
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Succeed if it already exists")] = False,
    validate_only: Annotated[bool, typer.Option("--validate-only", help="Check, but create nothing")] = False,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Create topics."""
    shape: dict[str, Any] = {"num_partitions": partitions, "replication_factor": replicas}
    if assign:
        if partitions != -1 or replicas != -1:
            raise typer.BadParameter("--assign cannot be combined with --partitions or --replicas")
        shape = {"num_partitions": len(assign), "replica_assignment": [brokers(text) for text in assign]}
    topics = [NewTopic(name, config=pairs(config), **shape) for name in names]
    cluster = admin(bootstrap, properties)
    futures = cluster.create_topics(topics, validate_only=validate_only, request_timeout=TIMEOUT_S)
    what = "could create" if validate_only else "created"
    fine = [KafkaError.TOPIC_ALREADY_EXISTS] if if_not_exists else []
    settle(futures, fine=fine, tell=lambda created: report(json, what, created))


def brokers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"--assign {text}: expected broker ids, such as 0,1,2") from None


@app.command()
def delete(
    names: Names,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Succeed if it does not exist")] = False,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Delete topics with all their records."""
    cluster = admin(bootstrap, properties)
    futures = cluster.delete_topics(names, request_timeout=TIMEOUT_S)
    fine = [KafkaError.UNKNOWN_TOPIC_OR_PART] if if_exists else []
    settle(futures, fine=fine, tell=lambda deleted: report(json, "deleted", deleted))


@app.command("delete-records")
def delete_records(
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    before: Annotated[
        str,
        typer.Option("--before", help="Delete up to here: end, an offset, -N (keep the last N), -5m, or an ISO time"),
    ],
    partition: Annotated[
        list[int], typer.Option("--partition", "-p", help="Only this partition; repeatable (default: all)")
    ] = [],  # noqa: B006
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Delete the oldest records of partitions, up to an offset or a time."""
    try:
        limit = moment(before, int(time.time() * 1000))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    consumer = new_consumer(bootstrap, properties)
    try:
        bounds = {index: watermarks(consumer, name, index) for index in choose_partitions(consumer, name, partition)}
        wanted = positions(consumer, name, bounds, limit)
    finally:
        consumer.close()
    if isinstance(limit, Offset) and (past := [index for index, (_, high) in bounds.items() if limit.value > high]):
        raise Failed(f"--before {limit.value} is beyond the end of partition {past[0]}, which is {bounds[past[0]][1]}")
    cluster = admin(bootstrap, properties)
    places = [TopicPartition(name, index, offset) for index, offset in wanted.items()]
    answers = settle(cluster.delete_records(places, request_timeout=TIMEOUT_S))
    starts = {place.partition: answer.low_watermark for place, answer in answers.items()}
    rows = [
        {"partition": index, "deleted": starts[index] - bounds[index][0], "start": starts[index]}
        for index in sorted(starts)
    ]
    if json:
        document({"topic": name, "partitions": rows})
    else:
        table(("partition", "deleted", "start"), [list(row.values()) for row in rows])


@app.command()
def alter(
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", help="The new, larger count")] = None,
    config: Configs = [],  # noqa: B006
    delete_config: Annotated[
        list[str], typer.Option("--delete-config", metavar="NAME", help="Reset to the default; repeatable")
    ] = [],  # noqa: B006
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Add partitions, set topic options, or reset them to their defaults."""
    if partitions is None and not config and not delete_config:
        raise Failed("nothing to alter: give --partitions, --config or --delete-config")
    cluster = admin(bootstrap, properties)
    if config or delete_config:
        change(cluster, ConfigResource(ResourceType.TOPIC, name), set_to=pairs(config), delete=delete_config)
    if partitions is not None:
        settle(cluster.create_partitions([NewPartitions(name, partitions)], request_timeout=TIMEOUT_S))
    report(json, "altered", [name])


def report(json: bool, verb: str, names: list[str]) -> None:
    if json:
        document({verb.replace(" ", "_"): names})
    else:
        for name in names:
            say(f"{verb} {name}")
