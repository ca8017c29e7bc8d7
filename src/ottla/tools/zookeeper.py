"""`ottla zookeeper`: show the nodes of a cluster in ZooKeeper. Never writes."""

import json as codec
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ottla.tools.output import document, say, table
from ottla.tools.session import Failed, Json

app = typer.Typer(no_args_is_help=True, help="Show the nodes of a cluster in ZooKeeper (read-only).")

SERVERS = os.environ.get("OTTLA_ZOOKEEPER", "localhost:2181")
Servers = Annotated[
    str, typer.Option("--zookeeper", "-z", metavar="HOST:PORT[/PATH]", help="ZooKeeper address ($OTTLA_ZOOKEEPER)")
]
Path = Annotated[str, typer.Argument(help="A node, such as /brokers/ids")]
CONNECT_S = 10.0
DEPTH_MAX = 64


@app.command("ls")
def list_nodes(
    path: Path = "/",
    recursive: Annotated[bool, typer.Option("--recursive", "-R", help="Include all nodes below")] = False,
    json: Json = False,
    zookeeper: Servers = SERVERS,
) -> None:
    """List the children of a node."""
    with session(zookeeper) as client:
        found = list(walk(client, clean(path))) if recursive else children(client, clean(path))
    if json:
        document(found)
    else:
        for name in found:
            say(name)


@app.command()
def get(path: Path, json: Json = False, zookeeper: Servers = SERVERS) -> None:
    """Show the data of a node, and its version."""
    from kazoo.exceptions import NoNodeError

    with session(zookeeper) as client:
        try:
            data, stat = client.get(clean(path))
        except NoNodeError:
            raise Failed(f"{path}: there is no such node") from None
    text = data.decode(errors="replace")
    if json:
        facts = {
            "path": clean(path),
            "data": parse_data(text),
            "version": stat.version,
            "created_ms": stat.ctime,
            "modified_ms": stat.mtime,
            "czxid": stat.czxid,
            "mzxid": stat.mzxid,
            "ephemeral_owner": stat.ephemeralOwner,
            "children": stat.numChildren,
        }
        document(facts)
        return
    say(text)
    owner = hex(stat.ephemeralOwner) if stat.ephemeralOwner else "-"
    rows = [[stat.version, stat.numChildren, len(data), owner, stat.czxid, stat.mzxid]]
    table(("version", "children", "bytes", "session", "czxid", "mzxid"), rows)


def parse_data(text: str) -> Any:
    try:
        return codec.loads(text)
    except ValueError:
        return text


def clean(path: str) -> str:
    return "/" + path.strip("/")


def children(client: Any, path: str) -> list[str]:
    from kazoo.exceptions import NoNodeError

    try:
        return sorted(client.get_children(path))
    except NoNodeError:
        raise Failed(f"{path}: there is no such node") from None


def walk(client: Any, path: str) -> Iterator[str]:
    """Every node below this one, parents first. A node deleted meanwhile is skipped."""
    from kazoo.exceptions import NoNodeError

    pending = [(path.rstrip("/"), name, 1) for name in reversed(children(client, path))]
    while pending:
        above, name, depth = pending.pop()
        here = f"{above}/{name}"
        yield here
        try:
            below = client.get_children(here) if depth < DEPTH_MAX else []
        except NoNodeError:
            continue
        pending += [(here, child, depth + 1) for child in sorted(below, reverse=True)]


def reach(servers: str) -> None:
    """Fail at once when no server listens: kazoo would keep retrying."""
    from kazoo.hosts import collect_hosts

    hosts, _ = collect_hosts(servers)
    for address in hosts:
        try:
            socket.create_connection(address, timeout=CONNECT_S).close()
        except OSError:
            continue
        return
    raise Failed(f"no ZooKeeper answers at {servers}; see --zookeeper")


@contextmanager
def session(servers: str) -> Iterator[Any]:
    import logging

    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError

    reach(servers)
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    client = KazooClient(servers, timeout=CONNECT_S, read_only=True)
    try:
        client.start(timeout=CONNECT_S)
    except (KazooTimeoutError, OSError, ValueError):
        client.close()
        raise Failed(f"no ZooKeeper answers at {servers}; see --zookeeper") from None
    try:
        yield client
    except KazooException as error:
        raise Failed(f"ZooKeeper at {servers}: {error or type(error).__name__}") from None
    finally:
        client.stop()
        client.close()
