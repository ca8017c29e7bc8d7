"""What somebody types who comes from another tool, and what goes wrong in the first hour.

Most commands run in this process: what a process of its own adds is tested beside each command.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException

from ottla import __version__
from ottla.embed import BrokerProcess, BrokerThread
from ottla.pytest_plugin import Namespace
from ottla.tools.serve_completion import ServeCommand
from ottla.tools.session import explain
from ottla.tools.start import tools

Run = Callable[..., Any]


class Result(NamedTuple):
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def call(ottla_broker: BrokerProcess | BrokerThread, capfd: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """`call("topics", "list")` must succeed; `call(..., code=1)` must fail so."""

    def run_here(*arguments: str, code: int = 0) -> Result:
        capfd.readouterr()
        found = tools([*arguments, "--bootstrap", ottla_broker.bootstrap])
        said = Result(*capfd.readouterr())
        assert found == code, said
        return said

    return run_here


def test_options_of_other_tools_get_a_hint(call: Run) -> None:
    for option, hint in (("--from-beginning", "--from"), ("-o", "--from"), ("--bootstrap-server=x", "--bootstrap")):
        failed = call("consume", "t", option, code=2)
        name = option.partition("=")[0]
        assert [line for line in failed.err.splitlines() if line.startswith(f"ottla: {name}: ") and hint in line]


def test_a_hint_is_for_the_command_that_was_called(call: Run) -> None:
    """A hint for an option that the command does have hid what was wrong."""
    for arguments, hint in (
        (("topics", "create", "--topic", "t"), "--topic: the topic is an argument: `ottla topics create TOPIC`"),
        (("topics", "create", "t", "-c", "retention.ms=1"), "-c: use --config"),
        (("consume", "t", "-c", "1"), "-c: use --max, or -n"),
        (("groups", "describe", "--group", "g"), "--group: the group is an argument: `ottla groups describe GROUP`"),
        (("topics", "--list"), "--list: it is a command: `ottla topics list`"),
    ):
        assert call(*arguments, code=2).err.splitlines()[-1] == f"ottla: {hint}"
    failed = call("groups", "reset", "g", "--topic", "t", code=2)
    assert "give exactly one target" in failed.err
    assert "ottla: --topic" not in failed.err


def test_properties_of_kafkas_console_tools_get_a_hint(call: Run) -> None:
    for command, name, hint in (("consume", "print.key", "--keys"), ("produce", "parse.key", "--key-separator")):
        failed = call(command, "t", "--property", f"{name}=true", code=1)
        assert failed.err == f"ottla: {name} is an option of Kafka's console tools: use {hint}\n"


def test_a_group_without_a_name_is_refused(call: Run) -> None:
    """An unset variable of a script: librdkafka ended the process with a failed assertion."""
    assert "cannot be empty" in call("consume", "t", "--group", "", code=2).err


def test_what_the_security_options_lack_is_named_as_it_was_given(call: Run, tmp_path: Path) -> None:
    missing = str(tmp_path / "ca.pem")
    failed = call("topics", "list", "-X", "security.protocol=SSL", "-X", f"ssl.ca.location={missing}", code=1)
    assert failed.err == f"ottla: ssl.ca.location: {missing}: No such file or directory\n"


def test_an_error_that_librdkafka_does_not_explain_is_explained() -> None:
    bare = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "FindCoordinator response error: ")
    assert explain(KafkaException(bare)) == "Broker: Group authorization failed (GROUP_AUTHORIZATION_FAILED)"


def test_the_version_is_in_the_help(capfd: pytest.CaptureFixture[str]) -> None:
    assert tools(["--help"]) == 0
    assert "--version" in capfd.readouterr().out
    assert tools(["--version"]) == 0
    assert capfd.readouterr().out == f"ottla {__version__}\n"


def test_a_shell_completes_the_options_of_serve(run: Run) -> None:
    completed = run(COMP_WORDS="ottla serve --mem", COMP_CWORD="2", _OTTLA_COMPLETE="complete_bash").out
    assert completed.split() == ["--memory"]
    choices = ServeCommand("serve").shell_complete(SimpleNamespace(args=["--log-format"]), "j")
    assert [item.value for item in choices] == ["json"]


def test_a_topic_that_does_not_exist_is_named(call: Run, ottla_namespace: Namespace) -> None:
    failed = call("consume", ottla_namespace.topic("nosuch"), code=1)
    assert f"topic {ottla_namespace.topic('nosuch')}: " in failed.err
    assert failed.err.count("\n") == 1


def test_an_offset_beyond_the_end_is_said(call: Run, ottla_namespace: Namespace) -> None:
    topic = ottla_namespace.topic()
    call("produce", topic, "one", "two")
    read = call("consume", topic, "--from", "7")
    assert read.out == ""
    assert "--from 7 is beyond the end of partition 0, which is 2" in read.err


def test_a_carriage_return_is_part_of_the_record(call: Run, ottla_namespace: Namespace, tmp_path: Path) -> None:
    topic = ottla_namespace.topic()
    (tmp_path / "records").write_bytes(b"a\r\nb\r\n\rc\n")
    call("produce", topic, "--file", str(tmp_path / "records"))
    assert call("consume", topic, "--format", "<{value}>").out == "<a\r><b\r><\rc>"


def test_records_are_deleted_up_to_an_offset(call: Run, ottla_namespace: Namespace) -> None:
    topic = ottla_namespace.topic()
    call("produce", topic, *"abcde")
    done = call("topics", "delete-records", topic, "--before", "2", "--json").document
    assert done == {"topic": topic, "partitions": [{"partition": 0, "deleted": 2, "start": 2}]}
    assert call("topics", "delete-records", topic, "--before", "-1", "--json").document["partitions"][0]["start"] == 4
    assert call("consume", topic).out == "e\n"
    assert "beyond the end" in call("topics", "delete-records", topic, "--before", "9", code=1).err
    call("topics", "delete-records", topic, "--before", "end")
    assert call("consume", topic).out == ""


def test_the_cluster_in_a_few_lines(call: Run, ottla_broker: BrokerProcess | BrokerThread) -> None:
    facts = call("cluster", "info", "--json").document
    assert facts["cluster"] == ottla_broker.cluster_id
    assert facts["brokers"] == [f"{ottla_broker.node_id} {ottla_broker.bootstrap}"]
    assert facts["under_replicated"] == 0
    assert ottla_broker.bootstrap in call("cluster", "info").out
    assert call("brokers").out == call("brokers", "list").out
    assert "put the options after `list`" in call("brokers", "--json", "list", code=2).err
    assert [one["broker"] for one in call("logdirs", "--json").document] == [ottla_broker.node_id]


def test_a_reader_that_leaves_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "replication-offset-checkpoint").write_text(
        "0\n20000\n" + "".join(f"t {index} 0\n" for index in range(20000))
    )
    readable, writable = os.pipe()
    command = [sys.executable, "-m", "ottla", "dump", str(tmp_path)]
    with subprocess.Popen(command, stdout=writable, stderr=subprocess.PIPE) as process:
        os.close(writable)
        assert os.read(readable, 10)
        os.close(readable)
        _, err = process.communicate(timeout=180)
    assert (process.returncode, err) == (0, b"")
