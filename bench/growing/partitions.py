"""Number of partitions, in topics of up to 1,000: produce and fetch requests, one partition after the other."""

from __future__ import annotations

from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING

from bench.circuit import Circuit
from bench.growing.axis import LANES, REST, Axis, Effort, Load
from bench.wire import batch, fetch_error, fetch_frame, produce_error, produce_frame

if TYPE_CHECKING:
    from bench.brokers import Broker
    from bench.rows import Sample

PARTITIONS_MAX = 1000  # of one topic
PATIENCE_S = 300.0
BATCH = batch(100, 1200)  # ten records


class Partitions(Load):
    def __init__(self, broker: Broker, effort: Effort) -> None:
        super().__init__(broker, effort)
        self.partitions: list[tuple[str, int]] = []
        self.lanes = self.connect(LANES)

    def grow(self, size: int) -> None:
        new: list[tuple[str, int]] = []
        while (made := len(self.partitions) + len(new)) < size:
            topic, count = f"topic-{made:06}", min(PARTITIONS_MAX, size - made)
            with self.broker.connect() as connection:
                connection.create_topic(topic, count)
                connection.wait_led(topic, count, PATIENCE_S)
            new += [(topic, index) for index in range(count)]
        self.partitions += new
        if new:
            self._produces(new).run(len(new))  # the first append opens the files
        self.produces, self.fetches = self._produces(self.partitions), self._fetches(self.partitions)

    def sample(self, requests: int) -> Sample:
        return {
            "produce_us": self.cost_us(self.produces, requests) / BATCH.records,
            "fetch_us": self.cost_us(self.fetches, requests) / BATCH.records,
        }

    def _produces(self, partitions: list[tuple[str, int]]) -> Circuit:
        frames = [produce_frame(topic, {index: BATCH.data}, 1) for topic, index in partitions]
        return Circuit(self.lanes, cycle(frames), partial(produce_error, topic=partitions[0][0]), LANES)

    def _fetches(self, partitions: list[tuple[str, int]]) -> Circuit:
        frames = [fetch_frame(topic, index, 0, 1) for topic, index in partitions]
        return Circuit(self.lanes, cycle(frames), partial(fetch_error, topic=partitions[0][0]), LANES)


AXIS = Axis(
    "partitions",
    "More partitions",
    "partitions",
    (1, 10, 100, 1000, 10_000),
    {
        "produce_us": "produce, CPU µs a record",
        "fetch_us": "fetch, CPU µs a record",
        REST: "at rest, CPU ms a second",
    },
    Partitions,
    why="A batch of ten records goes to one partition after the other. A partition is found in a dictionary and has "
    "its file open, on either side. At rest every partition's high watermark is looked at once in five seconds, "
    "and Kafka writes all of them down.",
)
