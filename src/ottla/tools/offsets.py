"""`ottla offsets`: export and import the committed offsets of many groups. For one group see `ottla groups`."""

import csv
import sys
from pathlib import Path
from typing import Annotated

import typer

from ottla.client.group_list import list_committed
from ottla.client.placement import Place
from ottla.errors import ErrorCode
from ottla.tools.groups import Execute, carry_out
from ottla.tools.lag import Commit, read_commits, sort_commits, spans
from ottla.tools.offset_file import read_groups, to_objects
from ottla.tools.output import document, progress, say, warn
from ottla.tools.reset import plan_restore
from ottla.tools.session import BOOTSTRAP, Bootstrap, Failed, Json, Properties, admin, wire

app = typer.Typer(no_args_is_help=True, help="Export and import the committed offsets of groups.")


@app.command("export")
def export_offsets(
    groups: Annotated[list[str] | None, typer.Argument(metavar="GROUP...")] = None,
    all_groups: Annotated[bool, typer.Option("--all", "-a", help="Every group")] = False,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006 - Typer reads the default and hands out a new list
) -> None:
    """Print offsets as group,topic,partition,offset lines or JSON, for `import` and for kafka-consumer-groups."""
    if bool(groups) == all_groups:
        raise typer.BadParameter("give the names of groups, or --all")
    found = read_some(bootstrap, properties, groups) if groups else read_all(bootstrap, properties)
    if json:
        document([{"group": name, **entry} for name, commits in found.items() for entry in to_objects(commits)])
        return
    lines = csv.writer(sys.stdout, lineterminator="\n")
    for name, commits in found.items():
        lines.writerows((name, *place, commit.offset) for place, commit in commits.items())


def read_some(bootstrap: str, properties: list[str], groups: list[str]) -> dict[str, dict[Place, Commit]]:
    found = {}
    with progress("groups", len(groups)) as bar:
        for number, name in enumerate(groups):
            bar(number)
            found[name] = read_commits(bootstrap, properties, name)
            if not found[name]:
                raise Failed(f"{name} has no offsets")
    return found


def read_all(bootstrap: str, properties: list[str]) -> dict[str, dict[Place, Commit]]:
    """Fails if a group cannot be read: otherwise nobody would notice that the file lacks it."""
    with wire(bootstrap, properties) as cluster:
        groups = list_committed(cluster)
    for one in groups.values():
        if one.refused and one.refused.code != ErrorCode.GROUP_ID_NOT_FOUND:  # a group type without offsets
            raise one.refused
    return {name: sort_commits(one.committed.items()) for name, one in sorted(groups.items()) if one.committed}


@app.command("import")
def import_offsets(
    file: Annotated[Path | None, typer.Argument(help="CSV or JSON from `export` (default: stdin)")] = None,
    execute: Execute = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Set the offsets of groups from a file. Only shows old and new offsets; --execute applies the change."""
    try:
        wanted = read_groups(sys.stdin.read() if file is None else file.read_text())
    except OSError as error:
        raise Failed(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise Failed(f"{file or 'stdin'}: {error}") from None
    if not wanted:
        raise Failed(f"{file or 'stdin'}: no offsets in it")
    cluster = admin(bootstrap, properties)
    refused = 0
    for name, commits in wanted.items():
        if not json:
            say(name)
        try:
            moves = plan_restore(commits, spans(cluster, commits), read_commits(bootstrap, properties, name), warn)
            carry_out(cluster, name, moves, execute=execute, json=json)
        except Failed as error:  # continue with the other groups
            warn(f"{name}: {error}")
            refused += 1
    if refused:
        raise Failed(f"{refused} of {len(wanted)} groups were not changed")
