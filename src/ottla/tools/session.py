"""What every command shares: which cluster, how to talk to it, and how to say that it said no."""

import os
import socket
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from ottla.tools.output import warn

if TYPE_CHECKING:
    from concurrent.futures import Future

BOOTSTRAP = os.environ.get("OTTLA_BOOTSTRAP", "localhost:9092")
TIMEOUT_S = 30.0

Bootstrap = Annotated[str, typer.Option("--bootstrap", "-b", help="The cluster: host:port,... ($OTTLA_BOOTSTRAP)")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people")]
Properties = Annotated[
    list[str],
    typer.Option("--property", "-X", metavar="NAME=VALUE", help="Any client option of librdkafka; repeatable"),
]

Item = TypeVar("Item")
Value = TypeVar("Value")


class Failed(Exception):
    """A command could not do what it was asked; the message is the whole story."""


def client(bootstrap: str, properties: Iterable[str] = (), **more: Any) -> dict[str, Any]:
    """Options of a librdkafka client. Its own log lines are off: what matters comes back as an error."""
    reach(bootstrap)
    return {"bootstrap.servers": bootstrap, "client.id": "ottla", "log_level": 0, **more, **pairs(properties)}


def reach(bootstrap: str) -> None:
    """Fail at once when nobody listens: the client would go on trying until its timeout."""
    for address in places(bootstrap):
        try:
            socket.create_connection(address, timeout=TIMEOUT_S).close()
        except OSError as error:
            reason = error.strerror or error
        else:
            return
    raise silence(bootstrap, reason)


def places(bootstrap: str) -> list[tuple[str, int]]:
    """The addresses in `host:port,[::1]:port,PLAINTEXT://host:port,host`; 9092 where no port is given."""
    found = []
    for text in bootstrap.split(","):
        address = text.strip().rpartition("://")[2]
        host, _, port = address.rpartition(":") if ":" in address else (address, "", "9092")
        if not port.isdecimal():
            raise silence(bootstrap, f"{port} is no port")
        found.append((host.strip("[]"), int(port)))
    return found


def silence(bootstrap: str, reason: object) -> Failed:
    return Failed(f"nothing answers at {bootstrap} ({reason}): is a broker running there? See --bootstrap")


def admin(bootstrap: str, properties: Iterable[str] = ()) -> AdminClient:
    """To be held in a variable: when the last reference goes, the answers still awaited are lost with it."""
    return AdminClient(client(bootstrap, properties))


def pairs(texts: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text}: expected name=value")
        found[name.strip()] = value
    return found


def settle(futures: Mapping[Item, "Future[Value]"], *, fine: Iterable[int] = ()) -> dict[Item, Value]:
    """Wait for the answer for each item. A refusal fails the command, unless its code is in `fine`; all are shown."""
    done: dict[Item, Value] = {}
    refused: list[str] = []
    for item, future in futures.items():
        try:
            done[item] = future.result(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() not in fine:
                refused.append(f"{item}: {explained(error)}")
        except TimeoutError:
            raise Failed(f"no answer within {TIMEOUT_S:.0f} seconds") from None
    for line in refused[:-1]:
        warn(line)
    if refused:
        raise Failed(refused[-1])
    return done


def explained(error: KafkaException) -> str:
    cause = error.args[0] if error.args else error
    if not isinstance(cause, KafkaError):
        return str(cause)
    if cause.code() in (
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,
    ):
        return f"the cluster does not answer ({cause.str()}): is a broker running there? See --bootstrap"
    return f"{cause.str()} ({cause.name()})"
