"""`ottla serve` as a user sees it: a process, its output, its signals and its exit codes."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from ottla.records import native

TIMEOUT_S = 60


class Serve:
    """One `ottla serve`, which ends with the test at the latest."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ottla", "serve", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    def block(self) -> str:
        """The lines that it prints when it is ready, up to the first empty line after the last fact."""
        assert self.process.stdout
        lines: list[str] = []
        while not (len(lines) > 2 and not lines[-1].strip()):
            line = self.process.stdout.readline()
            assert line, f"no block: {lines} {self.end()}"
            lines.append(line)
        return "".join(lines)

    def address(self) -> str:
        found = re.search(r"address +(\S+)", self.block())
        assert found
        return found[1]

    def end(self) -> tuple[int, str]:
        _, err = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, err

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        return self.end()

    def __enter__(self) -> "Serve":
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def produce(address: str, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": address})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0


def consume(address: str, topic: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[str] = []
    while len(values) < count:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        values.append((message.value() or b"").decode())
    consumer.close()
    return values


def options(address: str, node: int) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": address})
    wanted = ConfigResource(ResourceType.BROKER, str(node))
    entries = admin.describe_configs([wanted])[wanted].result(TIMEOUT_S)
    return {name: entry.value for name, entry in entries.items()}


def beginning_with(code: str, folder: Path) -> str:
    """A PYTHONPATH that makes every Python process run this code first."""
    (folder / "sitecustomize.py").write_text(code)
    return os.pathsep.join([str(folder), *sys.path])


def test_it_says_once_that_the_native_part_is_missing_and_what_to_do(tmp_path: Path) -> None:
    path = beginning_with("import sys\nsys.modules['ottla._native'] = None\n", tmp_path)
    with Serve("--memory", "--port", "0", PYTHONPATH=path) as serve:
        serve.block()
        _, log = serve.stop()
    (line,) = [line for line in log.splitlines() if "native" in line]
    assert "WARNING" in line
    assert "pip install" in line


def test_it_runs_without_what_only_linux_has(tmp_path: Path) -> None:
    code = "import errno, os, socket\ndel errno.EUCLEAN, os.fdatasync, os.posix_fallocate, socket.MSG_MORE\n"
    path, large = beginning_with(code, tmp_path), "x" * 100_000
    for values in (["a", large], ["a", large, "a", large]):  # the second time from existing files
        with Serve("--data", str(tmp_path / "data"), "--port", "0", PYTHONPATH=path) as serve:
            address = serve.address()
            produce(address, "t", "a", large)
            assert consume(address, "t", len(values)) == values
            code_at_end, log = serve.stop()
        assert (code_at_end, "Traceback" in log) == (0, False), log


def test_it_says_what_a_user_needs_to_know(tmp_path: Path) -> None:
    with Serve("--data", str(tmp_path), "--port", "0") as serve:
        block = serve.block()
        assert block.startswith("Ottla 0.1.0 is ready.\n")
        address = re.search(r"address +(localhost:\d+)\n", block)
        assert address
        assert f"data      {tmp_path}\n" in block
        assert re.search(r"node +\d+ of cluster \S{22}\n", block)
        assert f"ottla produce greetings hello --bootstrap {address[1]}\n" in block
        produce(address[1], "t", "a")
        code, log = serve.stop()
    assert code == 0
    assert "INFO    serve: ready" in log
    assert "signal=SIGTERM" in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_when_asked_and_has_kept_the_data(tmp_path: Path, number: signal.Signals) -> None:
    for run in range(2):
        with Serve("--data", str(tmp_path), "--port", "0") as serve:
            address = serve.address()
            produce(address, "t", f"run {run}")
            assert consume(address, "t", run + 1) == [f"run {past}" for past in range(run + 1)]
            assert serve.stop(number)[0] == 0


def test_in_memory_nothing_is_kept() -> None:
    with Serve("--memory", "--port", "0", "--host", "127.0.0.1", "--ready-fd", "1") as serve:
        block = serve.block()
        assert "in memory, nothing is kept" in block
        assert serve.process.stdout
        facts = json.loads(serve.process.stdout.readline())
        folder = Path(options(facts["bootstrap"], facts["node_id"])["log.dirs"])
        assert folder.is_dir()
        assert serve.stop()[0] == 0
        assert not folder.exists()


def test_the_default_folder_is_the_one_documented(tmp_path: Path) -> None:
    with Serve("--port", "0", XDG_DATA_HOME=str(tmp_path)) as serve:
        assert f"data      {tmp_path / 'ottla'}\n" in serve.block()
        assert serve.stop()[0] == 0
    with Serve("--port", "0", XDG_DATA_HOME=str(tmp_path), OTTLA_DATA=str(tmp_path / "mine")) as serve:
        assert f"data      {tmp_path / 'mine'}\n" in serve.block()


def test_the_later_source_of_an_option_wins(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.retention.ms=70000\nlog.segment.bytes=100000\nlisteners=PLAINTEXT://:0\n")
    with Serve(
        "--config", str(file), "--data", str(tmp_path / "data"), "--set", "num.partitions=4", "--node-id", "7",
        "--port", "0", OTTLA_NUM_PARTITIONS="3", OTTLA_LOG_RETENTION_MS="80000",
    ) as serve:  # fmt: skip
        found = options(serve.address(), 7)
    assert found["num.partitions"] == "4"
    assert found["log.retention.ms"] == "80000"
    assert found["log.segment.bytes"] == "100000"
    assert found["node.id"] == "7"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "no.such.option=1"], "no.such.option"),
        (["--set", "num.partitions=many"], "num.partitions"),
        (["--set", "num.partitions"], "name=value"),
        (["--config", "missing.properties"], "missing.properties: No such file"),
        (["--memory", "--data", "x"], "choose one"),
        (["--port", "70000"], "0 to 65535"),
        (["--port", "ninety"], "invalid int value"),
        (["--colour", "red"], "unrecognized arguments: --colour red"),
        (["--log-format", "xml"], "invalid choice"),
        (["server.properties"], "use --config server.properties"),
        (["--override", "num.partitions=2"], "use --set NAME=VALUE"),
    ],
)
def test_what_cannot_be_is_refused_by_name(arguments: list[str], said: str) -> None:
    with Serve("--port", "0", "--memory", *arguments) as serve:
        code, err = serve.end()
    assert code == 2
    assert said in err.splitlines()[-1]
    assert "Traceback" not in err


