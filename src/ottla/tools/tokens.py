"""`ottla tokens`: delegation tokens, with which others log in as the owner for a limited time."""

import binascii
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated

import typer

from ottla.client.cluster import Cluster
from ottla.client.tokens import Token, create_token, expire_token, list_tokens, renew_token
from ottla.tools.output import document, say, table
from ottla.tools.session import BOOTSTRAP, Bootstrap, Failed, Json, Properties, wire

app = typer.Typer(no_args_is_help=True, help="Create, renew, expire and describe delegation tokens.")

HOUR_MS = 3_600_000
Hours = Annotated[
    float | None, typer.Option("--hours", min=0, help="Renew for this long (default: the broker's renewal period)")
]
Owners = Annotated[list[str], typer.Option("--owner", help="Only tokens of this user; repeatable")]


@app.command()
def create(
    owner: Annotated[str | None, typer.Option("--owner", help="Create it for this user (default: yourself)")] = None,
    renewer: Annotated[
        list[str], typer.Option("--renewer", help="User who may also renew and expire it; repeatable")
    ] = [],  # noqa: B006
    hours: Annotated[
        float | None, typer.Option("--hours", min=0, help="Maximum lifetime (default: the longest allowed)")
    ] = None,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Create a token and print its password. Whoever knows the password can log in as the owner."""
    lifetime_ms = -1 if hours is None else max(1, round(hours * HOUR_MS))
    with wire(bootstrap, properties) as cluster:
        token = create_token(cluster, owner=owner, renewers=renewer, lifetime_ms=lifetime_ms)
    if json:
        document(describe(token, secret=True))
    else:
        table(("", ""), [[name, str(value)] for name, value in describe(token, secret=True).items()])


@app.command()
def renew(
    hours: Hours = None,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Extend the validity of a token. Prompts for its password, or reads it from standard input."""
    say(f"the token is valid until {change(renew_token, hours, bootstrap, properties)}")


@app.command()
def expire(
    hours: Annotated[float | None, typer.Option("--hours", min=0, help="Expire after this long (default: now)")] = None,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Expire a token. Prompts for its password, or reads it from standard input."""
    until = change(expire_token, hours, bootstrap, properties)
    say("the token is expired" if hours is None else f"the token is valid until {until}")


def change(how: Callable[[Cluster, str, int], int], hours: float | None, bootstrap: str, properties: list[str]) -> str:
    """Renew or expire the token with the given password; returns its new expiry time."""
    password = read_password()
    with wire(bootstrap, properties) as cluster:
        return moment(how(cluster, password, -1 if hours is None else round(hours * HOUR_MS)))


@app.command("describe")
def describe_command(
    owner: Owners = [],  # noqa: B006
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """List the tokens that you may see, without their passwords."""
    with wire(bootstrap, properties) as cluster:
        rows = [describe(token) for token in list_tokens(cluster, owner or None)]
    if json:
        document(rows)
    elif rows:
        table(tuple(rows[0]), [[str(value) for value in row.values()] for row in rows])
    else:
        say("No tokens.")


def describe(token: Token, *, secret: bool = False) -> dict[str, str]:
    return {
        "id": token.id,
        **({"password": token.password} if secret else {}),
        "owner": token.owner,
        "requester": token.requester,
        "renewers": ", ".join(token.renewers),
        "issued": moment(token.issued_ms),
        "expires": moment(token.expires_ms),
        "ends": moment(token.ends_ms),
    }


def moment(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def read_password() -> str:
    """Never from the command line, where every user of the machine can read it."""
    word = str(typer.prompt("Password", hide_input=True)) if sys.stdin.isatty() else sys.stdin.readline().strip()
    try:
        binascii.a2b_base64(word, strict_mode=True)
    except binascii.Error:
        word = ""
    if not word:
        raise Failed("give the token's password on standard input, as `create` printed it")
    return word
