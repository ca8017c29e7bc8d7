"""The table of error codes against the one in Apache Kafka, read by a small Java program."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
from judge import java

from ottla.errors import BrokerError, ErrorCode, description, retriable

CODES = Path(__file__).parent / "wire" / "Codes.java"


def test_codes_are_those_of_apache_kafka() -> None:
    theirs = {}
    for line in java(CODES).out.splitlines():
        code, name, again = line.split()
        theirs[name] = (int(code), again == "true")
    assert {code.name: (code.value, retriable(code)) for code in ErrorCode} == theirs
    assert len(theirs) > 130


def test_every_code_is_described_once() -> None:
    texts = [description(code) for code in ErrorCode]
    assert len(set(texts)) == len(texts)
    assert not [text for text in texts if "unknown error code" in text or not text or text[-1] == "."]
    assert description(9999) == "unknown error code 9999"


def test_a_plain_number_will_do() -> None:
    assert retriable(6)
    assert not retriable(1)
    assert description(1) == description(ErrorCode.OFFSET_OUT_OF_RANGE)


def test_the_exception_carries_code_and_message() -> None:
    error = BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, "bad name: '..'")
    assert (error.code, error.message) == (17, "bad name: '..'")
    assert str(error) == "INVALID_TOPIC_EXCEPTION: bad name: '..'"
    assert str(BrokerError(ErrorCode.NOT_CONTROLLER)) == "NOT_CONTROLLER: another broker is the controller"


@pytest.mark.parametrize("carry", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_the_exception_survives_a_thread_or_process(carry: object) -> None:
    assert callable(carry)
    carried = carry(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "disk"))
    assert (carried.code, carried.message) == (ErrorCode.KAFKA_STORAGE_ERROR, "disk")
