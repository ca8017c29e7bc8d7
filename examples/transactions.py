"""Read, transform and write exactly once: the output and the input offsets are committed together.

Killed at any point and started again, it neither loses an order nor bills one twice.

    python transactions.py localhost:9092

Prints:

    billed 3 orders
    order 1: 20 EUR
    order 2: 40 EUR
    order 3: 60 EUR
"""

import sys

from confluent_kafka import Consumer, Message, Producer, TopicPartition

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
ORDERS, BILLS = "example-purchases", "example-bills"
COUNT = 3


def place_orders() -> None:
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for number in range(1, COUNT + 1):
        producer.produce(ORDERS, key=f"order {number}", value=str(number))
    producer.flush()


def bill_orders() -> None:
    consumer = new_consumer("example-billing", ORDERS)
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": "example-billing"})
    producer.init_transactions()  # aborts a transaction that an earlier run left open
    orders = [read(consumer) for _ in range(COUNT)]
    producer.begin_transaction()
    for order in orders:
        producer.produce(BILLS, key=order.key(), value=f"{int(order.value()) * 20} EUR")
    last = orders[-1]
    position = TopicPartition(ORDERS, last.partition(), last.offset() + 1)
    producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata())
    producer.commit_transaction()
    consumer.close()
    print(f"billed {len(orders)} orders")


def show_bills() -> None:
    consumer = new_consumer("example-bookkeeping", BILLS)
    for _ in range(COUNT):
        bill = read(consumer)
        print(f"{bill.key().decode()}: {bill.value().decode()}")
    consumer.close()


def new_consumer(group: str, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,  # the transaction commits the offsets
            "isolation.level": "read_committed",  # skip aborted records
        }
    )
    consumer.subscribe([topic])
    return consumer


def read(consumer: Consumer) -> Message:
    message = consumer.poll(60)
    assert message is not None, "nothing came within a minute"
    assert message.error() is None, message.error()
    return message


if __name__ == "__main__":
    place_orders()
    bill_orders()
    show_bills()
