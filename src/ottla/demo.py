"""`make run`: what a broker does, in a few seconds and in words.

A first record goes in and comes out; a group reads, commits and is shown with its lag; one transaction is aborted and
one committed; the broker stops, starts again in the same folder and still knows it all. Needs the extra `tools` for the
client. Everything happens in a folder that is removed at the end.
"""

import socket
import tempfile
import time
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.embed import BrokerProcess
from ottla.tools.group import facts

PORT = 9092
TOPIC = "greetings"
GREETINGS = ("Dear Max,", "the castle has a broker now.", "Yours, Ottla")
GROUP = "postmen"
WAIT_S = 30.0
# A group waits for more members before it first shares out its partitions; here nobody else will come.
OPTIONS = {"group.initial.rebalance.delay.ms": 0}


def main() -> None:
    port = PORT if free(PORT) else 0
    if not port:
        say(f"Port {PORT} is taken by another program, so this demo takes a free one.")
    with tempfile.TemporaryDirectory(prefix="ottla-demo-") as folder:
        began = time.perf_counter()
        with BrokerProcess(data=Path(folder), port=port, options=OPTIONS) as broker:
            produce(broker.bootstrap, GREETINGS[:1])
            elapsed_ms = (time.perf_counter() - began) * 1000
            say(f"A broker listens on {broker.bootstrap} (node {broker.node_id}, cluster {broker.cluster_id}).")
            say(f"From nothing to the first acknowledged record: {elapsed_ms:.0f} ms.\n")
            produce(broker.bootstrap, GREETINGS[1:])
            say("Produced with confluent-kafka, an unmodified Kafka client. Consumed the same way:")
            read(broker.bootstrap, len(GREETINGS))
            show_group(broker.bootstrap)
            show_transactions(broker.bootstrap)
            say("\nThe broker stops, and starts again in the same folder. Records and offsets are there:")
        with BrokerProcess(data=Path(folder), port=port, options=OPTIONS) as broker:
            read(broker.bootstrap, len(GREETINGS) + 1)
            say_lag(broker.bootstrap)
    say("\nStopped. Your turn: `.venv/bin/ottla serve` here, `.venv/bin/ottla produce greetings hello` next door.")


def show_group(bootstrap: str) -> None:
    say(f"\nThe group '{GROUP}' reads two of the three, and commits:")
    consumer = new_consumer(bootstrap)
    try:
        consumer.subscribe([TOPIC])
        for message in taken(consumer, 2):
            say_record(message)
            consumer.commit(message=message, asynchronous=False)
        say_lag(bootstrap)
    finally:
        consumer.close()


def say_lag(bootstrap: str) -> None:
    """What `ottla groups describe postmen` shows."""
    group = facts(AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}), GROUP, bootstrap, [])
    who = ", ".join(f"{one['client']} at {one['host']}" for one in group["members"]) or "nobody"
    (row,) = group["partitions"]
    say(
        f"  group {GROUP}: {group['state']}, members: {who}; partition {row['partition']} committed {row['committed']}"
        f" of {row['end']}, lag {row['lag']} records, the oldest unread is {row['lag_seconds']:.1f} s old"
    )


def show_transactions(bootstrap: str) -> None:
    say("\nTwo transactions, the first one aborted, the second committed. A reader of committed records sees:")
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "ottla", "log_level": 0})
    producer.init_transactions(WAIT_S)
    for value, end in (("(torn up)", producer.abort_transaction), ("PS: exactly once.", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(TOPIC, value, key="ottla")
        producer.flush(WAIT_S)
        end(WAIT_S)
    read(bootstrap, 1, start=len(GREETINGS))


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


def read(bootstrap: str, count: int, start: int = OFFSET_BEGINNING) -> None:
    consumer = new_consumer(bootstrap)
    try:
        consumer.assign([TopicPartition(TOPIC, 0, start)])
        for message in taken(consumer, count):
            say_record(message)
    finally:
        consumer.close()


def new_consumer(bootstrap: str) -> Consumer:
    options = {"bootstrap.servers": bootstrap, "group.id": GROUP, "client.id": "postman", "log_level": 0}
    return Consumer({**options, "enable.auto.commit": False, "auto.offset.reset": "earliest"})


def taken(consumer: Consumer, count: int) -> list[Message]:
    messages: list[Message] = []
    while len(messages) < count:
        batch = consumer.consume(count - len(messages), timeout=WAIT_S)
        if not batch:
            raise SystemExit("demo: the broker did not give the records back")
        messages += batch
    return messages


def say_record(message: Message) -> None:
    say(f"  partition {message.partition()} offset {message.offset()}: {(message.value() or b'').decode()}")


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
