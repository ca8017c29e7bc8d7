"""What metrics cost: this tree against one without metrics, in alternating turns. CPU time, not wall time.

    git archive COMMIT src | tar x -C FOLDER; cp src/ottla/_native* FOLDER/src/ottla/
    python bench/metrics.py FOLDER [PAIRS] [ROW ...]

Any two trees can be compared this way, in all rows or in those whose names contain one of the texts. This tree is also
scraped every second.
"""

from __future__ import annotations

import os
import sys
import threading
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)
sys.path[1:1] = [str(ROOT / "src"), str(ROOT / "tests")]

from bench import pump, turns  # noqa: E402
from bench.brokers import Ottla  # noqa: E402
from bench.wire import batch, produce_frame, produce_shape  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

KB = 1024
STRETCH = pump.Stretch(0.2, 1.0)
TOPIC, PARTITIONS, FILLED = "measured", 6, 400


class Tree(Ottla):
    """A broker from a source tree."""

    def __init__(self, source: Path) -> None:
        super().__init__()
        self._source = source

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self._source)}

    def ready(self) -> Tree:
        self.start()
        with self.connect() as connection:
            connection.create_topic(TOPIC, PARTITIONS)
            connection.wait_led(TOPIC, PARTITIONS)
            frame = produce_frame(TOPIC, {0: batch(1000, 128 * KB).data}, 1)
            for _ in range(FILLED):
                connection.call(frame)
        return self


def produced(broker: Tree, size: int, connections: int, *, at_once: int = 1, window: int = 1) -> float:
    """Microseconds of broker CPU per request; a request has a batch for each of `at_once` partitions."""
    one = batch(100, size)
    frames = [
        produce_frame(TOPIC, {1 + (at + more) % (PARTITIONS - 1): one.data for more in range(at_once)}, 1)
        for at in range(connections)
    ]
    sizes, shape = [one.value_bytes * at_once] * connections, produce_shape(TOPIC, at_once)
    answer = pump.produce(broker, frames, shape, STRETCH, value_bytes=sizes, window=window)
    return answer["cpu_s"] / answer["count"] * 1e6


def fetched(broker: Tree, size: int, connections: int = 8) -> float:
    built = batch(1000, 128 * KB)
    offsets = range(0, (FILLED - 10) * built.records, built.records)
    answer = pump.fetch(broker, TOPIC, offsets, STRETCH, partition_max=size, connections=connections)
    return answer["cpu_s"] / answer["count"] * 1e6


ROWS: dict[str, Callable[[Tree], float]] = {
    "produce one record, 50 connections": lambda broker: produced(broker, 1, 50),
    "produce 16 kB, 4 connections of 5": lambda broker: produced(broker, 16 * KB, 4, window=5),
    "produce 128 kB, 4 connections": lambda broker: produced(broker, 128 * KB, 4),
    "produce 5 x 16 kB, 8 connections": lambda broker: produced(broker, 16 * KB, 8, at_once=5),
    "produce 5 x 128 kB, 8 connections": lambda broker: produced(broker, 128 * KB, 8, at_once=5),
    "produce 5 x 1 MB, 8 connections": lambda broker: produced(broker, 1000 * KB, 8, at_once=5),
    "fetch 1 MB, 8 connections": lambda broker: fetched(broker, 1024 * KB),
    "fetch 128 kB, 8 connections": lambda broker: fetched(broker, 128 * KB),
    "fetch 16 kB, 20 connections": lambda broker: fetched(broker, 16 * KB, 20),
}


def scrape(broker: Tree, stop: threading.Event) -> None:
    address = (broker.folder / "data" / "ottla-metrics.address").read_text().strip()
    while not stop.wait(1.0):
        urllib.request.urlopen(f"{address}/metrics").read()


def main(other: str, pairs: str = str(turns.PAIRS), *words: str) -> None:
    with Tree(ROOT / "src").ready() as ours, Tree(Path(other) / "src").ready() as theirs:
        stop = threading.Event()
        threading.Thread(target=scrape, args=(ours, stop), daemon=True).start()
        for name, run in ROWS.items():
            if words and not any(word in name for word in words):
                continue
            taken: dict[Tree, list[float]] = {ours: [], theirs: []}
            for side in turns.order((ours, theirs), int(pairs)):
                taken[side].append(run(side))
            ratio = turns.spread(turns.ratios(taken[ours], taken[theirs]))
            cpu = turns.spread(taken[ours]), turns.spread(taken[theirs])
            shares = (
                f"{(ratio.median - 1) * 100:+.1f} % ({(ratio.low - 1) * 100:+.1f} to {(ratio.high - 1) * 100:+.1f})"
            )
            print(f"{name:36} {cpu[1].median:8.1f} -> {cpu[0].median:8.1f} us CPU a request   {shares}", flush=True)
        stop.set()


if __name__ == "__main__":
    main(*sys.argv[1:])
