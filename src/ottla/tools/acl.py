"""`ottla acl`: access rules for topics, groups, transactions, tokens and the cluster."""

from enum import Enum
from typing import Annotated

import typer

from ottla.client.acls import AclRule, add_rules, list_rules, remove_rules
from ottla.security.acl import CLUSTER_NAME
from ottla.tools.output import document, say, table
from ottla.tools.session import BOOTSTRAP, Bootstrap, Json, Properties, wire
from ottla.wire.access import Operation, Pattern, Permission, ResourceType

app = typer.Typer(no_args_is_help=True, help="List, add and remove access control rules (ACLs).")


def spell(value: Enum) -> str:
    return value.name.lower().replace("_", "-")


def fold(operation: str) -> str:
    """Kafka's tools write DescribeConfigs, or DESCRIBE_CONFIGS."""
    return operation.lower().replace("-", "").replace("_", "")


OPERATIONS = {spell(one): one for one in Operation if one not in (Operation.UNKNOWN, Operation.ANY)}

Topics = Annotated[list[str], typer.Option("--topic", "-t", help="A topic, or * for every topic; repeatable")]
Groups = Annotated[list[str], typer.Option("--group", "-g", help="A consumer group, or *; repeatable")]
Transactions = Annotated[list[str], typer.Option("--transactional-id", help="A transactional id, or *; repeatable")]
Users = Annotated[list[str], typer.Option("--user", help="A user for whom others may create or see tokens; repeatable")]
Tokens = Annotated[list[str], typer.Option("--delegation-token", help="A delegation token id, or *; repeatable")]
OfCluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself")]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="Match all names that begin with the given ones")]
Operations = Annotated[
    list[str], typer.Option("--operation", "-o", metavar="OPERATION", help=f"{', '.join(OPERATIONS)}; repeatable")
]
Hosts = Annotated[list[str], typer.Option("--host", help="Only from this address; repeatable")]


