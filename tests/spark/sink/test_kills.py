"""A stream copies topic A to topic B exactly once while its tasks, its driver and the broker are killed at random.

At the end, committed B equals A, key by key and in order. `KILLS=50 pytest tests/spark/test_kills.py -s` is the long
form, against Ottla and Apache Kafka; the suite's own has few kills, one of each kind at least.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Producer
from judge import Kafka
from process import Ottla
from spark.copies import content
from spark.topics import Topics, delivered
from waiting import wait_until

from ottla.client.cluster import Cluster
from ottla.client.transaction import ongoing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Broker = Ottla | Kafka

KILLS: Final = int(os.environ.get("KILLS", "0"))
SHORT: Final = ("task", "broker", "task", "driver", "task", "broker")
WEIGHTS: Final = {"task": 6, "broker": 3, "driver": 1}
KEYS: Final = 20
FEED: Final = 60  # rows after each kill
# Until the query goes on after a kill, on a machine that has other work, too.
PATIENCE_S: Final = 900.0 if KILLS else 180.0
SEED: Final = 7
pytestmark = pytest.mark.timeout(300 + 120 * KILLS)


class Driver:
    """The copier in a process of its own."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.bootstrap = bootstrap
        self.log = folder / "driver.log"

    def start(self) -> None:
        program = Path(__file__).parents[1] / "copier.py"
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(program), self.bootstrap, "a", "b", str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def epochs(self) -> int:
        """How many epochs are committed in the checkpoint."""
        found = [path.name for path in (self.folder / "checkpoint" / "commits").glob("*") if path.name.isdecimal()]
        return max(map(int, found), default=-1) + 1

    def workers(self) -> list[int]:
        """All Python processes below the driver's JVM: daemon, tasks, planner, committer."""
        below = descendants(self._process.pid)
        return [pid for pid in below if b"pyspark" in command(pid) and b"java" not in command(pid).split(b"\0")[0]]

    def kill(self) -> None:
        for pid in [*descendants(self._process.pid), self._process.pid]:
            stop(pid)
        self._process.wait()

    def finish(self) -> None:
        (self.folder / "stop").touch()
        assert self._process.wait(PATIENCE_S) == 0, self.log.read_text()[-3000:]

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        if self.alive:
            self.kill()


def test_each_row_once_in_order(broker: Broker, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    plan = victims(chance) if KILLS else list(SHORT)
    source = Source(broker.bootstrap)
    driver = Driver(broker.bootstrap, tmp_path / "driver")
    source.feed(FEED)
    driver.start()
    started = time.monotonic()
    try:
        for number, victim in enumerate(plan):
            wait(driver, lambda before=driver.epochs: driver.epochs > before)  # type: ignore[misc]
            time.sleep(chance.uniform(0, 0.8))  # somewhere in the next batch
            kill(victim, broker, driver, chance)
            source.feed(FEED)
            if KILLS:
                past_s = time.monotonic() - started
                print(f"{number + 1:3} {victim:7} after {driver.epochs} epochs, {past_s:.0f} s", flush=True)
        driver.finish()
    finally:
        driver.close()
    a, b = in_order(broker, "a"), in_order(broker, "b")
    print(Counter(plan), f"{driver.epochs} epochs, {sum(map(len, a.values()))} rows, failures:")
    print("".join(line for line in driver.log.open() if "FAILED" in line))
    assert {key: Counter(values) for key, values in b.items()} == {key: Counter(values) for key, values in a.items()}
    assert b == a
    with Cluster(broker.bootstrap) as cluster:
        assert ongoing(cluster, "ottla-sink/") == []


def victims(chance: random.Random) -> list[str]:
    """As many of each kind as their weights say, in a random order."""
    cycle = [victim for victim, weight in WEIGHTS.items() for _ in range(weight)]
    plan = [victim for victim, _ in zip(itertools.cycle(cycle[::-1]), range(KILLS), strict=False)]
    chance.shuffle(plan)
    return plan


def kill(victim: str, broker: Broker, driver: Driver, chance: random.Random) -> None:
    if victim == "broker":
        if isinstance(broker, Kafka):
            broker.stop(kill=True)
        else:
            broker.kill()
        broker.start()
    elif victim == "driver":
        driver.kill()
        driver.start()
    elif workers := driver.workers():
        stop(chance.choice(workers))


def wait(driver: Driver, true: Callable[[], bool]) -> None:
    def reached() -> bool:
        done = true()
        assert done or driver.alive, driver.log.read_text()[-3000:]
        return done

    wait_until(reached, lambda: driver.log.read_text()[-3000:], PATIENCE_S)


class Source:
    """Rows for topic a, by librdkafka, idempotent, so that a is right whatever happens to its broker."""

    def __init__(self, bootstrap: str) -> None:
        topics = Topics(bootstrap)
        topics.make("a", 3)
        topics.make("b", 4)
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
        self._count = 0

    def feed(self, rows: int) -> None:
        for number in range(self._count, self._count + rows):
            self._producer.produce("a", str(number), f"key {number % KEYS}", on_delivery=delivered)
        self._count += rows
        assert self._producer.flush(PATIENCE_S) == 0


def in_order(broker: Broker, topic: str) -> dict[bytes | None, list[bytes | None]]:
    """Key → its committed values, in order; a key is in one partition."""
    found: dict[bytes | None, list[bytes | None]] = {}
    for records in content(broker, topic).values():
        for _, key, value, _ in records:
            found.setdefault(key, []).append(value)
    return found


@pytest.fixture(params=["ottla", "kafka"] if KILLS else ["ottla"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    made = Ottla(tmp_path / "broker") if request.param == "ottla" else Kafka(tmp_path / "broker")
    with made as running:
        yield running


def stop(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
        children.setdefault(parent, []).append(int(path.name))
    found, left = [], [pid]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found
