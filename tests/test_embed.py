import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from waiting import wait_until

import ottla

TIMEOUT_S = 30
DELAY = "group.initial.rebalance.delay.ms"


def produce(bootstrap: str, topic: str, value: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0


def first(bootstrap: str, topic: str) -> bytes | str | None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(TIMEOUT_S)
    consumer.close()
    assert message is not None
    assert message.error() is None
    return message.value()


def partitions(bootstrap: str, topic: str) -> int:
    return len(
        Producer({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
    )


def test_a_broker_on_the_running_loop() -> None:
    async def story() -> None:
        async with ottla.Broker(options={"num.partitions": 3}) as broker:
            assert broker.bootstrap.startswith("127.0.0.1:")
            assert len(broker.cluster_id) == 22
            await asyncio.to_thread(produce, broker.bootstrap, "t", "hello")
            assert await asyncio.to_thread(partitions, broker.bootstrap, "t") == 3

    asyncio.run(story())


def test_two_brokers_on_one_loop_do_not_see_each_other() -> None:
    async def story() -> None:
        async with ottla.Broker() as one, ottla.Broker() as two:
            await asyncio.to_thread(produce, one.bootstrap, "t", "one")
            await asyncio.to_thread(produce, two.bootstrap, "t", "two")
            assert await asyncio.to_thread(first, one.bootstrap, "t") == b"one"
            assert await asyncio.to_thread(first, two.bootstrap, "t") == b"two"

    asyncio.run(story())


def test_nothing_is_left_of_a_broker_on_the_loop() -> None:
    async def story() -> None:
        before = asyncio.all_tasks()
        async with ottla.Broker() as broker:
            memory = broker._memory
            assert memory
            assert memory.exists()
        assert asyncio.all_tasks() == before
        assert not memory.exists()

    asyncio.run(story())


def test_a_broker_in_a_thread() -> None:
    with ottla.BrokerThread() as broker:
        produce(broker.bootstrap, "t", "hello")
        assert first(broker.bootstrap, "t") == b"hello"
        assert broker.node_id >= 0
        assert len(broker.cluster_id) == 22


def test_a_broker_in_a_process() -> None:
    with ottla.BrokerProcess(options={"auto.create.topics.enable": True, "num.partitions": 2}) as broker:
        produce(broker.bootstrap, "t", "hello")
        assert partitions(broker.bootstrap, "t") == 2
        os.kill(broker.pid, 0)
    with pytest.raises(AssertionError):
        _ = broker.pid


@pytest.mark.parametrize("kind", [ottla.BrokerThread, ottla.BrokerProcess])
def test_data_is_kept_where_it_is_told(kind: type[ottla.BrokerThread | ottla.BrokerProcess], tmp_path: Path) -> None:
    with kind(data=tmp_path) as broker:
        produce(broker.bootstrap, "t", "hello")
        cluster = broker.cluster_id
    with kind(data=tmp_path) as broker:
        assert first(broker.bootstrap, "t") == b"hello"
        assert broker.cluster_id == cluster


@pytest.mark.parametrize(
    ("kind", "kept"), [(ottla.BrokerThread, False), (ottla.BrokerThread, True), (ottla.BrokerProcess, False)]
)
def test_a_broker_comes_back_on_its_port_with_its_data(
    kind: type[ottla.BrokerThread | ottla.BrokerProcess], kept: bool, tmp_path: Path
) -> None:
    with kind(data=tmp_path if kept else None) as broker:
        address, cluster = broker.bootstrap, broker.cluster_id
        produce(address, "t", "hello")
        broker.kill()
        assert not broker.running
        broker.start()
        assert (broker.bootstrap, broker.cluster_id) == (address, cluster)
        assert first(address, "t") == b"hello"
        broker.restart()
        assert (broker.bootstrap, broker.cluster_id) == (address, cluster)
        assert first(address, "t") == b"hello"


def test_a_killed_thread_does_not_close_its_log_in_good_order(tmp_path: Path) -> None:
    broker = ottla.BrokerThread(data=tmp_path).start()
    produce(broker.bootstrap, "t", "hello")
    broker.kill()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    with broker:
        broker.stop()
        assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_broker_in_memory_is_empty_after_it_was_stopped() -> None:
    broker = ottla.BrokerThread().start()
    produce(broker.bootstrap, "t", "hello")
    broker.stop()
    with broker:
        assert "t" not in Producer({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=TIMEOUT_S).topics


@pytest.mark.parametrize("kind", [ottla.BrokerThread, ottla.BrokerProcess])
def test_nothing_is_left_of_a_broker_that_was_killed(kind: type[ottla.BrokerThread | ottla.BrokerProcess]) -> None:
    broker = kind().start()
    memory = (broker._broker if isinstance(broker, ottla.BrokerThread) else broker)._memory
    assert memory
    thread = broker._thread if isinstance(broker, ottla.BrokerThread) else None
    broker.kill()
    assert memory.exists()
    assert thread is None or not thread.is_alive()
    broker.stop()
    assert not memory.exists()


@pytest.mark.parametrize("kind", [ottla.BrokerThread, ottla.BrokerProcess])
def test_a_start_that_fails_leaves_the_data_for_the_next(kind: type[ottla.BrokerThread | ottla.BrokerProcess]) -> None:
    with kind() as broker:
        produce(broker.bootstrap, "t", "hello")
        broker.kill()
        host, _, port = broker.bootstrap.partition(":")
        with socket.create_server((host, int(port))), pytest.raises(ottla.BrokerFailed):
            broker.start()
        broker.start()
        assert first(broker.bootstrap, "t") == b"hello"


def test_a_broker_on_the_loop_can_be_restarted() -> None:
    async def story() -> None:
        async with ottla.Broker() as broker:
            await asyncio.to_thread(produce, broker.bootstrap, "t", "hello")
            await broker.restart()
            assert await asyncio.to_thread(first, broker.bootstrap, "t") == b"hello"

    asyncio.run(story())


def test_groups_do_not_wait_for_more_members() -> None:
    with ottla.BrokerThread() as broker, ottla.BrokerThread(options={DELAY: 70}) as patient:
        assert option(broker.bootstrap, DELAY) == "0"
        assert option(patient.bootstrap, DELAY) == "70"


def option(bootstrap: str, name: str) -> str:
    resource = ConfigResource(ResourceType.BROKER, "1")
    admin = AdminClient(
        {"bootstrap.servers": bootstrap}
    )  # keep a reference: its futures never complete after it is collected
    found = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    return str(found[name].value)


def test_a_process_does_not_outlive_the_one_that_started_it() -> None:
    script = (
        "import ottla, sys; broker = ottla.BrokerProcess().start(); "
        "print(broker.bootstrap, broker._memory, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    address, memory = parent.stdout.readline().split()
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as witness:
        parent.kill()
        parent.communicate()
        assert witness.recv(1) == b"", "the broker hung up, because it ended"
    wait_until(lambda: not Path(memory).exists(), "the folder in memory is left")


@pytest.mark.parametrize("kind", [ottla.BrokerThread, ottla.BrokerProcess])
def test_a_broker_that_cannot_start_says_why(
    kind: type[ottla.BrokerThread | ottla.BrokerProcess], tmp_path: Path
) -> None:
    with pytest.raises(ottla.BrokerFailed, match=r"no\.such\.option"):
        kind(options={"no.such.option": 1}).start()
    with kind(data=tmp_path) as broker:
        with pytest.raises(ottla.BrokerFailed, match="in use by another broker"):
            kind(data=tmp_path).start()
        with pytest.raises(ottla.BrokerFailed):
            kind(port=int(broker.bootstrap.split(":")[1])).start()


def test_importing_ottla_imports_no_broker() -> None:
    script = (
        "import ottla, sys; print(sorted(m for m in sys.modules if m.startswith('ottla')), 'asyncio' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "['ottla'] False\n"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Brokre"):
        _ = ottla.Brokre  # type: ignore[attr-defined]
