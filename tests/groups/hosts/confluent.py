"""Members of librdkafka through confluent-kafka."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from groups.hosts.program import Member, names, serve


class Confluent(Member):
    def consume(self) -> None:
        consumer = Consumer(self.settings())
        consumer.subscribe(
            self.topics,
            on_assign=lambda _, parts: self.assigned(consumer, parts),
            on_revoke=lambda _, parts: self.emit("revoked", parts=names(parts)),
            on_lost=lambda _, parts: self.emit("lost", parts=names(parts)),
        )
        while not self.leaving.is_set():
            found: dict[str, list[int]] = {}
            places = {}
            for message in consumer.consume(200, 0.1):
                if message.error() is not None:
                    self.emit("raised", error=message.error().name())
                    continue
                place = TopicPartition(message.topic(), message.partition(), message.offset() + 1)
                part = f"{place.topic}-{place.partition}"
                found.setdefault(part, []).append(message.offset())
                places[part] = place
            if offsets := self.polled(found):
                self.emit("committing", offsets=offsets)
                try:
                    consumer.commit(offsets=list(places.values()), asynchronous=False)
                except KafkaException as failure:
                    self.emit("refused", offsets=offsets, error=failure.args[0].name())
                else:
                    self.emit("committed", offsets=offsets)
        consumer.close()

    def assigned(self, consumer: Consumer, parts: list[TopicPartition]) -> None:
        self.emit("assigned", parts=names(parts))

    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "client.id": self.name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "fetch.wait.max.ms": 50,
            "log_level": 2,
        }
        if self.instance:
            settings["group.instance.id"] = self.instance
        if self.options["protocol"] == "consumer":
            return settings | {"group.protocol": "consumer", "group.remote.assignor": self.assignor}
        return settings | {
            "partition.assignment.strategy": self.assignor,
            "session.timeout.ms": self.session_ms,
            "heartbeat.interval.ms": self.heartbeat_ms,
        }


if __name__ == "__main__":
    serve(Confluent)
