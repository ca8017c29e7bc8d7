"""`ottla transactions` with real transactions, living and hanging; Apache Kafka's own tool is asked about the same."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import judge
import pytest
from confluent_kafka import KafkaException, Producer
from typer.testing import CliRunner

from ottla.client.cluster import places
from ottla.client.connection import Connection
from ottla.embed import BrokerProcess, BrokerThread
from ottla.pytest_plugin import Namespace
from ottla.records import batch
from ottla.tools.transactions import app
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

Run = Callable[..., Any]
Broker = BrokerProcess | BrokerThread

TOOL = "org.apache.kafka.tools.TransactionsCommand"
TIMEOUT_S = 60.0
OLDER_PRODUCE = 11  # the last that leaves it to the client to tell the coordinator


@pytest.fixture
def topic(run: Run, ottla_namespace: Namespace) -> str:
    name = ottla_namespace.topic()
    run("topics", "create", name, "--partitions", "2")
    return name


@contextmanager
def open_transaction(broker: Broker, name: str, topic: str) -> Iterator[Producer]:
    """A producer with one record in partition 1, acknowledged, in a transaction that it does not end."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 45_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, "in a transaction", partition=1)
    assert producer.flush(TIMEOUT_S) == 0
    yield producer


def test_a_transaction_is_listed_described_and_aborted(
    run: Run, ottla_broker: Broker, ottla_namespace: Namespace, topic: str
) -> None:
    name = ottla_namespace.transaction()
    began_ms = time.time() * 1000
    with open_transaction(ottla_broker, name, topic) as producer:
        (row,) = run("transactions", "list", "--match", name, "--json").document
        (found,) = run("transactions", "describe", name, "--json").document
        identity = {"producer_id": row["producer_id"], "state": "Ongoing"}
        assert row == {"transactional_id": name, "coordinator": ottla_broker.node_id, **identity}
        assert began_ms <= found.pop("started_ms") <= time.time() * 1000
        assert 0 <= found.pop("age_seconds") < TIMEOUT_S
        assert found == {
            "transactional_id": name,
            "coordinator": ottla_broker.bootstrap,
            **identity,
            "producer_epoch": 0,
            "timeout_ms": 45_000,
            "partitions": [{"topic": topic, "partition": 1, "start_offset": 0}],
        }
        shown = run("transactions", "describe", name).lines
        assert shown[0] == f"{name}  Ongoing  coordinator {ottla_broker.bootstrap}"
        assert shown[-1].split() == [topic, "1", "0"]

        told = run("transactions", "abort", name).out
        assert told == f"aborted the transaction of {name}; its producer is fenced\n"
        with pytest.raises(KafkaException, match="_FENCED"):
            producer.commit_transaction(TIMEOUT_S)
    assert "no open transaction, it is Empty" in run("transactions", "abort", "--transactional-id", name, code=1).err
    assert run("consume", topic).out == ""
    assert run("consume", topic, "--isolation", "read_uncommitted").out == "in a transaction\n"


def test_a_list_can_be_filtered(run: Run, ottla_broker: Broker, ottla_namespace: Namespace, topic: str) -> None:
    name, other = ottla_namespace.transaction("one"), ottla_namespace.transaction("other")

    def listed(*filters: str) -> set[str]:
        return {row["transactional_id"] for row in run("transactions", "list", *filters, "--json").document}

    with open_transaction(ottla_broker, name, topic):
        run("produce", topic, "done", "--transactional-id", other)
        (found,) = run("transactions", "describe", name, "--json").document
        assert {name, other} <= listed()
        assert listed("--state", "Ongoing", "--state", "PrepareAbort", "--match", ".*one|.*other") == {name}
        assert listed("--producer-id", str(found["producer_id"])) == {name}
        assert name in listed("--longer-than", "0s")
        assert {name, other}.isdisjoint(listed("--longer-than", "1h"))
        assert "no such state: Asleep" in run("transactions", "list", "--state", "Asleep", code=1).err
        assert [other, str(ottla_broker.node_id), "CompleteCommit"] in [
            [words[0], words[1], words[3]]
            for words in map(str.split, run("transactions", "list").lines)
            if len(words) == 4
        ]


def test_what_is_not_there_is_one_line(run: Run, ottla_namespace: Namespace, topic: str) -> None:
    name = ottla_namespace.transaction("missing")
    for command in (("describe", name), ("abort", "--transactional-id", name)):
        assert "TRANSACTIONAL_ID_NOT_FOUND" in run("transactions", *command, code=1).err
    assert name not in run("transactions", "list").out, "asking did not make it"
    assert f"{topic} has no partition 7" in run("transactions", "producers", topic, "-p", "7", code=1).err
    assert "UNKNOWN_TOPIC_OR_PARTITION" in run("transactions", "producers", f"{topic}-missing", code=1).err
    nowhere = ("transactions", "abort", "--topic", topic, "--partition", "0", "--start-offset", "5")
    assert "no transaction begins at offset 5" in run(*nowhere, code=1).err


