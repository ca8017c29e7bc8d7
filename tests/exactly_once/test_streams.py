"""Kafka Streams with exactly_once_v2 counts words while broker and application are killed: none missing, none twice.

With the cache off every word makes one output record, its count so far; whatever happens in the middle, a reader of
committed records must see 1, 2, 3, ... for each word, in order.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from exactly_once.apache import Program, eventually

if TYPE_CHECKING:
    import judge
    from process import Ottla

pytestmark = pytest.mark.xdist_group("apache-programs")

SOURCE: Final = Path(__file__).parent / "java" / "WordCount.java"
PARTITIONS: Final = 2
WORDS: Final = ("to", "be", "or", "not", "to", "be", "that", "is", "the", "question")


class Counts:
    """The output as a reader of committed records sees it, read on and on."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.of: dict[str, list[int]] = {}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "counts", "enable.auto.commit": False,
                                   "isolation.level": "read_committed", "log_level": 2})  # fmt: skip
        self._consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])

    def read(self) -> int:
        """How many there are so far."""
        for message in self._consumer.consume(500, 0.05):
            if message.error() is None:
                self.of.setdefault(message.key().decode(), []).append(int(message.value()))
        return sum(map(len, self.of.values()))

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.timeout(240)
def test_every_word_is_counted_once(own_broker: Ottla | judge.Kafka, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap, "log_level": 2})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in ("lines", "counts")]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": own_broker.bootstrap, "enable.idempotence": True, "log_level": 2})
    sent: Counter[str] = Counter()

    def say(count: int) -> None:
        for at in range(count):
            line = [*WORDS[at % 5 :], f"line{at % 7}"]
            producer.produce("lines", " ".join(line), b"%d" % at, at % PARTITIONS)
            sent.update(line)
        assert producer.flush(60) == 0

    arguments = [own_broker.bootstrap, "lines", "counts", str(tmp_path / "state"), "exactly_once_v2"]
    counts = Counts(own_broker.bootstrap, "counts")
    with Program("streams", SOURCE, arguments, tmp_path / "streams.log") as program:
        say(100)
        eventually(lambda: counts.read() > 100, "first counts")
        own_broker.restart(kill=True)
        say(100)
        eventually(lambda: counts.read() > 1000, "counts after the broker was killed")
        say(100)
        program.stop(kill=True)
        program.start()
        say(100)
        eventually(lambda: counts.read() >= sent.total(), "all counts", 90)
        assert program.stop() in (0, 143), "it stops when told"
    counts.close()
    assert {word: len(found) for word, found in counts.of.items()} == sent
    for word, found in counts.of.items():
        assert found == list(range(1, len(found) + 1)), f"{word} was counted in this order"
