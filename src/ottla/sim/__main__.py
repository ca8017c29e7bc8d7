"""`python -m ottla.sim`: runs simulated clusters, one run ("story") per seed.

    python -m ottla.sim --seed 42 --trace        one run, with every event
    python -m ottla.sim --seeds 1000 --jobs 2    many runs in parallel; exit code 1 if one fails
    python -m ottla.sim --operators              with operators at work (`operations.py`)

A seed always gives the same run. For that, Python's hash seed is fixed, which decides the order of sets of strings.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.sim.operations import OPERATED
from ottla.sim.trial import Outcome, tell

if TYPE_CHECKING:
    from collections.abc import Mapping

HASH_SEED = "0"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ottla.sim", description="Run simulated clusters.")
    parser.add_argument("--seed", type=int, help="run only this seed")
    parser.add_argument("--seeds", type=int, default=100, help="number of runs")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument("--operators", action="store_true", help="replicas move, configs change, files are spoiled")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        environment = {**os.environ, "PYTHONHASHSEED": HASH_SEED}
        command = [sys.executable, "-m", "ottla.sim", *sys.argv[1:]]
        os.execve(sys.executable, command, environment)  # nosec B606 # this program again
    world = OPERATED if options.operators else {}
    if options.seed is not None:
        outcome = tell(options.seed, trace=print if options.trace else None, **world)
        print(outcome)
        return 0 if outcome.wrong is None else 1
    return many(range(options.first, options.first + options.seeds), options.jobs, world)


def many(seeds: range, jobs: int, world: Mapping[str, Any]) -> int:
    began, wrong, acked = time.monotonic(), list[Outcome](), 0
    with ProcessPoolExecutor(jobs) as pool:
        for count, outcome in enumerate(pool.map(partial(tell, **world), seeds), 1):
            acked += outcome.acked
            if outcome.wrong is not None:
                wrong.append(outcome)
                print(outcome, flush=True)
            if count % 50 == 0:
                print(f"{count} stories, {len(wrong)} wrong, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{len(seeds)} stories, {acked} records acknowledged, {len(wrong)} wrong, {time.monotonic() - began:.0f} s")
    for outcome in wrong:
        print(f"again: python -m ottla.sim --seed {outcome.seed} --trace{' --operators' if world else ''}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
