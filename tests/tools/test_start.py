import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer

from ottla.embed import BrokerProcess, BrokerThread
from ottla.tools.app import app

Run = Callable[..., Any]

WITHOUT = """
import sys
sys.modules[{library!r}] = None
sys.argv = ["ottla", "topics", "list"]
from ottla.__main__ import main
main()
"""

HEAVY = """
import ottla.broker, ottla.serve, sys
print([module for module in sys.modules if module in {"typer", "rich", "click", "confluent_kafka"}])
"""


@pytest.mark.parametrize("library", ["typer", "rich", "confluent_kafka"])
def test_without_the_extra_one_line_says_what_to_install(library: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(library=library)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install 'ottla[tools]'" in done.stderr


COMMANDS = ("serve", "topics", "configs", "groups", "transactions", "produce", "consume", "dump", "perf", "pipeline")


def test_help_lists_every_command(run: Run) -> None:
    shown = run("--help").out
    assert all(command in shown for command in COMMANDS)


def every_command(group: Any, *words: str) -> Iterator[tuple[str, ...]]:
    yield words
    for name, command in getattr(group, "commands", {}).items():
        yield from every_command(command, *words, name)


def test_every_command_has_help(run: Run) -> None:
    """Rich reads words in brackets as markup: a help text with `[/path]` ended in a traceback."""
    for words in every_command(typer.main.get_command(app)):
        shown = run(*words, "--help").out
        assert "Usage: ottla" in " ".join(shown.split()) or "usage: ottla" in shown, words


def test_no_cluster_is_one_line(run: Run) -> None:
    for address in ("127.0.0.1:1", "localhost:1,127.0.0.1:1", "no.such.host.invalid:9092", "127.0.0.1:port"):
        failed = run("topics", "list", "--bootstrap", address, code=1)
        assert failed.err.count("\n") == 1
        assert f"nothing answers at {address}" in failed.err


def test_one_address_that_answers_is_enough(run: Run, ottla_broker: BrokerProcess | BrokerThread) -> None:
    assert run("topics", "list", "--json", "--bootstrap", f"127.0.0.1:1,{ottla_broker.bootstrap}").code == 0


def test_an_unknown_client_option_is_one_line(run: Run) -> None:
    failed = run("topics", "list", "-X", "no.such=1", code=1)
    assert failed.err.count("\n") == 1
    assert "no.such" in failed.err


def test_serve_imports_nothing_that_only_tools_need() -> None:
    done = subprocess.run([sys.executable, "-c", HEAVY], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_version_is_said() -> None:
    import ottla

    done = subprocess.run([sys.executable, "-m", "ottla", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"ottla {ottla.__version__}\n"
