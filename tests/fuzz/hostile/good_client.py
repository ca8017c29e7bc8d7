"""A well-behaved client during an attack: it sends small requests one after the other, and measures each wait.

It is a process of its own, so that the attacker's Python work is not counted as the broker's delay:

    python -m fuzz.hostile.good_client PORT BROKER_PID

It answers each line on standard input with one JSON object: `rounds` (of a produce, a fetch and a metadata request),
the longest wait of one request since the last line by the clock (`wall_s`) and in CPU time that the broker used
meanwhile (`cpu_s`), which request that was (`what`), the waits that half and 99 % of the requests stay below by the
clock (`p50_ms`, `p99_ms`), and what went wrong (`failure`). Three more tell what the waits are made of, each with a
99th percentile of its own: the time that the broker's loop worked meanwhile, which a busy machine does not change
(`p99_work_ms`), the time that the loop had work but no processor (`p99_loop_delay_ms`), and the clock's time without
that in which this client itself had no processor (`p99_served_ms`). A request that has no answer yet counts as long as
it has waited. The line `start` resets the measurements. While the machine is slow, see
`yardstick`, a wait is scaled to the normal speed.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import threading
import time
from pathlib import Path

from compat.raw import METADATA, Raw, array, batch, fetch, produce, string
from laws.yardstick import NORMAL_S, yardstick_s

TOPIC = "good"
PAUSE_S = 0.005
PATIENCE_S = 300.0
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Thread:
    """What a thread got from the system's scheduler, to the nanosecond on Linux."""

    def __init__(self, pid: int, thread: int) -> None:
        try:
            self._file = os.open(f"/proc/{pid}/task/{thread}/schedstat", os.O_RDONLY)
        except OSError:  # another system
            self._file = -1

    def times_s(self) -> tuple[float, float]:
        """The time that it ran, and the time that it waited for a processor."""
        try:
            ran, waited, _ = os.pread(self._file, 100, 0).split()
        except OSError:
            return 0.0, 0.0
        return int(ran) / 1e9, int(waited) / 1e9


def slowness() -> float:
    """How many times longer everything takes just now than at the normal pace; one at least."""
    return max(1.0, yardstick_s() / NORMAL_S)


class GoodClient:
    def __init__(self, port: int, pid: int) -> None:
        self._pid = pid
        self._loop = Thread(pid, pid)  # a broker's first thread runs its loop
        self._raw = Raw(port, timeout_s=PATIENCE_S, client_id="good")
        self._lock = threading.Lock()
        self._began: tuple[float, float, str] | None = None
        self._worst = (0.0, 0.0, "")  # by what counts: the smaller of the two times
        self._rounds = 0
        self._waits: list[float] = []  # of every request, by the clock
        self._worked: list[float] = []  # for how long the broker's loop worked meanwhile
        self._delayed: list[float] = []  # for how long it had no processor
        self._served: list[float] = []  # the waits without the time that this client had no processor
        self._failure = ""
        self._body = array([string(TOPIC)]) + b"\0"
        self._data = batch([b"a small record"])

    def work(self) -> None:
        self._here = Thread(os.getpid(), threading.get_native_id())
        try:
            while True:
                produced = self._timed("produce", lambda: produce(self._raw, TOPIC, self._data))
                assert produced.error == 0, f"produce error {produced.error}"
                base = produced.base
                found = self._timed("fetch", lambda base=base: fetch(self._raw, TOPIC, base))
                assert found.error == 0, f"fetch error {found.error}"
                assert found.data[:8] == struct.pack(">q", base), "another record than the one written"
                self._timed("metadata", lambda: self._raw.call(METADATA, 4, self._body))
                with self._lock:
                    self._rounds += 1
                time.sleep(PAUSE_S)
        except Exception as failure:
            with self._lock:
                self._failure = f"{type(failure).__name__}: {failure}"

    def _timed(self, what, call):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        with self._lock:
            self._began = time.monotonic(), cpu_s(self._pid), what
        (_, delay), (worked, delayed) = self._here.times_s(), self._loop.times_s()
        began = time.monotonic()
        answer = call()
        wait = time.monotonic() - began
        own_delay, now = self._here.times_s()[1] - delay, self._loop.times_s()
        with self._lock:
            self._waits.append(wait)
            self._worked.append(now[0] - worked)
            self._delayed.append(now[1] - delayed)
            self._served.append(wait - own_delay)
            self._note()
            self._began = None
        return answer

    def _note(self) -> None:
        if self._began is None:
            return
        began, used, what = self._began
        try:
            wall_s, used_s = time.monotonic() - began, cpu_s(self._pid) - used
        except OSError:  # the broker is gone
            return
        if min(wall_s, used_s) > min(self._worst[:2]) or not self._worst[2]:
            slow = slowness()
            if min(wall_s, used_s) / slow > min(self._worst[:2]) or not self._worst[2]:
                self._worst = wall_s / slow, used_s / slow, what

    def report(self) -> dict[str, object]:
        with self._lock:
            self._note()
            wall_s, cpu, what = self._worst
            told = {"rounds": self._rounds, "wall_s": wall_s, "cpu_s": cpu, "what": what, "failure": self._failure}
            told |= {"p50_ms": percentile_ms(self._waits, 0.5), "p99_ms": percentile_ms(self._waits, 0.99)}
            parts = {"work": self._worked, "loop_delay": self._delayed, "served": self._served}
            return told | {f"p99_{name}_ms": percentile_ms(found, 0.99) for name, found in parts.items()}

    def start(self) -> None:
        with self._lock:
            self._worst = (0.0, 0.0, "")
            self._rounds = 0
            self._waits, self._worked, self._delayed, self._served = [], [], [], []


def percentile_ms(waits: list[float], share: float) -> float:
    return sorted(waits)[int(len(waits) * share)] * 1000 if waits else 0.0


def main() -> None:
    client = GoodClient(int(sys.argv[1]), int(sys.argv[2]))
    threading.Thread(target=client.work, daemon=True).start()
    for line in sys.stdin:
        if line.strip() == "start":
            client.start()
        print(json.dumps(client.report()), flush=True)


if __name__ == "__main__":
    main()
