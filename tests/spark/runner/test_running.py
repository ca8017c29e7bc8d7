"""Pipelines as processes: seen and stopped from outside, killed, resumed, refused; on a cluster and by spark-submit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as parquet
import pyspark
import pytest
from confluent_kafka import Producer
from judge import free_ports, stop_process, until
from spark import jvm
from spark.launching import OTTLA, START_S, Launched, command, finished, small_flags
from spark.topics import committed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from process import Ottla

pytestmark = pytest.mark.timeout(1200)

SPARK = Path(pyspark.__file__).parent
COPY = '''
"""Numbers of a topic to files; -1 is none."""
from pyspark.sql import functions as F
from ottla.client.failure import Failed
from ottla.spark.runner.generating import Record
from ottla.spark.runner import Option, Pipeline, Run, main

def number(text):
    if text == "-1":
        raise Failed("-1 is no number: leave it out")
    return int(text)

def run(run):
    numbers = F.udf(number, "long")(F.col("value").cast("string"))
    rows = run.stream(run["topic"], group="copy").select(numbers.alias("n"))
    run.to_files(rows, run.folder / "tables", name="copy-files")

def generate(run):
    run.ensure_topic(run["topic"])
    run.send(Record(run["topic"], None, str(number)) for number in range(10**9))

PIPELINE = Pipeline("copy", "Numbers of a topic to files.", run, (Option("topic", None, "To read."),), generate)
if __name__ == "__main__":
    main(PIPELINE)
'''


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    path = tmp_path / "digits.py"
    path.write_text(COPY)
    return path


def test_a_run_is_seen_stopped_fed_killed_and_resumed(
    copy: Path, tmp_path: Path, ottla: Ottla, fresh: Callable[[str], str]
) -> None:
    topic, folder = fresh("copy"), tmp_path / "run"
    produce(ottla.bootstrap, topic, range(100))
    by_name = [*OTTLA, "pipeline", "run", str(copy), "--option", f"topic={topic}"]
    of_it = ("--folder", str(folder))

    with Launched(by_name, folder=folder, bootstrap=ottla.bootstrap) as running:
        running.until_rows("copy-files", 100)
        seen = status(*of_it)
        assert (seen["name"], seen["state"], seen["pid"]) == ("copy", "running", running.process.pid)
        assert [(one["query"], one["rows"], one["lag"]) for one in seen["progress"]] == [("copy-files", 100, 0)]
        refused = finished(by_name, folder=folder, bootstrap=ottla.bootstrap, code=1)
        assert f"copy is already running in {folder} (process {running.process.pid}" in refused
        assert command("pipeline", "stop", "copy", *of_it).stdout == "copy stopped\n"
        assert running.wait() == 0
    assert status(*of_it)["state"] == "stopped"
    assert "is not running: stopped since" in command("pipeline", "stop", "copy", *of_it).stderr

    made = command(*by_name[len(OTTLA) :], "-b", ottla.bootstrap, "--generate-only", "--count", "70")
    assert made.stderr == ""
    with Launched([*by_name, "--generate", "--rate", "200"], folder=folder, bootstrap=ottla.bootstrap) as running:
        running.until_rows("copy-files", 170)
        running.kill()
    assert status(*of_it)["state"] in ("killed", "running"), "running: as long as Java has not noticed"

    produce(ottla.bootstrap, topic, range(200, 300))
    given = [int(message.value()) for message in committed(ottla.bootstrap, topic)]
    by_file = [sys.executable, str(copy), "--option", f"topic={topic}"]
    with Launched(by_file, folder=folder, bootstrap=ottla.bootstrap) as running:
        running.until(lambda _: len(written(folder)) >= len(given), "all rows")
        assert running.signal(signal.SIGINT) == 0, running.told()
        assert "copy stopped: " in running.told()
    assert status(*of_it)["state"] == "stopped"
    assert written(folder) == sorted(given), "what was produced and made up, each once"
    assert given[100:170] == list(range(70)), "made up before the run"
    assert given[170:240] == list(range(70)), "and the same again beside it"
    assert (folder / "spark.log").stat().st_size
    assert "WARN" not in running.told()


def test_a_query_that_fails_is_one_sentence_and_exit_1(
    copy: Path, tmp_path: Path, ottla: Ottla, fresh: Callable[[str], str]
) -> None:
    topic, folder = fresh("copy"), tmp_path / "run"
    produce(ottla.bootstrap, topic, [1, -1])
    by_name = [*OTTLA, "pipeline", "run", str(copy), "--once", "--option", f"topic={topic}"]
    said = finished(by_name, folder=folder, bootstrap=ottla.bootstrap, code=1).splitlines()
    assert said[-1] == (
        f"ottla: the query copy-files failed: -1 is no number: leave it out (more in {folder / 'spark.log'})"
    )
    assert not [line for line in said if "Traceback" in line or "\tat " in line], "no trace"
    seen = status("--folder", str(folder))
    assert (seen["state"], seen["reason"]) == ("failed", "the query copy-files failed: -1 is no number: leave it out")
    shown = command("pipeline", "status", "copy", "--folder", str(folder)).stdout
    assert "copy: the query copy-files failed: -1 is no number: leave it out" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--option", "topc=x"], 2, "copy has no option topc: did you mean topic?"),
        ([], 2, "copy needs --option topic=...: To read."),
        (["--option", "topic"], 2, "--option topic: expected name=value"),
        (["--option", "topic=x", "--bootstrap", "127.0.0.1:1"], 1, "nothing answers at 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_is_said_before_spark_starts(
    copy: Path, tmp_path: Path, arguments: list[str], code: int, sentence: str
) -> None:
    done = command("pipeline", "run", str(copy), "--folder", str(tmp_path / "run"), *arguments, code=code)
    assert done.stderr.startswith(f"ottla: {sentence}")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "run").exists()


ASKED = """
import signal, sys
from ottla.spark.runner.running import Signals
asked = []
with Signals(lambda: asked.append(1)):
    print("ready", flush=True)
    while not asked:
        signal.pause()
    print("asked", flush=True)
    while True:
        signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_does_not(number: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", ASKED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.stdout.readline() == "asked\n"
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "once more to stop at once" in said


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        (
            {"JAVA_HOME": "/nowhere"},
            "Spark needs Java 17, but there is none in $JAVA_HOME (/nowhere): install a JDK 17",
        ),
        ({"JAVA_HOME": "{old}"}, "Spark needs Java 17, but {old}/bin/java is Java 11: set JAVA_HOME to a JDK 17"),
    ],
)
def test_a_java_that_is_missing_or_old_is_said(
    copy: Path, tmp_path: Path, ottla: Ottla, environment: dict[str, str], sentence: str
) -> None:
    old = tmp_path / "old"
    (old / "bin").mkdir(parents=True)
    java = old / "bin" / "java"
    java.write_text('#!/bin/sh\necho \'openjdk version "11.0.2" 2019-01-15\' >&2\n[ "$1" = -version ]\n')
    java.chmod(0o755)
    done = subprocess.run(
        [sys.executable, str(copy), "-o", "topic=x", "-b", ottla.bootstrap, "--folder", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
        env={**os.environ, **{name: value.format(old=old) for name, value in environment.items()}},
    )
    assert done.returncode == 1
    assert sentence.format(old=old) in done.stderr.splitlines()[-1]
    assert status("--folder", str(tmp_path / "run"))["state"] == "failed"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """Spark's own standalone cluster, from the package: a master and two workers, on loopback."""
    port, page = free_ports(2)
    here = ["--host", "127.0.0.1"]
    started = []

    def start(name: str, *arguments: str) -> subprocess.Popen[bytes]:
        log = tmp_path / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name.partition('-')[0]}", *arguments],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env={
                    **os.environ,
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_DAEMON_JAVA_OPTS": " ".join(jvm.options()),
                    "SPARK_WORKER_DIR": str(tmp_path / name),
                },
            )
        started.append(process)
        return process

    def heard(name: str, word: str, process: subprocess.Popen[bytes]) -> None:
        log = tmp_path / f"{name}.log"
        until(lambda: word in log.read_text(), process, log, START_S)

    try:
        master = start("master.Master", *here, "--port", str(port), "--webui-port", str(page))
        heard("master.Master", "New state: ALIVE", master)
        url = f"spark://127.0.0.1:{port}"
        for name in ("worker.Worker-1", "worker.Worker-2"):
            process = start(name, *here, "--webui-port", "0", "--cores", "1", "--memory", "600m", url)
            heard(name, "Successfully registered with master", process)
        yield url
    finally:
        for process in reversed(started):
            stop_process(process)


