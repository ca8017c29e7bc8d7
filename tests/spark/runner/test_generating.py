"""Generated input: how many records, how fast, in which order, and the error when they cannot be sent."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.client.failure import Failed
from ottla.client.security import security
from ottla.spark.runner import Pipeline, Run
from ottla.spark.runner.generating import Record, librdkafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from process import Ottla


def nothing(run: Run) -> None:
    pass


@pytest.fixture
def run(ottla: Ottla, tmp_path: Path) -> Run:
    return Run(pipeline=Pipeline("made", "For tests.", nothing), bootstrap=ottla.bootstrap, folder=tmp_path)


def records(topic: str) -> Iterator[Record]:
    return (Record(topic, f"k{number}", str(number), 1_000 + number, (("h", b"v"),)) for number in itertools.count())


def read(bootstrap: str, topic: str) -> list[tuple[bytes, bytes, int, object]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "t", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while not (message := consumer.poll(30)).error():
        found.append((message.key(), message.value(), message.timestamp()[1], message.headers()))
    consumer.close()
    return found


@pytest.mark.parametrize("rate", [None, 500.0])
def test_so_many_are_sent_as_they_are(run: Run, fresh: Callable[[str], str], rate: float | None) -> None:
    topic = fresh("made")
    run.ensure_topic(topic, retention_ms="-1")
    run.count, run.rate = 40, rate
    assert run.send(records(topic)) == 40
    assert read(run.bootstrap, topic) == [
        (f"k{number}".encode(), str(number).encode(), 1_000 + number, [("h", b"v")]) for number in range(40)
    ]


def test_a_stop_ends_it(run: Run, fresh: Callable[[str], str]) -> None:
    topic = fresh("made")
    run.ensure_topic(topic, retention_ms="-1")
    run.rate = 100.0
    sent: list[int] = []
    sending = threading.Thread(target=lambda: sent.append(run.send(records(topic))))
    sending.start()
    run.ask_to_stop()
    sending.join(60)
    assert len(read(run.bootstrap, topic)) == sent[0]


def test_what_the_cluster_refuses_is_told(run: Run, fresh: Callable[[str], str]) -> None:
    topic = fresh("made")
    run.ensure_topic(topic, max_message_bytes="100")
    with pytest.raises(Failed, match=r"generated input did not arrive at .*MSG_SIZE_TOO_LARGE"):
        run.send(iter([Record(topic, None, "x" * 1000)]))


def test_security_has_other_names_there() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="secret";'
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    assert librdkafka(security({**given, "ssl.truststore.location": "ca.pem"})) == {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "ca.pem",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "secret",
    }
    assert librdkafka(security({})) == {"security.protocol": "PLAINTEXT"}
