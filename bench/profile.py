"""Where Ottla's CPU time goes in one row: python bench/profile.py "one record, 50 conn., acks=1" [--lines]

Runs the row on Ottla while py-spy samples its stacks. First come the shares of Python, of each native library and of
the kernel, then the functions, with their own time and their time with callees. Microseconds are shares of the CPU
time that one request (or one record of a client) costs in the same run.

A sample counts for the innermost frame. System calls show as the C function that makes them; the kernel's share of
the whole is also read from /proc, which counts all threads exactly.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)
sys.path.append(str(ROOT / "tests"))  # whose clients some rows use

from bench.brokers import TICK, Ottla  # noqa: E402
from bench.client import Client  # noqa: E402
from bench.rows import Row, Sample, Setting  # noqa: E402
from bench.run import chosen, every_row  # noqa: E402

TOP = 40
RATE = 500  # samples a second
FRAME = re.compile(r"(?P<name>.*) \((?P<place>[^()]*)\)$")
SYSTEM_CALLS = re.compile(
    r"(__libc_|__)?(recv|recvfrom|recvmsg|send|sendto|sendmsg|sendfile|sendfile64|read|readv|pread|preadv|write|writev|"
    r"pwrite|pwritev|epoll_p?wait|epoll_ctl|accept4?|close|open|openat|fstat|fsync|fdatasync|futex|mmap|munmap|madvise|syscall|"
    r"clock_gettime)(64)?(_nocancel)?$"
)


class Times(NamedTuple):
    user: int
    system: int


def cpu_times(pid: int) -> Times:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return Times(int(fields[11]), int(fields[12]))


def owner(frame: str) -> str:
    """Python, the kernel, or the native library that a frame belongs to."""
    found = FRAME.match(frame)
    name, place = (found["name"], found["place"]) if found else (frame, "")
    file = place.partition(":")[0]
    if file.endswith(".py") or file.startswith("<"):
        return "Python"
    if SYSTEM_CALLS.match(name):
        return "kernel"
    if "_native" in file or file.endswith(".rs"):
        return "ottla._native"
    return Path(file).name.partition(".")[0] or "unknown"


def place(frame: str, *, lines: bool) -> str:
    short = frame.replace(f"{ROOT}/src/", "")
    return short if lines else re.sub(r":\d+\)$", ")", short)


def print_samples(stacks: dict[str, int], sample: Sample, used: Times, *, lines: bool) -> None:
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    owners: Counter[str] = Counter()
    for stack, count in stacks.items():
        frames = stack.split(";")
        names = [place(frame, lines=lines) for frame in frames]
        own[names[-1]] += count
        whole.update(dict.fromkeys(names, count))
        owners[owner(frames[-1])] += count
    total = sum(stacks.values())
    each = sample.get("us_req") or sample.get("each_us", 0.0)
    print(f"{total} samples; {each:.1f} µs of CPU a request; the kernel has {used.system / max(1, sum(used)):.0%}\n")
    for name, count in owners.most_common(8):
        print(f"{count / total:7.1%} {count / total * each:8.2f} µs   {name}")
    print("\n  own %   own µs   with callees %       µs")
    for name, count in own.most_common(TOP):
        share, deep = count / total, whole[name] / total
        print(f"{share:7.1%} {share * each:8.2f} {deep:16.1%} {deep * each:8.2f}   {name}")
    print("\nwith callees")
    for name, count in whole.most_common(TOP):
        print(f"{count / total:7.1%} {count / total * each:8.2f}   {name}")


def profile(row: Row, seconds: float, *, lines: bool) -> None:
    with Client() as client, Ottla().start() as broker, tempfile.TemporaryDirectory() as folder:
        setting = Setting(client, seconds=seconds)
        row.prepare(broker, setting)
        output = Path(folder) / "stacks"
        program = Path(sys.executable).with_name("py-spy")
        options = ["--native", "--format", "raw", "--rate", str(RATE), "--duration", "600", "--output", str(output)]
        spy = subprocess.Popen(
            [program, "record", *options, "--pid", str(broker.pid)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        before = cpu_times(broker.pid)
        try:
            sample = row.run(broker, setting)
        finally:
            after = cpu_times(broker.pid)
            spy.send_signal(signal.SIGINT)  # it writes what it has
            spy.wait(60)
        used = Times(after.user - before.user, after.system - before.system)
        print(f"{row.name}: {', '.join(f'{key} {value:.4g}' for key, value in sample.items())}")
        counts = (line.rpartition(" ") for line in output.read_text().splitlines())
        print(f"{sum(used) / TICK:.2f} s of CPU")
        print_samples({stack: int(count) for stack, _, count in counts}, sample, used, lines=lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row", help="part of the name of the row; the first that has it is taken")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--lines", action="store_true", help="count lines instead of functions")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("py-spy may need more rights to look at another process: run as root if it says so", file=sys.stderr)
    profile(chosen(every_row(), [options.row])[0], options.seconds, lines=options.lines)


if __name__ == "__main__":
    main()
