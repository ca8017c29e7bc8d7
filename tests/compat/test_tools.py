"""Apache Kafka's own command line tools (4.3) against the broker, in everyday use.

The expectations hold for Apache Kafka as well (`--judge`): they are what the tools print there.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import judge
import pytest
from compat.raw import Raw, batch, create_topic, init_producer, produce

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process import Ottla

    Broker = Ottla | judge.Kafka

pytestmark = pytest.mark.xdist_group("tools")
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"


@pytest.fixture
def run(broker: Broker) -> Callable[..., str]:
    """Run a tool against the broker and give back what it printed; a failure fails the test."""

    def call(name: str, *arguments: str, stdin: str = "") -> str:
        return judge.tool(name, "--bootstrap-server", broker.bootstrap, *arguments, stdin=stdin).out

    return call


@pytest.fixture
def refused(broker: Broker) -> Callable[..., str]:
    """Run a tool that must fail, and give back all it said."""

    def call(name: str, *arguments: str) -> str:
        output = judge.tool(name, "--bootstrap-server", broker.bootstrap, *arguments, check=False)
        assert output.status != 0, output
        return output.out + output.err

    return call


def test_kafka_topics(run: Callable[..., str], refused: Callable[..., str], fresh: Callable[[str], str]) -> None:
    topic = fresh("tools")
    create = ("--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=7200000")
    assert run(TOPICS, *create) == f"Created topic {topic}.\n"
    assert f"Topic '{topic}' already exists" in refused(TOPICS, *create)
    run(TOPICS, *create, "--if-not-exists")
    assert topic in run(TOPICS, "--list").split()
    described = run(TOPICS, "--describe", "--topic", topic).splitlines()
    head = dict(part.split(": ", 1) for part in described[0].split("\t") if ": " in part)
    assert head["Topic"] == topic
    assert head["PartitionCount"] == "3"
    assert head["ReplicationFactor"] == "1"
    assert "retention.ms=7200000" in head["Configs"]
    assert len(head["TopicId"]) == 22
    lines = [re.match(r"\tTopic: \S+\tPartition: (\d+)\tLeader: (\d+)\tReplicas: (\d+)\tIsr: (\d+)", line)
             for line in described[1:]]  # fmt: skip
    assert [line and line[1] for line in lines] == ["0", "1", "2"]
    assert all(line and line[2] == line[3] == line[4] for line in lines)
    run(TOPICS, "--alter", "--topic", topic, "--partitions", "5")
    assert "PartitionCount: 5" in run(TOPICS, "--describe", "--topic", topic)
    assert "would not be an increase" in refused(TOPICS, "--alter", "--topic", topic, "--partitions", "2")
    assert run(TOPICS, "--describe", "--under-replicated-partitions") == ""
    assert run(TOPICS, "--describe", "--unavailable-partitions") == ""
    run(TOPICS, "--delete", "--topic", topic)
    assert topic not in run(TOPICS, "--list").split()


def test_kafka_configs(run: Callable[..., str], refused: Callable[..., str], fresh: Callable[[str], str]) -> None:
    topic = fresh("tools")
    run(TOPICS, "--create", "--topic", topic)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    run(CONFIGS, *entity, "--alter", "--add-config", "segment.bytes=2097152,cleanup.policy=[compact,delete]")
    said = run(CONFIGS, *entity, "--describe")
    assert said.startswith(f"Dynamic configs for topic {topic} are:\n")
    assert "segment.bytes=2097152 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.bytes=2097152, " in said
    assert "cleanup.policy=compact,delete" in said
    run(CONFIGS, *entity, "--alter", "--delete-config", "segment.bytes")
    assert "segment.bytes" not in run(CONFIGS, *entity, "--describe")
    everything = run(CONFIGS, *entity, "--describe", "--all")
    assert "DEFAULT_CONFIG:log.segment.bytes=1073741824" in everything
    assert "InvalidConfigurationException" in refused(CONFIGS, *entity, "--alter", "--add-config", "segment.ms=often")
    assert "InvalidConfigurationException" in refused(CONFIGS, *entity, "--alter", "--add-config", "no.such=1")


def test_kafka_configs_of_brokers(run: Callable[..., str], refused: Callable[..., str]) -> None:
    whole = ("--entity-type", "brokers", "--entity-default")
    run(CONFIGS, *whole, "--alter", "--add-config", "log.retention.ms=86400001")
    assert "log.retention.ms=86400001" in run(CONFIGS, *whole, "--describe")
    run(CONFIGS, *whole, "--alter", "--delete-config", "log.retention.ms")
    assert "log.retention.ms" not in run(CONFIGS, *whole, "--describe")
    assert "InvalidRequestException" in refused(CONFIGS, *whole, "--alter", "--add-config", "log.dirs=/nowhere")


def test_console_producer_and_consumer(run: Callable[..., str], fresh: Callable[[str], str]) -> None:
    topic = fresh("tools")
    run(TOPICS, "--create", "--topic", topic)
    lines = "h1:a,h2:b|k1|first\nh0:|k2|second\nh3:c|NULL|NULL\n"
    options = ("parse.headers=true", "parse.key=true", "headers.delimiter=|", "key.separator=|", "null.marker=NULL")
    words = [word for option in options for word in ("--reader-property", option)]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        run(PRODUCER, "--topic", topic, *words, "--compression-codec", codec, stdin=lines)
    shown = ("print.key=true", "print.headers=true", "print.offset=true", "print.partition=true")
    words = [word for option in shown for word in ("--formatter-property", option)]
    place = ("--topic", topic, "--partition", "0", "--max-messages")
    said = run(CONSUMER, *place, "15", "--offset", "earliest", *words).splitlines()
    assert said[:3] == [
        "Partition:0\tOffset:0\th1:a,h2:b\tk1\tfirst",
        "Partition:0\tOffset:1\th0:\tk2\tsecond",
        "Partition:0\tOffset:2\th3:c\tnull\tnull",
    ]
    assert [line.split("\t")[2:] for line in said[3:]] == [line.split("\t")[2:] for line in said[:3]] * 4
    assert run(CONSUMER, *place, "1", "--offset", "13") == "second\n"


def test_kafka_get_offsets(run: Callable[..., str], fresh: Callable[[str], str], broker: Broker) -> None:
    topic = fresh("tools")
    run(TOPICS, "--create", "--topic", topic, "--partitions", "2")
    with Raw(broker.port) as raw:
        for n in range(4):
            produce(raw, topic, batch([b"x"], timestamp=1_750_000_000_000 + (n == 2) * 1000 + n))
    for moment, first in (("-1", 4), ("latest", 4), ("-2", 0), ("earliest", 0), ("-3", 2), ("max-timestamp", 2),
                          ("earliest-local", 0), ("1750000000001", 1)):  # fmt: skip
        said = run(OFFSETS, "--topic", topic, "--time", moment).split()
        assert f"{topic}:0:{first}" in said, f"{moment}: {said}"
    assert run(OFFSETS, "--topic-partitions", f"{topic}:1") == f"{topic}:1:0\n"


def test_kafka_delete_records(
    run: Callable[..., str], fresh: Callable[[str], str], broker: Broker, tmp_path: Path
) -> None:
    topic = fresh("tools")
    run(TOPICS, "--create", "--topic", topic)
    with Raw(broker.port) as raw:
        produce(raw, topic, batch([b"x"] * 10))
    wanted = {"partitions": [{"topic": topic, "partition": 0, "offset": 7}], "version": 1}
    (tmp_path / "delete.json").write_text(json.dumps(wanted))
    said = run("org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", str(tmp_path / "delete.json"))
    assert f"partition: {topic}-0\tlow_watermark: 7" in said
    assert run(OFFSETS, "--topic", topic, "--time", "earliest") == f"{topic}:0:7\n"


def test_kafka_log_dirs(run: Callable[..., str], fresh: Callable[[str], str], broker: Broker) -> None:
    topic = fresh("tools")
    run(TOPICS, "--create", "--topic", topic)
    data = batch([b"x" * 100])
    with Raw(broker.port) as raw:
        produce(raw, topic, data)
    said = run("org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", topic)
    (found,) = json.loads(said.splitlines()[-1])["brokers"]
    (place,) = found["logDirs"]
    assert place["logDir"] == str(broker.log_dir)
    assert place["error"] is None
    assert place["partitions"] == [{"partition": f"{topic}-0", "size": len(data), "offsetLag": 0, "isFuture": False}]


def test_kafka_producer_perf_test(broker: Broker, run: Callable[..., str], fresh: Callable[[str], str]) -> None:
    topic = fresh("tools")
    run(TOPICS, "--create", "--topic", topic, "--partitions", "3")
    size = ("--num-records", "5000", "--record-size", "200", "--throughput", "-1")
    properties = (f"bootstrap.servers={broker.bootstrap}", "acks=all", "compression.type=lz4")
    words = ("--topic", topic, *size, "--command-property", *properties)
    said = judge.tool("org.apache.kafka.tools.ProducerPerformance", *words).out
    assert said.splitlines()[-1].startswith("5000 records sent, ")
    ends = [int(line.rsplit(":", 1)[1]) for line in run(OFFSETS, "--topic", topic).split()]
    assert sum(ends) == 5000
    assert len(ends) == 3


def test_kafka_broker_api_versions(run: Callable[..., str], pytestconfig: pytest.Config) -> None:
    said = run("org.apache.kafka.tools.BrokerApiVersionsCommand")
    offered = {
        name: (int(low), int(high)) for name, low, high in re.findall(r"\t(\w+)\(\d+\): (\d+) to (\d+) \[usable", said)
    }
    single = {name: (int(only), int(only)) for name, only in re.findall(r"\t(\w+)\(\d+\): (\d+) \[usable", said)}
    offered |= single
    newest = {"Produce": 13, "Fetch": 18, "ListOffsets": 11, "Metadata": 13, "CreateTopics": 7, "DescribeConfigs": 4}
    for name, high in newest.items():
        assert offered[name][1] == high, f"{name}: {offered[name]}"
        if not pytestconfig.getoption("judge"):
            assert offered[name][0] == 0, f"{name} from the first version on"


def test_describe_producers_and_cluster_id(
    run: Callable[..., str], fresh: Callable[[str], str], broker: Broker
) -> None:
    topic = fresh("tools")
    with Raw(broker.port) as raw:
        assert create_topic(raw, topic) == 0
        producer, epoch = init_producer(raw)
        produce(raw, topic, batch([b"x"] * 3, producer_id=producer, epoch=epoch, sequence=0))
    place = ("describe-producers", "--topic", topic, "--partition", "0")
    said = run("org.apache.kafka.tools.TransactionsCommand", *place).splitlines()
    row = dict(zip(said[0].split(), said[1].split(), strict=False))
    assert (row["ProducerId"], row["ProducerEpoch"], row["LastSequence"]) == (str(producer), str(epoch), "2")
    shown = judge.tool("org.apache.kafka.tools.ClusterTool", "cluster-id", "--bootstrap-server", broker.bootstrap).out
    assert re.fullmatch(r"Cluster ID: \S{22}\n", shown)
