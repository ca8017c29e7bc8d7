"""What grows, and what is measured at each size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench.brokers import Broker
    from bench.circuit import Circuit
    from bench.rows import Sample
    from bench.wire import Connection

LANES = 10  # connections that work, each waiting for its answer before the next request
REST = "rest_ms_s"


@dataclass(frozen=True)
class Effort:
    """How much to measure. A smoke test uses small numbers everywhere."""

    requests: int = 2000  # of each kind in a turn
    pairs: int = 7
    warm_requests: int = 60_000  # of each kind before the measurement starts, to warm up the JVM
    rest_s: float = 5.0
    rests: int = 2


class Load:
    """One broker that grows. `sample` may be called many times at a size."""

    def __init__(self, broker: Broker, effort: Effort) -> None:
        self.broker = broker
        self.effort = effort
        self.connections: list[Connection] = []

    def connect(self, count: int) -> list[Connection]:
        more = [self.broker.connect() for _ in range(count)]
        self.connections += more
        return more

    def grow(self, size: int) -> None:
        """Grow from the previous size to this one. Sizes come in rising order."""
        raise NotImplementedError

    def sample(self, requests: int) -> Sample:
        """Measure what one request costs now, with this many requests of each kind."""
        raise NotImplementedError

    def drop(self) -> None:
        """Free the disk space. The next `grow` starts from nothing."""

    def close(self) -> None:
        for connection in self.connections:
            connection.socket.close()
        self.connections.clear()

    def cost_us(self, circuit: Circuit, requests: int) -> float:
        """Broker CPU time for one request, in microseconds."""
        before = self.broker.cpu_s()
        circuit.run(requests)
        return (self.broker.cpu_s() - before) / requests * 1e6


@dataclass(frozen=True)
class Axis:
    name: str
    title: str
    label: str  # of the axis with the sizes
    sizes: Sequence[int]
    measures: Mapping[str, str]  # names of the measures, with their titles
    load: Callable[[Broker, Effort], Load]
    why: str  # what the cost depends on, for the page
    options: Mapping[str, object] = field(default_factory=dict)  # broker options, for both brokers
    room: Callable[[int], int] = field(default=lambda _: 0)  # bytes of disk that a size needs
    rests: bool = True  # whether to measure an idle broker, too
