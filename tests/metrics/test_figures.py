"""The figures are what the clients count: real clients at work, then a scrape."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from handlers.wired import Wired
from metrics.exposed import Exposed, scrape
from waiting import wait_until

from ottla.metrics.catalogue import FAMILIES
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from ottla.embed import BrokerThread

RECORDS = 5000


@pytest.fixture(scope="module")
def told(broker: BrokerThread) -> tuple[Exposed, Exposed, dict[str, int]]:
    """The figures before and after some work, and what the clients know of it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic("orders", 3, 1)]).values():
        future.result()
    before = scrape(broker.metrics)
    known = {"acknowledged": 0, "consumed": 0}

    def acknowledged(error: object, _: object) -> None:
        known["acknowledged"] += error is None

    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 100})
    for at in range(RECORDS):
        producer.produce("orders", b"v" * 100, partition=at % 3, on_delivery=acknowledged)
        producer.poll(0)
    producer.flush()
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": 'a "group"',
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    while known["consumed"] < RECORDS:
        known["consumed"] += sum(one.error() is None for one in consumer.consume(1000, 1.0))
    consumer.commit(offsets=[TopicPartition("orders", 1, 1000), TopicPartition("orders", 2, 7)], asynchronous=False)
    consumer.close()
    return before, scrape(broker.metrics), known


def grown(told: tuple[Exposed, Exposed, dict[str, int]], name: str, **labels: str) -> float:
    before, after, _ = told
    return after.total(name, **labels) - before.total(name, **labels)


def test_messages_and_bytes(told: tuple[Exposed, Exposed, dict[str, int]]) -> None:
    _, after, known = told
    assert known == {"acknowledged": RECORDS, "consumed": RECORDS}
    assert grown(told, "ottla_topic_messages_in_total", topic="orders") == RECORDS
    assert grown(told, "ottla_topic_bytes_in_total", topic="orders") >= RECORDS * 100
    stored = after.total("ottla_partition_log_bytes", topic="orders")
    assert grown(told, "ottla_topic_bytes_in_total", topic="orders") == stored
    assert after.value("ottla_topic_log_bytes", topic="orders") == stored
    assert grown(told, "ottla_topic_bytes_out_total", topic="orders") >= stored
    topics = after.total("ottla_topic_bytes_in_total")
    assert after.value("ottla_bytes_in_total") == topics, "no topic was deleted yet"


def test_partitions(told: tuple[Exposed, Exposed, dict[str, int]]) -> None:
    _, after, _ = told
    assert after.total("ottla_partition_log_end_offset", topic="orders") == RECORDS
    assert after.total("ottla_partition_high_watermark", topic="orders") == RECORDS
    assert after.total("ottla_partition_leader", topic="orders") == 3
    assert after.value("ottla_partitions") == after.value("ottla_leaders") >= 3
    for name in ("under_replicated_partitions", "under_min_isr_partitions", "offline_replicas", "offline_partitions"):
        assert after.value(f"ottla_{name}") == 0


def test_lag(told: tuple[Exposed, Exposed, dict[str, int]]) -> None:
    _, after, _ = told
    group = 'a "group"'
    per_partition = [
        after.value("ottla_partition_log_end_offset", topic="orders", partition=str(at)) for at in range(3)
    ]
    for partition, committed in ((1, 1000), (2, 7)):
        labels = {"group": group, "topic": "orders", "partition": str(partition)}
        assert after.value("ottla_group_committed_offset", **labels) == committed
        assert after.value("ottla_group_lag_records", **labels) == per_partition[partition] - committed
    assert after.value("ottla_group_members", group=group) == 0
    assert after.value("ottla_groups", state="Empty") == 1


def test_requests(told: tuple[Exposed, Exposed, dict[str, int]]) -> None:
    _, after, _ = told
    assert grown(told, "ottla_requests_total", api="Produce") >= RECORDS / 100
    assert grown(told, "ottla_requests_total", api="OffsetCommit") >= 1
    for api in ("Produce", "Fetch", "JoinGroup", "Metadata"):
        count = after.value("ottla_request_seconds_count", api=api)
        assert 0 <= after.total("ottla_requests_total", api=api) - count <= 5, "all but those whose client had left"
        phases = [after.value("ottla_request_phase_seconds_total", api=api, phase=one) for one in PHASES]
        assert min(phases) >= 0
        assert sum(phases) == pytest.approx(after.value("ottla_request_seconds_sum", api=api), abs=1e-4)
    assert after.value("ottla_request_phase_seconds_total", api="JoinGroup", phase="remote") > 1, "the initial delay"


PHASES = ("queue", "local", "remote", "send")


def test_every_figure_is_documented_and_most_are_there(told: tuple[Exposed, Exposed, dict[str, int]]) -> None:
    _, after, _ = told
    known = {family.name: family for family in FAMILIES}
    assert after.kinds.keys() <= known.keys()
    absent = known.keys() - after.kinds.keys()
    elsewhere = {"ottla_follower_lag_records", "ottla_client_telemetry_pushes_total"}
    assert {name for name in absent if "zookeeper" not in name} <= elsewhere | {"ottla_request_errors_total"}
    for name, kind in after.kinds.items():
        assert known[name].kind == kind


def test_the_process(told: tuple[Exposed, Exposed, dict[str, int]]) -> None:
    _, after, _ = told
    assert after.value("process_resident_memory_bytes") > 10 << 20
    assert after.value("process_open_fds") > 3
    assert after.value("process_cpu_seconds_total") > 0
    assert after.value("ottla_connections_accepted_total", listener="PLAINTEXT") >= 2
    assert after.value("ottla_ready") == 1
    assert after.value("ottla_active_controller") == 1


def test_errors_are_counted_by_api_and_code(broker: BrokerThread, told: object) -> None:
    before = scrape(broker.metrics).total("ottla_request_errors_total", api="Produce")
    data = [PartitionProduceData(index=at, records=memoryview(b"x")) for at in (0, 99)]
    request = ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="orders", partition_data=data)],
    )
    with Wired(int(broker.bootstrap.rpartition(":")[2])) as wired:
        wired.ask(request, 8)
    after = scrape(broker.metrics)
    assert after.total("ottla_request_errors_total", api="Produce") == before + 2
    assert after.value("ottla_request_errors_total", api="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 1


def test_a_topic_that_comes_back_begins_with_nothing(broker: BrokerThread, told: object) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    producer = Producer({"bootstrap.servers": broker.bootstrap})

    def fill(count: int) -> None:
        for future in admin.create_topics([NewTopic("brief", 2, 1)]).values():
            future.result()
        for at in range(count):
            producer.produce("brief", b"x", partition=at % 2)
        producer.flush()

    fill(30)
    total = scrape(broker.metrics).value("ottla_messages_in_total")
    for future in admin.delete_topics(["brief"]).values():
        future.result()
    gone = wait_until(lambda: no_topic(scrape(broker.metrics), "brief"))
    assert gone.value("ottla_messages_in_total") == total, "what is counted in all does not go back"
    fill(4)
    after = scrape(broker.metrics)
    assert after.value("ottla_topic_messages_in_total", topic="brief") == 4
    assert after.value("ottla_messages_in_total") == total + 4


def no_topic(exposed: Exposed, topic: str) -> Exposed | None:
    return None if exposed.get("ottla_topic_messages_in_total", topic=topic) is not None else exposed
