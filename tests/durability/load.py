"""Writers that remember what was acknowledged, and the checks that hold a log to their memory.

Every value is unique and says who wrote it, so that a lost, doubled, moved or invented record is named. A writer keeps
a few requests in flight on one connection; what was in flight when the broker died may or may not be there afterwards.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from compat.raw import (
    PRODUCE,
    Closed,
    Raw,
    Reader,
    batch,
    batches,
    create_topic,
    fetch,
    init_producer,
    list_offset,
    produce_body,
    produced,
)
from waiting import wait_until

if TYPE_CHECKING:
    from random import Random

TOPIC = "load"
IN_FLIGHT = 5


class Sent(NamedTuple):
    partition: int
    values: list[bytes]
    sequence: int
    data: bytes


class Writer:
    """One producer of one partition. `acked` maps offsets to values; `doubtful` was sent and not answered."""

    def __init__(self, name: str, partition: int, random: Random, *, acks: int, idempotent: bool = False) -> None:
        self.name = name
        self.partition = partition
        self.acked: dict[int, bytes] = {}
        self.doubtful: list[bytes] = []
        self.sent_all: list[bytes] = []  # every value ever sent, in order
        self.refused: list[int] = []
        self._random = random
        self._acks = acks
        self._idempotent = idempotent
        self._producer = (-1, -1)
        self._sequence = 0
        self._pending: deque[Sent] = deque()
        self._count = 0

    def write(self, port: int, stop: threading.Event) -> None:
        """Send until told to stop or the broker is gone. An idempotent writer first repeats what had no answer."""
        try:
            with Raw(port) as raw:
                if self._idempotent and self._producer == (-1, -1):
                    self._producer = init_producer(raw)
                again = list(self._pending)
                self._pending.clear()
                for sent in again:
                    self._send(raw, sent)
                while not stop.is_set():
                    while len(self._pending) < IN_FLIGHT:
                        self._send(raw, self._next())
                    self._settle(raw)
                while self._pending:
                    self._settle(raw)
        except (Closed, OSError):
            if not self._idempotent:
                self.doubtful += [value for sent in self._pending for value in sent.values]
                self._pending.clear()

    def _next(self) -> Sent:
        values = []
        for _ in range(self._random.randint(1, 8)):
            self._count += 1
            values.append(f"{self.name}-{self._count}-".encode() + b"." * self._random.randint(0, 400))
        self.sent_all += values
        producer, epoch = self._producer
        sequence = self._sequence if self._idempotent else -1
        self._sequence += len(values)
        data = batch(values, producer_id=producer, epoch=epoch, sequence=sequence)
        return Sent(self.partition, values, sequence, data)

    def _send(self, raw: Raw, sent: Sent) -> None:
        self._pending.append(sent)
        raw.send(PRODUCE, 7, produce_body(TOPIC, sent.data, partition=sent.partition, acks=self._acks))

    def _settle(self, raw: Raw) -> None:
        answer = Reader(raw.receive())
        answer.int32()
        result = produced(answer)
        sent = self._pending.popleft()
        if result.error:
            self.refused.append(result.error)
            return
        for place, value in enumerate(sent.values, result.base):
            known = self.acked.setdefault(place, value)
            assert known == value, f"offset {place} was acknowledged for {known!r} and for {value!r}"


class Load:
    """Writers in threads of their own, against one topic."""

    def __init__(self, writers: list[Writer]) -> None:
        self.writers = writers
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []
        self._before = 0

    def start(self, port: int) -> None:
        self._stop.clear()
        self._before = self.acked
        self._threads = [threading.Thread(target=self._run, args=(writer, port)) for writer in self.writers]
        for thread in self._threads:
            thread.start()

    def under_way(self, count: int) -> None:
        """Wait until so many records were acknowledged since the start: the middle of things, on any machine."""
        wait_until(lambda: self.acked >= self._before + count or self._failures, f"{count} records acknowledged")

    def _run(self, writer: Writer, port: int) -> None:
        try:
            writer.write(port, self._stop)
        except BaseException as failure:  # shown by the thread that runs the test
            self._failures.append(failure)

    def stop(self) -> None:
        """Let every writer end: after its answers, or because the broker is gone."""
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive(), "a writer hangs"
        if self._failures:
            raise self._failures[0]

    @property
    def acked(self) -> int:
        return sum(len(writer.acked) for writer in self.writers)


def prepare(port: int, partitions: int, configs: dict[str, str]) -> None:
    with Raw(port) as raw:
        assert create_topic(raw, TOPIC, partitions, configs) == 0


class Memory:
    """What has been read of one partition so far; a log may grow, and lose an unacknowledged tail, but never change."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.values: list[bytes] = []

    def read(self, port: int, start: int = 0) -> None:
        """Read from `start` to the end: dense offsets, good checksums, the high watermark at the end."""
        del self.values[start:]
        with Raw(port) as raw:
            end = list_offset(raw, TOPIC, -1, partition=self.partition)
            while len(self.values) < end:
                place = len(self.values)
                answer = fetch(raw, TOPIC, place, partition=self.partition)
                assert answer.error == 0, f"fetch at {place}: error {answer.error}"
                found = batches(answer.data)
                assert found, f"nothing at {place}, before the end at {end}"
                for part in found:
                    skip = len(self.values) - part.base
                    assert 0 <= skip < part.count, f"after offset {len(self.values) - 1} comes a batch at {part.base}"
                    assert part.last - part.base + 1 == part.count, "a hole inside a batch"
                    self.values += [value or b"" for value in part.values()[skip:]]
            assert len(self.values) == end, "records beyond the high watermark were served"
            assert fetch(raw, TOPIC, end, partition=self.partition).data == b""


def check(memory: Memory, writers: list[Writer], *, start: int = 0, all_acked: bool = True) -> None:
    """Nothing acknowledged is missing or moved; nothing is there twice; nothing is there that nobody sent."""
    own = [writer for writer in writers if writer.partition == memory.partition]
    if all_acked:
        for writer in own:
            for place, value in writer.acked.items():
                if place >= start:
                    assert place < len(memory.values), f"acknowledged {value[:20]!r} at {place} is lost"
                    found = memory.values[place]
                    assert found == value, f"offset {place} was acknowledged as {value[:20]!r}, is {found[:20]!r}"
    assert len(set(memory.values)) == len(memory.values), "a record is there twice"
    sent = {value for writer in own for value in writer.sent_all}
    assert sent.issuperset(memory.values), "a record is there that nobody sent"