def test_the_same_file_runs_on_a_cluster_and_by_spark_submit(
    copy: Path, tmp_path: Path, ottla: Ottla, fresh: Callable[[str], str], cluster: str
) -> None:
    topic, folder = fresh("copy"), tmp_path / "run"
    java = f"spark.executor.extraJavaOptions={' '.join(jvm.options())}"
    small = small_flags(cluster, java, "spark.executor.memory=512m", "spark.driver.host=127.0.0.1")
    produce(ottla.bootstrap, topic, range(100), partitions=2)
    by_name = [*OTTLA, "pipeline", "run", str(copy), "--once", "--option", f"topic={topic}"]
    finished(by_name, folder=folder, bootstrap=ottla.bootstrap, small=small)
    assert written(folder) == list(range(100))

    produce(ottla.bootstrap, topic, range(100, 200))
    submit = [str(SPARK / "bin" / "spark-submit"), *small, str(copy), "--once", "--option", f"topic={topic}"]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    finished(submit, folder=folder, bootstrap=ottla.bootstrap, small=())
    assert written(folder) == list(range(200))
    assert status("--folder", str(folder))["state"] == "done"
    assert (tmp_path / "master.Master.log").read_text().count("Registered app copy with ID") == 2, "both ran there"


def status(*arguments: str) -> dict[str, object]:
    (found,) = json.loads(command("pipeline", "status", *arguments, "--json").stdout)
    return found


def written(folder: Path) -> list[int]:
    """The committed output. A killed batch may leave files that belong to no commit."""
    tables = folder / "tables"
    logs = list((tables / "_spark_metadata").glob("[0-9]*"))
    files = {json.loads(line)["path"].rpartition("/")[2] for log in logs for line in log.read_text().splitlines()[1:]}
    numbers = [parquet.read_table(tables / name, columns=["n"])["n"].to_pylist() for name in files]
    return sorted(number for some in numbers for number in some)


def produce(bootstrap: str, topic: str, numbers: range | list[int], partitions: int = 1) -> None:
    from ottla.client.cluster import Cluster

    with Cluster(bootstrap) as cluster:
        if topic not in cluster.topics([topic]):
            cluster.create(topic, partitions)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in numbers:
        producer.produce(topic, str(number), str(number))
    assert producer.flush(30) == 0
