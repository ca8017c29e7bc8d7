"""`ottla quotas`: quotas of users, client ids and addresses."""

from enum import StrEnum
from typing import Annotated

import typer

from ottla.client.quotas import Quota, alter_quotas, list_quotas
from ottla.size import format_size, parse_size
from ottla.tools.output import document, say, table
from ottla.tools.session import BOOTSTRAP, Bootstrap, Failed, Json, Properties, wire

app = typer.Typer(
    no_args_is_help=True,
    help="List, set and remove quotas of users, client ids and addresses.\n\nA client over its quota is throttled: the"
    " broker answers with a throttle time, and reads nothing from the connection until it has passed.",
)

USER, CLIENT, IP = "user", "client-id", "ip"


class QuotaKind(StrEnum):
    USER = "user"
    CLIENT = "client"
    IP = "ip"


TYPES = {QuotaKind.USER: USER, QuotaKind.CLIENT: CLIENT, QuotaKind.IP: IP}  # as named in requests
PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
REQUEST, MUTATION, CONNECTION = "request_percentage", "controller_mutation_rate", "connection_creation_rate"
BYTES = (PRODUCE, FETCH)
DEFAULT = "(default)"
User = Annotated[str | None, typer.Option("--user", "-u", help="This user; with --client, both together")]
Client = Annotated[str | None, typer.Option("--client", "-c", help="Clients with this client id")]
Ip = Annotated[str | None, typer.Option("--ip", help="This IP address or host")]
Defaults = Annotated[
    list[QuotaKind],
    typer.Option("--default", "-d", help="All of this kind that have no quota of their own; repeatable"),
]
Entity = dict[str, str | None]


@app.command("list")
def list_command(
    user: User = None,
    client: Client = None,
    ip: Ip = None,
    default: Defaults = [],  # noqa: B006 - Typer reads the default and hands out a new list
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """List all quotas, or those of a user, a client id or an address.

    The first that exists applies: of user and client id together, of the user, the default of users, of the client id.
    A default applies to each user, client id or address separately, not to their sum.
    """
    entity = name_entity(user, client, ip, default)
    with wire(bootstrap, properties) as cluster:
        found = list_quotas(cluster, entity)
    if json:
        document([{"entity": dict(quota.entity), "quotas": dict(quota.values)} for quota in found])
    elif found:
        rows = [[*describe(quota), key, show(key, value)] for quota in found for key, value in quota.values.items()]
        table(("user", "client id", "address", "quota", "value"), rows)
    else:
        say("No quotas.")


@app.command("set")
def set_command(
    user: User = None,
    client: Client = None,
    ip: Ip = None,
    default: Defaults = [],  # noqa: B006 - Typer reads the default and hands out a new list
    produce: Annotated[
        str | None, typer.Option("--produce", metavar="SIZE", help="Bytes produced per second, such as 10MB")
    ] = None,
    fetch: Annotated[
        str | None, typer.Option("--fetch", metavar="SIZE", help="Bytes consumed per second, such as 10MB")
    ] = None,
    requests: Annotated[
        float | None, typer.Option("--requests", metavar="PERCENT", help="Broker time that its requests may take")
    ] = None,
    changes: Annotated[
        float | None, typer.Option("--changes", metavar="RATE", help="Partitions created or deleted per second")
    ] = None,
    connections: Annotated[
        int | None, typer.Option("--connections", metavar="RATE", help="New connections per second; only for addresses")
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Set quotas of a user, a client id, both together, or an address. They apply at once, on each broker separately.

    ottla quotas set --user ann --produce 10MB --fetch 20MB

    ottla quotas set --default client --requests 50

    ottla quotas set --ip 10.0.0.7 --connections 20
    """
    entity = require_entity(name_entity(user, client, ip, default))
    values: dict[str, float | None] = {
        PRODUCE: read_size(produce),
        FETCH: read_size(fetch),
        REQUEST: requests,
        MUTATION: changes,
        CONNECTION: connections,
    }
    given = {key: value for key, value in values.items() if value is not None}
    if not given:
        raise typer.BadParameter("give --produce, --fetch, --requests, --changes or --connections")
    with wire(bootstrap, properties) as cluster:
        alter_quotas(cluster, entity, given)
    for key, value in given.items():
        say(f"{name(entity)}: {key} = {show(key, value)}")


@app.command()
def remove(
    user: User = None,
    client: Client = None,
    ip: Ip = None,
    default: Defaults = [],  # noqa: B006 - Typer reads the default and hands out a new list
    produce: Annotated[bool, typer.Option("--produce", help="Only the produce quota")] = False,
    fetch: Annotated[bool, typer.Option("--fetch", help="Only the fetch quota")] = False,
    requests: Annotated[bool, typer.Option("--requests", help="Only the request time quota")] = False,
    changes: Annotated[bool, typer.Option("--changes", help="Only the partition change quota")] = False,
    connections: Annotated[bool, typer.Option("--connections", help="Only the connection quota")] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Remove all or some quotas of a user, a client id, both together, or an address."""
    entity = require_entity(name_entity(user, client, ip, default))
    chosen = {PRODUCE: produce, FETCH: fetch, REQUEST: requests, MUTATION: changes, CONNECTION: connections}
    wanted = [key for key, is_chosen in chosen.items() if is_chosen]
    with wire(bootstrap, properties) as cluster:
        known = [key for quota in list_quotas(cluster, entity) if quota.entity == entity for key in quota.values]
        if missing := [key for key in wanted if key not in known] or not known:
            what = missing[0] if isinstance(missing, list) else "quota"
            raise Failed(f"{name(entity)} has no {what}")
        alter_quotas(cluster, entity, dict.fromkeys(wanted or known))
    say(f"{name(entity)}: {', '.join(wanted or known)} removed")


def name_entity(user: str | None, client: str | None, ip: str | None, defaults: list[QuotaKind]) -> Entity:
    entity: Entity = {}
    for kind, named in ((QuotaKind.USER, user), (QuotaKind.CLIENT, client), (QuotaKind.IP, ip)):
        if named is not None and kind in defaults:
            raise typer.BadParameter(f"give --{kind} or --default {kind}, not both")
        if named is not None or kind in defaults:
            entity[TYPES[kind]] = named
    if IP in entity and len(entity) > 1:
        raise typer.BadParameter("an address cannot be combined with a user or a client id")
    return entity


def require_entity(entity: Entity) -> Entity:
    if not entity:
        raise typer.BadParameter("give --user, --client, --ip or --default")
    return entity


def read_size(text: str | None) -> float | None:
    try:
        return None if text is None else float(parse_size(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def describe(quota: Quota) -> list[str]:
    return ["" if kind not in quota.entity else quota.entity[kind] or DEFAULT for kind in (USER, CLIENT, IP)]


def name(entity: Entity) -> str:
    return ", ".join(f"{kind} {named or DEFAULT}" for kind, named in entity.items())


def show(key: str, value: float) -> str:
    if key in BYTES:
        return f"{value:,.0f} ({format_size(value)}/s)" if value >= 1024 else f"{value:,.0f}"
    return f"{value:g} %" if key == REQUEST else f"{value:g}"
