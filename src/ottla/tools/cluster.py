"""`ottla cluster`: show the cluster, run several brokers on this machine, make a standalone broker a member."""

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
    no_args_is_help=True,
    help="Show the cluster, run several brokers on this machine, or make a standalone broker a cluster member.",
)

CONNECT_MS_MAX = 10_000
AS_SERVED = {"group.initial.rebalance.delay.ms": 3000}  # the default of `ottla serve` and Kafka, not of tests
WATCH_S = 0.5  # how often to check that all brokers still run


@app.command()
def up(
    brokers: Annotated[int, typer.Option(min=1, max=100, help="Number of brokers")] = 3,
    data: Annotated[Path | None, typer.Option(help="Keep the data in this folder (default: nothing is kept)")] = None,
    port: Annotated[int, typer.Option(help="Port of the first broker; the others use the next ones")] = 9092,
    host: Annotated[str, typer.Option(help="Listen on this address")] = "127.0.0.1",
    zookeeper: Annotated[
        str | None, typer.Option(help="Join the cluster of this ZooKeeper (default: start one on port + 100)")
    ] = None,
    first: Annotated[int, typer.Option(help="Id of the first broker; the others count up from it", min=0)] = 1,
    set: Annotated[list[str] | None, typer.Option("--set", help="Broker option for all brokers: name=value")] = None,
) -> None:
    """Start ZooKeeper and brokers, print their addresses, and run until Ctrl-C.

    All brokers of one machine form one rack. So replicas are placed on different machines if the cluster has several.
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
    """While active, SIGTERM, SIGINT and SIGHUP (closed terminal) set the event. A second signal exits at once."""

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
            os._exit(1)  # the brokers and ZooKeeper stop when their pipes close
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
    """Wait for `stop`, and report brokers that exit before. Fails when all have exited."""
    running = list(members)
    while running and not stop.wait(WATCH_S):
        for member in [member for member in running if not member.running]:
            running.remove(member)
            last = (member.log.strip().splitlines() or ["no output"])[-1]
            print(f"ottla cluster: broker {member.node_id} has exited: {last}", file=sys.stderr, flush=True)
    if not running:
        raise Failed("all brokers have exited")


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
    """Show the cluster's id and brokers, and how many partitions are without leader or under-replicated."""
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
    zookeeper: Annotated[str, typer.Option(help="A ZooKeeper that holds no cluster yet: host:port,.../path")],
    data: Annotated[Path, typer.Option(help="Data folder of the standalone broker, which must be stopped")],
    credentials: Annotated[str | None, typer.Option(help="user:password for ZooKeeper")] = None,
) -> None:
    """Make a standalone broker the first member of a cluster. From then on, start it with --zookeeper.

    Its topics, options and producer ids are written to ZooKeeper; its logs stay in place.
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
    """Copy the metadata to ZooKeeper, rename the local files, and return the number of topics."""
    from ottla.cluster import znodes
    from ottla.cluster.joining import hand_over
    from ottla.cluster.sqlite_store import SqliteStore
    from ottla.cluster.zookeeper import ZooKeeper, ZooKeeperSettings
    from ottla.founding.alone import JOURNAL_FILE, METADATA_FILE

    file, journal = data / METADATA_FILE, data / JOURNAL_FILE
    if not file.exists():
        raise Failed(f"{data} is not the data folder of a standalone broker: it has no {METADATA_FILE}")
    source = SqliteStore(str(file), str(journal))
    protect = credentials is not None
    settings = ZooKeeperSettings(
        zookeeper, connection_timeout_ms=CONNECT_MS_MAX, credentials=credentials, protect=protect
    )
    target = ZooKeeper(settings)
    await source.open()
    try:
        if source.rebuilt:
            raise Failed("the metadata is damaged: start the broker standalone once to repair it")
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
