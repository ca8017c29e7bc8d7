"""Size of a log: appends, fetches from its end, and lookups by offset and by time in its last 100 MB.

Most of the log is batches of 1 MB. The last 100 MB are batches of 16 kB, and all measured requests use only those. So
the work is the same at every size, and its data is in the page cache. A log under 64 MB exists in several copies that
are used in turn; otherwise the measurement itself would append many times its size.

Timestamps start one day ago and rise by a millisecond per batch.
"""

from __future__ import annotations

import struct
import time
from itertools import cycle
from random import Random
from typing import TYPE_CHECKING

from crc32c import crc32c

from bench.circuit import Circuit
from bench.growing.axis import LANES, Axis, Effort, Load
from bench.wire import (
    BenchError,
    batch,
    fetch_error,
    fetch_frame,
    lookup,
    lookup_frame,
    produce_error,
    produce_frame,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.brokers import Broker
    from bench.rows import Sample
    from bench.wire import Batch

MB = 1_000_000
BULK = batch(10_000, MB)
SMALL = batch(1000, 16 * 1024)
TAIL = 100 * MB
WORK = 64 * MB
PLACES = 1000  # of lookups
FEWER = 4  # appends than lookups in a turn: they change the size
LAST = 32  # batches of a log that count as its end
CRC_AT, CRC_FROM, TIMES_AT = 17, 21, 27  # in a batch
DAY_MS = 86_400_000
PATIENCE_S = 120.0


class Copy:
    """One log, and how much has been written to it."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.bytes = self.records = self.tail_records = 0
        self.now_ms = self.tail_ms = int(time.time() * 1000) - DAY_MS

    def frames(self, one: Batch) -> Iterator[bytearray]:
        """Requests with one batch each. They reuse one buffer and change only the timestamp and the checksum."""
        request = bytearray(produce_frame(self.topic, {0: one.data}, 1))
        batch_at = request.index(one.data)
        inside = memoryview(request)[batch_at : batch_at + len(one.data)]
        while True:
            self.now_ms += 1
            struct.pack_into(">qq", inside, TIMES_AT, self.now_ms, self.now_ms)
            struct.pack_into(">I", inside, CRC_AT, crc32c(inside[CRC_FROM:]))
            self.bytes += len(one.data)
            self.records += one.records
            yield request

    @property
    def tail_batches(self) -> int:
        """Number of batches of 16 kB, at the end of the log."""
        return (self.records - self.tail_records) // SMALL.records

    def offset(self, number: int) -> int:
        """Base offset of one of the batches of 16 kB."""
        return self.tail_records + number * SMALL.records


class LogSize(Load):
    def __init__(self, broker: Broker, effort: Effort) -> None:
        super().__init__(broker, effort)
        self.lanes = self.connect(LANES)
        self.copies: list[Copy] = []
        self.made = 0

    def grow(self, size: int) -> None:
        wanted = size * MB
        count = max(1, WORK // wanted)
        self._delete(self.copies[count:])
        del self.copies[count:]
        while len(self.copies) < count:
            self.copies.append(self._create())
        for copy in self.copies:
            bulk = (wanted - TAIL - copy.bytes) // len(BULK.data)
            if bulk > 0:
                self._fill(copy, BULK, bulk)
                copy.tail_records, copy.tail_ms = copy.records, copy.now_ms + 1
            self._fill(copy, SMALL, max(0, wanted - copy.bytes) // len(SMALL.data))
        fillers = cycle([copy.frames(SMALL) for copy in self.copies])
        self.appends = self._circuit((next(filler) for filler in fillers), produce_error)
        chance = Random(size)
        places = [(copy, chance.randrange(copy.tail_batches)) for copy in self.copies for _ in range(PLACES // count)]
        self.lookups = self._circuit(cycle([fetched_at(*place) for place in places]), fetch_error)
        self.times = self._circuit(cycle([looked_up(*place) for place in places]), lookup_error)
        self._look_at(*places[0])

    def sample(self, requests: int) -> Sample:
        append_us = self.cost_us(self.appends, max(1, requests // FEWER))
        ends = [fetched_at(copy, copy.tail_batches - back) for back in range(1, LAST + 1) for copy in self.copies]
        return {
            "append_us": append_us,
            "end_us": self.cost_us(self._circuit(cycle(ends), fetch_error), requests),
            "random_us": self.cost_us(self.lookups, requests),
            "time_us": self.cost_us(self.times, requests),
        }

    def drop(self) -> None:
        self._delete(self.copies)
        self.copies.clear()

    def _create(self) -> Copy:
        copy = Copy(f"log-{self.made:06}")
        self.made += 1
        with self.broker.connect() as connection:
            connection.create_topic(copy.topic)
            connection.wait_led(copy.topic, 1)
        return copy

    def _fill(self, copy: Copy, one: Batch, count: int) -> None:
        self._circuit(copy.frames(one), produce_error).run(count)

    def _circuit(self, frames: Iterator[bytes | bytearray], error: Callable[[bytes, str], int]) -> Circuit:
        return Circuit(self.lanes, frames, lambda answer: error(answer, "log-000000"), LANES)

    def _look_at(self, copy: Copy, number: int) -> None:
        """Check that a lookup by time finds the batch. Batches from several connections may arrive in another order."""
        with self.broker.connect() as connection:
            error, offset = lookup(connection.call(looked_up(copy, number)), copy.topic)
        distance = abs(offset - copy.offset(number))
        if error or distance > LANES * SMALL.records:
            raise BenchError(f"{copy.topic}: a lookup by time gave error {error}, or is {distance} records away")

    def _delete(self, copies: Sequence[Copy]) -> None:
        """Delete the topics and wait until their files are gone, because the disk space is needed."""
        with self.broker.connect() as connection:
            for copy in copies:
                connection.delete_topic(copy.topic)
        deadline, names = time.monotonic() + PATIENCE_S, tuple(copy.topic for copy in copies)
        data = self.broker.folder / "data"
        while names and any(folder.name.startswith(names) for folder in data.iterdir()):
            if time.monotonic() > deadline:
                raise BenchError(f"{self.broker.name}: deleted topics are still there")
            time.sleep(0.1)


def fetched_at(copy: Copy, number: int) -> bytes:
    return fetch_frame(copy.topic, 0, copy.offset(number), len(SMALL.data))


def looked_up(copy: Copy, number: int) -> bytes:
    return lookup_frame(copy.topic, 0, copy.tail_ms + number)


def lookup_error(answer: bytes, topic: str) -> int:
    return lookup(answer, topic)[0]


AXIS = Axis(
    "log-size",
    "A larger log",
    "size of the log, MB",
    (1, 10, 100, 1000, 10_000, 50_000),
    {
        "append_us": "append 16 kB, CPU µs",
        "end_us": "fetch 16 kB at the end, CPU µs",
        "random_us": "fetch 16 kB at random, CPU µs",
        "time_us": "offset of a time, CPU µs",
    },
    LogSize,
    why="Appends go to the last segment, and a place is found by bisection in the index of one segment. Ottla has the "
    "last few megabytes' worth of an index in memory and reads the rest from its file, so lookups at random cost "
    "it more from 100 MB on, and no more after that. Random places are those of the last 100 MB, which the page "
    "cache holds on either side. Where the disk has no room for two logs of a size, the brokers take it one after "
    "the other.",
    room=lambda size: size * MB,
    rests=False,
)
