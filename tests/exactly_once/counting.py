"""Words counted by a stream processor while it and its broker are killed: the story that every such library is told.

Every word makes one output record, its count so far; whatever happens in the middle, a reader of committed records must
see 1, 2, 3, ... for each word, in order. State, input offsets and output have to move together for that.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import wait_until

if TYPE_CHECKING:
    from exactly_once.apache import Process
    from exactly_once.conftest import Mortal, MortalKafka

LINES: Final = "lines"
COUNTS: Final = "counts"
PARTITIONS: Final = 2
WORDS: Final = ("to", "be", "or", "not", "to", "be", "that", "is", "the", "question")


class Lines:
    """The input, and how often each word is in it so far."""

    def __init__(self, bootstrap: str) -> None:
        self.words: Counter[str] = Counter()
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 2})

    def say(self, count: int) -> None:
        for at in range(count):
            line = [*WORDS[at % 5 :], f"line{at % 7}"]
            self._producer.produce(LINES, " ".join(line), b"%d" % at, at % PARTITIONS)
            self.words.update(line)
        assert self._producer.flush(60) == 0


class Counts:
    """The output as a reader of committed records sees it, read on and on."""

    def __init__(self, bootstrap: str) -> None:
        self.of: dict[str, list[int]] = {}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "counts", "enable.auto.commit": False,
                                   "isolation.level": "read_committed", "log_level": 2})  # fmt: skip
        self._consumer.assign([TopicPartition(COUNTS, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])

    def read(self) -> int:
        """How many there are so far."""
        for message in self._consumer.consume(500, 0.05):
            if message.error() is None:
                self.of.setdefault(message.key().decode(), []).append(int(message.value()))
        return sum(map(len, self.of.values()))

    def close(self) -> None:
        self._consumer.close()


def prepare(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (LINES, COUNTS)]).values():
        future.result(30)


def count_words(broker: Mortal | MortalKafka, counter: Process, *, survives: bool) -> None:
    """`survives`: the library goes on by itself after its broker was killed; otherwise it is killed too."""
    lines, counts = Lines(broker.bootstrap), Counts(broker.bootstrap)
    with counter:
        lines.say(100)
        wait_until(lambda: counts.read() > 100, "first counts")
        broker.restart(kill=True)
        if not survives:
            counter.stop(kill=True)
            counter.start()
        lines.say(100)
        before = counts.read()
        wait_until(lambda: counts.read() > before + 100, "counts after the broker was killed")
        lines.say(100)
        counter.stop(kill=True)
        counter.start()
        lines.say(100)
        wait_until(lambda: counts.read() >= lines.words.total(), "all counts", 90)
        assert counter.stop() in (0, 143), "it stops when told"
    counts.read()
    counts.close()
    assert {word: len(found) for word, found in counts.of.items()} == lines.words
    for word, found in counts.of.items():
        assert found == list(range(1, len(found) + 1)), f"{word} was counted in this order"
