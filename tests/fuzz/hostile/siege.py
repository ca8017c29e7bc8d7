"""Hostile clients of every kind at one broker, all at once and for minutes, beside a well-behaved one.

    python -m fuzz.hostile.siege --minutes 10          (make siege MINUTES=10)

First the good client is alone for a while; then the attackers come, each kind in a thread of its own that begins again
when it is done. The speed of a shared machine changes within minutes, so the two take turns: a minute of attacks is
compared with the quiet seconds before it. Idle connections stay open from the first turn on.

At the end there is a table, and a verdict: the broker runs, no attack got what it should not, the log has no traceback,
memory is bounded, and 99 % of the good client's requests took at most three times as long as in the quiet seconds (in
three of four turns; by the clock, so only on a machine with nothing else to do; not in the suite).

Real attackers have machines of their own. Here they share the processors with the broker and the good client, so these
two get real-time priority where the system permits it (to root): they never wait for an attacker, nor for anything else
on the machine. With `--no-real-time` attackers only get the lowest normal priority. Then the scheduler lets the broker
and the good client wait for a processor, often for milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import TYPE_CHECKING, Final, NamedTuple

from compat.raw import Raw, batch, create_topic, produce
from fuzz.hostile.assaults import ASSAULTS, FILLED, GONE, Target, prepare
from fuzz.hostile.good_client import TOPIC, cpu_s
from waiting import wait_until

from ottla.testing.secured import SecuredBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from fuzz.hostile.assaults import Assault

HERE: Final = Path(__file__).parent
MEMORY_MB_MAX: Final = 250.0  # above what the broker had in peace; 5,000 connections are a part of it
SLOWER_MAX: Final = 3.0
DEFENDERS, ATTACKERS = 2, 1  # real-time priorities
PAUSE_S: Final = 0.05  # of an attacker, between two attempts
TURN_S: Final = 60.0  # of attacks
SETTLED: Final = 1.5  # times the CPU of the first quiet seconds, then what an attack left behind is done
HELD: Final = "held"

Report = dict[str, float]


class Verdict(NamedTuple):
    seconds: float
    attempts: Counter[str]
    idle: int
    turns: list[tuple[Report, Report]]  # quiet, and under attack
    memory_mb: float
    cpu_s: float
    wrong: list[str]

    @property
    def quiet(self) -> Report:
        return summary([quiet for quiet, _ in self.turns])

    @property
    def under_attack(self) -> Report:
        return summary([attacked for _, attacked in self.turns])

    @property
    def slower(self) -> list[float]:
        """By how much, in each turn; ascending."""
        return sorted(attacked["p99_ms"] / max(quiet["p99_ms"], 0.001) for quiet, attacked in self.turns)

    @property
    def outcome(self) -> str:
        """As in the benchmarks: a bound that lies between the quartiles of the turns is neither held nor broken."""
        low, _, high = quantiles(self.slower, n=4) if len(self.slower) > 1 else self.slower * 3
        if self.wrong or low > SLOWER_MAX:
            return "NOT held"
        return HELD if high <= SLOWER_MAX else "undecided"

    def table(self) -> str:
        rows = [f"{name:48} {count:>8,}" for name, count in sorted(self.attempts.items())]
        return "\n".join(
            [
                f"{'attack':48} {'attempts':>8}",
                *rows,
                f"{'idle connections':48} {self.idle:>8,}",
                f"good client, alone: {waits(self.quiet)}",
                f"good client, under attack for {self.seconds:.0f} s: {waits(self.under_attack)}",
                "p99 of each turn, alone and under attack: "
                + ", ".join(f"{quiet['p99_ms']:.2f} {attacked['p99_ms']:.2f}" for quiet, attacked in self.turns),
                f"p99 under attack / alone, {len(self.turns)} turns: median {median(self.slower):.1f} "
                f"({self.slower[0]:.1f} to {self.slower[-1]:.1f}; bound: {SLOWER_MAX:g})",
                f"broker: {self.cpu_s:.0f} s of CPU, {self.memory_mb:.0f} MB more than in peace "
                f"(bound: {MEMORY_MB_MAX:g})",
                *(f"WRONG: {one}" for one in self.wrong),
            ]
        )


def summary(turns: Sequence[Report]) -> Report:
    """Rounds are added; of all else it is the median."""
    told = {name: median(one[name] for one in turns) for name in turns[0] if name.startswith("p")}
    return told | {"rounds": sum(one["rounds"] for one in turns)}


def waits(told: Report) -> str:
    return (
        f"{told['rounds']:.0f} rounds, p50 {told['p50_ms']:.2f} ms, p99 {told['p99_ms']:.2f} ms "
        f"({told['p99_served_ms']:.2f} ms without its own waiting for a processor; "
        f"the broker's loop worked {told['p99_work_ms']:.2f} ms at p99 meanwhile, "
        f"and waited {told['p99_loop_delay_ms']:.2f} ms for a processor)"
    )


class Siege:
    def __init__(self, secured: SecuredBroker, idle: int, assaults: Mapping[str, Assault]) -> None:
        self._secured = secured
        self._pid = secured.broker.pid  # type: ignore[union-attr]
        self._wanted_idle = idle
        self._assaults = assaults
        self._idle: list[socket.socket] = []
        self._stop = threading.Event()
        self._war = threading.Event()
        self._busy: set[str] = set()  # attackers in the middle of an attempt
        self._wrong: list[str] = []
        self._failed = False
        self._attempts: Counter[str] = Counter()
        plain = port_of(secured, "PLAINTEXT")
        with Raw(plain) as raw:
            assert create_topic(raw, TOPIC) == 0
            assert create_topic(raw, "target") == 0
            assert create_topic(raw, FILLED) == 0
            for _ in range(8):
                assert produce(raw, FILLED, batch([bytes(500_000)])).error == 0
        words = [sys.executable, "-m", "fuzz.hostile.good_client", str(plain), str(self._pid)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (HERE.parents[1], *sys.path)))}
        self._good = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        ports = {name: port_of(secured, name) for name in secured.addresses}
        self._target = Target(ports, "target", secured.user, secured.password)

    def run(self, quiet_s: float, seconds: float, before_attacks: Callable[[], None]) -> Verdict:
        self._ask("start")
        wait_until(lambda: self._ask("report")["rounds"] > 20, "the good client's rounds")
        used = cpu_s(self._pid)
        quiet = self._turn(quiet_s)
        busy_before = (cpu_s(self._pid) - used) / quiet_s
        calm_mb, used = status_mb(self._pid, "VmRSS"), cpu_s(self._pid)
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")
        before_attacks()
        threads = [threading.Thread(target=self._attack, args=one, daemon=True) for one in self._assaults.items()]
        threads.append(threading.Thread(target=self._stay_idle, daemon=True))
        for thread in threads:
            thread.start()
        turns, count = list[tuple[Report, Report]](), max(1, round(seconds / TURN_S))
        for number in range(count):
            if number:
                self._settle(busy_before)
                quiet = self._turn(quiet_s)
            self._war.set()
            turns.append((quiet, self._turn(seconds / count)))
            self._war.clear()
            if not self._secured.broker.running:
                break
            wait_until(lambda: not self._busy, lambda: f"still attacking: {self._busy}")
        self._stop.set()
        self._war.set()
        for thread in threads:
            thread.join(30)
        if not self._secured.broker.running:
            self._wrong.append(f"the broker ended: {self._secured.broker.log[-2000:]}")  # type: ignore[union-attr]
            return self._verdict(seconds, turns, 0.0, 0.0)
        memory_mb = status_mb(self._pid, "VmHWM") - calm_mb
        return self._verdict(seconds, turns, memory_mb, cpu_s(self._pid) - used)

    def _settle(self, busy_before: float) -> None:
        """The broker still closes connections after an attack: quiet seconds begin when that is done."""

        def busy() -> float:
            used = cpu_s(self._pid)
            time.sleep(1.0)
            return cpu_s(self._pid) - used

        wait_until(lambda: busy() <= SETTLED * busy_before + 0.02, "the broker does not come to rest")

    def _turn(self, seconds: float) -> Report:
        """What the good client measures meanwhile."""
        self._ask("start")
        end = time.monotonic() + seconds
        while time.monotonic() < end and self._secured.broker.running:
            time.sleep(min(1.0, seconds))
        report = self._ask("report")
        if report["failure"] and not self._failed:
            self._failed = True
            self._wrong.append(f"the good client failed: {report['failure']}")
        return report

    def _verdict(self, seconds: float, turns: list[tuple[Report, Report]], memory_mb: float, used: float) -> Verdict:
        said = self._secured.broker.log  # type: ignore[union-attr]
        if "Traceback" in said:
            self._wrong.append(f"a traceback in the log: {said[said.index('Traceback') - 300 :][:3000]}")
        if memory_mb > MEMORY_MB_MAX:
            self._wrong.append(f"{memory_mb:.0f} MB more than in peace")
        silent = [name for name in self._assaults if not self._attempts[name]]
        if silent:
            self._wrong.append(f"attackers that never finished an attempt: {', '.join(silent)}")
        return Verdict(seconds, self._attempts, len(self._idle), turns, memory_mb, used, self._wrong)

    def _attack(self, name: str, perform: Callable[[Target, Random], None]) -> None:
        random = Random(name)
        while not self._stop.wait(PAUSE_S):
            self._war.wait()
            if self._stop.is_set():
                break
            self._busy.add(name)
            try:
                with suppress(*GONE):
                    perform(self._target, random)
            except AssertionError as error:
                self._wrong.append(f"{name}: {error}")
            finally:
                self._busy.discard(name)
            self._attempts[name] += 1

    def _stay_idle(self) -> None:
        """Connections that never send a byte. Those that the broker closes connect again while there are attacks."""
        ports = [self._target.ports[name] for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT")]
        while len(self._idle) < self._wanted_idle and not self._stop.is_set():
            with suppress(*GONE):
                self._idle.append(socket.create_connection(("127.0.0.1", ports[len(self._idle) % 3]), timeout=10))
            self._stop.wait(0.001)
        while not self._stop.wait(1.0):
            if not self._war.is_set():
                continue
            for place, one in enumerate(self._idle):
                one.setblocking(False)
                with suppress(BlockingIOError, *GONE):
                    if one.recv(1):
                        continue
                    one.close()
                    self._idle[place] = socket.create_connection(("127.0.0.1", ports[place % 3]), timeout=10)

    def _ask(self, line: str) -> Report:
        assert self._good.stdin is not None
        assert self._good.stdout is not None
        self._good.stdin.write(line + "\n")
        self._good.stdin.flush()
        answer: Report = json.loads(self._good.stdout.readline())
        return answer

    def close(self) -> None:
        self._stop.set()
        self._good.kill()
        self._good.wait()
        for one in self._idle:
            one.close()


def port_of(secured: SecuredBroker, listener: str) -> int:
    return int(secured.addresses[listener].rpartition(":")[2])


def status_mb(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no {name} in the status of a process")


def give_way() -> None:
    """This thread and those that it starts run when nothing else does."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def set_real_time(priority: int) -> None:
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priority))


