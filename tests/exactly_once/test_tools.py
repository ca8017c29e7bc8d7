"""kafka-transactions of Apache Kafka against our coordinator: list, describe, find and abort what hangs, force an end.

A transaction hangs when its records are in a log and no coordinator knows of it. Nobody can make one as long as brokers
ask the coordinator before they append; this one does not (transaction.partition.verification.enable).
"""

from __future__ import annotations

import json
import struct
import time
from typing import TYPE_CHECKING, Final

import judge
import pytest
from compat.raw import PRODUCE, Raw, array, batch, blob, create_topic, init_producer, produced, string
from confluent_kafka import KafkaException, Producer
from exactly_once.conftest import SETTINGS, Mortal, MortalKafka
from exactly_once.reading import last_stable, read_committed
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.xdist_group("transaction-tools")

TRANSACTIONS: Final = "org.apache.kafka.tools.TransactionsCommand"
CONSOLE: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
FORMATTER: Final = "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"
HOUR_MS: Final = 3_600_000


@pytest.fixture(scope="module")
def broker(pytestconfig: pytest.Config) -> Iterator[Mortal | MortalKafka]:
    kind = MortalKafka if pytestconfig.getoption("judge") else Mortal
    with kind(settings=SETTINGS | {"transaction.partition.verification.enable": "false"}) as running:
        yield running


@pytest.fixture
def topic(broker: Mortal | MortalKafka, fresh: Callable[[str], str]) -> str:
    name = fresh("tools")
    with Raw(broker.port) as raw:
        assert create_topic(raw, name) == 0
    return name


def producer(broker: Mortal | MortalKafka, name: str, **settings: str | int) -> Producer:
    options = {key.replace("_", "."): value for key, value in settings.items()}
    made = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name, "log_level": 2, **options})
    made.init_transactions(30)
    return made


def table(broker: Mortal | MortalKafka, *arguments: str) -> list[dict[str, str]]:
    """Rows by the names of their columns; the tool separates by tabs and fills up with spaces."""
    output = judge.tool(TRANSACTIONS, "--bootstrap-server", broker.bootstrap, *arguments)
    names, *rows = ([cell.strip() for cell in line.split("\t")] for line in output.out.splitlines() if line.strip())
    return [{name: cell for name, cell in zip(names, row, strict=True) if name} for row in rows]


def test_transactions_are_listed_and_described(broker: Mortal | MortalKafka, topic: str) -> None:
    open_one, done = producer(broker, f"{topic}-open"), producer(broker, f"{topic}-done")
    started_ms = time.time() * 1000
    for one in (open_one, done):
        one.begin_transaction()
        one.produce(topic, b"v", partition=0)
        assert one.flush(30) == 0
    done.commit_transaction(30)

    def states() -> dict[str, str]:
        return {row["TransactionalId"]: row["TransactionState"] for row in table(broker, "list")}

    wanted = {f"{topic}-open": "Ongoing", f"{topic}-done": "CompleteCommit"}
    wait_until(lambda: states().items() >= wanted.items(), f"{wanted}")
    chosen = ("--transactional-id-pattern", f"{topic}-d.*")
    assert [row["TransactionalId"] for row in table(broker, "list", *chosen)] == [f"{topic}-done"]
    long = [row["TransactionalId"] for row in table(broker, "list", "--duration-filter", str(HOUR_MS))]
    assert f"{topic}-open" not in long
    (described,) = table(broker, "describe", "--transactional-id", f"{topic}-open")
    assert described["CoordinatorId"] == "1"
    assert described["TransactionState"] == "Ongoing"
    assert described["TransactionTimeoutMs"] == "60000"
    assert described["TopicPartitions"] == f"{topic}-0"
    assert abs(int(described["CurrentTransactionStartTimeMs"]) - started_ms) < 20_000
    unknown = judge.tool(TRANSACTIONS, "--bootstrap-server", broker.bootstrap, "describe", "--transactional-id", "none",
                         check=False)  # fmt: skip
    assert unknown.status == 1
    assert "the ID could not be found" in unknown.err
    rows = {row["ProducerId"]: row for row in table(broker, "describe-producers", "--topic", topic, "--partition", "0")}
    mine = rows[described["ProducerId"]]
    assert (mine["ProducerEpoch"], mine["LatestCoordinatorEpoch"], mine["LastSequence"]) == ("0", "-1", "0")
    assert mine["CurrentTransactionStartOffset"] == "0"
    (other,) = (row for number, row in rows.items() if number != described["ProducerId"])
    assert other["CurrentTransactionStartOffset"] == "None"
    assert other["LatestCoordinatorEpoch"] == "0"
    open_one.abort_transaction(30)


