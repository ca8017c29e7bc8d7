"""Our Spark rows before and after a change: python bench/spark_before.py OTHER_TREE [--rows TEXT ...] [--pairs 9]

OTHER_TREE is a checkout of another commit, set up with `make setup-test`. Each tree gets a process with a JVM, Spark's
Python workers and two brokers of its own, all from its own code. Both stay warm, and take turns A B B A on topics of
the same size. Only our side of a row runs, not the connector. The result is the ratio of this tree to the other in each
pair of turns, for speed and for the CPU time of all processes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from bench import turns  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

# Runs with the modules of its own tree. It answers each line, a row and "large" or "small", with a line of JSON.
SERVANT = """
import json, os, sys
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # whatever else is printed goes to standard error
from bench import spark
from bench.spark_rows import OURS, rows
known = {row.name: row for row in rows(float(sys.argv[1]))}
with spark.world() as place:
    loads = {}
    print(json.dumps(sorted(known)), file=answers, flush=True)
    for line in sys.stdin:
        name, which = line.strip().split("\\t")
        row = known[name]
        count = spark.sizes(row.records)[which == "small"]
        topic = f"bench-{row.size}-{count}"
        if topic not in loads:
            loads[topic] = spark.filled(place, topic, count, row.size)
        print(json.dumps(spark.timed(place, row.sides[OURS], loads[topic])), file=answers, flush=True)
"""


class Tree:
    """A checkout, with a process that runs its rows."""

    def __init__(self, folder: Path, factor: float) -> None:
        paths = [folder, folder / "src", folder / "tests"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
        words = [folder / ".venv" / "bin" / "python", "-c", SERVANT, str(factor)]
        self._process = subprocess.Popen(
            words, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.rows: set[str] = set(self._receive())

    def measure(self, row: str, size: str) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{row}\t{size}\n")
        self._process.stdin.flush()
        sample: dict[str, float] = self._receive()
        return sample

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a tree's process has ended; its last lines are above")
        return json.loads(line)


def compare(trees: Sequence[Tree], row: str, pairs: int) -> str:
    """One line: this tree's numbers divided by the other's. The first, smaller turn of each does not count."""
    samples: dict[Tree, list[dict[str, float]]] = {tree: [] for tree in trees}
    for tree in trees:
        tree.measure(row, "small")
    for tree in turns.order(trees, pairs):
        samples[tree].append(tree.measure(row, "large"))

    def ratio(measure: str) -> str:
        ours, theirs = ([sample[measure] for sample in samples[tree]] for tree in trees)
        return str(turns.spread(turns.ratios(ours, theirs)))

    return f"{row:26} speed {ratio('rows_s'):24} CPU {ratio('cpu_s_m')}"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="a checkout of another commit")
    parser.add_argument("--rows", nargs="*", default=[], help="only rows whose name contains one of these")
    parser.add_argument("--pairs", type=int, default=turns.PAIRS)
    parser.add_argument("--factor", type=float, default=0.2, help="make topics this many times as large")
    options = parser.parse_args(words)
    trees = [Tree(folder.resolve(), options.factor) for folder in (ROOT, options.other)]
    try:
        for row in sorted(trees[0].rows & trees[1].rows):
            if not options.rows or any(word in row for word in options.rows):
                print(compare(trees, row, options.pairs), flush=True)
    finally:
        for tree in trees:
            tree.close()


if __name__ == "__main__":
    main()
