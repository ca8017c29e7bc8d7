"""What Apache Kafka refuses to store, Ottla refuses: every malformed batch is sent unchanged to both.

Where Kafka returns only UNKNOWN_SERVER_ERROR (-1), Ottla returns INVALID_RECORD. Kafka accepts some batches that some
of its own clients, or librdkafka, cannot read; they are listed, and refused here.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import judge
import pytest
from handlers.wired import Wired
from records.malformed import all_of_them

from ottla.embed import BrokerThread
from ottla.errors import ErrorCode
from ottla.records import native
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.topics import CreatableTopic, CreateTopicsRequest

if TYPE_CHECKING:
    from pathlib import Path

VERSION = 9
# Kafka stores these, and some readers stop there: librdkafka accepts no length below -1, and requires the size of each
# record to be right, which Kafka checks only in uncompressed batches.
STRICTER = (
    "key of length -2",
    "value of length -2",
    "header value -2",
    "record too",
    "record of negative length",
    "offset",
    "gzip members of one record",
)


def codes(port: int, batches: dict[str, bytes]) -> dict[str, int]:
    """The broker's error code for each batch."""
    found = {}
    with Wired(port, timeout_s=60) as wired:
        law = CreatableTopic(name="law", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        wired.ask(CreateTopicsRequest(topics=[law], timeout_ms=30_000), 5)
        deadline = time.monotonic() + 30
        for name, data in batches.items():
            while True:
                partition = PartitionProduceData(index=0, records=memoryview(data))
                topic = TopicProduceData(name="law", partition_data=[partition])
                answer = wired.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), VERSION)
                found[name] = answer.responses[0].partition_responses[0].error_code
                fresh = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                if found[name] not in fresh or time.monotonic() > deadline:
                    break
    return found


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, int], dict[str, int]]:
    batches = all_of_them(int(time.time() * 1000))
    folder: Path = tmp_path_factory.mktemp("law")
    with BrokerThread(data=folder) as broker:
        ours = codes(int(broker.bootstrap.rpartition(":")[2]), batches)
    with judge.Kafka() as kafka:
        theirs = codes(kafka.port, batches)
    return ours, theirs


def test_nothing_is_stored_that_kafka_refuses(answers: tuple[dict[str, int], dict[str, int]]) -> None:
    ours, theirs = answers
    assert len(theirs) > 150
    assert [name for name in theirs if ours[name] == 0 and theirs[name] != 0] == []


def test_the_codes_are_kafkas(answers: tuple[dict[str, int], dict[str, int]]) -> None:
    ours, theirs = answers
    named = (ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    for name, code in theirs.items():
        if code == ErrorCode.UNKNOWN_SERVER_ERROR:
            assert ours[name] in named, name
        elif name.startswith("zstd of 17 MiB") and not native.is_built():
            assert ours[name] == ErrorCode.RECORD_LIST_TOO_LARGE, "Python does not inflate as much"
        elif code == 0 and name.startswith(STRICTER):
            assert ours[name] == ErrorCode.INVALID_RECORD, name
        else:
            assert ours[name] == code, name
