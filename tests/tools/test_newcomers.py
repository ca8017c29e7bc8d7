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

from ottla import __version__
from ottla.embed import BrokerProcess, BrokerThread
from ottla.pytest_plugin import Namespace
from ottla.tools.serve_completion import ServeCommand
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
