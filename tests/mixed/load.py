"""Clients that write and read all the time while a cluster changes, and what they were told, examined in the end."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

from cluster_faults.chaos import PARTITIONS, TOPIC, Member, Writer
from cluster_faults.history import Recorder, examine
from confluent_kafka import Consumer, TopicPartition
from waiting import WAIT_S, wait_until

if TYPE_CHECKING:
    from typing import Self

    from mixed.mixed import Mixed

RATE = 100.0  # records in a second
KEYS = [(TOPIC, index) for index in range(PARTITIONS)]


class Load:
    """Idempotent producers and a group, from `with` to its end; then `check` says whether all is well."""

    def __init__(self, mixed: Mixed) -> None:
        self._mixed = mixed
        self._recorder = Recorder()
        self._writers = [Writer(mixed, self._recorder, number, RATE) for number in (1, 2)]
        self._member = Member(mixed, self._recorder, 1)
        self._ends: dict[int, int] = {}

    def __enter__(self) -> Self:
        for work in (*self._writers, self._member):
            work.start()
        wait_until(lambda: self.acknowledged > 50)
        return self

    def __exit__(self, *error: object) -> None:
        """The writers end first; the group ends when it has read everything, and has said so."""
        for writer in self._writers:
            writer.stopping.set()
        if error[0] is not None:
            self._member.stopping.set()
            return
        for writer in self._writers:
            writer.end()
        with closing(self._consumer("chaos")) as asking:
            self._ends = read_ends(asking)
            wait_until(
                lambda: committed(asking) == self._ends,
                lambda: f"the group goes on where it was, to the end: {committed(asking)} of {self._ends}",
            )
        self._member.end()

    @property
    def acknowledged(self) -> int:
        return self._recorder.count("acked")

    def go_on(self) -> None:
        """Wait until records written from now on are acknowledged."""
        before = self.acknowledged
        wait_until(lambda: self.acknowledged > before + 100, lambda: f"nothing is acknowledged any more: {before}")

    def check(self) -> None:
        assert not any(writer.failed for writer in self._writers), [writer.failed for writer in self._writers]
        self._read()
        for topic, index in KEYS:
            wait_until(lambda index=index: self._mixed.same_content(TOPIC, index), f"{topic}-{index} differs")
            for number in self._mixed.replicas(topic)[index]:
                self._recorder.note("bytes", topic, index, number, self._mixed.content(number, topic, index))
        assert examine(self._recorder.events) == []
        assert self.acknowledged == sum(self._ends.values())

    def _read(self) -> None:
        """Everything that is in the topic."""
        with closing(self._consumer("end")) as consumer:
            consumer.assign([TopicPartition(TOPIC, index, 0) for index in self._ends])
            left = sum(self._ends.values())
            deadline = time.monotonic() + WAIT_S
            while left:
                assert time.monotonic() < deadline, f"{left} records cannot be read"
                for message in consumer.consume(min(left, 1000), 1):
                    if message.error() is None:
                        where = (TOPIC, message.partition(), message.offset())
                        self._recorder.note("found", *where, message.value().decode())
                        left -= 1

    def _consumer(self, group: str) -> Consumer:
        return Consumer({"bootstrap.servers": self._mixed.bootstrap, "group.id": group})


def read_ends(consumer: Consumer) -> dict[int, int]:
    return {
        index: consumer.get_watermark_offsets(TopicPartition(TOPIC, index), timeout=WAIT_S)[1]
        for index in range(PARTITIONS)
    }


def committed(consumer: Consumer) -> dict[int, int]:
    found = consumer.committed([TopicPartition(TOPIC, index) for index in range(PARTITIONS)], timeout=WAIT_S)
    return {one.partition: one.offset for one in found}
