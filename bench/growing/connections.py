"""Number of connections: one-record requests on ten of them while the others are idle, and on all of them in turn."""

from __future__ import annotations

from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

from bench.circuit import Circuit
from bench.growing.axis import LANES, REST, Axis, Effort, Load
from bench.wire import batch, produce_error, produce_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.brokers import Broker
    from bench.rows import Sample
    from bench.wire import Connection

TOPIC = "connections"
RECORD = batch(100, 1)


class Connections(Load):
    def __init__(self, broker: Broker, effort: Effort) -> None:
        super().__init__(broker, effort)
        with broker.connect() as connection:
            connection.create_topic(TOPIC)
            connection.wait_led(TOPIC, 1)
        self.active = self._requests(self.connect(LANES), LANES)
        self.idle: list[Connection] = []

    def grow(self, size: int) -> None:
        while len(self.idle) < size:
            self.idle += self.connect(1)
            self._requests(self.idle[-1:], 1).run(1)  # when it is answered, nobody waits to be accepted
        self.all = self._requests(self.idle, 1)

    def sample(self, requests: int) -> Sample:
        return {"beside_us": self.cost_us(self.active, requests), "all_us": self.cost_us(self.all, requests)}

    def _requests(self, connections: Sequence[Connection], lanes: int) -> Circuit:
        frames = repeat(produce_frame(TOPIC, {0: RECORD.data}, 1))
        return Circuit(connections, frames, partial(produce_error, topic=TOPIC), lanes)


AXIS = Axis(
    "connections",
    "More connections",
    "connections",
    (1, 10, 100, 1000, 5000),
    {
        "beside_us": "ten work beside idle ones, CPU µs a request",
        "all_us": "all in turn, CPU µs a request",
        REST: "at rest, CPU ms a second",
    },
    Connections,
    why="A request is one record. Ten connections work while the others are open, then all take turns, one request in "
    "flight at a time. Both brokers wait in epoll, where a silent socket costs nothing; with all in turn each request "
    "meets a connection whose state has left the caches.",
)