def may_set_real_time() -> bool:
    policy, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        set_real_time(ATTACKERS)
    except PermissionError:
        return False
    os.sched_setscheduler(0, policy, parameter)
    return True


@contextmanager
def processors_awake() -> Iterator[None]:
    """A virtual processor that sleeps may need milliseconds to wake up, and in quiet seconds it sleeps more often. So
    there is always something to do, which gives way to everything else."""
    words = [sys.executable, "-c", "while True: pass"]
    spinners = [subprocess.Popen(words, preexec_fn=give_way) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def besiege(
    quiet_s: float,
    seconds: float,
    idle: int,
    only: Sequence[str] = (),
    before_attacks: Callable[[], None] = lambda: None,
) -> Verdict:
    """`only`: names of attacks; all of them if there are none. `before_attacks` is called in the thread that starts the
    attackers' threads, when the broker and the good client run already."""
    prepare()
    with ExitStack() as stack:
        # Records here are years old: retention would delete them.
        options = {"connection.failed.authentication.delay.ms": 20, "log.retention.check.interval.ms": 86_400_000}
        secured = stack.enter_context(SecuredBroker(options=options))
        chosen = {name: ASSAULTS[name] for name in only} if only else ASSAULTS
        siege = Siege(secured, idle, chosen)
        stack.callback(siege.close)
        return siege.run(quiet_s, seconds, before_attacks)


def main() -> int:
    parser = argparse.ArgumentParser(description="hostile clients of every kind beside a good one")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--idle", type=int, default=5000, help="connections that say nothing")
    parser.add_argument("--quiet", type=float, default=10.0, help="seconds of the good client alone, in each turn")
    parser.add_argument(
        "--only", action="append", default=[], choices=list(ASSAULTS), help="this attack; may be repeated"
    )
    parser.add_argument(
        "--real-time",
        action=argparse.BooleanOptionalAction,
        default=may_set_real_time(),
        help="the broker and the good client go first (default: where the system permits it)",
    )
    options = parser.parse_args()
    print("priority of the broker and the good client:", "real-time" if options.real_time else "normal", flush=True)
    with processors_awake():
        if options.real_time:
            set_real_time(DEFENDERS)  # the broker and the good client inherit it
        before_attacks = partial(set_real_time, ATTACKERS) if options.real_time else give_way
        verdict = besiege(options.quiet, options.minutes * 60, options.idle, options.only, before_attacks)
    print(verdict.table())
    print(verdict.outcome)
    return 0 if verdict.outcome == HELD else 1


if __name__ == "__main__":
    sys.exit(main())
