"""`ottla groups`: list, describe, reset, delete, export, import.

Commands that change offsets only show the change; `--execute` applies it. A group with members is not changed: they
keep their positions in memory and would overwrite the new offsets.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from confluent_kafka import ConsumerGroupType, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from ottla.tools.group import STATES, choose_partitions, commit, facts, forget, look_up, parse_topics, state_of
from ottla.tools.lag import Place, bounds, read_commits, spans
from ottla.tools.moment import duration_ms, milliseconds
from ottla.tools.offset_file import read, to_csv, to_objects
from ottla.tools.output import document, say, table, warn
from ottla.tools.reset import At, Current, Earliest, Goal, Latest, OffsetMove, Shift, To, move, plan_restore
from ottla.tools.session import (
    BOOTSTRAP,
    TIMEOUT_S,
    Bootstrap,
    Failed,
    Json,
    Properties,
    admin,
    explain,
    settle,
    wire,
)

app = typer.Typer(
    no_args_is_help=True, help="List, describe and delete consumer groups; reset, export and import their offsets."
)

Group = Annotated[str, typer.Argument(metavar="GROUP")]
Groups = Annotated[list[str], typer.Argument(metavar="GROUP...")]
Topics = Annotated[
    list[str],
    typer.Option("--topic", "-t", metavar="TOPIC[:P,P]", help="A topic, or some of its partitions; repeatable"),
]
Execute = Annotated[bool, typer.Option("--execute", help="Apply the change (default: only show it)")]

KINDS = {"classic": ConsumerGroupType.CLASSIC, "consumer": ConsumerGroupType.CONSUMER}


@app.command("list")
def list_groups(
    state: Annotated[list[str], typer.Option("--state", help="In this state: Stable, Empty, ...; repeatable")] = [],  # noqa: B006 - Typer reads the default and hands out a new list
    kind: Annotated[list[str], typer.Option("--type", help="Of this type: classic, consumer; repeatable")] = [],  # noqa: B006
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """List the consumer groups."""
    wanted: dict[str, Any] = {}
    if state:
        wanted["states"] = {look_up_value(STATES, name, "--state") for name in state}
    if kind:
        wanted["types"] = {look_up_value(KINDS, name, "--type") for name in kind}
    cluster = admin(bootstrap, properties)
    found = settle({"groups": cluster.list_consumer_groups(request_timeout=TIMEOUT_S, **wanted)})["groups"]
    for error in found.errors or []:
        warn(explain(error))
    rows = [
        {"group": group.group_id, "type": group.type.name.lower(), "state": state_of(group)}
        for group in sorted(found.valid or [], key=lambda group: group.group_id)
    ]
    if json:
        document(rows)
    else:
        table(("group", "type", "state"), [list(row.values()) for row in rows])
    if found.errors:
        raise Failed("some coordinators did not answer")


def look_up_value(values: Mapping[str, Any], name: str, option: str) -> Any:
    """Look up a name, ignoring case."""
    for candidate, value in values.items():
        if candidate.lower() == name.lower():
            return value
    raise typer.BadParameter(f"{option} {name}: expected one of {', '.join(values)}")


@app.command()
def describe(
    groups: Annotated[list[str] | None, typer.Argument(metavar="GROUP...")] = None,
    all_groups: Annotated[bool, typer.Option("--all", "-a", help="Every group")] = False,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Show state, coordinator and members, and the lag of each partition."""
    if bool(groups) == all_groups:
        raise typer.BadParameter("give the names of groups, or --all")
    cluster = admin(bootstrap, properties)
    if groups is None:
        listed = settle({"groups": cluster.list_consumer_groups(request_timeout=TIMEOUT_S)})["groups"]
        groups = sorted(group.group_id for group in listed.valid or [])
    described = [facts(cluster, name, bootstrap, properties) for name in groups]
    if json:
        document(described)
    else:
        for group in described:
            show(group)


def show(group: dict[str, Any]) -> None:
    place = group["coordinator"]
    where = f"{place['id']} ({place['host']}:{place['port']})" if place else "-"
    what = f"{group['group']}  {group['state']}  {group['type'] or '-'}  assignor {group['assignor'] or '-'}"
    say(f"{what}  coordinator {where}  members {len(group['members'])}")
    if group["members"]:
        facts = ("member", "instance", "client", "host")
        rows = [[*(one[name] for name in facts), spread(one["assignment"])] for one in group["members"]]
        table((*facts, "assignment"), rows)
    if group["partitions"]:
        columns = ("topic", "partition", "committed", "start", "end", "lag", "lag_seconds", "client", "host")
        rows = [[row[name] for name in columns] for row in group["partitions"]]
        table([name.replace("lag_seconds", "seconds") for name in columns], rows)
    say(f"lag {group['lag']} records, the oldest unread one is {group['lag_seconds']:,.1f} s old")


def spread(assignment: Mapping[str, list[int]]) -> str:
    return " ".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in assignment.items()) or "-"


