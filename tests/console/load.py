"""Something for the console to show: a topic that is written, a quick and a slow group, an open transaction."""

from __future__ import annotations

import json
import threading

from confluent_kafka import Consumer, Producer


class Load:
    """Producers and consumers that go on until told to stop."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self.counts: dict[str, int] = {}
        self._threads = [
            threading.Thread(target=self._produce),
            threading.Thread(target=self._consume, args=("billing", ["orders", "payments"], 0.0)),
            threading.Thread(target=self._consume, args=("shipping", ["orders"], 0.05)),
        ]
        self._open = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": "till-1",
                "log_level": 0,
                "transaction.timeout.ms": 900_000,
            }
        )

    def start(self) -> None:
        self._open.init_transactions(60)
        self._open.begin_transaction()
        self._open.produce("payments", b"never committed", partition=0)
        self._open.flush(60)
        for thread in self._threads:
            thread.start()

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "log_level": 0, "linger.ms": 20})
        number = 0
        while not self._stop.wait(0.1):
            for _ in range(10):
                topic = ("orders", "payments", "moved")[number % 3]
                order = {"id": number, "total": number % 100, "customer": {"name": "Ada", "city": "Praha"}}
                producer.produce(topic, json.dumps(order), f"customer-{number % 97}", headers={"source": "web"},
                                 on_delivery=self._count)  # fmt: skip
                number += 1
            producer.poll(0)
        producer.flush(60)

    def _count(self, error: object, message: object) -> None:
        if error is None:
            topic = message.topic()  # type: ignore[attr-defined]
            self.counts[topic] = self.counts.get(topic, 0) + 1

    def _consume(self, group: str, topics: list[str], pause_s: float) -> None:
        options = {"bootstrap.servers": self._bootstrap, "group.id": group, "client.id": f"{group}-1", "log_level": 0}
        consumer = Consumer({**options, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 500})
        consumer.subscribe(topics)
        while not self._stop.is_set():
            if consumer.poll(0.5) is not None and pause_s:
                self._stop.wait(pause_s)
        consumer.close()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
