"""`ottla tokens`: delegation tokens, which let others log in as their owner for a while."""

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

app = typer.Typer(no_args_is_help=True, help="Delegation tokens: log in as somebody for a while.")

HOUR_MS = 3_600_000
Hours = Annotated[float | None, typer.Option("--hours", min=0, help="For so long; without it, as the broker has it")]
Owners = Annotated[list[str], typer.Option("--owner", help="Only tokens of this user; repeatable")]


@app.command()
def create(
    owner: Annotated[str | None, typer.Option("--owner", help="For this user and not for oneself")] = None,
    renewer: Annotated[list[str], typer.Option("--renewer", help="Who else may renew and end it; repeatable")] = [],  # noqa: B006
    hours: Annotated[float | None, typer.Option("--hours", min=0, help="Its life; without it, the longest")] = None,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Make a token. Its password is shown: whoever has it is the owner."""
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
    """Let a token live longer. Its password is asked for, or read from standard input."""
    say(f"the token holds until {change(renew_token, hours, bootstrap, properties)}")


@app.command()
def expire(
    hours: Annotated[float | None, typer.Option("--hours", min=0, help="In so long; without it, now")] = None,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """End a token. Its password is asked for, or read from standard input."""
    until = change(expire_token, hours, bootstrap, properties)
    say("the token is gone" if hours is None else f"the token holds until {until}")


def change(how: Callable[[Cluster, str, int], int], hours: float | None, bootstrap: str, properties: list[str]) -> str:
    """Renew or end the token whose password is given; until when it holds now."""
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
    """Show the tokens that one may see, without their passwords."""
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
        raise Failed("give the password of the token on standard input, as it was shown")
    return word
