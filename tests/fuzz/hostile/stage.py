"""Runs one attack: a broker of its own, a good client beside it, and the measurements.

An attack is a generator that gets the stage. What it does before its first `yield` is preparation; what comes after is
watched. It is judged by three numbers:

    stall    the longest that the good client waited for one answer: the smaller of the clock's time and of the CPU
             time that the broker used meanwhile, since on a busy machine a process also waits for its turn
    memory   the broker's largest resident size during the attack, above what it had before
    life     the broker still serves when it is over, and its log has no traceback

`make test` runs a short version of each attack, and `make fuzz` (with SEEDS) the full size.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from compat.raw import Closed, Raw, create_topic, string
from fuzz.hostile.good_client import TOPIC, cpu_s
from process import Ottla
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from handlers.wired import Wired

FULL: Final = "SEEDS" in os.environ
PATIENCE_S: Final = 60.0 if FULL else 15.0  # for the attacker; what it has not heard by then it does not wait for
AFTER_S: Final = 120.0 if FULL else 20.0  # for the good client's next rounds
STALL_S_MAX: Final = 0.5
MEMORY_MB_MAX: Final = 100.0
# The topics of the coordinators are there before the attack, so they are small.
SETTINGS: Final = {
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
}
HERE: Final = Path(__file__).parent
FIND_COORDINATOR: Final = 10
GONE: Final = (Closed, ConnectionError, TimeoutError, OSError)  # how an attacker may be turned away


class Attack(NamedTuple):
    name: str
    perform: Callable[[Stage], Iterator[None]]
    settings: Mapping[str, str]


ATTACKS: Final[list[Attack]] = []


def attack(name: str, **settings: str) -> Callable[[Callable[[Stage], Iterator[None]]], Callable[..., Iterator[None]]]:
    """Register the decorated generator; settings are options of its broker, with underscores for dots."""

    def register(perform: Callable[[Stage], Iterator[None]]) -> Callable[..., Iterator[None]]:
        ATTACKS.append(Attack(name, perform, {key.replace("_", "."): value for key, value in settings.items()}))
        return perform

    return register


class Outcome(NamedTuple):
    attack: str
    sent: int  # bytes
    stall_s: float
    wall_s: float
    waited_for: str
    cpu_s: float  # of the broker, for the whole attack
    memory_mb: float  # at its peak, above idle
    failure: str

    @property
    def bad(self) -> str:
        """What is wrong with it, or ""."""
        found = [self.failure] if self.failure else []
        if self.stall_s > STALL_S_MAX:
            found.append(f"somebody else waited {self.stall_s:.2f} s for {self.waited_for}")
        if self.memory_mb > MEMORY_MB_MAX:
            found.append(f"{self.memory_mb:.0f} MB more than idle")
        return "; ".join(found)

    def line(self) -> str:
        return (
            f"{self.attack:58} {self.sent:>12,} {self.stall_s:>8.2f} {self.wall_s:>8.2f} {self.cpu_s:>8.2f} "
            f"{self.memory_mb:>8.0f}  {'FAILED' if self.bad else 'ok'}"
        )


HEADING: Final = (
    f"{'attack':58} {'bytes sent':>12} {'stall s':>8} {'wall s':>8} {'CPU s':>8} {'MB':>8}  "
    f"(bounds: {STALL_S_MAX} s, {MEMORY_MB_MAX:.0f} MB)"
)


class Stage:
    def __init__(self, settings: Mapping[str, str]) -> None:
        self.broker = Ottla(settings={**SETTINGS, **settings})
        self.sent = 0
        self._raws: list[Raw] = []
        self._good: subprocess.Popen[str] | None = None
        self._steps: list[tuple[float, float, str]] = []  # (stall, wall, what) of each step so far
        self._idle_mb = self._memory_mb = 0.0  # before the step, and the most that one has taken

    # For attackers.

    def size(self, short: int, full: int) -> int:
        return full if FULL else short

    @property
    def port(self) -> int:
        return self.broker.port

    def raw(self, timeout_s: float = PATIENCE_S) -> Raw:
        """A connection that ends with the attack; what is sent on it is counted."""
        raw = Raw(self.port, timeout_s=timeout_s, client_id="attacker")
        send_frame = raw.send_frame

        def counted(frame: bytes) -> None:
            self.sent += len(frame) + 4
            send_frame(frame)

        raw.send_frame = counted  # type: ignore[method-assign]
        self._raws.append(raw)
        return raw

    def topic(self, name: str, partitions: int = 1, **configs: str) -> str:
        with Raw(self.port) as raw:
            options = {key.replace("_", "."): value for key, value in configs.items()}
            assert create_topic(raw, name, partitions, options) == 0
        return name

    def hear(self, raw: Raw | Wired, count: int = 1) -> list[bytes]:
        """The answers that arrive in time; none if the broker closed the connection, as it may."""
        found: list[bytes] = []
        try:
            while len(found) < count:
                found.append(raw.receive())
        except GONE:
            pass
        return found

    def together(self, calls: list[Callable[[], object]]) -> None:
        """All at once, each in a thread; errors of a connection that was closed do not matter."""

        def run(call: Callable[[], object]) -> None:
            with suppress(*GONE):
                call()

        threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
        for thread in threads:
            thread.start()
        end = time.monotonic() + PATIENCE_S
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))

    def step(self, name: str) -> None:
        """One of several attacks on the same broker is over: note the longest wait, and start the next measurement.

        A process keeps freed memory for a while, so the memory of a step is what it takes beyond that.
        """
        told = self._rest()
        self._memory_mb = max(self._memory_mb, self._status_mb("VmHWM") - self._idle_mb)
        self._idle_mb = self._reset_peak()
        wall_s, stall = float(str(told["wall_s"])), float(str(told["cpu_s"]))
        self._steps.append((min(wall_s, stall), wall_s, f"{told['what']} during {name}"))
        self._ask("start")

    # Measuring.

    def judge(self, attack: Attack) -> Outcome:
        steps = attack.perform(self)
        next(steps)
        self.sent, failure = 0, ""
        seen = self.broker.log.stat().st_size
        self._ask("start")
        wait_until(lambda: int(str(self._ask("report")["rounds"])) > 5, "the good client's rounds", AFTER_S)
        self._idle_mb, used = self._reset_peak(), cpu_s(self.broker.pid)
        self._ask("start")
        try:
            for _ in steps:
                pass
        except GONE:
            pass
        except AssertionError as error:
            failure = f"{error}"
        told = self._rest()
        if not self.broker.alive:
            return Outcome(attack.name, self.sent, 0, 0, "", 0, 0, f"the broker ended: {self._said(seen)[-2000:]}")
        said = self._said(seen)
        failure = failure or str(told["failure"]) or ("a traceback in the log" if "Traceback" in said else "")
        self.step("the rest")
        stall_s, wall_s, what = max(self._steps)
        if more := [f"{one[2]} ({one[0]:.2f} s)" for one in self._steps if STALL_S_MAX < one[0] < stall_s]:
            what = f"{what}, and also for {', '.join(more)}"
        return Outcome(
            attack.name,
            self.sent,
            stall_s,
            wall_s,
            what.removesuffix(" during the rest"),
            cpu_s(self.broker.pid) - used,
            self._memory_mb,
            failure,
        )

    def _rest(self) -> dict[str, object]:
        """Let the good client finish what it began during the attack, and a little more."""
        rounds = int(str(self._ask("report")["rounds"]))
        end = time.monotonic() + AFTER_S
        while True:
            told = self._ask("report")
            if told["failure"] or int(str(told["rounds"])) > rounds + 1 or time.monotonic() > end:
                return told
            time.sleep(0.02)

    def _ask(self, line: str) -> dict[str, object]:
        assert self._good is not None
        assert self._good.stdin is not None
        assert self._good.stdout is not None
        self._good.stdin.write(line + "\n")
        self._good.stdin.flush()
        answer: dict[str, object] = json.loads(self._good.stdout.readline())
        return answer

    def _said(self, since: int) -> str:
        return self.broker.log.read_bytes()[since:].decode(errors="replace")

    def _reset_peak(self) -> float:
        """Let the kernel forget the largest size so far; the size now."""
        Path(f"/proc/{self.broker.pid}/clear_refs").write_text("5")
        return self._status_mb("VmRSS")

    def _status_mb(self, name: str) -> float:
        for line in Path(f"/proc/{self.broker.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
        raise AssertionError(f"no {name} in the status of a process")

    def __enter__(self) -> Self:
        self.broker.__enter__()
        try:
            self.topic(TOPIC)
            with Raw(self.port) as raw:
                for kind in (b"\0", b"\1"):
                    wait_until(lambda kind=kind: coordinated(raw, kind), "the coordinators")  # type: ignore[misc]
            words = [sys.executable, "-m", "fuzz.hostile.good_client", str(self.port), str(self.broker.pid)]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (HERE.parents[1], *sys.path)))}
            self._good = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
            )
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for raw in self._raws:
            raw.close()
        if self._good is not None:
            self._good.kill()
            self._good.wait()
            for pipe in (self._good.stdin, self._good.stdout):
                if pipe is not None:
                    pipe.close()
        if self.broker.alive:
            self.broker.kill()  # it may be busy for minutes, if the attack has worked
        self.broker.close()


def coordinated(raw: Raw, kind: bytes) -> bool:
    """FindCoordinator v1: whether groups (0) or transactions (1) have a coordinator by now."""
    answer = raw.call(FIND_COORDINATOR, 1, string("somebody") + kind)
    answer.int32()
    return answer.int16() == 0