@app.command()
def reset(
    name: Group,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first available record")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end: only new records are read")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="Keep committed offsets; partitions without one go to the end")
    ] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="To this offset")] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option("--to-datetime", help="To the first record at or after this ISO time (local if no zone)"),
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", help="To the first record of the last 5m, 2h, PT5M, ...")
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", help="Forward by this many offsets; backward if negative")
    ] = None,
    topic: Topics = [],  # noqa: B006
    all_topics: Annotated[bool, typer.Option("--all-topics", help="All topics the group has offsets for")] = False,
    execute: Execute = False,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Move a group's offsets. Only shows old and new offsets; --execute applies the change."""
    goals: list[Goal] = [
        *([Earliest()] if to_earliest else []),
        *([Latest()] if to_latest else []),
        *([Current()] if to_current else []),
        *([To(to_offset)] if to_offset is not None else []),
        *([At(parse_time(to_datetime, by_duration))] if to_datetime or by_duration else []),
        *([Shift(shift_by)] if shift_by is not None else []),
    ]
    if len(goals) != 1 or (to_datetime and by_duration):
        raise typer.BadParameter("give exactly one target: --to-earliest, --to-latest, --to-offset, ...")
    if bool(topic) == all_topics:
        raise typer.BadParameter("give --topic or --all-topics")
    topics = parse_topics(topic)
    cluster = admin(bootstrap, properties)
    commits = read_commits(bootstrap, properties, name)
    if all_topics and not commits:
        raise Failed(f"{name} has no committed offsets; name the topics with --topic")
    places = list(commits) if all_topics else choose_partitions(cluster, topics)
    moves = plan_moves(cluster, goals[0], places, commits)
    carry_out(cluster, name, moves, execute=execute, json=json)


def parse_time(moment: str | None, duration: str | None) -> int:
    now_ms = int(time.time() * 1000)
    try:
        return now_ms - duration_ms(duration) if duration else milliseconds(moment or "", now_ms)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def plan_moves(
    cluster: AdminClient, goal: Goal, places: Sequence[Place], commits: Mapping[Place, Any]
) -> list[OffsetMove]:
    limits = spans(cluster, places)
    if gone := [place for place in places if place not in limits]:
        warn(f"skipped, these partitions no longer exist: {', '.join(f'{topic}:{index}' for topic, index in gone)}")
    found: dict[Place, int] = {}
    if isinstance(goal, At):
        asked = [TopicPartition(*place) for place in limits]
        found = bounds(cluster, asked, OffsetSpec.for_timestamp(goal.milliseconds))
    return [
        move(goal, place, limits[place], commits.get(place), None if found.get(place, -1) < 0 else found[place], warn)
        for place in places
        if place in limits
    ]


def carry_out(cluster: AdminClient, name: str, moves: list[OffsetMove], *, execute: bool, json: bool) -> None:
    """Show the moves; with `execute`, commit them. Refuses to change a group that has members."""
    group = look_up(cluster, name)
    active = f"{name} has members ({len(group.members)}, {state_of(group)})" if group and group.members else None
    if execute and active:
        raise Failed(f"{active}: stop them first, they would overwrite the new offsets")
    if execute and moves:
        commit(cluster, name, moves)
    if json:
        rows = [{"topic": one.topic, "partition": one.partition, "old": one.old, "new": one.new} for one in moves]
        document({"group": name, "executed": execute, "offsets": rows})
        return
    table(("topic", "partition", "old", "new"), [one[:4] for one in moves])
    if not execute:
        say("Nothing was changed; --execute does it." + (f" First stop its consumers: {active}." if active else ""))


@app.command()
def delete(
    names: Groups,
    topic: Topics = [],  # noqa: B006
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Succeed if it does not exist")] = False,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Delete groups with all their offsets, or with --topic only the offsets of that topic."""
    topics = parse_topics(topic)
    cluster = admin(bootstrap, properties)
    if topics:
        places = choose_partitions(cluster, topics)
        with wire(bootstrap, properties) as brokers:
            for name in names:
                forget(brokers, name, places)
        report_deleted(names, topic, json=json)
    else:
        futures = cluster.delete_consumer_groups(names, request_timeout=TIMEOUT_S)
        fine = [KafkaError.GROUP_ID_NOT_FOUND] if if_exists else []
        settle(futures, fine=fine, tell=lambda deleted: report_deleted(deleted, topic, json=json))


def report_deleted(groups: list[str], topics: list[str], *, json: bool) -> None:
    if json:
        document({"deleted": groups, **({"topics": topics} if topics else {})})
        return
    for name in groups:
        say(f"deleted {'the offsets of ' + ', '.join(topics) + ' from ' if topics else ''}{name}")


@app.command("export")
def export_offsets(
    name: Group,
    topic: Topics = [],  # noqa: B006
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Print a group's offsets as topic,partition,offset lines or JSON, for `import` and for kafka-consumer-groups."""
    topics = parse_topics(topic)
    cluster = admin(bootstrap, properties)
    commits = read_commits(bootstrap, properties, name)
    if topics:
        places = set(choose_partitions(cluster, topics))
        commits = {place: commit for place, commit in commits.items() if place in places}
    if not commits:
        raise Failed(f"{name} has no offsets" + (" for these topics" if topic else ""))
    if json:
        document(to_objects(commits))
    else:
        sys.stdout.write(to_csv(commits))


@app.command("import")
def import_offsets(
    name: Group,
    file: Annotated[Path | None, typer.Argument(help="CSV or JSON from `export` (default: stdin)")] = None,
    execute: Execute = False,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Set a group's offsets from a file. Only shows old and new offsets; --execute applies the change."""
    try:
        wanted = read(sys.stdin.read() if file is None else file.read_text(), name)
    except OSError as error:
        raise Failed(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise Failed(f"{file or 'stdin'}: {error}") from None
    if not wanted:
        raise Failed(f"{file or 'stdin'}: no offsets for {name}")
    cluster = admin(bootstrap, properties)
    moves = plan_restore(wanted, spans(cluster, wanted), read_commits(bootstrap, properties, name), warn)
    carry_out(cluster, name, moves, execute=execute, json=json)
