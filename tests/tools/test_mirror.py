"""`ottla mirror` between two real brokers: alone, without Spark in reach."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from compat.clients import Record
from compat.confluent import Confluent
from confluent_kafka import Consumer, TopicPartition
from process import Ottla
from spark import copies, filling
from waiting import wait_until

from ottla.client.cluster import Cluster
from ottla.spark.runner import running
from ottla.tools import start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ottla.embed import BrokerProcess
    from ottla.pytest_plugin import Namespace
    from ottla.spark.runner import Run as PipelineRun

    Run = Callable[..., Any]

WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = sys.modules["py4j"] = None
from ottla.__main__ import main
main()
"""


@pytest.fixture(scope="module")
def east(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ottla]:
    with Ottla(tmp_path_factory.mktemp("east")) as running:
        yield running


@pytest.fixture
def topic(ottla_broker: BrokerProcess, ottla_namespace: Namespace) -> str:
    name = ottla_namespace.topic("orders")
    filling.transactional(ottla_broker, name)  # offsets at the target differ from those at the source
    return name


def mirror(broker: BrokerProcess, target: Ottla, *arguments: str) -> list[str]:
    command = [sys.executable, "-c", WITHOUT_SPARK, "mirror", "--from", broker.bootstrap, "--to", target.bootstrap]
    return [*command, *arguments]


def stored(broker: Any, group: str, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition(topic, index) for index in range(filling.PARTITIONS)], timeout=60)
    consumer.close()
    return {one.partition: one.offset for one in found if one.offset >= 0}


def test_topics_and_groups_are_copied_once_without_spark(
    run: Run, ottla_broker: BrokerProcess, east: Ottla, topic: str
) -> None:
    held = copies.placed(ottla_broker, topic)
    group = f"{topic}-readers"
    consumer = Consumer({"bootstrap.servers": ottla_broker.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, held[0][5][0])], asynchronous=False)
    consumer.close()
    chosen = ("--topics", topic, "--groups", f"{topic}-.*", "--name", topic, "--prefix", "west.", "--once")
    done = subprocess.run(
        mirror(ottla_broker, east, *chosen, "--json"), capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    records = sum(map(len, held.values()))
    assert json.loads(done.stdout) == {"topics": 1, "records": records, "groups": 1, "behind": 0}
    twin = f"west.{topic}"
    assert copies.content(east, twin) == copies.content(ottla_broker, topic)
    offset = stored(east, group, twin)[0]
    assert copies.placed(east, twin)[0][5][0] == offset, "the group goes on at the sixth record"
    where = ("--from", ottla_broker.bootstrap, "--to", east.bootstrap)
    assert run("mirror", *where, *chosen).out.startswith("0 records of 1 topics copied to ")


def test_what_arrives_meanwhile_is_copied_until_it_is_stopped(
    ottla_broker: BrokerProcess, east: Ottla, topic: str
) -> None:
    command = mirror(ottla_broker, east, "--topics", topic, "--name", topic, "--groups", "")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        with Cluster(east.bootstrap) as client:
            wait_until(lambda: topic in client.topics(), process.poll)
        Confluent(ottla_broker.bootstrap).produce(topic, [Record(filling.NOW_MS, None, b"later")])
        wait_until(lambda: copies.content(east, topic) == copies.content(ottla_broker, topic))
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, err
    assert "records of 1 topics copied to" in out


def test_spark_gets_the_same_options(
    ottla_broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """That it goes on where one process stopped is shown in tests/spark/pipelines/test_mirror.py."""
    runs: list[PipelineRun] = []
    monkeypatch.setattr(running, "run_in_folder", lambda run, given: runs.append(run) or 0)
    monkeypatch.setenv("OTTLA_PIPELINES", str(tmp_path))
    file = tmp_path / "source.properties"
    file.write_text("security.protocol=PLAINTEXT\nsasl.password=secret\nacks=all\n")
    where = ["mirror", "--spark", "--from", ottla_broker.bootstrap, "--to", "east:9092", "--from-properties", str(file)]
    assert start.tools([*where, "--topics", "a,b.*", "--groups", "", "--append", "--skip-lost", "--once"]) == 0
    (run,) = runs
    assert (run.bootstrap, run.once, run["to"], run["topics"]) == (ottla_broker.bootstrap, True, "east:9092", "a,b.*")
    assert (run["groups"], run["existing"], run.flag("failOnDataLoss")) == ("", "append", False)
    assert run.properties == {"security.protocol": "PLAINTEXT", "sasl.password": "secret"}
    assert "can see" not in capsys.readouterr().err, "a file is not a command line"


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--topics", "nowhere"], 1, "topic nowhere does not exist at the source"),
        (["--topics", "a(", "--once"], 1, "a( is neither a name nor a regular expression"),
        (["--groups", "(", "--once"], 1, "groups=( is not a regular expression"),
        (["--to", "127.0.0.1:1"], 1, "nothing answers at 127.0.0.1:1 (Connection refused; see --to)"),
        (["--to", "{source}", "--once"], 1, "source and target are the same cluster"),
        (["--from-properties", "/nowhere.properties"], 1, "/nowhere.properties cannot be read"),
        (["--json", "--spark"], 2, "--json cannot be combined with --spark"),
        (["--replicas", "many"], 2, "--replicas"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(
    capsys: pytest.CaptureFixture[str],
    ottla_broker: BrokerProcess,
    east: Ottla,
    arguments: list[str],
    code: int,
    sentence: str,
) -> None:
    given = [word.format(source=ottla_broker.bootstrap) for word in arguments]
    to = [] if "--to" in given else ["--to", east.bootstrap]
    assert start.tools(["mirror", "--from", ottla_broker.bootstrap, *to, *given]) == code
    assert sentence in capsys.readouterr().err
