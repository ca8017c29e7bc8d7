"""A cluster as a value that travels to the workers of a Spark job, and the connections that a worker keeps to it.

A worker process runs many short tasks. It keeps connections, metadata and coordinators from task to task, so that a
task of a few milliseconds does not begin with a dozen round trips. After an error they are created again.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.client.cluster import Cluster
from ottla.client.failure import Failed
from ottla.client.security import PLAIN, Security, security

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Endpoint:
    bootstrap: str
    security: Security = PLAIN
    client_id: str = "ottla"
    timeout_s: float = 30.0

    def connect(self) -> Cluster:
        """A new client; the caller closes it."""
        return Cluster(self.bootstrap, security=self.security, client_id=self.client_id, timeout_s=self.timeout_s)

    @contextmanager
    def reuse(self) -> Iterator[Cluster]:
        """The client that this process keeps for this cluster. Any error closes it."""
        cluster = _KEPT.pop(self, None) or self.connect()
        try:
            yield cluster
        except BaseException:
            cluster.close()
            raise
        _KEPT[self] = cluster


_KEPT: dict[Endpoint, Cluster] = {}


def properties(path: str) -> Security:
    """Security from a file of Kafka's client properties, as Kafka's own tools take with --command-config."""
    return security(read_properties(path))


def read_properties(path: str) -> dict[str, str]:
    """The security properties in such a file, by name."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise Failed(f"{path} cannot be read ({error.strerror}): name a file of client properties") from None
    given = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith(("#", "!")):
            continue
        name, equals, value = text.partition("=")
        if not equals:
            raise Failed(f"{path} line {number}: expected name=value")
        given[name.strip()] = value.strip()
    return {name: value for name, value in given.items() if name.startswith(("security.", "ssl.", "sasl."))}
