"""Ottla against Apache Kafka. `make bench`, or python bench/run.py [--rows TEXT ...] [--repeat N] [--quick] [--sides S]

Both brokers run all the time, on the same cores, and take short turns in each row (bench/turns.py), so that a
slow minute of the machine affects both. The numbers go to bench/results/, the table to bench/README.md
(only when every row was run) and to the screen.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)
sys.path.append(str(ROOT / "tests"))  # some rows use the tests' clients

from bench import captured, consume, coordinators, footprint, latency, produce, replay, requests, table, tls, turns  # noqa: E402
from bench.brokers import SIDES, Broker  # noqa: E402
from bench.client import Client  # noqa: E402
from bench.rows import Row, Setting  # noqa: E402
from bench.wire import BenchError  # noqa: E402
from tests import judge  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = ROOT / "bench" / "results"
README = ROOT / "bench" / "README.md"
QUICK = (
    "replay 100 B, 16 kB, acks=1, none, 1", "replay 1000 B, 128 kB, acks=1, none, 6", "one record, 50 conn., acks=1",
    "fetch 1 MB, 1 conn.", "fetch 16 kB", "consume 100 B", "end to end, 500/s, acks=-1", "start", "memory",
    "500 topics", "java, lz4, 16 kB of 100 B", "franz-go, lz4, 16 kB of 100 B", "librdkafka, zstd, 128 kB of 1000 B",
    "produce 100 B, 16 kB, TLS", "consume 100 B, 16 kB, TLS",
    "produce 100 B, 16 kB, acks=-1, none, 1", "produce 1000 B, 128 kB, acks=-1, none, 6",
)  # fmt: skip
WARM_S = 4.0


def every_row() -> list[Row]:
    families = (
        footprint,
        requests,
        latency,
        coordinators,
        consume,
        replay,
        captured,
        produce,
        tls,
    )  # rows that leave little data come first
    return [row for family in families for row in family.rows()]


def chosen(rows: Sequence[Row], words: Sequence[str]) -> list[Row]:
    return [row for row in rows if not words or any(word in row.name for word in words)]


def warm_up(brokers: Sequence[Broker], setting: Setting, seconds: float, wanted: Sequence[Row]) -> None:
    """Warm up both JIT compilers of both JVMs on every path, and on every codec that will be used."""
    long = Setting(setting.client, seconds=seconds, fill_mb=64)
    short = Setting(setting.client, seconds=setting.seconds, fill_mb=64)
    codecs = {row.codec: row for row in wanted if isinstance(row, captured.CapturedRow)}
    rows: list[Row] = [
        *codecs.values(),
        replay.replay(100, 16),
        replay.replay(100, 16, "lz4", 6, 8),
        requests.rows()[0],
        consume.rows()[0],
        consume.rows()[-1],
        latency.rows()[0],
        produce.rows()[0],
        produce.rows()[-1],
    ]
    for row in rows:
        for broker in brokers:
            row.prepare(broker, long)
            row.run(broker, long if broker.name == "kafka" else short)
            row.clean(broker, long)


def measure(row: Row, brokers: Sequence[Broker], setting: Setting, repeat: int) -> dict[str, table.Numbers]:
    """Run the row on the brokers in turns; the first does not count. A broker on which it fails drops out."""
    numbers: dict[str, table.Numbers] = {}
    able, prepared = list[Broker](), list[Broker]()
    used: set[Broker] = set()
    try:
        for broker in brokers:
            try:
                row.prepare(broker, setting)
                able.append(broker)
            except (BenchError, OSError) as error:
                print(f"    {broker.name}: {error}", file=sys.stderr)
        prepared = list(able)
        warming = list(brokers) if 1 < repeat <= row.repeat_max else []
        for broker in [*warming, *turns.order(brokers, min(repeat, row.repeat_max))]:
            if broker not in able:
                continue
            try:
                if broker in used:
                    row.renew(broker, setting)
                used.add(broker)
                sample = row.run(broker, setting)
            except (BenchError, OSError) as error:
                print(f"    {broker.name}: {error}", file=sys.stderr)
                able.remove(broker)
                continue
            if broker in warming:
                warming.remove(broker)
            else:
                table.collect(numbers.setdefault(broker.name, {}), sample)
    finally:
        for broker in prepared:  # a row may have started a broker of its own, which must not outlive the row
            with nullcontext() if broker in able else suppress(BenchError, OSError):
                row.clean(broker, setting)
    return {name: values for name, values in numbers.items() if values}


def machine() -> dict[str, object]:
    names = [line.split(": ", 1)[1] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    about = {"cores": os.cpu_count(), "cpu": names[0] if names else platform.machine(), "kernel": platform.release()}
    return {**about, "python": platform.python_version()}


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", default=[], help="only rows whose name contains one of these")
    parser.add_argument("--sides", nargs="*", default=list(SIDES), choices=list(SIDES))
    parser.add_argument("--repeat", type=int, default=turns.PAIRS, help="pairs of turns (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.7, help="measured time of one turn (default: %(default)s)")
    parser.add_argument(
        "--quick", action="store_true", help="some rows, three pairs, half a second each: to try it out"
    )
    parser.add_argument("--table", nargs="+", type=Path, metavar="FILE", help="only print the table of these reports")
    parser.add_argument("--list", action="store_true", help="print the names of the rows and stop")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    options = arguments(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))  # stops brokers and removes their folders
    rows = every_row()
    wanted = chosen(rows, options.rows or (QUICK if options.quick else ()))
    if options.list:
        print("\n".join(row.name for row in wanted))
        return 0
    report = merged(options.table) if options.table else measured(wanted, options)
    results = report["rows"]
    shown = [row for row in rows if row.name in results]
    text = f"{conditions(report)}\n\n{table.verdict(shown, results)}\n\n{table.markdown(shown, results)}"
    if len(shown) == len(rows) and all(len(sides) == len(SIDES) for sides in results.values()):
        table.insert(README, "table", text)
    print(text)
    return 0


def measured(wanted: Sequence[Row], options: argparse.Namespace) -> dict[str, Any]:
    """Run the rows; the report is on disk after each of them."""
    repeat, seconds = (3, 0.5) if options.quick else (options.repeat, options.seconds)
    began = time.time()
    results: table.Results = {}
    report = {"machine": machine(), "repeat": repeat, "seconds": [seconds], "rows": results}
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / time.strftime("%Y-%m-%d-%H%M%S.json", time.gmtime(began))
    with ExitStack() as stack:
        setting = Setting(stack.enter_context(Client()), seconds=seconds)
        brokers = [stack.enter_context(SIDES[side]()).start() for side in options.sides]
        warm_up(brokers, setting, WARM_S / 2 if options.quick else WARM_S, wanted)
        print(f"warm after {time.time() - began:.0f} s", file=sys.stderr)
        for row in wanted:
            results[row.name] = measure(row, brokers, setting, repeat)
            report["load"] = os.getloadavg()[2]
            file.write_text(json.dumps(report, indent=1))
            cells = " | ".join(filter(None, table.line(row, results[row.name])))
            print(f"{time.time() - began:5.0f} s  {cells}", file=sys.stderr, flush=True)
    return report


def merged(files: Sequence[Path]) -> dict[str, Any]:
    """Reports of several runs as one; where two have a row, the later file counts."""
    reports = [json.loads(file.read_text()) for file in files]
    rows = {name: sides for report in reports for name, sides in report["rows"].items()}
    seconds = sorted({each for report in reports for each in report["seconds"]})
    return {**reports[-1], "rows": rows, "load": max(report["load"] for report in reports), "seconds": seconds}


def conditions(report: dict[str, Any]) -> str:
    about, day = report["machine"], time.strftime("%Y-%m-%d")
    software = f"Linux {about['kernel']}, Python {about['python']}, Apache Kafka {judge.NEWEST}"
    seconds = " or ".join(f"{each:g}" for each in report["seconds"])
    how = f"{report['repeat']} pairs of turns of {seconds} s, load average {report['load']:.1f}"
    return f"Measured on {day}: {about['cores']} cores ({about['cpu']}), {software}; {how}."


if __name__ == "__main__":
    sys.exit(main())
