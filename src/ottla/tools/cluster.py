"""`ottla cluster`: what there is, several brokers on this machine, and a node that becomes a member."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from socket import gethostname
from types import FrameType
from typing import Annotated

import typer

from ottla import __version__
from ottla.embed import BrokerFailed, BrokerProcess
from ottla.tools.output import document, format_cell, table
from ottla.tools.session import BOOTSTRAP, Bootstrap, Failed, Json, Properties, wire

app = typer.Typer(
    no_args_is_help=True, help="Show the cluster, run several brokers on this machine, or make a node a member."
)

CONNECT_MS_MAX = 10_000
AS_SERVED = {"group.initial.rebalance.delay.ms": 3000}  # as `ottla serve` and Kafka have it, not as tests do
WATCH_S = 0.5  # how often to look whether all are still there


@app.command()
def up(
    brokers: Annotated[int, typer.Option(min=1, max=100, help="How many")] = 3,
    data: Annotated[Path | None, typer.Option(help="Keep the data here (default: nothing is kept)")] = None,
    port: Annotated[int, typer.Option(help="Of the first broker; the others follow")] = 9092,
    host: Annotated[str, typer.Option(help="Listen on this address")] = "127.0.0.1",
    zookeeper: Annotated[
        str | None, typer.Option(help="Join the cluster of this ZooKeeper (default: start one, at port + 100)")
    ] = None,
    first: Annotated[int, typer.Option(help="The number of the first broker; the others follow", min=0)] = 1,
    set: Annotated[list[str] | None, typer.Option("--set", help="name=value, for every broker")] = None,
) -> None:
    """Start ZooKeeper and brokers, show where they are, and run until Ctrl-C.

    All brokers of one machine are one rack, so that copies of a partition are on different machines if there are any.
    """
    from ottla.config import ConfigError, parse_settings
    from ottla.testing.cluster import internal_topics

    alone = internal_topics(brokers) if zookeeper is None else {}
    try:
        options: dict[str, str | int] = {**AS_SERVED, "broker.rack": gethostname(), **alone}
        options |= parse_settings(set or [])
    except ConfigError as error:
        raise Failed(str(error)) from error
    with ExitStack() as stack:
        folder = data or temporary_folder(stack)
        stop = threading.Event()
        stack.enter_context(Signals(stop))
        where = zookeeper or start_zookeeper(stack, folder, port + 100)
        members = [
            BrokerProcess(
                data=folder / f"broker-{first + index}",
                host=host,
                port=port + index,
                options={**options, "node.id": first + index, "zookeeper.connect": where},
            )
            for index in range(brokers)
        ]
        stack.callback(at_once, [member.stop for member in members])
        began = time.monotonic()
        try:
            at_once([member.start for member in members])
        except BrokerFailed as error:
            raise Failed(str(error)) from error
        show(members, where, data, time.monotonic() - began)
        watch(members, stop)


def temporary_folder(stack: ExitStack) -> Path:
    from ottla.data_folder import memory_folder, remove

    folder = memory_folder()
    stack.callback(remove, folder)
    return folder


def start_zookeeper(stack: ExitStack, folder: Path, port: int) -> str:
    from ottla.testing.zookeeper import ZooKeeperFailed, ZooKeeperServer

    server = ZooKeeperServer(folder / "zookeeper", port=port, durable=True, heap="256m")
    try:
        server.start()
    except ZooKeeperFailed as error:
        raise Failed(str(error)) from error
    stack.callback(server.stop)
    return server.address


class Signals:
    """SIGTERM, SIGINT and SIGHUP (a closed terminal) set the event, while inside. A second one ends at once."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def __enter__(self) -> None:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._heed) for number in heeded}

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _heed(self, number: int, frame: FrameType | None) -> None:
        if self._stop.is_set():
            os._exit(1)  # the brokers and ZooKeeper see the end of their pipes
        self._stop.set()


def show(members: list[BrokerProcess], where: str, data: Path | None, seconds: float) -> None:
    bootstrap = ",".join(member.bootstrap for member in members)
    lines = [
        f"Ottla {__version__}: {len(members)} brokers are ready after {seconds:.1f} s.",
        "",
        *(f"  broker {member.node_id:<6} {member.bootstrap}" for member in members),
        f"  ZooKeeper     {where}",
        f"  cluster       {members[0].cluster_id}",
        f"  data          {data or 'in memory, nothing is kept'}",
        f"  try           ottla topics create orders --replicas {min(3, len(members))} --bootstrap {bootstrap}",
        "  stop          Ctrl-C",
        "",
    ]
    print("\n".join(lines), flush=True)


