"""Load generators: programs that are started once and asked for one measured stretch after the other.

    java          Load.java, Apache Kafka's own client
    franz-go      tests/compat/go/load
    librdkafka    load_librdkafka.py

All three read the same lines: a command, then `key=value` words. They answer with one line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench.wire import BenchError
from tests import judge

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.brokers import Broker

HERE = Path(__file__).parent
GO = HERE.parent / "tests" / "compat" / "go"


def java_command() -> list[str]:
    path = f"{judge.compiled(HERE / 'Load.java', judge.classpath())}:{judge.classpath()}"
    return ["java", "-Xmx1G", "-XX:+UseParallelGC", *judge.logging_options(judge.NEWEST), "-cp", path, "Load"]


def franz_go_command() -> list[str]:
    from compat.families import digest

    def build(target: Path) -> None:
        judge.run(["go", "build", "-trimpath", "-o", target / "load", "./load"], "building the Go load", cwd=GO)

    name = f"go-load-{digest(GO, 'load/main.go', 'go.mod', 'go.sum')}"
    return [str(judge.cached(name, build) / "load")]


def librdkafka_command() -> list[str]:
    return [sys.executable, str(HERE / "load_librdkafka.py")]


COMMANDS: dict[str, Callable[[], list[str]]] = {
    "java": java_command,
    "franz-go": franz_go_command,
    "librdkafka": librdkafka_command,
}


class LoadProgram:
    """One running load generator: warm between rows and the same for both brokers."""

    def __init__(self, command: list[str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        self._read_line()

    def ask(self, line: str) -> dict[str, float | str]:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer: dict[str, float | str] = json.loads(self._read_line())
        return answer

    def _read_line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise BenchError(f"the load generator ended with status {self.process.wait()}")
        return line

    def close(self) -> None:
        judge.stop_process(self.process)  # type: ignore[arg-type]  # it talks text, which does not matter for ending it


class Client:
    """The load generators of a run; each is started when a row asks for it."""

    def __init__(self) -> None:
        self._programs: dict[str, LoadProgram] = {}

    def run(self, name: str, broker: Broker, *, client: str = "java", **options: object) -> dict[str, float]:
        if client not in self._programs:
            self._programs[client] = LoadProgram(COMMANDS[client]())
        pairs = {"bootstrap": broker.bootstrap, "pid": broker.pid, **options}
        if broker.ca is not None:
            pairs |= {"bootstrap": f"127.0.0.1:{broker.tls_port}", "ca": broker.ca}
        answer = self._programs[client].ask(" ".join([name, *(f"{key}={value}" for key, value in pairs.items())]))
        if "error" in answer:
            raise BenchError(f"{name} by {client} on {broker.name}: {answer['error']}")
        return {key: float(value) for key, value in answer.items()}

    def close(self) -> None:
        for program in self._programs.values():
            program.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
