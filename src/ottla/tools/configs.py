"""`ottla configs`: read and change the options of topics and brokers while they run."""

from collections.abc import Iterable, Mapping
from typing import Annotated

import typer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from ottla.tools.output import document, say, table
from ottla.tools.session import BOOTSTRAP, TIMEOUT_S, Bootstrap, Failed, Json, Properties, admin, pairs, settle

app = typer.Typer(no_args_is_help=True, help="Read and change the options of topics and brokers.")

Topic = Annotated[str | None, typer.Option("--topic", "-t", help="Options of this topic")]
Broker = Annotated[int | None, typer.Option("--broker", help="Options of the broker with this id")]


@app.command()
def describe(
    topic: Topic = None,
    broker: Broker = None,
    all_options: Annotated[bool, typer.Option("--all", "-a", help="Include options at their default value")] = False,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006 - Typer reads the default and hands out a new list
) -> None:
    """Show options, their values and where each value comes from."""
    rows = [
        {
            "name": entry.name,
            "value": None if entry.is_sensitive else entry.value,
            "source": source(entry),
            "read_only": bool(entry.is_read_only),
        }
        for entry in sorted(entries(*find(bootstrap, properties, topic, broker)), key=lambda e: e.name)
        if all_options or not entry.is_default
    ]
    if json:
        document(rows)
    else:
        table(("name", "value", "source", "read-only"), [list(row.values()) for row in rows])


@app.command("set")
def set_options(
    values: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...")],
    topic: Topic = None,
    broker: Broker = None,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Set options; other options keep their values."""
    wanted = pairs(values)
    change(*find(bootstrap, properties, topic, broker), set_to=wanted)
    if json:
        document({"set": wanted})
    else:
        for name, value in wanted.items():
            say(f"set {name} = {value}")


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME...")],
    topic: Topic = None,
    broker: Broker = None,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Reset options to their defaults."""
    change(*find(bootstrap, properties, topic, broker), delete=names)
    if json:
        document({"deleted": names})
    else:
        for name in names:
            say(f"deleted {name}")


def find(
    bootstrap: str, properties: Iterable[str], topic: str | None, broker: int | None
) -> tuple[AdminClient, ConfigResource]:
    if (topic is None) == (broker is None):
        raise typer.BadParameter("give either --topic or --broker")
    cluster = admin(bootstrap, properties)
    if topic is not None:
        return cluster, ConfigResource(ResourceType.TOPIC, topic)
    known = cluster.list_topics(timeout=TIMEOUT_S).brokers
    if broker not in known:  # librdkafka would wait for it
        raise Failed(f"there is no broker {broker} in the cluster, only {', '.join(map(str, sorted(known)))}")
    return cluster, ConfigResource(ResourceType.BROKER, str(broker))


def change(
    cluster: AdminClient, target: ConfigResource, *, set_to: Mapping[str, str] = {}, delete: Iterable[str] = ()
) -> None:
    operations = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in set_to.items()
    ]
    operations += [ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE) for name in delete]
    wanted = ConfigResource(target.restype, target.name, incremental_configs=operations)
    settle({target.name: cluster.incremental_alter_configs([wanted], request_timeout=TIMEOUT_S)[wanted]})


def overrides(cluster: AdminClient, topic: str) -> dict[str, str | None]:
    """The options set on the topic itself."""
    found = entries(cluster, ConfigResource(ResourceType.TOPIC, topic))
    return {entry.name: entry.value for entry in found if source(entry) == "dynamic topic"}


def entries(cluster: AdminClient, target: ConfigResource) -> list[ConfigEntry]:
    futures = cluster.describe_configs([target], request_timeout=TIMEOUT_S)
    return list(settle({target.name: futures[target]})[target.name].values())


def source(entry: ConfigEntry) -> str:
    """`dynamic topic`, `static broker`, `default`: Kafka's words, in this order of precedence."""
    return ConfigSource(entry.source).name.lower().removesuffix("_config").replace("_", " ")
