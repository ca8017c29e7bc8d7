"""Options at run time: what test_judged.py does not cover, and that changes take effect."""

import logging
from pathlib import Path

import pytest
from handlers.conftest import port_of
from handlers.test_topics import create
from handlers.wired import Wired

from ottla.embed import BrokerThread
from ottla.errors import ErrorCode
from ottla.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

TOPIC, BROKER, LOGGERS, CLIENT_METRICS = 2, 4, 8, 16
SET, DELETE = 0, 1


def alter(wired: Wired, kind: int, name: str, option: str, value: str | None, *, validate_only: bool = False) -> int:
    config = IncrementalAlterableConfig(name=option, config_operation=DELETE if value is None else SET, value=value)
    resource = IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    response = wired.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only), 1)
    code: int = response.responses[0].error_code
    return code


def described(
    wired: Wired, kind: int, name: str, *names: str, version: int = 4, documentation: bool = False
) -> dict[str, DescribeConfigsResourceResult]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(names) or None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=documentation)
    result = wired.ask(request, version).results[0]
    assert result.error_code == 0
    return {entry.name: entry for entry in result.configs}


def test_the_first_version_says_only_whether_it_is_the_default(wired: Wired) -> None:
    create(wired, "t")
    alter(wired, TOPIC, "t", "segment.ms", "5000")
    entries = described(wired, TOPIC, "t", "segment.ms", "flush.ms", version=0)
    assert {name: entry.is_default for name, entry in entries.items()} == {"segment.ms": False, "flush.ms": True}


def test_every_option_has_a_text(wired: Wired) -> None:
    create(wired, "t")
    assert all(entry.documentation for entry in described(wired, TOPIC, "t", documentation=True).values())
    assert all(entry.documentation for entry in described(wired, BROKER, "1", documentation=True).values())
    assert {entry.documentation for entry in described(wired, TOPIC, "t").values()} == {None}


def test_secrets_are_not_told(wired: Wired) -> None:
    secret = described(wired, BROKER, "1")["ssl.keystore.password"]
    assert secret.is_sensitive
    assert secret.value is None


@pytest.mark.parametrize(
    ("option", "value"), [("num.io.threads", "4"), ("no.such.option", "1"), ("sasl.login.class", "x")]
)
def test_options_without_effect_cannot_be_set_while_running(wired: Wired, option: str, value: str) -> None:
    assert alter(wired, BROKER, "1", option, value) == ErrorCode.INVALID_CONFIG


def test_certificates_are_changed_for_one_listener_only(wired: Wired) -> None:
    assert alter(wired, BROKER, "1", "ssl.keystore.location", "x") == ErrorCode.INVALID_REQUEST


def test_changes_survive_a_restart_and_may_be_taken_back(tmp_path: Path) -> None:
    with BrokerThread(data=tmp_path) as broker, Wired(port_of(broker)) as wired:
        create(wired, "t")
        assert alter(wired, TOPIC, "t", "segment.ms", "5000") == 0
        assert alter(wired, BROKER, "", "log.segment.bytes", "6000") == 0
    with BrokerThread(data=tmp_path) as broker, Wired(port_of(broker)) as wired:
        entries = described(wired, TOPIC, "t")
        assert (entries["segment.ms"].value, entries["segment.bytes"].value) == ("5000", "6000")
        alter(wired, TOPIC, "t", "segment.ms", None)
        alter(wired, BROKER, "", "log.segment.bytes", None)
        entries = described(wired, TOPIC, "t")
        assert (entries["segment.ms"].value, entries["segment.bytes"].value) == ("604800000", str(1 << 30))


def test_client_metrics_have_no_resources(wired: Wired) -> None:
    create(wired, "t")
    assert wired.ask(ListConfigResourcesRequest(), 0).config_resources == []
    listed = wired.ask(ListConfigResourcesRequest(resource_types=[]), 1).config_resources
    assert {(one.resource_type, one.resource_name) for one in listed} == {(TOPIC, "t"), (BROKER, "1"), (LOGGERS, "1")}


def test_loggers_can_be_made_louder_while_running(wired: Wired) -> None:
    logger = logging.getLogger("ottla.broker")
    before = logger.level
    try:
        assert alter(wired, LOGGERS, "1", "ottla.broker", "DEBUG", validate_only=True) == 0
        assert logger.level == before
        assert alter(wired, LOGGERS, "1", "ottla.broker", "DEBUG") == 0
        assert logger.level == logging.DEBUG
        assert described(wired, LOGGERS, "1", "ottla.broker")["ottla.broker"].value == "DEBUG"
        assert alter(wired, LOGGERS, "1", "ottla.broker", None) == 0
        assert logger.level == logging.NOTSET
        assert alter(wired, LOGGERS, "1", "root", None) == ErrorCode.INVALID_REQUEST
    finally:
        logger.setLevel(before)


@pytest.mark.parametrize(
    ("kind", "name", "option"), [(TOPIC, "t", "max.message.bytes"), (BROKER, "", "message.max.bytes")]
)
def test_a_change_takes_effect_on_the_next_produce(tmp_path: Path, kind: int, name: str, option: str) -> None:
    from confluent_kafka import KafkaError, Producer

    with BrokerThread(data=tmp_path) as broker, Wired(port_of(broker)) as wired:
        create(wired, "t")
        errors: list[KafkaError | None] = []
        producer = Producer({"bootstrap.servers": broker.bootstrap, "retries": 0})
        for _ in range(2):
            producer.produce("t", b"x" * 1000, callback=lambda error, message: errors.append(error))
            producer.flush(20)
            assert alter(wired, kind, name, option, "500") == 0
    with BrokerThread(data=tmp_path) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "retries": 0})
        producer.produce("t", b"x" * 1000, callback=lambda error, message: errors.append(error))
        producer.flush(20)
    codes = [None if error is None else error.code() for error in errors]
    assert codes == [None, KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.MSG_SIZE_TOO_LARGE], "and after a restart"


def test_old_formats_may_be_refused(tmp_path: Path) -> None:
    from confluent_kafka import Producer

    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="t", partitions=[partition])]
    )
    with BrokerThread(data=tmp_path) as broker, Wired(port_of(broker)) as wired:
        create(wired, "t")
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("t", b"x")
        producer.flush(20)
        assert wired.ask(request, 2).responses[0].partitions[0].error_code == 0
        assert alter(wired, TOPIC, "t", "message.downconversion.enable", "false") == 0
        assert wired.ask(request, 2).responses[0].partitions[0].error_code == ErrorCode.UNSUPPORTED_VERSION
        assert wired.ask(request, 4).responses[0].partitions[0].error_code == 0
