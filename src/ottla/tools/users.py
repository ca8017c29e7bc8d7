"""`ottla users`: users that log in with SCRAM."""

import sys
from typing import Annotated

import typer

from ottla.client.users import ITERATIONS, MECHANISMS, list_users, remove_user, set_password
from ottla.tools.output import document, say, table
from ottla.tools.session import BOOTSTRAP, Bootstrap, Failed, Json, Properties, wire

app = typer.Typer(no_args_is_help=True, help="List, set and remove users that log in with a password (SCRAM).")

ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
User = Annotated[str, typer.Argument(help="The name of the user")]
Mechanisms = Annotated[
    list[str], typer.Option("--mechanism", "-m", help=f"{' or '.join(MECHANISMS)}; repeatable (default: both)")
]


@app.command("list")
def list_command(
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006 - Typer reads the default and hands out a new list
) -> None:
    """List the users and their SCRAM mechanisms."""
    with wire(bootstrap, properties) as cluster:
        users = list_users(cluster)
    if json:
        document([{"user": user, "mechanisms": mechanisms} for user, mechanisms in users.items()])
    elif users:
        table(("user", "mechanisms"), [[user, ", ".join(mechanisms)] for user, mechanisms in users.items()])
    else:
        say("No users.")


@app.command("set")
def set_command(
    user: User,
    mechanism: Mechanisms = [],  # noqa: B006
    iterations: Annotated[
        int,
        typer.Option(
            "--iterations", min=ITERATIONS_MIN, max=ITERATIONS_MAX, help="More make guessing the password slower"
        ),
    ] = ITERATIONS,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Create a user or change a password. Prompts for the password, or reads it from standard input."""
    chosen = check_mechanisms(mechanism) or list(MECHANISMS)
    password = read_password()
    with wire(bootstrap, properties) as cluster:
        set_password(cluster, user, password, mechanisms=chosen, iterations=iterations)
    say(f"{user} can log in with {' and '.join(chosen)}")


@app.command()
def remove(
    user: User,
    mechanism: Mechanisms = [],  # noqa: B006
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Remove a user, or only some of its mechanisms."""
    wanted = check_mechanisms(mechanism)
    with wire(bootstrap, properties) as cluster:
        known = list_users(cluster).get(user)
        if known is None:
            raise Failed(f"there is no user {user}")
        remove_user(cluster, user, wanted or list(known))
    say(f"{user} is removed" if not wanted else f"{user} can no longer log in with {' and '.join(wanted)}")


def check_mechanisms(given: list[str]) -> list[str]:
    chosen = [one.upper() for one in given]
    if unknown := [one for one in chosen if one not in MECHANISMS]:
        raise typer.BadParameter(f"unknown mechanism {unknown[0]}; expected one of {', '.join(MECHANISMS)}")
    return chosen


def read_password() -> str:
    """Never from the command line, where every user of the machine can read it."""
    if sys.stdin.isatty():
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise Failed("give the password on standard input")
    return password
