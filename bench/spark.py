"""Our Spark source and sink against Spark's own connector: python bench/spark.py [--rows TEXT ...] [--quick]

`make bench` runs it after the brokers' rows. One JVM on two cores has both; there are two Ottla brokers. Every side
of a row runs once on a smaller topic, so that the JVM is warm, then each in turn, A B C A B C, `--repeat` times. "The
connector at its best" has the settings that `--tune` found. CPU is that of all processes, from /proc: the JVM, Spark's
Python workers, this process and the brokers. The ceiling is the upper limit of our side's path (ceilings.py),
measured in the same turns. Numbers go to bench/results/, the table to the screen and, when every row was run in full,
to README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)
sys.path.append(str(ROOT / "tests"))

from spark import connector, sessions  # noqa: E402

from bench import ceilings, columns, fill, spark_rows, table  # noqa: E402
from bench.brokers import TICK, Ottla  # noqa: E402
from bench.spark_rows import BEST, CEILING, DEFAULT, OURS, PARTITIONS, Load, SparkRow, World  # noqa: E402
from bench.wire import BenchError  # noqa: E402
from ottla.records.compress import Codec  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

RESULTS = ROOT / "bench" / "results"
README = ROOT / "bench" / "README.md"
WARM = 5  # how many times smaller the topic of the warm-up run is
QUICK = 0.02
MEMORY = "3g"
LOOK_S = 0.25
DECODER = "decoder, one core"
DECODER_GOAL = 20.0
ADVISED = {"spark.sql.execution.arrow.maxBytesPerBatch": "1048576"}  # advice of docs/spark.md; the connector ignores it
Numbers = dict[str, list[float]]
Results = dict[str, dict[str, Numbers]]
FETCH, RECEIVE = "kafka.max.partition.fetch.bytes", "kafka.receive.buffer.bytes"
POLL, PIECES = "kafka.max.poll.records", "minPartitions"
BATCH, LINGER, BUFFER = "kafka.batch.size", "kafka.linger.ms", "kafka.buffer.memory"
TUNING: dict[str, list[dict[str, str]]] = {
    "read": [
        {},
        {POLL: "5000"},
        {POLL: "50000"},
        {FETCH: "8388608"},
        {POLL: "5000", FETCH: "8388608"},
        {POLL: "20000", FETCH: "8388608", RECEIVE: "1048576"},
        {POLL: "50000", FETCH: "33554432", RECEIVE: "1048576"},
        {POLL: "20000", FETCH: "8388608", RECEIVE: "1048576", "kafka.check.crcs": "false"},
        {POLL: "20000", FETCH: "8388608", RECEIVE: "1048576", PIECES: "8"},
        {PIECES: "16"},
    ],
    "write": [
        {},
        {LINGER: "50"},
        {BATCH: "131072"},
        {BATCH: "131072", LINGER: "50"},
        {BATCH: "262144", LINGER: "50", BUFFER: "134217728"},
        {BATCH: "1048576", LINGER: "100", BUFFER: "134217728", "kafka.max.request.size": "8388608"},
    ],
}


class Meter:
    """User and system time of this process and of all its descendants, also of those that have ended.

    A thread polls and keeps the last value of each process, because workers that Spark's daemon does not wait for
    are counted nowhere else.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], float] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def cpu_s(self) -> float:
        with self._lock:
            self._look()
            return sum(self._seen.values())

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            with self._lock:
                self._look()

    def _look(self) -> None:
        found: dict[int, tuple[int, str, float]] = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    fields = Path("/proc", name, "stat").read_text().rpartition(") ")[2].split()
                except OSError:
                    continue  # it has just ended
                found[int(name)] = int(fields[1]), fields[19], (int(fields[11]) + int(fields[12])) / TICK
        own = {os.getpid()}
        while more := {pid for pid, (parent, _, _) in found.items() if parent in own} - own:
            own |= more
        self._seen.update({(pid, found[pid][1]): found[pid][2] for pid in own if pid in found})


@contextmanager
def world(spark: SparkSession | None = None) -> Iterator[World]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-spark-")))
        brokers = [stack.enter_context(Ottla()).start() for _ in range(2)]
        spark = spark or stack.enter_context(
            sessions.session(folder / "spark", memory=MEMORY, java=(), settings=ADVISED)
        )
        for source in (ceilings.Constant, ceilings.Swallow):
            spark.dataSource.register(source)
        processes = ceilings.Processes()
        stack.callback(processes.close)
        meter = Meter()
        stack.callback(meter.close)
        yield World(spark, *brokers, folder, processes, meter)


