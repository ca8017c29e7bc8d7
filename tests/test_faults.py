"""Injected faults: requests answered with an error, late or not at all, the same in a thread and in a process."""

import socket
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import wait_until

import ottla
from ottla import handlers
from ottla.faults.fault import Fault
from ottla.handlers.call import REGISTRY
from ottla.wire import apis, codec
from ottla.wire.refusal import refuse
from ottla.wire.schema import FRESH, fields

TIMEOUT_S = 60
Embedded = ottla.BrokerThread | ottla.BrokerProcess


@pytest.fixture(params=[ottla.BrokerThread, ottla.BrokerProcess], scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[Embedded]:
    with request.param() as broker:
        yield broker


@pytest.fixture
def broker(running: Embedded) -> Iterator[Embedded]:
    yield running
    running.clear_faults()


def deliver(broker: Embedded, topic: str, **options: str | int) -> tuple[Exception | None, int]:
    """The error, if any, and how many records the topic has afterwards."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "retry.backoff.ms": 10, **options})
    said: list[Exception | None] = []
    producer.produce(topic, b"v", on_delivery=lambda error, _: said.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    return said[0], end_of(broker, topic)


def end_of(broker: Embedded, topic: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)[1])
    finally:
        consumer.close()


def test_an_error_that_passes_is_retried(broker: Embedded) -> None:
    broker.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=2)
    assert broker.pending_faults() == {"Produce": 2}
    error, end = deliver(broker, "retried")
    assert error is None
    assert end == 1
    assert broker.pending_faults() == {}


def test_an_error_that_stays_reaches_the_caller_and_nothing_is_written(broker: Embedded) -> None:
    deliver(broker, "refused")
    broker.fail_next("Produce", 29)
    error, end = deliver(broker, "refused")
    assert "TOPIC_AUTHORIZATION_FAILED" in str(error)
    assert end == 1, "the record before"


def test_an_answer_that_is_lost_leaves_its_record(broker: Embedded) -> None:
    broker.drop_next("Produce", handled=True)
    assert deliver(broker, "lost", **{"retries": 0})[1] == 1


def test_a_request_that_is_dropped_is_not_carried_out(broker: Embedded) -> None:
    deliver(broker, "dropped")
    broker.drop_next("Produce")
    error, end = deliver(broker, "dropped", **{"retries": 0})
    assert error is not None
    assert end == 1


def test_a_producer_that_wants_no_answer_gets_none(broker: Embedded) -> None:
    deliver(broker, "unanswered")
    broker.fail_next("Produce", 6)
    deliver(broker, "unanswered", acks=0)
    wait_until(lambda: not broker.pending_faults())
    assert end_of(broker, "unanswered") == 1, "the record before"


def test_an_answer_can_be_late(broker: Embedded) -> None:
    deliver(broker, "late")
    broker.delay_next("Produce", 0.3)
    began = time.monotonic()
    assert deliver(broker, "late") == (None, 2)
    assert time.monotonic() - began >= 0.3, "never earlier"


def test_delayed_answers_leave_when_faults_are_cleared(broker: Embedded) -> None:
    deliver(broker, "freed")
    broker.delay_next("Produce", 3600)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("freed", b"v")
    wait_until(lambda: producer.poll(0.01) is not None and not broker.pending_faults())
    broker.clear_faults()
    assert producer.flush(TIMEOUT_S) == 0


def test_metadata_with_an_error_still_names_the_brokers(broker: Embedded) -> None:
    deliver(broker, "known")
    broker.fail_next(
        "Metadata", "TOPIC_AUTHORIZATION_FAILED", times=1000
    )  # the library sends more of them than the test
    found = Producer({"bootstrap.servers": broker.bootstrap}).list_topics("known", timeout=TIMEOUT_S)
    assert "TOPIC_AUTHORIZATION_FAILED" in str(found.topics["known"].error)
    assert len(found.brokers) == 1


def test_faults_of_one_api_happen_in_order(broker: Embedded) -> None:
    broker.fail_next("CreateTopics", "POLICY_VIOLATION")
    broker.fail_next("CreateTopics", "TOPIC_AUTHORIZATION_FAILED")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for expected in ("POLICY_VIOLATION", "TOPIC_AUTHORIZATION_FAILED"):
        with pytest.raises(KafkaException, match=expected):
            admin.create_topics([NewTopic("ordered", 1, 1)])["ordered"].result(TIMEOUT_S)
    admin.create_topics([NewTopic("ordered", 1, 1)])["ordered"].result(TIMEOUT_S)


@pytest.mark.parametrize(
    ("api", "code", "said"),
    [
        ("Produse", 6, "did you mean Produce"),
        ("Produce", "NOT_LEADER", "did you mean NOT_LEADER_OR_FOLLOWER"),
        ("Produce", 0, "NONE is not an error"),
        ("Produce", 9999, "expected a Kafka error code"),
        ("Vote", 6, "does not serve it"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(broker: Embedded, api: str, code: int | str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        broker.fail_next(api, code)
    with pytest.raises(ValueError, match="expected 1 or more"):
        broker.fail_next("Produce", 6, times=0)
    assert broker.pending_faults() == {}


def test_a_delay_does_not_hold_up_the_end() -> None:
    with ottla.BrokerThread() as broker:
        broker.delay_next("ApiVersions", 3600)
        host, _, port = broker.bootstrap.partition(":")
        with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as client:
            client.sendall(bytes.fromhex("0000000a 0012 0000 00000007 ffff".replace(" ", "")))
            wait_until(lambda: not broker.pending_faults())
            broker.stop()
            client.settimeout(TIMEOUT_S)
            while client.recv(4096):
                pass


def test_nothing_is_around_the_handlers_when_there_are_no_faults() -> None:
    with ottla.BrokerThread() as broker:
        root = broker._broker._root
        assert root is not None
        assert root._dispatch is not None
        deliver(broker, "plain")
        handler = REGISTRY[0].function
        routes = [route for route in root._dispatch._routes.values() if route.counts.key == 0]
        assert [route.handler for route in routes] == [handler]
        broker.fail_next("Produce", 6)
        assert [route.handler for route in routes] != [handler]
        deliver(broker, "plain")
        assert [route.handler for route in routes] == [handler]


def sample(cls: type, version: int) -> object:
    """A message with one element in every list."""
    values: dict[str, object] = {}
    for field in fields(cls):
        if not field.present(version):
            if field.required:
                values[field.name] = [] if field.default is FRESH else field.default
            continue
        bare = {"string": "n", "blob": b"b", "records": None, "fixed": b"u" * 16 if field.format == "16s" else 1}
        one = sample(field.struct, version) if field.struct else bare[field.kind]
        values[field.name] = [one] if field.array else one
    return cls(**values)


def test_every_api_has_an_answer_that_says_an_error() -> None:
    handlers.load()
    for key, registered in REGISTRY.items():
        api = apis.BY_KEY[key]
        for version in range(registered.versions[0], registered.versions[1] + 1):
            answer = refuse(key, api.response, sample(api.request, version), version, 6)
            assert answer is not None, (api.name, version)
            data = b"".join(bytes(part) for part in codec.encoder(api.response, version)(answer))
            told, _ = codec.decoder(api.response, version)(memoryview(data), 0, 1000)
            assert "error_code=6" in repr(told), (api.name, version, told)


def test_a_fault_survives_its_way_to_another_process() -> None:
    fault = Fault(0, 2, code=6)
    assert Fault.from_json(fault.to_json()) == fault
