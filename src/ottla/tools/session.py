"""Shared by all commands: options of the connection, clients, and how errors are reported."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from ottla.client.cluster import Cluster
from ottla.client.failure import Failed as Failed  # what every command raises
from ottla.client.security import MODULES, Security, security
from ottla.tools.output import warn
from ottla.tools.reach import reach

if TYPE_CHECKING:
    from concurrent.futures import Future

BOOTSTRAP = os.environ.get("OTTLA_BOOTSTRAP", "localhost:9092")
TIMEOUT_S = 30.0
MET: list[str] = []  # the addresses that the cluster advertises

Bootstrap = Annotated[str, typer.Option("--bootstrap", "-b", help="The brokers: host:port,... ($OTTLA_BOOTSTRAP)")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text")]
Properties = Annotated[
    list[str],
    typer.Option("--property", "-X", metavar="NAME=VALUE", help="Any librdkafka client option; repeatable"),
]

# What --property sets in kafka-console-producer and kafka-console-consumer, where it is not a client option.
CONSOLE = {
    "print.key": "--keys",
    "print.headers": "--headers",
    "print.timestamp": "--format '{timestamp} {value}\\n'",
    "print.offset": "--format '{offset} {value}\\n'",
    "print.partition": "--format '{partition} {value}\\n'",
    "parse.key": "--key-separator",
    "key.separator": "--key-separator, or --format",
    "parse.headers": "--header, or --json",
}

Item = TypeVar("Item")
Value = TypeVar("Value")


def client(bootstrap: str, properties: Iterable[str] = (), **more: Any) -> dict[str, Any]:
    """Options of a librdkafka client. Its logging is off; its errors are raised."""
    given = pairs(properties)
    if strange := sorted(given.keys() & CONSOLE.keys()):
        raise Failed(f"{strange[0]} is an option of Kafka's console tools: use {CONSOLE[strange[0]]}")
    try:
        secure = read_security(given)
    except Failed:  # a security option that only librdkafka knows, or rejects with a better message
        secure = None
    meet(bootstrap, secure)
    return {"bootstrap.servers": bootstrap, "client.id": "ottla", "log_level": 0, **more, **given}


def meet(bootstrap: str, secure: Security | None) -> None:
    """Fail early when no broker answers. Remember the advertised addresses for later error messages."""
    try:
        MET[:] = reach(bootstrap, secure)
    except Failed as error:
        raise Failed(THEIRS.sub(lambda found: SAID[found[0]], str(error))) from None


def admin(bootstrap: str, properties: Iterable[str] = ()) -> AdminClient:
    """Keep it in a variable: when the last reference goes, pending answers are lost."""
    return AdminClient(client(bootstrap, properties))


def wire(bootstrap: str, properties: Iterable[str] = ()) -> Cluster:
    """Ottla's own client, for requests that librdkafka cannot send. It takes librdkafka's security options."""
    secure = read_security(pairs(properties))
    meet(bootstrap, secure)
    return Cluster(bootstrap, security=secure)


# librdkafka's option names and ours, which are those of Kafka's Java clients. The Java clients have no options for the
# FILES, so their content is passed.
OURS = {
    "security.protocol": "security.protocol",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.key.password": "ssl.key.password",
    "ssl.keystore.location": "ssl.keystore.location",
    "ssl.keystore.password": "ssl.keystore.password",
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
    "sasl.mechanism": "sasl.mechanism",
    "sasl.mechanisms": "sasl.mechanism",
}
FILES = {"ssl.certificate.location": "ssl.keystore.certificate.chain", "ssl.key.location": "ssl.keystore.key"}
LOGIN = {"sasl.username", "sasl.password"}
# Our client's errors name its own options; the user gave librdkafka's.
SAID = {
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.location",
    "ssl.keystore.key": "ssl.key.location",
    "sasl.jaas.config": "sasl.username and sasl.password",
}
THEIRS = re.compile("|".join(re.escape(name) for name in SAID))
JAAS = '{module} required username="" password="";'


def read_security(properties: Mapping[str, str]) -> Security:
    """Convert librdkafka's security options."""
    given = {name: value for name, value in properties.items() if name.startswith(("security.", "ssl.", "sasl."))}
    if strange := sorted(given.keys() - OURS.keys() - FILES.keys() - LOGIN):
        raise Failed(f"{strange[0]} is not supported by this command")
    ours = {OURS[name]: value for name, value in given.items() if name in OURS}
    for name in FILES.keys() & given.keys():
        try:
            ours[FILES[name]] = Path(given[name]).read_text()
        except OSError as error:
            raise Failed(f"{name}: {given[name]}: {error.strerror}") from None
    if "ssl.truststore.location" in ours:
        ours["ssl.truststore.type"] = "PEM"
    if "ssl.keystore.location" in ours:
        ours["ssl.keystore.type"] = "PKCS12"
    if ours.get("ssl.endpoint.identification.algorithm") == "none":
        ours["ssl.endpoint.identification.algorithm"] = ""
    mechanism = ours.get("sasl.mechanism", "").upper()
    module = next((name for name, mechanisms in MODULES.items() if mechanism in mechanisms), "")
    if module:
        ours["sasl.jaas.config"] = JAAS.format(module=module)
    return replace(security(ours), user=given.get("sasl.username", ""), password=given.get("sasl.password", ""))


def pairs(texts: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text}: expected name=value")
        found[name.strip()] = value
    return found


def settle(
    futures: Mapping[Item, "Future[Value]"],
    *,
    fine: Iterable[int] = (),
    tell: Callable[[list[Item]], None] | None = None,
) -> dict[Item, Value]:
    """Wait for all answers. An error fails the command unless its code is in `fine`; all errors are printed, after
    `tell` has reported what was done.
    """
    done: dict[Item, Value] = {}
    refused: list[str] = []
    for item, future in futures.items():
        try:
            done[item] = future.result(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() not in fine:
                refused.append(f"{item}: {explain(error)}")
        except TimeoutError:
            asked = f" from {', '.join(MET)}" if MET else ""
            raise Failed(f"no answer{asked} within {TIMEOUT_S:.0f} seconds") from None
    if tell is not None and (done or not refused):
        tell(list(done))
    for line in refused[:-1]:
        warn(line)
    if refused:
        raise Failed(refused[-1])
    return done


def explain(error: KafkaException) -> str:
    cause = error.args[0] if error.args else error
    if not isinstance(cause, KafkaError):
        return str(cause)
    if cause.code() in (
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,
    ):
        sent = f" at {', '.join(MET)}, where --bootstrap sends clients," if MET else ""
        return f"the cluster{sent} does not answer ({cause.str()}): is a broker running there? See --bootstrap"
    said = cause.str()
    if said.endswith(": "):  # librdkafka appends what the broker said, which may be nothing
        said = KafkaError(cause.code()).str()
    return f"{said} ({cause.name()})"
