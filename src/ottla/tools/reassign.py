"""`ottla reassign`: generate, execute, verify, cancel, list. Uses the files of kafka-reassign-partitions."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ottla.client import reassignment
from ottla.client.cluster import Cluster
from ottla.client.layout import Layout, read_layout, replica_sizes
from ottla.client.placement import Place, Placement, PlacementError, ReplicaChange, changes, propose
from ottla.size import format_size, parse_size
from ottla.tools.output import document, progress, say, table, warn
from ottla.tools.plan_file import plan_document, read_plan, read_topics, write_plan
from ottla.tools.session import BOOTSTRAP, Bootstrap, Failed, Json, Properties, wire

app = typer.Typer(no_args_is_help=True, help="Move replicas between brokers, and change the replication factor.")

Plan = Annotated[Path, typer.Argument(metavar="PLAN", help="JSON file from `generate --save`")]
POLL_S = 0.5


@app.command()
def generate(
    topic: Annotated[list[str], typer.Option("--topic", "-t", help="Topic to reassign; repeatable")] = [],  # noqa: B006 - Typer reads the default and hands out a new list
    topics_file: Annotated[
        Path | None, typer.Option("--topics-file", help='Topics as {"topics": [{"topic": "NAME"}]}')
    ] = None,
    brokers: Annotated[
        str | None, typer.Option("--brokers", metavar="1,2,3", help="Use these brokers only (default: all)")
    ] = None,
    drain: Annotated[list[int], typer.Option("--drain", help="Move all replicas off this broker; repeatable")] = [],  # noqa: B006
    replicas: Annotated[int | None, typer.Option("--replicas", "-r", min=1, help="New replication factor")] = None,
    ignore_racks: Annotated[bool, typer.Option("--ignore-racks", help="Ignore the racks of brokers")] = False,
    save: Annotated[Path | None, typer.Option("--save", help="Write the plan to this file")] = None,
    save_current: Annotated[
        Path | None, typer.Option("--save-current", help="Write the current assignment to this file, for rollback")
    ] = None,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Propose a balanced assignment of replicas that moves as little as possible. Changes nothing.

    Without --topic or --topics-file, all topics are included, also the internal ones.
    """
    names = [*topic, *(read_topics(topics_file) if topics_file else [])] or None
    with wire(bootstrap, properties) as cluster:
        layout = read_layout(cluster, names)
        sizes = sizes_of(cluster)
    racks = chosen_brokers(layout, brokers, drain)
    if ignore_racks:
        racks = dict.fromkeys(racks)
    current = layout.placement
    try:
        plan = propose(current, racks, replicas=replicas, sizes=sizes)
    except PlacementError as error:
        raise Failed(str(error)) from None
    if save:
        write_plan(save, plan)
    if save_current:
        write_plan(save_current, current)
    moves = changes(current, plan, sizes)
    if json:
        document(
            {
                "current": plan_document(current),
                "proposed": plan_document(plan),
                "bytes_to_copy": sum(one.bytes_to_copy for one in moves),
            }
        )
        return
    show_changes(moves, len(current))
    if moves:
        say(
            f"Run it: ottla reassign execute {save}"
            if save
            else "Nothing was changed; --save PLAN keeps it for `execute`."
        )


def chosen_brokers(layout: Layout, brokers: str | None, drain: list[int]) -> dict[int, str | None]:
    wanted = set(layout.brokers)
    if brokers is not None:
        try:
            wanted = {int(text) for text in brokers.split(",")}
        except ValueError:
            raise typer.BadParameter(f"--brokers {brokers}: expected broker ids, such as 1,2,3") from None
    holding = {broker for one in layout.partitions.values() for broker in one.replicas}
    # --drain also takes a broker that is no longer in the cluster but still assigned replicas.
    if unknown := sorted((wanted - set(layout.brokers)) | (set(drain) - set(layout.brokers) - holding)):
        raise Failed(f"there is no broker {unknown[0]} in the cluster, only {', '.join(map(str, layout.brokers))}")
    return {broker: rack for broker, rack in layout.racks.items() if broker in wanted and broker not in drain}


def sizes_of(cluster: Cluster) -> dict[Place, int]:
    """Bytes of the largest replica of each partition: the size that a new replica will have."""
    return {place: max(some.values()) for place, some in replica_sizes(cluster).items()}


def show_changes(moves: list[ReplicaChange], partitions: int) -> None:
    rows = [[*one.place, one.old, one.new, format_size(one.bytes_to_copy)] for one in moves]
    if rows:
        table(("topic", "partition", "now", "then", "to copy"), rows)
    copied = sum(one.bytes_to_copy for one in moves)
    say(f"{len(moves)} of {partitions} partitions change, {format_size(copied)} to copy.")