def watch(members: list[BrokerProcess], stop: threading.Event) -> None:
    """Wait until told to stop; say which brokers end before. With the last of them it is over."""
    running = list(members)
    while running and not stop.wait(WATCH_S):
        for member in [member for member in running if not member.running]:
            running.remove(member)
            last = (member.log.strip().splitlines() or ["it said nothing"])[-1]
            print(f"ottla cluster: broker {member.node_id} has ended: {last}", file=sys.stderr, flush=True)
    if not running:
        raise Failed("every broker has ended")


def at_once(work: list[Callable[[], object]]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(len(work)) as pool:
        for done in [pool.submit(one) for one in work]:
            done.result()


@app.command()
def info(
    json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    properties: Properties = [],  # noqa: B006 - Typer reads the default and hands out a new list
) -> None:
    """Show the cluster in a few lines: its id, its brokers, and partitions that lack a leader or a copy."""
    from ottla.client.layout import read_layout

    with wire(bootstrap, properties) as cluster:
        layout, identity = read_layout(cluster), cluster.id
    partitions = layout.partitions.values()
    facts = {
        "cluster": identity,
        "brokers": [f"{number} {node.host}:{node.port}" for number, node in layout.brokers.items()],
        "controller": layout.controller,
        "topics": len({topic for topic, _ in layout.partitions} - layout.internal),
        "partitions": len(partitions),
        "without_leader": sum(one.leader < 0 for one in partitions),
        "under_replicated": sum(len(one.isr) < len(one.replicas) for one in partitions),
    }
    if json:
        document(facts)
    else:
        table(("", ""), [[name.replace("_", " "), format_cell(value)] for name, value in facts.items()])


@app.command()
def join(
    zookeeper: Annotated[str, typer.Option(help="host:port[,...][/path] of a ZooKeeper that keeps no cluster yet")],
    data: Annotated[Path, typer.Option(help="The folder of a broker that ran alone and is stopped")],
    credentials: Annotated[str | None, typer.Option(help="user:password for ZooKeeper")] = None,
) -> None:
    """Make a broker that ran alone the first member of a cluster. Start it with --zookeeper from then on.

    Its topics, options and producer ids are written to ZooKeeper; its logs stay where they are.
    """
    import asyncio

    from ottla.cluster.metadata_store import StoreError
    from ottla.data_folder import FolderInUse, FolderLocks
    from ottla.errors import BrokerError

    try:
        locks = FolderLocks([data])
    except (FolderInUse, OSError) as error:
        raise Failed(str(error)) from error
    try:
        topics = asyncio.run(handed_over(zookeeper, data, credentials))
    except BrokerError as error:
        raise Failed(error.message or error.code.name) from error
    except StoreError as error:
        raise Failed(str(error)) from error
    finally:
        locks.release()
    print(f"{topics} topics are in ZooKeeper. Start the broker: ottla serve --data {data} --zookeeper {zookeeper}")


async def handed_over(zookeeper: str, data: Path, credentials: str | None) -> int:
    """How many topics were written. The folder's own metadata are set aside."""
    from ottla.cluster import znodes
    from ottla.cluster.joining import hand_over
    from ottla.cluster.sqlite_store import SqliteStore
    from ottla.cluster.zookeeper import ZooKeeper, ZooKeeperSettings
    from ottla.founding.alone import JOURNAL_FILE, METADATA_FILE

    file, journal = data / METADATA_FILE, data / JOURNAL_FILE
    if not file.exists():
        raise Failed(f"{data} is not the folder of a broker that ran alone: there is no {METADATA_FILE}")
    source = SqliteStore(str(file), str(journal))
    protect = credentials is not None
    settings = ZooKeeperSettings(
        zookeeper, connection_timeout_ms=CONNECT_MS_MAX, credentials=credentials, protect=protect
    )
    target = ZooKeeper(settings)
    await source.open()
    try:
        if source.rebuilt:
            raise Failed("the metadata were damaged: start the broker alone once, so that it puts them in order")
        await target.open()
        try:
            written = await hand_over(source, target)
        finally:
            await target.close()
    finally:
        await source.close()
    for path in (file, journal):
        if path.exists():
            path.rename(path.with_name(f"{path.name}.joined"))
    return sum(path.rpartition("/")[0] == znodes.TOPICS for path in written)
