"""The lines of a broker's log that are faults, and those that only tell of brokers that come and go."""

from __future__ import annotations

import logging

import pytest
from mixed.faults import faults_of_kafka, faults_of_ottla

from ottla.logging_setup import TextLines


@pytest.mark.parametrize(
    "line",
    [
        "java.io.IOException: Connection to 127.0.0.1:46601 (id: 12 rack: null) failed.",
        "[2026-11-16 06:46:31,1] WARN [ReplicaFetcher replicaId=1, leaderId=12, fetcherId=0] Error when sending"
        " leader epoch request for HashMap(chaos-1 -> OffsetForLeaderPartition) (kafka.server.RemoteLeaderEndPoint)",
        "[2026-11-16 06:46:31,1] ERROR [RequestSendThread controllerId=1] Controller 1 fails to send a request",
        "[2026-11-16 06:46:31,1] WARN Client session timed out, have not heard from server in 4006ms",
    ],
)
def test_timing_is_no_fault(line: str) -> None:
    assert faults_of_kafka(line) == []


@pytest.mark.parametrize(
    "line",
    [
        "org.apache.kafka.common.protocol.types.SchemaException: Buffer underflow while parsing response",
        "org.apache.kafka.common.errors.UnsupportedVersionException: LeaderAndIsr 9",
        "[2026-11-16 06:46:31,1] ERROR [ReplicaFetcher replicaId=1] Found invalid messages: CorruptRecordException",
        "[2026-11-16 06:46:31,1] ERROR Error in AlterPartition: INVALID_REQUEST (kafka.server.AlterPartitionManager)",
        "[2026-11-16 06:46:31,1] FATAL Shutdown broker (kafka.server.KafkaServer)",
    ],
)
def test_what_cannot_be_read_is_a_fault(line: str) -> None:
    assert faults_of_kafka(f"something else\n{line}\n") == [line]


@pytest.mark.parametrize(("level", "count"), [(logging.WARNING, 0), (logging.ERROR, 1)])
def test_an_error_of_ottla_is_a_fault(level: int, count: int) -> None:
    record = logging.LogRecord("ottla.net", level, "file", 1, "cannot encode %s", ("FetchResponse",), None)
    assert len(faults_of_ottla(TextLines().format(record))) == count
    assert faults_of_ottla("Traceback (most recent call last):") != []
