"""Clients that write and read all the time while a cluster changes, and what they were told, examined in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster_faults.chaos import PARTITIONS, TOPIC, Member, Work, Writer
from cluster_faults.history import Event, Recorder, examine
from confluent_kafka import Consumer, TopicPartition
from waiting import wait_until

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
        self._work: list[Work] = [*self._writers, Member(mixed, self._recorder, 1)]

    def __enter__(self) -> Self:
        for work in self._work:
            work.start()
        wait_until(lambda: self.acknowledged > 50)
        return self

    def __exit__(self, *error: object) -> None:
        for work in self._work:
            work.stopping.set()
        if error[0] is None:
            for work in self._work:
                work.end()

    @property
    def acknowledged(self) -> int:
        return self._recorder.count("acked")

    def go_on(self) -> None:
        """Wait until records written from now on are acknowledged."""
        before = self.acknowledged
        wait_until(lambda: self.acknowledged > before + 100, lambda: f"nothing is acknowledged any more: {before}")

    def check(self) -> None:
        assert not any(writer.failed for writer in self._writers), [writer.failed for writer in self._writers]
        ends = self._read()
        for topic, index in KEYS:
            wait_until(lambda index=index: self._mixed.same_content(TOPIC, index), f"{topic}-{index} differs")
            for number in self._mixed.replicas(topic)[index]:
                self._recorder.note("bytes", topic, index, number, self._mixed.content(number, topic, index))
        assert examine(self._events()) == []
        assert self.acknowledged == sum(ends.values())
        assert self._committed() == ends, "the group goes on where it was, and it was at the end"

    def _events(self) -> list[Event]:
        """With an offset for every record: librdkafka tells none when a later answer has shown that it was written."""
        found = {event[4]: event[3] for event in self._recorder.events if event[0] == "found"}
        told = []
        for event in self._recorder.events:
            if event[0] == "acked" and event[3] is None:
                assert event[4] in found, f"{event} is lost"
                event = (*event[:3], found[event[4]], event[4])
            told.append(event)
        return told

    def _read(self) -> dict[int, int]:
        """Everything that is in the topic; returns the ends."""
        consumer = Consumer({"bootstrap.servers": self._mixed.bootstrap, "group.id": "end"})
        ends = {
            index: consumer.get_watermark_offsets(TopicPartition(TOPIC, index), timeout=30)[1]
            for index in range(PARTITIONS)
        }
        consumer.assign([TopicPartition(TOPIC, index, 0) for index in ends])
        left = sum(ends.values())
        while left:
            messages = consumer.consume(min(left, 1000), 30)
            assert messages, f"{left} records cannot be read"
            for message in messages:
                assert message.error() is None, message.error()
                self._recorder.note("found", TOPIC, message.partition(), message.offset(), message.value().decode())
            left -= len(messages)
        consumer.close()
        return ends

    def _committed(self) -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": self._mixed.bootstrap, "group.id": "chaos"})
        found = consumer.committed([TopicPartition(TOPIC, index) for index in range(PARTITIONS)], timeout=30)
        consumer.close()
        return {one.partition: one.offset for one in found}
