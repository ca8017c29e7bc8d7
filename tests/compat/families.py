"""Every client library of the suite by name: how it is built (once per machine, in the judge's cache) and started."""

from __future__ import annotations

import hashlib
import shutil
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import judge
from compat.aio import AioKafka
from compat.clients import CODECS, Agent, Client
from compat.confluent import Confluent
from compat.kafka_python import KafkaPython

if TYPE_CHECKING:
    from collections.abc import Callable

HERE: Final = Path(__file__).parent


def digest(folder: Path, *names: str) -> str:
    return hashlib.sha256(b"\0".join((folder / name).read_bytes() for name in names)).hexdigest()[:16]


@cache
def go_program() -> Path:
    folder = HERE / "go"

    def build(target: Path) -> None:
        judge.run(["go", "build", "-trimpath", "-o", target / "agent", "."], "building the Go agent", cwd=folder)

    return judge.cached(f"go-{digest(folder, 'main.go', 'go.mod', 'go.sum')}", build) / "agent"


@cache
def node_program() -> Path:
    names = ("agent.js", "package.json", "package-lock.json")

    def install(target: Path) -> None:
        for name in names:
            shutil.copy(HERE / "node" / name, target)
        judge.run(["npm", "ci", "--no-audit", "--no-fund"], "installing the Node agent", cwd=target)

    return judge.cached(f"node-{digest(HERE / 'node', *names)}", install) / "agent.js"


def java_agent(program: str, version: str, bootstrap: str) -> Agent:
    path = judge.client_classpath(version)
    words = judge.command(judge.SOURCES / f"{program}.java", bootstrap, path=path)
    return Agent(f"java-{version}", words)


def simple_agent(bootstrap: str) -> Agent:
    """The SimpleConsumer of 0.8.2, from the Scala jar of that time."""
    path = judge.scala_classpath("0.8.2.2")
    return Agent("java-0.8.2.2", judge.command(judge.SOURCES / "SimpleAgent.java", bootstrap, path=path))


def librdkafka_of(version: str, bootstrap: str) -> Confluent:
    """librdkafka configured not to ask for the broker's versions, but to assume an old broker."""
    settings: dict[str, str | bool | int] = {
        "api.version.request": False,
        "broker.version.fallback": version,
        "log_level": 2,
    }
    return Confluent(bootstrap, name=f"librdkafka-{version}", settings=settings)


OPENERS: Final[dict[str, Callable[[str], Client]]] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
    "java-4.3.1": lambda bootstrap: java_agent("NewAgent", "4.3.1", bootstrap),
    "java-2.3.1": lambda bootstrap: java_agent("OldAgent", "2.3.1", bootstrap),
    "java-1.1.1": lambda bootstrap: java_agent("OldAgent", "1.1.1", bootstrap),
    "java-0.10.2.2": lambda bootstrap: java_agent("FirstAgent", "0.10.2.2", bootstrap),
    "java-0.8.2.2": simple_agent,
    "franz-go": lambda bootstrap: Agent("franz-go", [str(go_program()), bootstrap]),
    "kafkajs": lambda bootstrap: Agent("kafkajs", ["node", str(node_program()), bootstrap]),
    "librdkafka-0.10.0": lambda bootstrap: librdkafka_of("0.10.0", bootstrap),
    "librdkafka-0.8.2": lambda bootstrap: librdkafka_of("0.8.2", bootstrap),
}
NO_ADMIN: Final = frozenset({"create", "delete", "grow", "configs", "alter", "trim"})
MAGIC_1: Final = frozenset({"headers", "null headers", "idempotence"})  # what the old formats cannot say
LACKS: Final[dict[str, frozenset[str]]] = {
    "confluent-kafka": frozenset(),
    "kafka-python": frozenset({"null headers"}),
    "aiokafka": frozenset({"incremental alter"}),
    "java-4.3.1": frozenset(),
    "java-2.3.1": frozenset({"incremental alter"}),
    "java-1.1.1": frozenset({"incremental alter"}),
    "java-0.10.2.2": NO_ADMIN | MAGIC_1,
    "java-0.8.2.2": NO_ADMIN | MAGIC_1 | {"times"},
    "franz-go": frozenset(),
    "kafkajs": frozenset({"null headers", "incremental alter"}),
    "librdkafka-0.10.0": frozenset(),
    "librdkafka-0.8.2": NO_ADMIN | MAGIC_1 | {"times"},
}
CODECS_OF: Final = {
    "java-1.1.1": CODECS[:-1],
    "java-0.10.2.2": CODECS[:-1],
    "java-0.8.2.2": CODECS[:3],
    "librdkafka-0.8.2": CODECS[:3],
}
# Clients that Apache Kafka 4 no longer serves: its 3.9 judges them.
OLD: Final = frozenset({"java-1.1.1", "java-0.10.2.2", "java-0.8.2.2", "librdkafka-0.8.2"})


def opened(name: str, bootstrap: str) -> Client:
    client = OPENERS[name](bootstrap)
    client.lacks = LACKS[name]
    client.codecs = CODECS_OF.get(name, CODECS)
    return client
