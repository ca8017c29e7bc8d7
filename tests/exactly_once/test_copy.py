"""A topic copied in transactions while copiers and the broker are killed: the copy has every record exactly once.

At random (seeded) moments a copier is killed and started again, or frozen while another takes its transactional id (the
frozen one must find itself fenced), or the broker is killed and started again. Copiers abort transactions of their own
will too. Java 4.3.1 speaks the newer protocol of transactions, librdkafka and the older Java clients the older one.
"""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING, Final

import judge
import pytest
from exactly_once import copier
from exactly_once.copier import COMMANDS, FENCED, PARTITIONS, STUCK, Copier, Source, Task
from process import Ottla
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

OLD: Final = ("java-1.1.1", "java-0.11.0.3")  # not served by Apache Kafka 4
ACTIONS: Final = ("copier", "broker", "zombie", "both")


def cases() -> list[object]:
    seeds = max(1, int(os.environ.get("SEEDS", "1")) // 50)
    return [
        pytest.param(family, seed, marks=pytest.mark.xdist_group(f"copy-{family}"))
        for family in COMMANDS
        for seed in range(seeds)
    ]


@pytest.mark.parametrize(("family", "seed"), cases())
def test_the_copy_has_every_record_exactly_once(
    family: str, seed: int, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    kind: type[Ottla] | type[judge.Kafka] = Ottla
    version = {}
    if pytestconfig.getoption("judge"):
        kind, version = judge.Kafka, {"version": judge.ZOOKEEPER if family in OLD else judge.NEWEST}
    with kind(tmp_path / "broker", settings=copier.SETTINGS, **version) as broker:
        story = Story(family, seed, broker)
        try:
            story.tell()
            story.check()
        finally:
            story.close()


class Story:
    def __init__(self, family: str, seed: int, broker: Ottla | judge.Kafka) -> None:
        self.family, self.broker = family, broker
        self.random = random.Random(f"{family} {seed}")
        self.task = Task(broker.bootstrap, "a", "b", "copiers")
        copier.prepare(self.task)
        self.past: list[Copier] = []
        self.starts = 0
        self.now = [self.start(0), self.start(1)]
        self.source = Source(self.task)  # last, because its thread goes on if a copier cannot be started

    def start(self, which: int) -> Copier:
        """One of the two: the partitions are for those that do not share them as a group."""
        self.starts += 1
        partitions = ",".join(str(index) for index in range(PARTITIONS) if index % 2 == which)
        return Copier(COMMANDS[self.family](self.task, f"copier-{which}", self.starts, partitions))

    def restart(self, which: int) -> None:
        self.past.append(self.now[which])
        self.now[which] = self.start(which)

    def tell(self) -> None:
        for one in self.now:
            one.wait("ready")
        for action in self.random.sample(ACTIONS, len(ACTIONS)):
            self.progress(self.random.randrange(1, 8))
            time.sleep(self.random.uniform(0, 0.1))  # the moment within a transaction
            which = self.random.randrange(2)
            if action in ("broker", "both"):
                self.kill_broker()
            if action in ("copier", "both"):
                self.now[which].kill()
                self.restart(which)
            if action in ("broker", "both"):
                self.broker.start()
            if action == "zombie":
                self.haunt(which)

    def progress(self, count: int) -> None:
        """Until each has committed so many times more; one that is stuck is started again."""
        for which in range(2):
            before = self.now[which].count("committed")
            if not self.now[which].wait("committed", before + count):
                self.restart(which)
                self.now[which].wait("committed", count)

    def kill_broker(self) -> None:
        if isinstance(self.broker, Ottla):
            self.broker.kill()
        else:
            self.broker.stop(kill=self.broker.kraft)  # ZooKeeper would not let it in again for a long while

    def haunt(self, which: int) -> None:
        zombie = self.now[which]
        zombie.freeze()
        self.restart(which)
        self.now[which].wait("ready")
        self.now[which].wait("assigned")
        zombie.thaw()
        assert zombie.status() == FENCED, zombie.lines[-5:]

    def check(self) -> None:
        written = self.source.stop()
        ends = [len(values) for values in written]

        def done() -> bool:
            for which in range(2):
                if self.now[which].process.poll() == STUCK:
                    self.restart(which)
            return copier.committed(self.task) == ends

        wait_until(done, lambda: f"{copier.committed(self.task)} of {ends}: {self.now[0].lines[-3:]}")
        assert not any(one.ended for one in self.now)
        for one in self.now:
            one.kill()
        assert copier.read(self.task, self.task.target) == written, "every record once and in order"
        everything = copier.read(self.task, self.task.target, isolation="read_uncommitted")
        total, kept = sum(map(len, everything)), sum(ends)
        aborted = sum(one.count("aborted") for one in [*self.past, *self.now])
        assert aborted > 0
        assert total > kept, "aborted records are in the log, and nobody who reads committed ones has seen them"
        print(f"\n{self.family}: {kept} records copied, {total - kept} of {aborted} aborted transactions hidden")

    def close(self) -> None:
        for one in [*self.past, *self.now]:
            one.close()
