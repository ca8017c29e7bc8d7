"""One record per request: fifty connections, each waiting for its response before the next request.

This is the load of many small producers without linger; nothing is amortised, so this is the cost of a request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench import pump
from bench.rows import Goal, Sample, Setting, TopicRow, per_request
from bench.wire import batch, produce_frame, produce_shape

if TYPE_CHECKING:
    from bench.brokers import Broker

PARTITIONS = 6


@dataclass
class Requests(TopicRow):
    acks: int = field(kw_only=True)
    connections: int = field(kw_only=True)

    def run(self, broker: Broker, setting: Setting) -> Sample:
        one = batch(100, 1)
        frames = [produce_frame(self.topic, {i % PARTITIONS: one.data}, self.acks) for i in range(self.connections)]
        shape, sizes = produce_shape(self.topic), [one.value_bytes] * self.connections
        answer = pump.produce(broker, frames, shape, setting.stretch, value_bytes=sizes, window=1)
        return per_request(answer)


def rows() -> list[Requests]:
    goals = (Goal("req_s", 1.2), Goal("us_req", 0.7), Goal("p99_ms", 1.0))
    return [
        Requests(f"one record, {count} conn., acks={acks}", goals, partitions=PARTITIONS, acks=acks, connections=count)
        for count, acks in ((50, 1), (50, -1), (1, 1))
    ]
