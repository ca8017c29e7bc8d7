"""Where Ottla's time goes in one row: python bench/profile.py "one record, 50 conn., acks=1" [--how sample|calls]

Runs the row on an Ottla broker under a profiler (under.py) and prints, per function, its own time and its time with
callees: as a share, and in microseconds per request of the same run. With `--lines`, per line.
"""

from __future__ import annotations

import argparse
import json
import os
import pstats
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from bench.brokers import Ottla  # noqa: E402
from bench.client import Client  # noqa: E402
from bench.rows import Row, Sample, Setting  # noqa: E402
from bench.run import chosen, every_row  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

TOP = 40


class Profiled(Ottla):
    """Ottla under a profiler, with the output next to its folder."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.output = self.folder / "profile"

    def command(self) -> Sequence[str]:
        _python, _module, _ottla, *arguments = super().command()
        return [sys.executable, str(ROOT / "bench" / "under.py"), self.how, str(self.output), *arguments]


def place(file: str, name: str) -> str:
    short = file.replace(f"{ROOT}/src/", "").rpartition("site-packages/")[2]
    return f"{short}:{name}"


def print_samples(output: Path, sample: Sample, *, lines: bool) -> None:
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    total = 0
    for stack, count in json.loads(output.read_text()):
        names = [place(file, f"{name}:{line}" if lines else name) for file, name, line in stack]
        own[names[0]] += count
        whole.update(dict.fromkeys(names, count))
        total += count
    each = sample.get("us_req") or sample.get("each_us", 0.0)
    print(f"{total} samples; {each:.1f} µs of CPU a request\n\n  own %   own µs   with callees %       µs")
    for name, count in own.most_common(TOP):
        share, deep = count / total, whole[name] / total
        print(f"{share:7.1%} {share * each:8.2f} {deep:16.1%} {deep * each:8.2f}   {name}")
    print("\nwith callees")
    for name, count in whole.most_common(TOP):
        print(f"{count / total:7.1%} {count / total * each:8.2f}   {name}")


def profile(row: Row, how: str, seconds: float, *, lines: bool) -> None:
    needs_client = row.name.startswith(("produce", "consume", "end"))
    client = Client() if needs_client else None
    try:
        with Profiled(how).start() as broker:
            setting = Setting(client, seconds=seconds)
            row.prepare(broker, setting)
            os.kill(broker.pid, signal.SIGUSR1)
            sample = row.run(broker, setting)
            os.kill(broker.pid, signal.SIGUSR1)
            print(f"{row.name}: {', '.join(f'{key} {value:.4g}' for key, value in sample.items())}")
            broker.stop()
            if how == "sample":
                print_samples(broker.output, sample, lines=lines)
            else:
                pstats.Stats(str(broker.output)).sort_stats("tottime").print_stats(TOP)
    finally:
        if client is not None:
            client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row", help="part of a row's name; the first match is used")
    parser.add_argument("--how", choices=("sample", "calls"), default="sample")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--lines", action="store_true", help="count lines instead of functions")
    options = parser.parse_args()
    profile(chosen(every_row(), [options.row])[0], options.how, options.seconds, lines=options.lines)


if __name__ == "__main__":
    main()
