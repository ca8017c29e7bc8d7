"""Write records and read them in a consumer group, with confluent-kafka.

    pip install 'ottla[tools]'
    ottla serve                                # in another terminal
    python produce_consume.py localhost:9092

Prints:

    wrote 3 records
    alice: 2 apples
    bob: 1 pear
    alice: 1 melon
"""

import sys

from confluent_kafka import Consumer, KafkaException, Message, Producer

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
TOPIC = "example-orders"
ORDERS = [("alice", "2 apples"), ("bob", "1 pear"), ("alice", "1 melon")]


def produce() -> None:
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for customer, order in ORDERS:
        producer.produce(TOPIC, key=customer, value=order, on_delivery=check)
    producer.flush()
    print(f"wrote {len(ORDERS)} records")


def check(error: Exception | None, message: Message) -> None:
    """Delivery callback for each record. Without it, failed records go unnoticed."""
    if error is not None:
        raise KafkaException(error)


def consume() -> None:
    consumer = Consumer(
        {"bootstrap.servers": BOOTSTRAP, "group.id": "example-readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])
    for _ in ORDERS:
        message = consumer.poll(60)
        assert message is not None, "nothing came within a minute"
        if message.error():
            raise KafkaException(message.error())
        print(f"{message.key().decode()}: {message.value().decode()}")
    consumer.close()  # commits offsets and leaves the group at once


if __name__ == "__main__":
    produce()
    consume()