def hang(broker: Mortal | MortalKafka, topic: str) -> tuple[int, int]:
    """A record of a transaction that no coordinator knows, an hour old: producer id and offset."""
    with Raw(broker.port) as raw:
        producer_id, epoch = init_producer(raw)
        moment = int(time.time() * 1000) - HOUR_MS
        data = batch([b"hanging"], timestamp=moment, producer_id=producer_id, epoch=epoch, sequence=0, attributes=0x10)
        body = string("hanging") + struct.pack(">hi", -1, 10_000)
        body += array([string(topic) + array([struct.pack(">i", 0) + blob(data)])])
        result = produced(raw.call(PRODUCE, 7, body))
        assert result.error == 0
        return producer_id, result.base


def test_what_hangs_is_found_and_aborted(broker: Mortal | MortalKafka, topic: str) -> None:
    plain = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    plain.produce(topic, b"before")
    assert plain.flush(30) == 0
    producer_id, offset = hang(broker, topic)
    plain.produce(topic, b"after")
    assert plain.flush(30) == 0
    assert last_stable(broker, topic) == offset == 1, "it holds everybody up"
    (found,) = table(broker, "find-hanging", "--broker-id", "1")
    assert (found["Topic"], found["Partition"], found["ProducerId"]) == (topic, "0", str(producer_id))
    assert (found["StartOffset"], found["Duration(min)"]) == ("1", "60")
    assert table(broker, "find-hanging", "--topic", topic) == [found]
    judge.tool(TRANSACTIONS, "--bootstrap-server", broker.bootstrap, "abort", "--topic", topic, "--partition", "0",
               "--start-offset", "1")  # fmt: skip
    assert table(broker, "find-hanging", "--broker-id", "1") == []
    assert last_stable(broker, topic) == 4, "three records and a marker"
    assert read_committed(broker, topic) == [b"before", b"after"]


def test_a_transaction_is_ended_by_force(broker: Mortal | MortalKafka, topic: str) -> None:
    name = f"{topic}-forced"
    one = producer(broker, name)
    one.begin_transaction()
    one.produce(topic, b"v", partition=0)
    assert one.flush(30) == 0
    judge.tool(TRANSACTIONS, "--bootstrap-server", broker.bootstrap, "forceTerminateTransaction", "--transactionalId",
               name)  # fmt: skip
    wait_until(lambda: last_stable(broker, topic) == 2, "the marker is written")
    with pytest.raises(KafkaException) as refused:
        one.commit_transaction(30)
    assert refused.value.args[0].fatal(), "its producer is fenced"
    assert read_committed(broker, topic) == []


def test_kafka_reads_the_records_of_our_coordinator(broker: Mortal | MortalKafka, topic: str) -> None:
    name = f"{topic}-log"
    one = producer(broker, name)
    for commit in (True, False):
        one.begin_transaction()
        one.produce(topic, b"v", partition=0)
        if commit:
            one.commit_transaction(30)
        else:
            assert one.flush(30) == 0
            one.abort_transaction(30)
    text = judge.tool(CONSOLE, "--bootstrap-server", broker.bootstrap, "--topic", "__transaction_state",
                      "--from-beginning", "--timeout-ms", "1500", "--formatter", FORMATTER).out  # fmt: skip
    decoder, position, states = json.JSONDecoder(), 0, []
    while position < len(text.rstrip()):
        record, position = decoder.raw_decode(text, position)
        if record["key"]["data"]["transactionalId"] == name:
            data = record["value"]["data"]
            partitions = [(place["topic"], place["partitionIds"]) for place in data["transactionPartitions"] or []]
            states.append((data["transactionStatus"], partitions))
    here = [(topic, [0])]
    empty, ongoing, prepare_commit, prepare_abort, complete_commit, complete_abort = range(6)
    assert states == [
        (empty, []),
        (ongoing, here), (prepare_commit, here), (complete_commit, []),
        (ongoing, here), (prepare_abort, here), (complete_abort, []),
    ]  # fmt: skip
