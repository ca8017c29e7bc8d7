"""Apache Kafka and Ottla take turns in one folder: each finds the groups, offsets and transactions of the other.

Every turn first checks what the turn before left: committed offsets, groups and their kind, transactional ids and their
states, where the last stable offset stands. Then it goes on: commits, transactions that end and one that does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import judge
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from exactly_once.conftest import SETTINGS, Mortal
from exactly_once.reading import committed, last_stable, read_committed
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from process import Ottla

TOPIC: Final = "orders"
TRANSACTIONS: Final = "org.apache.kafka.tools.TransactionsCommand"
GROUPS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


class Turn:
    """What one broker does in the folder, and what it must find there."""

    def __init__(self, broker: Ottla | judge.Kafka, number: int, *, modern: bool) -> None:
        self.broker, self.number, self.modern = broker, number, modern
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})

    def producer(self, name: str) -> Producer:
        settings = {"bootstrap.servers": self.broker.bootstrap, "transactional.id": name, "log_level": 2,
                    "transaction.timeout.ms": 600_000}  # fmt: skip
        made = Producer(settings)
        made.init_transactions(30)
        return made

    def consumer(self, group: str, **settings: object) -> Consumer:
        return Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": group, "enable.auto.commit": False,
                         "auto.offset.reset": "earliest", "log_level": 2, **settings})  # fmt: skip

    def committed(self, group: str) -> dict[int, int]:
        return committed(self.broker.bootstrap, group, TOPIC, 2)

    def check(self, left: int) -> None:
        """What the turn `left` left behind; 0 is none."""
        if not left:
            return
        wait_until(lambda: self.committed("plain") == {0: 10 * left, 1: 10 * left + 1}, "the offsets of plain")
        wait_until(lambda: self.committed("members") == {0: left, 1: left}, "the offsets of members")
        # What an open transaction holds is not committed.
        wait_until(lambda: self.committed("transactional") == {0: 100 * left}, "the offsets of transactional")
        listed = judge.tool(GROUPS, "--bootstrap-server", self.broker.bootstrap, "--list", "--type").out
        kinds = dict(line.split() for line in listed.splitlines()[1:])
        kinds.pop("asking", None)
        expected = dict.fromkeys(("plain", "members", "transactional"), "Classic")
        assert kinds == expected | ({"modern": "Consumer"} if self.modern else {}), "and what was deleted stays away"
        if self.modern:
            wait_until(lambda: self.committed("modern") == {0: left, 1: left}, "the offsets of modern")
        wanted = {"finished": "CompleteCommit", "aborted": "CompleteAbort", "open": "Ongoing"}
        wait_until(lambda: self.states() == wanted, "the states of transactions")
        values = [value for turn in range(1, left + 1) for value in (b"plain %d" % turn, b"committed %d" % turn)]
        found = read_committed(self.broker, TOPIC)  # type: ignore[arg-type]  # it needs the bootstrap only
        assert found == values[: len(found)]
        assert len(found) == len(values), "plain and committed records of every turn, nothing that was aborted"

    def states(self) -> dict[str, str]:
        text = judge.tool(TRANSACTIONS, "--bootstrap-server", self.broker.bootstrap, "list").out
        rows = [[cell.strip() for cell in line.split("\t")] for line in text.splitlines()[1:] if line.strip()]
        return {row[0]: row[3] for row in rows}

    def go_on(self) -> None:
        plain = Producer({"bootstrap.servers": self.broker.bootstrap, "log_level": 2})
        still = self.producer("open")  # ends what an earlier turn left open
        wait_until(lambda: self.stable(), "nothing is open any more")
        plain.produce(TOPIC, b"plain %d" % self.number, partition=0)
        assert plain.flush(30) == 0
        self.commit("plain", 10 * self.number, 10 * self.number + 1)
        self.join(f"gone-{self.number}")
        self.admin.delete_consumer_groups([f"gone-{self.number}"])[f"gone-{self.number}"].result(30)
        self.join("members")
        if self.modern:
            self.join("modern", **{"group.protocol": "consumer"})
        finished = self.producer("finished")
        finished.begin_transaction()
        finished.produce(TOPIC, b"committed %d" % self.number, partition=0)
        self.send(finished, 100 * self.number)
        finished.commit_transaction(30)
        aborted = self.producer("aborted")
        aborted.begin_transaction()
        aborted.produce(TOPIC, b"aborted %d" % self.number, partition=0)
        self.send(aborted, 5)
        assert aborted.flush(30) == 0
        aborted.abort_transaction(30)
        still.begin_transaction()
        still.produce(TOPIC, b"open %d" % self.number, partition=0)
        self.send(still, 7)
        assert still.flush(30) == 0
        wanted = {"finished": "CompleteCommit", "aborted": "CompleteAbort", "open": "Ongoing"}
        wait_until(lambda: self.states() == wanted, "markers are written")

    def stable(self) -> bool:
        consumer = self.consumer("asking")
        _, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)
        consumer.close()
        return last_stable(self.broker, TOPIC) == high  # type: ignore[arg-type]

    def commit(self, group: str, *offsets: int) -> None:
        consumer = self.consumer(group)
        places = [TopicPartition(TOPIC, index, offset) for index, offset in enumerate(offsets)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()

    def join(self, group: str, **settings: object) -> None:
        """As a member that subscribes, so that the group has a generation and an assignment."""
        consumer = self.consumer(group, **settings)
        consumer.subscribe([TOPIC])
        while len(consumer.assignment()) < 2:
            consumer.poll(0.05)
        places = [TopicPartition(TOPIC, index, self.number) for index in (0, 1)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()

    def send(self, producer: Producer, offset: int) -> None:
        consumer = self.consumer("transactional")
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, offset)], metadata, 30)
        consumer.close()


class Stopped:
    """The judge for one turn; its folder stays."""

    def __init__(self, kafka: judge.Kafka) -> None:
        self.kafka = kafka

    def __enter__(self) -> judge.Kafka:
        return self.kafka.start()

    def __exit__(self, *_: object) -> None:
        self.kafka.stop()


class Killed(Mortal):
    """Ends its turn without a word: the next has to recover the folder."""

    def close(self) -> None:
        if self.alive:
            self.kill()
        super().close()


# The epochs of 3.9 are in ZooKeeper, where Ottla did not raise them: it may read what Ottla wrote, not write markers.
TURNS: Final = {"4.3.1": 5, "3.9.2": 3}


@pytest.mark.parametrize(
    "version", [pytest.param(version, marks=pytest.mark.xdist_group(f"exchange-{version}")) for version in TURNS]
)
def test_coordinators_take_turns_in_one_folder(version: str, tmp_path: Path) -> None:
    kafka = judge.Kafka(tmp_path / "kafka", version=version, settings=SETTINGS)
    settings = {**SETTINGS, "log.dirs": str(kafka.log_dir)}
    places = (Stopped(kafka), Mortal(tmp_path / "second", settings=settings), Stopped(kafka),
              Killed(tmp_path / "fourth", settings=settings), Stopped(kafka))  # fmt: skip
    for number, place in enumerate(places[: TURNS[version]], 1):
        with place as broker:
            turn = Turn(broker, number, modern=kafka.kraft)
            if number == 1:
                turn.admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(30)
            turn.check(number - 1)
            if number < TURNS[version]:
                turn.go_on()
