"""The copier of Copier.java with librdkafka: the older protocol of transactions, in which partitions are announced.

When its broker restarts at the wrong moment librdkafka 2.16 may wait in send_offsets_to_transaction for ever, whatever
the time-out and the broker. So a copier that has come no further for a while ends with status 4, to be started again.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

BATCH = 20
STUCK = 4
STUCK_S = 4.0
FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


class Copier:
    def __init__(self, bootstrap: str, source: str, target: str, group: str, name: str, seed: str) -> None:
        self.source, self.target = source, target
        self.random = random.Random(seed)
        self.moved = float("inf")
        settings = {"bootstrap.servers": bootstrap, "client.id": name, "reconnect.backoff.max.ms": 200, "log_level": 2}
        self.consumer = Consumer(
            {
                **settings,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 3000,
                "heartbeat.interval.ms": 300,
                "fetch.wait.max.ms": 50,
            }
        )
        self.producer = Producer(
            {**settings, "transactional.id": name, "transaction.timeout.ms": 20_000, "linger.ms": 2}
        )

    def run(self) -> None:
        retried(lambda: self.producer.init_transactions(30))
        say("ready")
        self.consumer.subscribe([self.source], on_assign=lambda _, places: say(f"assigned {len(places)}"))
        while True:
            self.moved = time.monotonic()
            found = self.consumer.consume(BATCH, 0.1)
            messages = [message for message in found if message.error() is None]
            if messages:
                self.copy(messages)

    def copy(self, messages: list[object]) -> None:
        try:
            self.producer.begin_transaction()
            places = {}
            for message in messages:
                index, offset = message.partition(), message.offset()  # type: ignore[attr-defined]
                self.producer.produce(self.target, message.value(), message.key(), index)  # type: ignore[attr-defined]
                places[index] = TopicPartition(self.source, index, offset + 1)
            metadata = self.consumer.consumer_group_metadata()
            retried(lambda: self.producer.send_offsets_to_transaction(list(places.values()), metadata, 30))
            if self.random.randrange(8) == 0:
                self.producer.flush(30)
                self.give_up("on purpose")
            else:
                retried(lambda: self.producer.commit_transaction(30))
                say(f"committed {len(messages)}")
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            self.give_up(str(failure))

    def give_up(self, why: str) -> None:
        """Abort, and read again what was not copied."""
        retried(lambda: self.producer.abort_transaction(30))
        say(f"aborted {why}")
        for place in retried(lambda: self.consumer.committed(self.consumer.assignment(), 30)):
            self.consumer.seek(TopicPartition(place.topic, place.partition, max(0, place.offset)))

    def watch(self) -> None:
        """SIGSTOP must not look like it: the clock counts only while this thread runs."""
        idle_s = 0.0
        seen = self.moved
        while idle_s < STUCK_S:
            time.sleep(0.5)
            idle_s = idle_s + 0.5 if seen == self.moved != float("inf") else 0.0
            seen = self.moved
        os._exit(STUCK)


def retried(call):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201  # whatever the call returns
    while True:
        try:
            return call()
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    try:
        copier = Copier(*sys.argv[1:])
        threading.Thread(target=copier.watch, daemon=True).start()
        copier.run()
    except KafkaException as failure:
        if failure.args[0].name() not in FENCED:
            raise
        say(f"fenced {failure.args[0].name()}")
        sys.exit(3)
