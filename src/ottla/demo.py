"""`make run`: a broker starts, a first record goes in and comes out, the broker stops, starts again and still has it.

Needs the extra `tools` for the client. Everything happens in a folder that is removed at the end.
"""

import socket
import tempfile
import time
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from ottla.embed import BrokerProcess

PORT = 9092
TOPIC = "greetings"
GREETINGS = ("Dear Max,", "the castle has a broker now.", "Yours, Ottla")
WAIT_S = 30.0


def main() -> None:
    port = PORT if free(PORT) else 0
    if not port:
        say(f"Port {PORT} is taken by another program, so this demo takes a free one.")
    with tempfile.TemporaryDirectory(prefix="ottla-demo-") as folder:
        began = time.perf_counter()
        with BrokerProcess(data=Path(folder), port=port) as broker:
            produce(broker.bootstrap, GREETINGS[:1])
            elapsed_ms = (time.perf_counter() - began) * 1000
            say(f"A broker listens on {broker.bootstrap} (node {broker.node_id}, cluster {broker.cluster_id}).")
            say(f"From nothing to the first acknowledged record: {elapsed_ms:.0f} ms.\n")
            produce(broker.bootstrap, GREETINGS[1:])
            say("Produced with confluent-kafka, an unmodified Kafka client. Consumed the same way:")
            consume(broker.bootstrap, len(GREETINGS))
            say("\nThe broker stops, and starts again in the same folder:")
        with BrokerProcess(data=Path(folder), port=port) as broker:
            consume(broker.bootstrap, len(GREETINGS))
    say("\nStopped. Your turn: `.venv/bin/ottla serve` here, `.venv/bin/ottla produce greetings hello` next door.")


def free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def produce(bootstrap: str, values: tuple[str, ...]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in values:
        producer.produce(TOPIC, value, key="ottla")
    if producer.flush(WAIT_S):
        raise SystemExit("demo: the broker did not take the records")


def consume(bootstrap: str, count: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        messages = []
        while len(messages) < count:
            batch = consumer.consume(count - len(messages), timeout=WAIT_S)
            if not batch:
                raise SystemExit("demo: the broker did not give the records back")
            messages += batch
        for message in messages:
            say(f"  partition {message.partition()} offset {message.offset()}: {(message.value() or b'').decode()}")
    finally:
        consumer.close()


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
