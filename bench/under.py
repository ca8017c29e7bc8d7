"""Run `ottla serve` under a profiler: python bench/under.py sample|calls OUTPUT serve ARGUMENT...

sample   a signal records the stack a few hundred times per CPU second: cheap, and right about what is slow; C functions
         count for the Python line that called them
calls    cProfile: how often each function is called, C functions by name; its overhead inflates small functions

Sampling begins at SIGUSR1 and ends at the next, so that start and stop are excluded; cProfile covers everything.
Ottla itself does not depend on this file.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT / "src")

if TYPE_CHECKING:
    from types import FrameType

PERIOD_S = 0.001


def sampled(output: Path, arguments: list[str]) -> int:
    """Counts of stacks, innermost first, as lists of "file:function:line"."""
    from ottla.serve import serve

    stacks: Counter[tuple[tuple[str, str, int], ...]] = Counter()

    def note(_number: int, frame: FrameType | None) -> None:
        stack = []
        while frame is not None:
            stack.append((frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno))
            frame = frame.f_back
        stacks[tuple(stack)] += 1

    def switch(_number: int, _frame: FrameType | None) -> None:
        period_s = 0.0 if signal.getitimer(signal.ITIMER_PROF)[1] else PERIOD_S
        signal.setitimer(signal.ITIMER_PROF, period_s, period_s)

    signal.signal(signal.SIGPROF, note)
    signal.siginterrupt(signal.SIGPROF, False)
    signal.signal(signal.SIGUSR1, switch)
    try:
        return serve(arguments)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        output.write_text(json.dumps([[list(map(list, stack)), count] for stack, count in stacks.items()]))


def called(output: Path, arguments: list[str]) -> int:
    import cProfile

    from ottla.serve import serve

    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    profile = cProfile.Profile()
    try:
        return int(profile.runcall(serve, arguments))
    finally:
        profile.dump_stats(output)


if __name__ == "__main__":
    how, output, command, *rest = sys.argv[1:]
    assert command == "serve"
    sys.exit({"sample": sampled, "calls": called}[how](Path(output), rest))
