"""Replay: pre-encoded produce requests, so that the broker is the limit.

Every connection has five requests in flight, as a Java producer has (one if a batch is a megabyte); a request carries
one full batch for each partition. The batches carry no producer id, so the same bytes may be sent for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

from bench import pump
from bench.rows import Sample, Setting, WritingRow, batched, per_gb
from bench.wire import Batch, batch, produce_frame, produce_shape

if TYPE_CHECKING:
    from bench.brokers import Broker

KB = 1024
SIZES = (100, 1000)
SHAPES = ((1, 2), (6, 8))  # partitions, connections


@dataclass
class Replay(WritingRow):
    size: int = field(kw_only=True)
    batch: int = field(kw_only=True)
    acks: int = field(default=1, kw_only=True)
    codec: str = field(default="none", kw_only=True)
    connections: int = field(default=2, kw_only=True)
    window: int = field(default=5, kw_only=True)

    def prepare(self, broker: Broker, setting: Setting) -> None:
        """One request before the clock starts: the first append to a partition opens its files."""
        super().prepare(broker, setting)
        with broker.connect() as connection:
            connection.call(self.frame())

    def run(self, broker: Broker, setting: Setting) -> Sample:
        frame, value_bytes = self.frame(), self.built().value_bytes * self.partitions
        shape, stretch = produce_shape(self.topic, self.partitions), setting.stretch
        frames, sizes = [frame] * self.connections, [value_bytes] * self.connections
        answer = pump.produce(broker, frames, shape, stretch, value_bytes=sizes, window=self.window)
        return per_gb(answer)

    def frame(self) -> bytes:
        return produce_frame(self.topic, dict.fromkeys(range(self.partitions), self.built().data), self.acks)

    def built(self) -> Batch:
        return batch(self.size, self.batch, self.codec)


def replay(
    size: int, kilobytes: int, codec: str = "none", partitions: int = 1, connections: int = 2, *, acks: int = 1
) -> Replay:
    name = f"replay {size} B, {kilobytes} kB, acks={acks}, {codec}, {partitions} part., {connections} conn."
    goals = batched(codec, 1.5)
    return Replay(
        name,
        goals,
        size=size,
        batch=kilobytes * KB,
        acks=acks,
        codec=codec,
        partitions=partitions,
        connections=connections,
        window=5 if kilobytes < 1024 else 1,  # more megabytes in flight only wait in buffers
    )


def rows() -> list[Replay]:
    """Narrow rows are one partition over two connections, wide ones six over eight."""
    every = [replay(size, kilobytes, "none", *shape) for size, kilobytes, shape in product(SIZES, (16, 128), SHAPES)]
    every += [replay(1000, 1024, "none", *shape) for shape in SHAPES]
    every += [replay(100, kilobytes, "lz4", *shape) for kilobytes, shape in product((16, 128), SHAPES)]
    every += [replay(100, kilobytes, "lz4-4M", *shape) for kilobytes, shape in product((16, 128), SHAPES)]
    every += [replay(100, 16, acks=-1)]
    many = "500 partitions, 1 kB to each in one request"
    # It writes little, and new topics of this size would take longer than the turns.
    return [*every, Replay(many, batched("none"), size=100, batch=KB, partitions=500, window=1, renews=False)]
