"""`make run`: shows on one machine and in one table what Ottla does.

    visitors ─► west: activity ─┬─ activity-live    sessions and counts by the minute, as they happen (exactly once)
                                ├─ activity-report  daily tables and an HTML page, every few seconds
                                └─ mirror           the whole topic, batch by batch ─► east: west.activity

It runs two brokers, each a process; the console, a web page to watch and change west; and one Spark, in which the three
consumer groups of the topic run. A table shows topics, groups, lag and throughput until Ctrl-C, or for `DEMO_SECONDS`.
Then the visitors leave, the groups catch up, everything stops, and the results are counted. Data is removed at the end;
the report stays in `ottla-demo/`.

With `CLUSTER=3`, west is a cluster of three brokers on a real ZooKeeper, and every topic has three copies.

Needs the extras `tools`, `console` and `spark`, and a JDK 17.
"""

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from ottla.client.cluster import Cluster
from ottla.client.failure import Failed
from ottla.console.beside import Beside
from ottla.demo.parts import EVENTS, MIRRORED, Part, Stage, free
from ottla.demo.summary import summary
from ottla.demo.table import Screen
from ottla.demo.watch import DemoView, Sampler
from ottla.embed import BrokerProcess
from ottla.testing import Cluster as Brokers
from ottla.testing.ports import free_ports

PORT = 9092
CONSOLE_PORT = 8190
RATE = 200.0
KEPT = Path("ottla-demo")
LOOK_S = 1.0
# How long the groups may take to catch up after the visitors have left. A busy machine starts Spark slowly.
PATIENCE_S = 240.0
# A new group waits for more members before its first assignment; here there are no more.
OPTIONS = {"group.initial.rebalance.delay.ms": 0}


class Ended(Exception):
    """The demo's time is over, or the user stopped it."""


def main() -> int:
    seconds = float(os.environ.get("DEMO_SECONDS") or "inf")
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, end)
    try:
        with tempfile.TemporaryDirectory(prefix="ottla-demo-") as folder:
            return demo(Path(folder), seconds, int(os.environ.get("CLUSTER") or "1"))
    except (Ended, KeyboardInterrupt):
        return 130
    except Failed as error:
        print(f"ottla: {error}", file=sys.stderr)
        return 1


def end(number: int, frame: FrameType | None) -> None:
    raise Ended


def brokers(folder: Path, count: int) -> BrokerProcess | Brokers:
    """One broker, or a cluster of them."""
    ports = range(PORT, PORT + count)
    if count == 1:
        return BrokerProcess(data=folder, port=PORT if free(PORT) else 0, options=OPTIONS)
    copies = min(3, count)
    options = {**OPTIONS, "default.replication.factor": copies, "min.insync.replicas": max(1, copies - 1)}
    return Brokers(count, folder=folder, options=options, ports=ports if all(map(free, ports)) else ())


def demo(folder: Path, seconds: float, count: int) -> int:
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:5.1f} s  {text}", flush=True)

    with ExitStack() as stack:
        west = brokers(folder / "west", count)
        stack.enter_context(west)
        east = stack.enter_context(BrokerProcess(data=folder / "east", options=OPTIONS))
        say(f"{'two' if count == 1 else count + 1} brokers: west at {west.bootstrap}, east at {east.bootstrap}")
        stage = stack.enter_context(Stage(west.bootstrap, east.bootstrap, folder, RATE))
        stage.open()
        say(f"visitors come to the site: {RATE:.0f} events a second to the topic {EVENTS} of west")
        watches = {
            name: Sampler(stack.enter_context(Cluster(bootstrap)))
            for name, bootstrap in (("west", west.bootstrap), ("east", east.bootstrap))
        }
        screen = stack.enter_context(Screen())
        try:
            screen.show({name: watch.look() for name, watch in watches.items()})
            stage.work(say)
            start_console(stack, west.bootstrap, folder, say)
            while time.monotonic() - began < seconds:
                stage.check()
                screen.show({name: watch.look() for name, watch in watches.items()})
                time.sleep(min(LOOK_S, max(0.0, began + seconds - time.monotonic())))
        except Ended:
            pass
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C ends at once
        say("the visitors leave, and the groups catch up")
        stage.close_doors()
        done = wait_for_groups(watches["west"], stage.parts)
        say("every group has read all of the topic" if done else "not every group had time to read all of the topic")
        stage.stop()
        screen.last({name: watch.look() for name, watch in watches.items()})
        report = stage.keep_report(KEPT)
        print(summary(west.bootstrap, east.bootstrap, EVENTS, MIRRORED, report), flush=True)
    return 0


def start_console(stack: ExitStack, bootstrap: str, folder: Path, say: Callable[[str], None]) -> None:
    """Start the console. Called when Spark is up, since starting both at once is not faster."""
    port = CONSOLE_PORT if free(CONSOLE_PORT) else free_ports(1)[0]
    options = ["--listen", f"127.0.0.1:{port}", "--history", str(folder / "console.sqlite"), "--allow-changes"]
    console = Beside(bootstrap, options, quiet=True)
    stack.callback(console.stop)
    say(f"the console is at http://127.0.0.1:{port}: lag, messages, reassignments, in a browser")


def wait_for_groups(west: Sampler, parts: list[Part]) -> bool:
    """Wait until every group has read all of the topic. False if that takes longer than PATIENCE_S, or a part ended."""
    deadline = time.monotonic() + PATIENCE_S
    groups = {part.group for part in parts}
    while time.monotonic() < deadline and all(part.alive for part in parts):
        if groups <= groups_at_end(west.look()):
            return True
        time.sleep(LOOK_S / 4)
    return False


def groups_at_end(view: DemoView) -> set[str]:
    """The groups that have read all of the topic."""
    return {group.name for group in view.groups if EVENTS in group.topics and not group.lag}


if __name__ == "__main__":
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        sys.exit("ottla: the demo runs Spark, which needs Java 17: install a JDK 17, or set JAVA_HOME to one")
    sys.exit(main())
