"""A command in a process of its own (see `commands`), against a real broker: what a user types, and what comes back."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import commands
import pytest

from ottla.embed import BrokerProcess, BrokerThread


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Run = Callable[..., Result]


@pytest.fixture
def run(ottla_broker: BrokerProcess | BrokerThread) -> Run:
    """`run("topics", "list")` must succeed; `run(..., code=1)` must fail so."""

    def call(*arguments: str, code: int = 0, text: str | bytes = b"", **environment: str) -> Result:
        done = commands.run(
            arguments,
            stdin=text.encode() if isinstance(text, str) else text,
            environment={"OTTLA_BOOTSTRAP": ottla_broker.bootstrap, "NO_COLOR": "1", **environment},
        )
        result = Result(done.returncode, done.stdout.decode(errors="surrogateescape"), done.stderr.decode())
        assert result.code == code, (result, getattr(ottla_broker, "log", ""))
        return result

    return call
