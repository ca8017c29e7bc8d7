"""A real broker in the tests of a project: Ottla's pytest plugin starts it for the first test that uses it.

pip install 'ottla[tools]' pytest
pytest test_orders.py
"""

from confluent_kafka import Consumer, Producer


def test_an_order_arrives(ottla_broker, ottla_namespace):
    topic = ottla_namespace.topic("orders")  # a name that no other test has
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap})
    producer.produce(topic, key="alice", value="2 apples")
    assert producer.flush(30) == 0

    consumer = Consumer(
        {
            "bootstrap.servers": ottla_broker.bootstrap,
            "group.id": ottla_namespace.group("shop"),
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    message = consumer.poll(30)
    consumer.close()
    assert (message.key(), message.value()) == (b"alice", b"2 apples")


def test_a_broker_of_its_own_is_empty(ottla_broker_per_test):
    producer = Producer({"bootstrap.servers": ottla_broker_per_test.bootstrap})
    assert producer.list_topics(timeout=30).topics == {}
