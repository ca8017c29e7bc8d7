"""A well-behaved client during an attack: it sends small requests one after the other, and measures each wait.

It is a process of its own, so that the attacker's Python work is not counted as the broker's delay:

    python -m fuzz.hostile.good_client PORT BROKER_PID

It answers each line on standard input with one JSON object: `rounds` (of a produce, a fetch and a metadata request),
the longest wait of one request since the last line by the clock (`wall_s`) and in CPU time that the broker used
meanwhile (`cpu_s`), which request that was (`what`), the waits that half and 99 % of the requests stay below by the
clock (`p50_ms`, `p99_ms`), the same in time that the broker's loop worked meanwhile, which a busy machine does not
change (`p99_work_ms`), and what went wrong (`failure`). A request that has no answer yet
counts as long as it has waited. The line `start` resets the measurements. While the machine is slow, see
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


def loop_s(pid: int) -> float:
    """Time on a processor of the broker's first thread, which runs its loop; to the nanosecond on Linux."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, ValueError):
        return 0.0


def slowness() -> float:
    """How many times longer everything takes just now than at the normal pace; one at least."""
    return max(1.0, yardstick_s() / NORMAL_S)


class GoodClient:
    def __init__(self, port: int, pid: int) -> None:
        self._pid = pid
        self._raw = Raw(port, timeout_s=PATIENCE_S, client_id="good")
        self._lock = threading.Lock()
        self._began: tuple[float, float, str] | None = None
        self._worst = (0.0, 0.0, "")  # by what counts: the smaller of the two times
        self._rounds = 0
        self._waits: list[float] = []  # of every request, by the clock
        self._worked: list[float] = []  # and for how long the broker's loop worked meanwhile
        self._failure = ""
        self._body = array([string(TOPIC)]) + b"\0"
        self._data = batch([b"a small record"])

    def work(self) -> None:
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
        began, worked = time.monotonic(), loop_s(self._pid)
        answer = call()
        with self._lock:
            self._waits.append(time.monotonic() - began)
            self._worked.append(loop_s(self._pid) - worked)
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
            return told | {"p99_work_ms": percentile_ms(self._worked, 0.99)}

    def start(self) -> None:
        with self._lock:
            self._worst = (0.0, 0.0, "")
            self._rounds = 0
            self._waits, self._worked = [], []


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