def timed(world: World, side: spark_rows.Side, load: Load) -> dict[str, float]:
    broker, total, started = world.broker.cpu_s(), world.meter.cpu_s(), time.perf_counter()
    count = side(world, load)
    seconds = time.perf_counter() - started
    total, broker = world.meter.cpu_s() - total, world.broker.cpu_s() - broker
    rows = count()
    if rows < load.records:
        raise BenchError(f"{rows} rows of {load.records}")
    return {"rows_s": rows / seconds, "cpu_s_m": total / rows * 1e6, "broker_s_m": broker / rows * 1e6}


def measure(world: World, row: SparkRow, repeat: int, large: Load, small: Load) -> dict[str, Numbers]:
    """Run every side of a row in turn; one that fails prints its error and drops out."""
    numbers: dict[str, Numbers] = {}
    able = dict(row.sides)
    for turn in range(repeat + 1):
        for name, side in list(able.items()):
            try:
                sample = timed(world, side, large if turn else small)
            except (BenchError, OSError) as error:
                print(f"    {name}: {error}", file=sys.stderr)
                del able[name]
                continue
            if turn:
                table.collect(numbers.setdefault(name, {}), sample)
    return numbers


def measured(wanted: Sequence[SparkRow], repeat: int, *, decoder: bool) -> dict[str, Any]:
    began, results = time.time(), Results()
    report = {"cores": os.cpu_count(), "repeat": repeat, "spark": connector.VERSION, "rows": results}
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / time.strftime("spark-%Y-%m-%d-%H%M%S.json", time.gmtime(began))
    if decoder:
        rounds = columns.measure(columns.decode("none", *columns.fetched(Codec.NONE)))
        results[DECODER] = {OURS: {"rows_s": [value * 1e6 for value in rounds]}}
        print(f"{time.time() - began:5.0f} s  {DECODER}: {max(rounds):.1f} M/s", file=sys.stderr, flush=True)
    with world() if wanted else ExitStack() as place:
        for size in sorted({row.size for row in wanted}):
            rows = [row for row in wanted if row.size == size]
            loads = [filled(place, f"bench-{size}-{count}", count, size) for count in sizes(rows[0].records)]
            for row in rows:
                results[row.name] = measure(place, row, repeat, *loads)
                report["load"] = os.getloadavg()[2]
                file.write_text(json.dumps(report, indent=1))
                print(f"{time.time() - began:5.0f} s  {summary(row, results[row.name])}", file=sys.stderr, flush=True)
            for load in loads:
                place.drop(place.broker, load.topic)
    return report