@pytest.mark.parametrize(
    "nonsense",
    [
        ("abort",),
        ("abort", "--topic", "t"),
        ("abort", "--topic", "t", "--partition", "0"),
        ("abort", "--transactional-id", "x", "--topic", "t"),
        ("abort", "x", "--transactional-id", "x"),
        ("list", "--longer-than", "soon"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused(nonsense: tuple[str, ...], ottla_broker: Broker) -> None:
    assert CliRunner().invoke(app, [*nonsense, "--bootstrap", ottla_broker.bootstrap]).exit_code == 2


def test_one_that_its_coordinator_knows_does_not_hang(
    run: Run, ottla_broker: Broker, ottla_namespace: Namespace, topic: str
) -> None:
    name = ottla_namespace.transaction()
    abort = ("transactions", "abort", "--topic", topic, "--partition", "1", "--start-offset")
    with open_transaction(ottla_broker, name, topic) as producer:
        assert f"{name} is not hanging" in run(*abort, "0", code=1).err
        assert "open ones begin at: 0 (producer" in run(*abort, "1", code=1).err
        producer.commit_transaction(TIMEOUT_S)
    assert "open ones begin at: none" in run(*abort, "0", code=1).err
    assert run("consume", topic).out == "in a transaction\n"


@pytest.fixture(scope="module")
def careless() -> Iterator[BrokerProcess]:
    """A broker that takes records of a transaction without asking the coordinator: that is how one comes to hang."""
    with BrokerProcess(options={"transaction.partition.verification.enable": False}) as broker:
        yield broker


def hang(broker: Broker, topic: str, producer_id: int) -> None:
    """One record of a transaction that no coordinator has heard of."""
    (address,) = places(broker.bootstrap)
    connection = Connection(address)
    connection._versions[0] = (0, OLDER_PRODUCE)
    record = batch.Record(0, int(time.time() * 1000), None, b"hanging", ())
    data = batch.build([record], producer_id=producer_id, producer_epoch=3, base_sequence=0, transactional=True)
    partition = PartitionProduceData(index=0, records=memoryview(data))
    request = ProduceRequest(
        transactional_id="nobody",
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=topic, partition_data=[partition])],
    )
    (answer,) = connection.ask(request, ProduceResponse).responses
    assert [one.error_code for one in answer.partition_responses] == [0]
    connection.close()


@pytest.mark.parametrize("tool", ["ours", "theirs"])
def test_one_that_hangs_is_ended_and_readers_go_on(run: Run, careless: BrokerProcess, tool: str) -> None:
    where, topic = ("--bootstrap", careless.bootstrap), f"hanging-{tool}"
    run("topics", "create", topic, *where)
    hang(careless, topic, 4_000)
    run("produce", topic, "behind it", *where)
    assert run("consume", topic, *where).out == ""

    (row,) = [
        row
        for row in run("transactions", "producers", topic, "--json", *where).document
        if row["start_offset"] is not None
    ]
    assert (row["partition"], row["producer_id"], row["producer_epoch"], row["start_offset"]) == (0, 4_000, 3, 0)
    place = ("--topic", topic, "--partition", "0", "--start-offset", "0")
    if tool == "ours":
        done = run("transactions", "abort", *place, "--json", *where).document
        assert done == {"aborted": {"topic": topic, "partition": 0, "start_offset": 0, "producer_id": 4_000}}
    else:
        judge.tool(TOOL, "--bootstrap-server", careless.bootstrap, "abort", *place)
    assert run("consume", topic, *where).out == "behind it\n"
    assert "open ones begin at: none" in run("transactions", "abort", *place, *where, code=1).err


def test_kafkas_tool_tells_the_same(run: Run, ottla_broker: Broker, ottla_namespace: Namespace, topic: str) -> None:
    name = ottla_namespace.transaction()
    with open_transaction(ottla_broker, name, topic):
        (ours,) = run("transactions", "describe", name, "--json").document
        ask = ("--bootstrap-server", ottla_broker.bootstrap)
        shown = judge.tool(TOOL, *ask, "describe", "--transactional-id", name).out
        (facts,) = [line.split() for line in shown.splitlines() if name in line]
        assert str(ours["producer_id"]) in facts
        assert str(ours["timeout_ms"]) in facts
        assert f"{topic}-1" in facts
        shown = judge.tool(TOOL, *ask, "describe-producers", "--topic", topic, "--partition", "1").out
        (theirs,) = [line.split() for line in shown.splitlines() if line.split()[:1] == [str(ours["producer_id"])]]
        (row,) = run("transactions", "producers", topic, "-p", "1", "--json").document
        assert theirs[1] == str(row["producer_epoch"])
        assert theirs[-1] == str(row["start_offset"]) == "0"
        assert f"{'epoch':>5}" in run("transactions", "producers", topic).lines[0]