def test_a_service_manager_hears_that_it_is_ready_and_that_it_stops(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(TIMEOUT_S)
        arguments = ("--memory", "--port", "0", "--set", "advertised.listeners=PLAINTEXT://kafka.example:9092")
        with Serve(*arguments, NOTIFY_SOCKET=str(tmp_path / "notify")) as serve:
            assert "clients   are sent to kafka.example:9092 (advertised.listeners)" in serve.block()
            assert manager.recv(1000).startswith(b"READY=1\nSTATUS=node 1 of cluster ")
            assert serve.stop()[0] == 0
            assert manager.recv(1000) == b"STOPPING=1"


@contextmanager
def hangups(disposition: signal.Handlers) -> Iterator[None]:
    """Set the SIGHUP disposition that child processes inherit; these tests may themselves run under `nohup`."""
    before = signal.signal(signal.SIGHUP, disposition)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_terminal_that_is_closed_stops_it_in_good_order(tmp_path: Path) -> None:
    with hangups(signal.SIG_DFL):
        serve = Serve("--data", str(tmp_path), "--port", "0")
    with serve:
        serve.block()
        code, log = serve.stop(signal.SIGHUP)
    assert code == 0
    assert "signal=SIGHUP" in log
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_hangup_that_was_ignored_before_still_is() -> None:
    with hangups(signal.SIG_IGN):  # as `nohup` does
        serve = Serve("--memory", "--port", "0")
    with serve:
        address = serve.address()
        serve.process.send_signal(signal.SIGHUP)
        produce(address, "t", "still here")
        assert "signal=SIGTERM" in serve.stop()[1]


def test_all_that_is_wrong_is_said_in_one_run(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "num.partitions=many\nlog.segment.byts=1\nlisteners=PLAINTEXT://:9092\nadvertised.listeners=OTHER://a:1\n"
        "log.roll.ms=0\nlog.retention.ms=0\nnum.io.threads=x\n"
    )
    wrong = ("--config", str(file), "--set", "oops", "--memory", "--data", str(tmp_path / "new"), "--port", "70000")
    with Serve("--check", *wrong) as serve:
        code, err = serve.end()
    assert code == 2
    lines = err.splitlines()
    assert all(line.startswith("ottla serve: ") for line in lines)
    for said in (
        "--set expects name=value",
        "0 to 65535",
        "choose one",
        "num.partitions",
        "did you mean log.segment.bytes?",
        "advertised.listeners",
        "log.roll.ms",
        "log.retention.ms",
        "num.io.threads",
    ):
        assert sum(said in line for line in lines) == 1, (said, err)
    assert not (tmp_path / "new").exists()


def test_a_check_starts_nothing(tmp_path: Path, taken: int) -> None:
    arguments = ("--data", str(tmp_path / "new"), "--port", str(taken), "--set", "num.io.threads=9")
    with Serve("--check", *arguments) as serve:
        assert serve.process.stdout
        said = serve.process.stdout.read()
        assert serve.end()[0] == 0
    assert "num.io.threads" in said, "it has no effect"
    assert f"the options are fine: PLAINTEXT://:{taken}, data in {tmp_path / 'new'}" in said
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("more", [["--check"], []])
def test_a_keystore_that_is_missing_is_one_line(tmp_path: Path, more: list[str]) -> None:
    missing = tmp_path / "broker.pem"
    options = ("--set", "listeners=SSL://127.0.0.1:0", "--set", f"ssl.keystore.location={missing}")
    with Serve("--memory", *options, "--set", "inter.broker.listener.name=SSL", *more) as serve:
        code, err = serve.end()
    assert code == 2
    assert err.splitlines()[-1] == f"ottla serve: ssl.keystore.location: {missing}: No such file or directory"
    assert "Traceback" not in err


def test_a_check_reads_the_login_between_brokers(tmp_path: Path) -> None:
    listener = ("--set", "listeners=SASL_PLAINTEXT://127.0.0.1:0", "--set", "sasl.enabled.mechanisms=SCRAM-SHA-512")
    between = ("--set", "inter.broker.listener.name=SASL_PLAINTEXT", "--zookeeper", "127.0.0.1:1")
    with Serve("--check", "--data", str(tmp_path), *listener, *between) as serve:
        code, err = serve.end()
    assert code == 2
    assert "sasl.mechanism.inter.broker.protocol: GSSAPI is not in sasl.enabled.mechanisms" in err


def test_no_zookeeper_is_one_line_that_says_what_needs_it(tmp_path: Path) -> None:
    patience = ("--set", "zookeeper.connection.timeout.ms=100")
    with Serve("--port", "0", "--data", str(tmp_path), "--zookeeper", "127.0.0.1:1", *patience) as serve:
        code, err = serve.end()
    assert code == 1
    assert "connecting to ZooKeeper servers=127.0.0.1:1" in err
    last = err.splitlines()[-1]
    assert last.startswith("ottla serve: no ZooKeeper answers at 127.0.0.1:1; without zookeeper.connect, ")


def test_a_host_without_address_is_one_line() -> None:
    with Serve("--memory", "--host", "no.such.host.invalid", "--port", "0") as serve:
        code, err = serve.end()
    assert code == 1
    assert "PLAINTEXT://no.such.host.invalid:0: " in err.splitlines()[-1]
    assert "choose another address with --host" in err.splitlines()[-1]


def test_a_bad_option_leaves_no_folder(tmp_path: Path) -> None:
    with Serve("--data", str(tmp_path / "new"), "--set", "no.such.option=1") as serve:
        assert serve.end()[0] == 2
    assert not (tmp_path / "new").exists()


def test_a_port_in_use_is_one_line(tmp_path: Path, taken: int) -> None:
    with Serve("--data", str(tmp_path), "--host", "127.0.0.1", "--port", str(taken)) as serve:
        code, err = serve.end()
    assert code == 1
    (line,) = [line for line in err.splitlines() if native.MISSING not in line]
    assert f"127.0.0.1:{taken}: the port is in use by another program" in line


def test_a_folder_in_use_is_one_line_and_the_first_broker_goes_on(tmp_path: Path) -> None:
    with Serve("--data", str(tmp_path), "--port", "0") as first:
        address = first.address()
        with Serve("--data", str(tmp_path), "--port", "0") as second:
            code, err = second.end()
        assert code == 1
        assert err == f"ottla serve: the folder {tmp_path} is in use by another broker\n"
        produce(address, "t", "still here")


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with Serve("--data", str(tmp_path / "file" / "data"), "--port", "0") as serve:
        code, err = serve.end()
    assert code == 1
    assert err.count("\n") == 1
    assert f"the data folder {tmp_path / 'file'}" in err
    assert "choose another with --data" in err


def test_a_folder_of_another_node_is_one_line(tmp_path: Path) -> None:
    for node, expected in ((3, 0), (4, 1)):
        with Serve("--data", str(tmp_path), "--port", "0", "--node-id", str(node)) as serve:
            if expected == 0:
                serve.block()
                assert serve.stop()[0] == 0
            else:
                code, err = serve.end()
                assert code == 1
                assert "node 3, not 4" in err.splitlines()[-1]


def test_a_start_that_fails_does_not_pretend_that_the_log_was_closed_well(tmp_path: Path, taken: int) -> None:
    with Serve("--data", str(tmp_path), "--port", "0") as serve:
        produce(serve.address(), "t", "a")
        serve.process.kill()
        serve.end()
    with Serve("--data", str(tmp_path), "--host", "127.0.0.1", "--port", str(taken)) as serve:
        assert serve.end()[0] == 1
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    with Serve("--data", str(tmp_path), "--port", "0") as serve:
        assert consume(serve.address(), "t", 1) == ["a"]


def test_log_lines_can_be_json() -> None:
    with Serve("--memory", "--port", "0", "--log-format", "json") as serve:
        serve.block()
        _, err = serve.stop()
    events = [json.loads(line) for line in err.splitlines()]
    assert any(event["message"] == "ready" and event["source"] == "serve" for event in events)


def test_readiness_goes_to_a_descriptor() -> None:
    readable, writable = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-m", "ottla", "serve", "--memory", "--port", "0", "--ready-fd", str(writable), "--until-eof"],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=[writable],
    ) as process:  # fmt: skip
        os.close(writable)
        with open(readable) as ready:
            facts = json.loads(ready.readline())
            assert ready.readline() == "", "closed after one line"
        produce(facts["bootstrap"], "t", "a")
        assert process.stdin
        process.stdin.close()
        assert process.wait(TIMEOUT_S) == 0, "stopped when its input ended"


def test_a_node_that_ran_alone_does_not_join_by_accident(tmp_path: Path) -> None:
    with Serve("--port", "0", "--data", str(tmp_path)) as alone:
        alone.block()
        assert alone.stop()[0] == 0
    with Serve("--port", "0", "--data", str(tmp_path), "--zookeeper", "127.0.0.1:1") as member:
        code, err = member.end()
    assert code == 2
    assert f"ottla cluster join --data {tmp_path} --zookeeper 127.0.0.1:1" in err


def test_one_zookeeper_is_enough(tmp_path: Path) -> None:
    twice = ("--zookeeper", "127.0.0.1:1", "--set", "zookeeper.connect=127.0.0.1:2")
    with Serve("--data", str(tmp_path), *twice) as serve:
        code, err = serve.end()
    assert code == 2
    assert "choose one" in err