def sizes(records: int) -> tuple[int, int]:
    return records, max(1000, records // WARM)


def filled(place: World, topic: str, records: int, size: int) -> Load:
    return Load(topic, fill.fill(place.broker.bootstrap, topic, records, size, PARTITIONS), size)


def speed(numbers: dict[str, Numbers], side: str) -> float | None:
    return statistics.median(numbers[side]["rows_s"]) / 1e6 if side in numbers else None


def paired(numbers: dict[str, Numbers], one: str, other: str) -> list[float]:
    """How many times as fast one side was as the other, turn by turn, under the same load of the machine."""
    if one not in numbers or other not in numbers:
        return []
    both = zip(numbers[one]["rows_s"], numbers[other]["rows_s"], strict=False)
    return [first / second for first, second in both]


def summary(row: SparkRow, numbers: dict[str, Numbers]) -> str:
    sides = [f"{side} {speed(numbers, side):.2f}" for side in numbers]
    return f"{row.name}: {', '.join(sides)} M rows/s"


def cell(numbers: dict[str, Numbers], side: str) -> str:
    if side not in numbers:
        return ""
    values = [value / 1e6 for value in numbers[side]["rows_s"]]
    wide = f" ±{table.spread(values):.0%}".replace("%", " %") if len(values) > 1 else ""
    return f"{table.figure(statistics.median(values))}{wide}"


def cost(numbers: dict[str, Numbers], side: str) -> str:
    return table.figure(statistics.median(numbers[side]["cpu_s_m"])) if side in numbers else ""


def line(row: SparkRow, numbers: dict[str, Numbers]) -> list[str]:
    verdicts = []
    for goal in row.goals:
        ratios = paired(numbers, OURS, goal.side)
        if not ratios:
            verdicts.append(f"no number ({goal.times:g})")
            continue
        times = statistics.median(ratios)
        verdicts.append(f"{'yes' if times >= goal.times else 'no'} ({times:.1f} of {goal.times:g})")
    more = [f"{side} {cell(numbers, side)}" for side in numbers if side not in (OURS, DEFAULT, BEST, CEILING)]
    shares = paired(numbers, OURS, CEILING)
    share = f", ours is {statistics.median(shares):.0%} of it".replace("%", " %") if shares else ""
    top = f"{row.ceiling}: {cell(numbers, CEILING)}{share}" if CEILING in numbers else ""
    costs = " / ".join(cost(numbers, side) for side in (OURS, DEFAULT, BEST))
    speeds = [cell(numbers, side) for side in (OURS, DEFAULT, BEST)]
    return [row.name, *speeds, ", ".join(verdicts), costs, "; ".join([top, *more]).strip("; ")]


HEAD = ("row", "ours", "connector", "its best", "goals met", "CPU s/M rows: ours / connector / best", "ceiling")


def markdown(rows: Sequence[SparkRow], report: dict[str, Any]) -> str:
    results = report["rows"]
    lines = [line(row, results[row.name]) for row in rows if row.name in results]
    if DECODER in results:
        rounds = [value / 1e6 for value in results[DECODER][OURS]["rows_s"]]
        met = f"{'yes' if max(rounds) >= DECODER_GOAL else 'no'} ({max(rounds):.1f} of {DECODER_GOAL:g})"
        lines.append([DECODER, cell(results[DECODER], OURS), "", "", met, "", "best of nine rounds, with CRC"])
    head = f"Measured on {time.strftime('%Y-%m-%d')}: {report['cores']} cores, Spark {report['spark']} on local[2], "
    head += f"million rows a second, {report['repeat']} repeats, load average {report.get('load', 0):.1f}.\n"
    body = [f"| {' | '.join(cells)} |" for cells in (HEAD, ["---"] * len(HEAD), *lines)]
    return "\n".join([head, *body]) + "\n"


def tune(factor: float, repeat: int) -> None:
    """The connector with settings that may matter, in turns, on the smaller records; the fastest last."""
    with world() as place:
        load = filled(place, "tune", int(10_000_000 * factor), 100)
        for what, settings in TUNING.items():
            made = spark_rows.reading if what == "read" else spark_rows.writing
            found: list[Numbers] = [{} for _ in settings]
            for turn in range(repeat + 1):
                for options, numbers in zip(settings, found, strict=True):
                    sample = timed(place, made("kafka", options), load)
                    if turn:
                        table.collect(numbers, sample)
            by_speed = sorted(zip(found, settings, strict=True), key=lambda one: statistics.median(one[0]["rows_s"]))
            for numbers, options in by_speed:
                print(f"{what}: {cell({OURS: numbers}, OURS)} M rows/s, CPU {cost({OURS: numbers}, OURS)}, {options}")


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", default=[], help="only rows whose name contains one of these")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--factor", type=float, default=1.0, help="make topics this many times as large")
    parser.add_argument("--quick", action="store_true", help=f"the same as --repeat 1 --factor {QUICK}")
    parser.add_argument("--tune", action="store_true", help="find the connector's best settings")
    parser.add_argument("--list", action="store_true", help="print the names of the rows and stop")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    options = arguments(words)
    repeat, factor = (1, QUICK) if options.quick else (options.repeat, options.factor)
    if options.tune:
        tune(factor, repeat)
        return 0
    rows = spark_rows.rows(factor)
    names = [*(row.name for row in rows), DECODER]
    chosen = [name for name in names if not options.rows or any(word in name for word in options.rows)]
    if options.list:
        print("\n".join(chosen))
        return 0
    if not chosen:
        return 0
    report = measured([row for row in rows if row.name in chosen], repeat, decoder=DECODER in chosen)
    text = markdown(rows, report)
    if chosen == names and factor == 1.0:
        table.insert(README, "spark", text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
