"""The driver's side of the hosts: processes with group members, and the journal of their output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import judge
from compat.families import digest, node_program
from groups.history import ENDS, Event

if TYPE_CHECKING:
    from collections.abc import Callable

HERE: Final = Path(__file__).parent
SETTLE_S: Final = 90.0


class Journal:
    """Every event of every host, in the order of arrival. Each event wakes those who wait."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._owned: dict[tuple[str, str], set[str]] = {}  # (group, member) -> parts
        self._news = threading.Condition()

    def add(self, event: Event) -> None:
        with self._news:
            self.events.append(event)
            owned = self._owned.setdefault((event.group, event.member), set())
            if event.what == "assigned":
                owned.update(event.facts["parts"])
            elif event.what in ENDS or event.what == "frozen":
                owned.difference_update(event.facts.get("parts", set(owned)))
            self._news.notify_all()

    def of(self, group: str) -> list[Event]:
        with self._news:
            return [event for event in self.events if event.group == group]

    def owned(self, group: str) -> dict[str, frozenset[str]]:
        """What each member owns now, as it reported."""
        with self._news:
            return {member: frozenset(parts) for (of, member), parts in self._owned.items() if of == group and parts}

    def wait(self, ready: Callable[[], bool], seconds: float = SETTLE_S) -> bool:
        """Wait until `ready`, which is called after each event. False after the time limit."""
        with self._news:
            return self._news.wait_for(ready, seconds)


class Host:
    """A process with members of one client library. Their names are unique in the journal."""

    def __init__(self, family: str, bootstrap: str, journal: Journal) -> None:
        self.family = family
        self._journal = journal
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
        if family == "kafkajs":
            environment["NODE_PATH"] = str(node_program().parent / "node_modules")
        self._process = subprocess.Popen(
            [*COMMANDS[family](), bootstrap], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._groups: dict[str, str] = {}  # member -> group
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._output:
            facts = json.loads(line)
            self._journal.add(Event(*(facts.pop(name) for name in ("at", "group", "member", "what")), facts))

    def _say(self, *words: str) -> None:
        self._input.write("\t".join(words) + "\n")
        self._input.flush()

    def join(self, member: str, group: str, **options: str) -> None:
        self._groups[member] = group
        self._say("join", member, f"group={group}", *(f"{name}={value}" for name, value in options.items()))

    def leave(self, member: str) -> None:
        del self._groups[member]
        self._say("leave", member)

    def _note(self, what: str) -> None:
        for member, group in self._groups.items():
            self._journal.add(Event(time.monotonic_ns(), group, member, what))

    def kill(self) -> None:
        """SIGKILL. Its output until now belongs to the history, and its members end here."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._note("killed")
        self._groups.clear()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        self._note("frozen")

    def thaw(self) -> None:
        self._note("thawed")
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        judge.stop_process(self._process, kill=True)  # type: ignore[arg-type]  # that it talks text does not matter
        self._reader.join()
        self._input.close()
        self._output.close()


def python_program(name: str) -> list[str]:
    return [sys.executable, "-m", f"groups.hosts.{name}"]


def java_program() -> list[str]:
    return judge.command(HERE / "java" / "Members.java", path=judge.client_classpath(judge.NEWEST))


@cache
def go_program() -> Path:
    folder = HERE / "go"

    def build(target: Path) -> None:
        judge.run(["go", "build", "-trimpath", "-o", target / "members", "."], "building the Go members", cwd=folder)

    return judge.cached(f"go-groups-{digest(folder, 'main.go', 'go.mod', 'go.sum')}", build) / "members"


COMMANDS: Final[dict[str, Callable[[], list[str]]]] = {
    "confluent-kafka": lambda: python_program("confluent"),
    "kafka-python": lambda: python_program("kafka_python"),
    "aiokafka": lambda: python_program("aio"),
    "java-4.3.1": java_program,
    "franz-go": lambda: [str(go_program())],
    "kafkajs": lambda: ["node", str(HERE / "node" / "members.js")],
}