@app.command()
def execute(
    plan_file: Plan,
    throttle: Annotated[
        str | None,
        typer.Option("--throttle", metavar="RATE", help="Maximum copy rate per broker and second, such as 10MB"),
    ] = None,
    additional: Annotated[
        bool, typer.Option("--additional", help="Start even if other partitions are being moved")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for the end, then remove the throttle")] = False,
    save_current: Annotated[
        Path | None, typer.Option("--save-current", help="Write the current assignment to this file, for rollback")
    ] = None,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Start moving the replicas as the plan says."""
    plan = read_plan(plan_file)
    try:
        rate = None if throttle is None else parse_size(throttle)
    except ValueError as error:
        raise typer.BadParameter(f"--throttle {error}") from None
    with wire(bootstrap, properties) as cluster:
        layout = read_layout(cluster, {topic for topic, _ in plan})
        require(layout, plan)
        if (others := reassignment.ongoing(cluster)) and not additional:
            raise Failed(f"{len(others)} partitions are already being moved: wait, `cancel` them, or use --additional")
        if save_current:
            write_plan(save_current, {place: layout.partitions[place].replicas for place in plan})
        moves = changes(layout.placement, plan, sizes_of(cluster))
        if rate is not None:
            reassignment.throttle(cluster, moves, rate)
        refused = reassignment.start(cluster, plan)
        complain(refused.values())
        if refused:
            raise Failed(f"{len(refused)} of {len(plan)} partitions were refused")
        if wait:
            follow(cluster, plan)
            lift(cluster, plan)
    moved = [{"topic": one.place[0], "partition": one.place[1], "from": one.old, "to": one.new} for one in moves]
    if json:
        document({"started": moved, "bytes_to_copy": sum(one.bytes_to_copy for one in moves), "complete": wait})
    elif wait:
        say(f"moved {len(moves)} partitions")
    else:
        say(f"moving {len(moves)} partitions; check progress with: ottla reassign verify {plan_file}")


def require(layout: Layout, plan: Placement) -> None:
    for (topic, index), replicas in plan.items():
        if (topic, index) not in layout.partitions:
            raise Failed(f"{topic} has no partition {index}")
        if unknown := [broker for broker in replicas if broker not in layout.brokers]:
            raise Failed(f"{topic} partition {index}: there is no broker {unknown[0]} in the cluster")


def complain(refusals: Any) -> None:
    for refusal in refusals:
        warn(str(refusal))


def follow(cluster: Cluster, plan: Placement) -> None:
    """Wait until none of these partitions is being moved, with a progress bar on a terminal."""
    with progress("moving", len(plan)) as bar:
        while left := reassignment.ongoing(cluster).keys() & plan.keys():
            bar(len(plan) - len(left))
            time.sleep(POLL_S)
        bar(len(plan))


def lift(cluster: Cluster, plan: Placement) -> None:
    """Remove the throttle of these topics, and that of the brokers unless other partitions are being moved."""
    busy = bool(reassignment.ongoing(cluster))
    reassignment.lift_throttle(cluster, {topic for topic, _ in plan}, [] if busy else None)


@app.command()
def verify(
    plan_file: Plan,
    keep_throttle: Annotated[
        bool, typer.Option("--keep-throttle", help="Do not remove the throttle at the end")
    ] = False,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Show the progress of a plan. Removes the throttle when it is complete; exits with 1 until then."""
    plan = read_plan(plan_file)
    with wire(bootstrap, properties) as cluster:
        layout = read_layout(cluster, {topic for topic, _ in plan})
        moving = reassignment.ongoing(cluster)
        states = {place: state(layout, place, replicas, place in moving) for place, replicas in plan.items()}
        done = all(one == "complete" for one in states.values())
        if done and not keep_throttle:
            lift(cluster, plan)
    rows = [{"topic": topic, "partition": index, "state": one} for (topic, index), one in states.items()]
    if json:
        document({"complete": done, "partitions": rows})
    else:
        table(("topic", "partition", "state"), [list(row.values()) for row in rows])
    if not done:
        raise typer.Exit(1)


def state(layout: Layout, place: Place, wanted: tuple[int, ...], moving: bool) -> str:
    found = layout.partitions.get(place)
    if found is None:
        return "no such partition"
    if moving:
        return "in progress"
    if found.replicas == wanted:
        return "complete"
    return f"not done: replicas are {','.join(map(str, found.replicas))}"


@app.command()
def cancel(
    plan_file: Annotated[Path | None, typer.Argument(metavar="PLAN", help="Only the partitions of this file")] = None,
    all_moves: Annotated[bool, typer.Option("--all", "-a", help="All partitions being moved")] = False,
    keep_throttle: Annotated[bool, typer.Option("--keep-throttle", help="Do not remove the throttle")] = False,
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """Cancel moves: the old replicas stay, the new ones are deleted."""
    if (plan_file is None) != all_moves:
        raise typer.BadParameter("give a PLAN, or --all")
    wanted = read_plan(plan_file) if plan_file else None
    with wire(bootstrap, properties) as cluster:
        moving = reassignment.ongoing(cluster)
        places = [place for place in moving if wanted is None or place in wanted]
        refused = reassignment.cancel(cluster, places) if places else {}
        complain(refused.values())
        if not keep_throttle and places:
            lift(cluster, {place: moving[place].replicas for place in places})
    if json:
        document({"cancelled": [{"topic": topic, "partition": index} for topic, index in places]})
    else:
        say(f"cancelled the moves of {len(places)} partitions")
    if refused:
        raise Failed(f"{len(refused)} of {len(places)} were refused")


@app.command("list")
def list_moves(
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006
) -> None:
    """List the partitions being moved."""
    with wire(bootstrap, properties) as cluster:
        moving = reassignment.ongoing(cluster)
    rows = [
        {"topic": topic, "partition": index, "replicas": one.replicas, "adding": one.adding, "removing": one.removing}
        for (topic, index), one in sorted(moving.items())
    ]
    if json:
        document(rows)
    else:
        table(("topic", "partition", "replicas", "adding", "removing"), [list(row.values()) for row in rows])