@app.command("list")
def list_command(
    topic: Topics = [],  # noqa: B006 - Typer reads the default and hands out a new list
    group: Groups = [],  # noqa: B006
    transactional_id: Transactions = [],  # noqa: B006
    user: Users = [],  # noqa: B006
    delegation_token: Tokens = [],  # noqa: B006
    cluster: OfCluster = False,
    principal: Annotated[
        str | None, typer.Option("--principal", help="Only rules of this principal, such as User:alice")
    ] = None,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """List the rules; with a resource, only those that apply to it."""
    resources = choose_resources(topic, group, transactional_id, user, delegation_token, cluster)
    wanted = [
        AclRule(kind, name, Pattern.MATCH if name else Pattern.ANY, principal, None, Operation.ANY, Permission.ANY)
        for kind, name in resources or [(ResourceType.ANY, None)]
    ]
    with wire(bootstrap, properties) as connected:
        rules = sorted({rule for one in wanted for rule in list_rules(connected, one)})
    rows = [describe(rule) for rule in rules]
    if json:
        document(rows)
    elif rows:
        table(tuple(rows[0]), [list(row.values()) for row in rows])
    else:
        say("No rules.")


@app.command()
def add(
    allow: Annotated[list[str], typer.Option("--allow", help="Allow this user, such as User:alice; repeatable")] = [],  # noqa: B006
    deny: Annotated[list[str], typer.Option("--deny", help="Deny this user; overrides allow rules; repeatable")] = [],  # noqa: B006
    topic: Topics = [],  # noqa: B006
    group: Groups = [],  # noqa: B006
    transactional_id: Transactions = [],  # noqa: B006
    user: Users = [],  # noqa: B006
    delegation_token: Tokens = [],  # noqa: B006
    cluster: OfCluster = False,
    prefixed: Prefixed = False,
    operation: Operations = [],  # noqa: B006
    host: Hosts = [],  # noqa: B006
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Add one rule for each combination of the given users, operations, hosts and resources."""
    rules = combine(
        allow,
        deny,
        choose_resources(topic, group, transactional_id, user, delegation_token, cluster),
        prefixed,
        operation,
        host,
    )
    if not operation:
        raise typer.BadParameter("give --operation")
    with wire(bootstrap, properties) as connected:
        add_rules(connected, rules)
    say(f"{counted(len(rules))} added")


@app.command()
def remove(
    allow: Annotated[list[str], typer.Option("--allow", help="Remove allow rules of this user; repeatable")] = [],  # noqa: B006
    deny: Annotated[list[str], typer.Option("--deny", help="Remove deny rules of this user; repeatable")] = [],  # noqa: B006
    topic: Topics = [],  # noqa: B006
    group: Groups = [],  # noqa: B006
    transactional_id: Transactions = [],  # noqa: B006
    user: Users = [],  # noqa: B006
    delegation_token: Tokens = [],  # noqa: B006
    cluster: OfCluster = False,
    prefixed: Prefixed = False,
    operation: Operations = [],  # noqa: B006
    host: Hosts = [],  # noqa: B006
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Remove rules. Without --operation, of any operation; without --host, of any host."""
    rules = combine(
        allow,
        deny,
        choose_resources(topic, group, transactional_id, user, delegation_token, cluster),
        prefixed,
        operation or [spell(Operation.ANY)],
        host or [""],
    )
    wanted = [rule._replace(host=rule.host or None) for rule in rules]
    with wire(bootstrap, properties) as connected:
        count = remove_rules(connected, wanted)
    say(f"{counted(count)} removed")


def counted(count: int) -> str:
    return "1 rule" if count == 1 else f"{count} rules"


def choose_resources(
    topics: list[str],
    groups: list[str],
    transactional_ids: list[str],
    users: list[str],
    tokens: list[str],
    cluster: bool,
) -> list[tuple[ResourceType, str | None]]:
    return [
        *((ResourceType.TOPIC, name) for name in topics),
        *((ResourceType.GROUP, name) for name in groups),
        *((ResourceType.TRANSACTIONAL_ID, name) for name in transactional_ids),
        *((ResourceType.USER, name if name == "*" else full(name)) for name in users),
        *((ResourceType.DELEGATION_TOKEN, name) for name in tokens),
        *([(ResourceType.CLUSTER, CLUSTER_NAME)] if cluster else ()),
    ]


def combine(
    allow: list[str],
    deny: list[str],
    resources: list[tuple[ResourceType, str | None]],
    prefixed: bool,
    operations: list[str],
    hosts: list[str],
) -> list[AclRule]:
    if not resources:
        raise typer.BadParameter("give --topic, --group, --transactional-id, --user, --delegation-token or --cluster")
    if not allow and not deny:
        raise typer.BadParameter("give --allow or --deny")
    known = {fold(name): one for name, one in {**OPERATIONS, spell(Operation.ANY): Operation.ANY}.items()}
    if unknown := [one for one in operations if fold(one) not in known]:
        raise typer.BadParameter(f"unknown operation {unknown[0]!r}; expected one of {', '.join(OPERATIONS)}")
    users = [*((one, Permission.ALLOW) for one in allow), *((one, Permission.DENY) for one in deny)]
    return [
        AclRule(
            kind,
            name,
            Pattern.PREFIXED if prefixed and kind is not ResourceType.CLUSTER else Pattern.LITERAL,
            full(principal),
            host,
            known[fold(operation)],
            permission,
        )
        for kind, name in resources
        for principal, permission in users
        for operation in operations
        for host in hosts or ["*"]
    ]


def full(principal: str) -> str:
    return principal if ":" in principal else f"User:{principal}"


def describe(rule: AclRule) -> dict[str, str]:
    return {
        "principal": rule.principal or "",
        "permission": spell(rule.permission),
        "operation": spell(rule.operation),
        "resource": spell(rule.type),
        "name": rule.name or "",
        "pattern": spell(rule.pattern),
        "host": rule.host or "",
    }
