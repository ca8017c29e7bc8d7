"""What a broker costs apart from its load: start, memory, and many topics. Every run has a broker of its own."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench import pump
from bench.brokers import SIDES
from bench.rows import Goal, Row, Sample, Setting
from bench.wire import batch, produce_frame, produce_shape

if TYPE_CHECKING:
    from bench.brokers import Broker


@dataclass
class Start(Row):
    """From exec on an empty folder to the first acknowledged produce, which auto-creates its topic."""

    def run(self, broker: Broker, setting: Setting) -> Sample:
        with SIDES[broker.name]() as fresh:
            start = time.perf_counter()
            fresh.spawn()
            fresh.first_produce()
            return {"seconds": time.perf_counter() - start, "start_cpu_s": fresh.cpu_s()}


@dataclass
class Memory(Row):
    """Resident memory after the start, and after batches, small requests and fetches one after the other."""

    def run(self, broker: Broker, setting: Setting) -> Sample:
        with SIDES[broker.name]().start() as fresh:
            time.sleep(setting.idle_s)
            sample = {"idle_mb": fresh.memory_mb()}
            with fresh.connect() as connection:
                connection.create_topic("load", 6)
                connection.wait_led("load", 6)
            stretch = pump.Stretch(0.0, setting.seconds)
            for size, connections in ((16 * 1024, 4), (128 * 1024, 4), (1, 50)):
                built = batch(100, size)
                frames = [produce_frame("load", {i % 6: built.data}, 1) for i in range(connections)]
                pump.produce(fresh, frames, produce_shape("load"), stretch, value_bytes=[1] * connections, window=5)
            pump.fetch(fresh, "load", [0], stretch, partition_max=1 << 20, connections=4)
            return sample | {"loaded_mb": fresh.memory_mb(), "peak_mb": fresh.memory_mb("VmHWM")}


@dataclass
class Topics(Row):
    """Topics of one partition, created one by one on one connection."""

    def run(self, broker: Broker, setting: Setting) -> Sample:
        with SIDES[broker.name]().start() as fresh, fresh.connect() as connection:
            before, start = fresh.cpu_s(), time.perf_counter()
            for i in range(setting.topics):
                connection.create_topic(f"topic-{i}")
            connection.wait_led(f"topic-{setting.topics - 1}", 1)
            return {"seconds": time.perf_counter() - start, "total_cpu_s": fresh.cpu_s() - before}


@dataclass
class Partitions(Row):
    """One topic of many partitions: from the request to a leader for each."""

    def run(self, broker: Broker, setting: Setting) -> Sample:
        with SIDES[broker.name]().start() as fresh, fresh.connect() as connection:
            before, start = fresh.cpu_s(), time.perf_counter()
            connection.create_topic("wide", setting.topics)
            connection.wait_led("wide", setting.topics)
            return {"seconds": time.perf_counter() - start, "total_cpu_s": fresh.cpu_s() - before}


def rows() -> list[Row]:
    memory = (Goal("idle_mb", 60, absolute=True), Goal("loaded_mb", 150, absolute=True))
    return [
        Start("start to first acknowledged produce", (Goal("seconds", 0.3, absolute=True),)),
        Memory("memory, idle and loaded", memory, repeat_max=2),
        Topics("500 topics one by one", (Goal("seconds", 3.0, absolute=True),), repeat_max=2),
        Partitions("one topic of 500 partitions, create", (Goal("seconds", 1.0),), repeat_max=2),
    ]
