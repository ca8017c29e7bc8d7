"""Broker options: defaults, chains of older names, what is impossible, and the files people already have."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from laws.yardstick import least

from ottla.config import BrokerConfig, ConfigError, load, parse_properties

HOUR_MS = 3_600_000
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def test_a_broker_without_options_is_kafkas() -> None:
    config = load({})
    assert config.log_segment_bytes == 1 << 30
    assert config.log_retention_ms == 168 * HOUR_MS
    assert config.log_roll_ms == 168 * HOUR_MS
    assert config.log_flush_interval_ms == (1 << 63) - 1
    assert config.opened[0][:4] == ("PLAINTEXT", "PLAINTEXT", "", 9092)
    assert config.log_dirs == ("~/.local/share/ottla",)
    assert (config.node_id, config.node_id_given, config.notices) == (1, False, ())


@pytest.mark.parametrize(
    ("pairs", "retention_ms"),
    [
        ({"log.retention.hours": "1"}, HOUR_MS),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.ms": "-1"}, -1),
    ],
)
def test_the_finest_unit_of_retention_wins(pairs: dict[str, str], retention_ms: int) -> None:
    assert load(pairs).log_retention_ms == retention_ms


def test_other_chains_end_in_their_first_name() -> None:
    config = load({"log.roll.hours": "2", "log.roll.jitter.hours": "1", "log.flush.scheduler.interval.ms": "9"})
    assert (config.log_roll_ms, config.log_roll_jitter_ms) == (2 * HOUR_MS, HOUR_MS)
    assert config.log_flush_interval_ms == 9
    assert load({"log.dir": "/a,/b"}).log_dirs == ("/a", "/b")
    assert load({"log.dir": "/a", "log.dirs": "/c"}).log_dirs == ("/c",)


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ({"log.segment.bytes": "13"}, "log.segment.bytes: Value must be at least 14"),
        ({"log.segment.bytes": "1k"}, "log.segment.bytes: Not a number of type INT"),
        ({"log.retention.ms": "0"}, "log.retention.ms must be unlimited"),
        ({"log.retention.hours": "0"}, "log.retention.ms must be unlimited"),
        ({"log.roll.ms": "0"}, "log.roll.ms must be equal or greater than 1"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms"),
        ({"log.dirs": ""}, "At least one log directory"),
        ({"log.dirs": "/a,,/b"}, "'log.dirs' values must not be empty"),
        ({"process.roles": "controller"}, "process.roles must include broker"),
        ({"process.roles": "broker,king"}, "process.roles: String must be one of"),
        ({"node.id": "1", "broker.id": "2"}, "must have the same value"),
        ({"node.id": "-1"}, "node.id: Value must be at least 0"),
        ({"max.connections.per.ip.overrides": "10.0.0.1:5,x"}, "x is not host:count"),
        ({"auto.create.topics.enable": "1"}, "Expected value to be either true or false"),
        (
            {"authorizer.class.name": AUTHORIZER, "super.users": "User:ann; bob;"},
            "^super.users: bob is not TYPE:NAME, such as User:bob$",
        ),
    ],
)
def test_the_impossible_is_refused_by_name(pairs: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(pairs)


@pytest.mark.parametrize(
    ("pairs", "node_id", "given"),
    [
        ({"broker.id": "7"}, 7, True),
        ({"node.id": "0"}, 0, True),
        ({"broker.id": "-1"}, 1, False),
        ({"broker.id": "-1", "node.id": "4"}, 4, True),
        ({"broker.id": "4", "node.id": "4"}, 4, True),
    ],
)
def test_a_broker_has_one_number_under_two_names(pairs: dict[str, str], node_id: int, given: bool) -> None:
    config = load(pairs)
    assert (config.node_id, config.node_id_given) == (node_id, given)


def test_a_configuration_is_replaced_not_changed() -> None:
    config = load({"num.partitions": "3"})
    with pytest.raises(AttributeError):
        config.num_partitions = 4
    changed = config.overlay({"log.segment.bytes": "1000"})
    assert (changed.num_partitions, changed.log_segment_bytes) == (3, 1000)
    assert config.log_segment_bytes == 1 << 30
    assert config.overlay({}) is config
    assert changed != config
    assert changed == load({"num.partitions": "3", "log.segment.bytes": "1000"})


KRAFT = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
num.io.threads=16
socket.send.buffer.bytes=102400
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.retention.hours=168
"""


def test_a_server_properties_of_kafka_is_understood() -> None:
    config = load(parse_properties(KRAFT))
    assert [listener.name for listener in config.opened] == ["PLAINTEXT"], "there is no quorum to listen for"
    assert config.advertised == {"PLAINTEXT": ("localhost", 9092)}
    assert config.notices == (
        "options without effect in Ottla: controller.quorum.bootstrap.servers, num.io.threads, "
        "share.coordinator.state.topic.min.isr",
    ), "one line; what is at its default is not worth it"


def test_importing_it_is_cheap(tmp_path: Path) -> None:
    code = (
        "import importlib, ottla, re, typing, collections.abc; from laws.yardstick import spent; "
        "print(spent(lambda: importlib.import_module('ottla.config')))"
    )
    source = Path(sys.modules[BrokerConfig.__module__].__file__ or "").parents[2]
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "PYTHONPYCACHEPREFIX": str(tmp_path),  # compiled once, as when installed
    }

    def yardsticks() -> float:
        command = [sys.executable, "-c", code]
        return float(subprocess.run(command, cwd=source, env=environment, capture_output=True, check=True).stdout)

    yardsticks()
    assert least(yardsticks, 30) < 30, "7 on a quiet machine"
