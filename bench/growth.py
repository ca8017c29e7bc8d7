"""How cost scales: python bench/growth.py [--axes NAME ...] [--largest-gb N] [--sides S ...] [--pairs N]

Partitions, connections, groups and the size of a log grow step by step on Ottla and on Apache Kafka, and at each size
both do the same small work in short turns, A B B A. The measure is the CPU time of the broker's process, so clients
and other load on the machine do not count. For each axis the brokers are restarted, and warmed up at the smallest
size. Quartiles go to bench/growth.json, a picture for each axis next to it, pictures and tables to bench/README.md.
An axis that was not run keeps its last figures.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)
sys.path.append(str(ROOT / "tests"))

from bench import plot, table, turns  # noqa: E402
from bench.brokers import SIDES  # noqa: E402
from bench.growing import connections, groups, log_size, partitions  # noqa: E402
from bench.growing.axis import REST, Axis, Effort  # noqa: E402
from bench.turns import Spread  # noqa: E402
from tests import judge  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bench.growing.axis import Load

HERE = ROOT / "bench"
AXES = {module.AXIS.name: module.AXIS for module in (partitions, connections, groups, log_size)}
NAMES = {"kafka": "Apache Kafka", "ottla": "Ottla"}
FLAT = 1.5  # cost at the largest size over cost at the smallest, at most, to count as flat
ROOM = 0.8  # share of the free disk that may be used

Points = dict[str, dict[str, dict[int, list[float]]]]  # measure → side → size → one value for each turn


def grown(axis: Axis, sides: Sequence[str], effort: Effort) -> Points:
    """Measure the brokers at each size of one axis."""
    began = time.monotonic()
    points: Points = {measure: {side: {} for side in sides} for measure in axis.measures}
    with ExitStack() as stack:
        loads = []
        for side in sides:
            broker = stack.enter_context(SIDES[side](options=axis.options)).start()
            loads.append(axis.load(broker, effort))
            stack.callback(loads[-1].close)
        for load in loads:
            load.grow(axis.sizes[0])
            load.sample(effort.warm_requests if load.broker.name == "kafka" else effort.requests)
            load.drop()
        print(f"{axis.name}: warm after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        for size in axis.sizes:
            began = time.monotonic()
            for together in companies(axis, size, loads):
                for load in loads if len(together) < len(loads) else ():
                    load.drop()
                for load in together:
                    load.grow(size)
                ready = time.monotonic()
                measure(points, size, together, effort)
            if axis.rests:
                rest(points, size, loads, effort)
            print_line(axis, size, points, ready - began, time.monotonic() - ready)
    return points


def companies(axis: Axis, size: int, loads: list[Load]) -> list[list[Load]]:
    """Which loads run at this size at the same time: all of them, unless the disk is too small."""
    if axis.room(size) * len(loads) < shutil.disk_usage(loads[0].broker.folder).free * ROOM:
        return [loads]
    return [[load] for load in loads]


def measure(points: Points, size: int, loads: Sequence[Load], effort: Effort) -> None:
    """Measure in turns; the first does not count."""
    for load in loads:
        load.sample(effort.requests)
    for load in turns.order(loads, effort.pairs):
        for name, value in load.sample(effort.requests).items():
            points[name][load.broker.name].setdefault(size, []).append(value)


def rest(points: Points, size: int, loads: Iterable[Load], effort: Effort) -> None:
    """What an idle broker uses. This does not disturb the others. It settles first."""
    time.sleep(effort.rest_s)
    for _ in range(effort.rests):
        before, start = {load: load.broker.cpu_s() for load in loads}, time.monotonic()
        time.sleep(effort.rest_s)
        for load, cpu_s in before.items():
            used_ms_s = (load.broker.cpu_s() - cpu_s) / (time.monotonic() - start) * 1e3
            points[REST][load.broker.name].setdefault(size, []).append(used_ms_s)


def print_line(axis: Axis, size: int, points: Points, growing_s: float, measuring_s: float) -> None:
    cells = [
        f"{name} {'/'.join(table.figure(turns.spread(sizes[size]).median) for sizes in sides.values())}"
        for name, sides in points.items()
    ]
    seconds = f"{growing_s:.0f} + {measuring_s:.0f} s"
    print(f"{axis.name} {size:,}: {', '.join(cells)} ({seconds})", file=sys.stderr, flush=True)


def quartiles(points: Points) -> dict[str, Any]:
    return {
        name: {
            side: {str(size): [float(f"{value:.4g}") for value in turns.spread(values)] for size, values in at.items()}
            for side, at in sides.items()
        }
        for name, sides in points.items()
    }


def spreads(sizes: dict[str, list[float]]) -> plot.Line:
    return [(int(size), Spread(*values)) for size, values in sizes.items()]


def picture(axis: Axis, found: dict[str, Any]) -> str:
    panels = [
        plot.Panel(title, {side: spreads(sizes) for side, sizes in found[name].items()})
        for name, title in axis.measures.items()
    ]
    return plot.draw(axis.title, axis.label, panels, NAMES)


def verdict(axis: Axis, found: dict[str, Any]) -> str:
    """One sentence for each measure: how much more it costs at the largest size than at the smallest."""
    parts = []
    for name, title in axis.measures.items():
        lines = {side: spreads(sizes) for side, sizes in found[name].items()}
        rises = {side: line[-1][1].median / line[0][1].median for side, line in lines.items() if line[0][1].median}
        if "ottla" not in rises:
            continue
        word = "flat" if rises["ottla"] <= FLAT else "not flat"
        beside = f", Kafka's {rises['kafka']:.2g}" if "kafka" in rises else ""
        parts.append(f"{title.partition(',')[0]} {word} ({rises['ottla']:.2g} times as much{beside})")
    first, last = (int(list(found[name]["ottla"])[at]) for at in (0, -1))
    return f"From {first:,} to {last:,} Ottla's cost is: {'; '.join(parts)}. {axis.why}"


def rows(axis: Axis, found: dict[str, Any]) -> str:
    """Medians with their quartiles, a column for each measure and side."""
    sides = list(next(iter(found.values())))
    heads = [axis.label, *(f"{title}: {NAMES[side]}" for title in axis.measures.values() for side in sides)]
    lines = [heads, ["---"] * len(heads)]
    for size in next(iter(found.values()))["ottla"]:
        cells = [cell(found[name][side].get(size)) for name in axis.measures for side in sides]
        lines.append([f"{int(size):,}", *cells])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cell(values: list[float] | None) -> str:
    if values is None:
        return ""
    low, median, high = map(table.figure, values)
    return f"{median} ({low} to {high})"


def section(report: dict[str, Any]) -> str:
    """The section in README.md."""
    parts = []
    for name, result in report.items():
        axis, found = AXES[name], result["measures"]
        title = f"### {axis.title}"
        image = f"![Ottla beside Apache Kafka. {axis.title}](growth-{name}.svg)"
        parts.append("\n\n".join((title, image, verdict(axis, found), result["conditions"], rows(axis, found))))
    return "\n".join(parts)


def conditions(effort: Effort, seconds: float) -> str:
    day, load = time.strftime("%Y-%m-%d"), os.getloadavg()[2]
    how = f"{effort.pairs} pairs of turns of {effort.requests:,} requests of each kind"
    return (
        f"Measured on {day} with {os.cpu_count()} cores, Apache Kafka {judge.NEWEST}, {how}; load average {load:.1f}, "
        f"{seconds:.0f} s. Medians with their quartiles."
    )


def limited(axis: Axis, largest_gb: float) -> Axis:
    """The axis without larger logs, and with one of exactly that size."""
    if axis is not log_size.AXIS:
        return axis
    largest = round(largest_gb * 1000)
    return replace(axis, sizes=(*(size for size in axis.sizes if size < largest), largest))


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--axes", nargs="*", default=list(AXES), choices=list(AXES))
    parser.add_argument("--sides", nargs="*", default=list(SIDES), choices=list(SIDES))
    parser.add_argument("--largest-gb", type=float, default=50.0, help="the largest log (default: %(default)g)")
    parser.add_argument("--pairs", type=int, default=Effort.pairs, help="of turns at each size (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=Effort.requests, help="in a turn (default: %(default)s)")
    parser.add_argument("--to", type=Path, default=HERE, metavar="FOLDER", help="for figures, pictures and README.md")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    options = arguments(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))  # stops brokers and removes their folders
    effort = Effort(requests=options.requests, pairs=options.pairs)
    file = options.to / "growth.json"
    report: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for name in options.axes:
        began = time.monotonic()
        found = quartiles(grown(limited(AXES[name], options.largest_gb), options.sides, effort))
        report[name] = {"conditions": conditions(effort, time.monotonic() - began), "measures": found}
        write(options.to, {name: report[name] for name in AXES if name in report})
    return 0


def write(folder: Path, report: dict[str, Any]) -> None:
    """Write the report, pictures and tables; after each axis, so that an aborted run keeps its results."""
    (folder / "growth.json").write_text(json.dumps(report, indent=1) + "\n")
    for name, result in report.items():
        (folder / f"growth-{name}.svg").write_text(picture(AXES[name], result["measures"]))
    table.insert(folder / "README.md", "growth", section(report))


if __name__ == "__main__":
    sys.exit(main())
