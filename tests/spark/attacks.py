"""Attacks on exactly-once: damaged and copied checkpoints, while drivers, tasks and brokers are killed.

    python tests/spark/attacks.py                          every combination, on Ottla and Apache Kafka
    python tests/spark/attacks.py --every                  and with kills before every single call of a commit
    python tests/spark/attacks.py --quick --brokers ottla  a selection, as the suite runs it
    python tests/spark/attacks.py --brokers kafka --attacks two-drivers copied

Each combination is a history: four batches, the attack, more input, and drivers until one is done or refuses. Somebody
is killed before the attack, in the fourth batch, or after it, in the first batch of the next driver. At the end either
committed rows are equal to the input, or a driver has refused with a reason. Duplicate rows, missing rows without
a refusal, and rows that were decided but are not visible are errors. `engine.py` is the driver.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from judge import Kafka
from process import Ottla
from spark.copies import content
from spark.engine import Driver, Ended, Kill, Running, last, restore, upcoming

from ottla.client.cluster import Cluster
from ottla.client.cluster import TopicPartition as Where
from ottla.client.fetching import fetch
from ottla.client.offsets import earliest, latest
from ottla.client.transaction import ONGOING, ProducerIdentity, ongoing
from ottla.records import batch as batches
from ottla.spark.sink.coordination import ClusterPort
from ottla.spark.sink.decisions import attempts

Broker = Ottla | Kafka
BATCHES: Final = 3
ROWS: Final = 10
# What a sink may say instead of going on.
REFUSALS: Final = (
    r"batch \d+ of query \S+ is already in topic \S+ with \d+ rows, and now has \d+.*continue with the newest",
    r"batch \d+ of query \S+ is already in topic \S+, but would now be written to topic",
    r"batch \d+ of query \S+ is older than batch \d+.*continue with the newest checkpoint",
    r"another driver took over query",
    r"another driver has continued from there",
    r"was reopened while its tasks ran",
    r"Spark: another driver has written to the checkpoint",
    r"was aborted: nothing of it is in the topic",  # by another driver, before this one could decide
)
# Before which calls of a commit: the fence, the read, the decision, its end, the first row's end, the second's, sweep.
STEPS: Final = (0, 1, 4, 5, 6, 7, 8)


@dataclass
class History:
    """One query and what happens to it."""

    broker: Broker
    folder: Path
    topic: str
    kill: Kill | None
    after: bool = False  # it strikes when the attack is over, not before
    source: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    other: str | None = None
    twins: bool = False
    wrote_twice: int = 0

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def feed(self, rows: int = ROWS) -> None:
        self.source += [f"{len(self.source) + number:05}" for number in range(rows)]

    def driver(self, *, checkpoint: Path | None = None, topic: str | None = None, kill: Kill | None = None) -> Driver:
        made = Driver(self.broker.bootstrap, checkpoint or self.checkpoint, topic or self.topic, self.source)
        made.kill, made.twins, made.restart_broker = kill, self.twins, self.restart
        return made

    def run(self, **given: object) -> Ended:
        ended = Running(self.driver(**given)).wait()  # type: ignore[arg-type]
        self.note(ended)
        return ended

    def note(self, ended: Ended) -> None:
        self.wrote_twice += ended.wrote_twice
        if ended.refused is not None:
            self.told.append(ended.refused)

    def to_end(self, **given: object) -> Ended:
        """Drivers until one is not killed."""
        kill = self.strike(given.get("checkpoint") or self.checkpoint)
        while (ended := self.run(kill=kill, **given)).killed:
            kill = None
        return ended

    def strike(self, checkpoint: object) -> Kill | None:
        """The kill, once, in the batch that a driver will run next, if it is to come after the attack."""
        if not self.after or self.kill is None:
            return None
        assert isinstance(checkpoint, Path)
        self.after = False
        return replace(self.kill, batch=upcoming(checkpoint))

    def restart(self) -> None:
        """In the driver's process: its parent owns the broker, so it is asked to do it."""
        (self.folder / "restart").touch()
        while (self.folder / "restart").exists():
            time.sleep(0.02)

    def snapshot(self, name: str) -> Path:
        copy = self.folder / name
        shutil.copytree(self.checkpoint, copy)
        return copy

    def prepare(self) -> list[Path]:
        """Three batches, and one more in which somebody is killed; a backup after each, the oldest first."""
        backups = []
        for number in range(BATCHES):
            self.feed()
            assert self.run().done
            backups.append(self.snapshot(f"backup{number}"))
        self.feed()
        self.run(kill=None if self.after else self.kill)
        return backups


Attack = Callable[[History], Iterator[Ended]]


def nothing(history: History) -> Iterator[Ended]:
    history.prepare()
    history.feed()
    yield history.to_end()


def backup(age: int) -> Attack:
    def attack(history: History) -> Iterator[Ended]:
        backups = history.prepare()
        newest = history.snapshot("newest")
        restore(backups[-age] if age else newest, history.checkpoint)
        history.feed(ROWS // 2)
        yield history.to_end()
        yield history.to_end()  # whoever starts it once more hears the same

    return attack


def removed(*logs: str) -> Attack:
    def attack(history: History) -> Iterator[Ended]:
        history.prepare()
        for name in logs:
            newest = last(history.checkpoint / name)
            (history.checkpoint / name / str(newest)).unlink()
        history.feed(ROWS // 2)
        yield history.to_end()
        yield history.to_end()

    return attack


def copied(history: History) -> Iterator[Ended]:
    """A second version of the query on a copy of its checkpoint, to the same topic. Both run in turns."""
    history.prepare()
    copy = history.snapshot("copy")
    history.feed()
    yield history.to_end()
    history.feed(ROWS // 2)
    yield history.to_end(checkpoint=copy)
    history.feed()
    yield history.to_end()


def copied_elsewhere(history: History) -> Iterator[Ended]:
    """The same to another topic."""
    history.prepare()
    copy = history.snapshot("copy")
    history.feed()
    yield history.to_end()
    history.feed(ROWS // 2)
    yield history.to_end(checkpoint=copy, topic=history.other)


def changed(history: History) -> Iterator[Ended]:
    """Another topic on the same checkpoint, whatever happened to the last batch."""
    history.prepare()
    history.feed()
    yield history.to_end(topic=history.other)


def two_drivers(history: History) -> Iterator[Ended]:
    """On one checkpoint at the same time."""
    history.prepare()
    for _ in range(3):
        history.feed(2 * ROWS)
        kills = [history.strike(history.checkpoint), None]
        both = [Running(history.driver(kill=kill)) for kill in kills]
        for one in both:
            history.note(one.wait())
    yield history.to_end()


def speculation(history: History) -> Iterator[Ended]:
    """Each task has a twin, and both write all their rows."""
    history.twins = True
    history.prepare()
    history.feed()
    yield history.to_end()
    assert history.wrote_twice, "no twin has written"
    assert raw(history.broker, history.topic) > len(history.source), "what twins wrote is not in the log"


ATTACKS: Final[dict[str, Attack]] = {
    "nothing": nothing,
    **{f"backup-{age}": backup(age) for age in range(BATCHES + 1)},
    "removed-both": removed("offsets", "commits"),
    "removed-offsets": removed("offsets"),
    "removed-commits": removed("commits"),
    "copied": copied,
    "copied-elsewhere": copied_elsewhere,
    "changed-topic": changed,
    "two-drivers": two_drivers,
    "speculation": speculation,
}
KILLS: Final[dict[str, list[Kill | None]]] = {
    "nobody": [None],
    "task": [Kill("task")],
    "driver": [Kill("driver", call, BATCHES) for call in STEPS],
    "broker": [Kill("broker", call, BATCHES) for call in STEPS],
}
# Where an attack is refused, the commit ends with its second call.
REFUSED: Final = ("backup-1", "backup-2", "backup-3", "removed-both", "removed-offsets", "copied", "copied-elsewhere")
QUICK: Final = (
    ("backup-1", KILLS["nobody"][0], False),
    ("backup-1", Kill("driver", 6, BATCHES), False),
    ("backup-2", Kill("task"), True),
    ("removed-both", Kill("driver", 6, BATCHES), False),
    ("removed-commits", Kill("broker", 1, BATCHES), True),
    ("copied", Kill("driver", 7, BATCHES), False),
    ("copied-elsewhere", Kill("task"), False),
    ("changed-topic", Kill("driver", 6, BATCHES), False),
    ("two-drivers", Kill("driver", 5, BATCHES), True),
    ("speculation", Kill("task"), False),
)
Cell = tuple[str, Kill | None, bool]


def cells(name: str, victims: list[str], *, every: bool) -> Iterator[Cell]:
    """The attack with each victim, before and after it; the call of a kill is another one for each attack."""
    index = list(ATTACKS).index(name)
    for number, victim in enumerate(victims):
        for after in (False, True) if victim != "nobody" else (False,):
            kills = KILLS[victim]
            if after and name in REFUSED and victim != "task":
                kills = kills[:2]
            turn = (index + 3 * number + 2 * after) % len(kills)
            yield from ((name, kill, after) for kill in (kills if every else [kills[turn]]))


def raw(broker: Broker, topic: str) -> int:
    """How many records a topic holds, committed or not."""
    total = 0
    with Cluster(broker.bootstrap) as cluster:
        for index in range(cluster.topics([topic])[topic].partitions):
            where = Where(topic, index)
            start, stop = earliest(cluster, [where])[where], latest(cluster, [where])[where]
            for piece in fetch(cluster, where, start=start, stop=stop):
                heads = (batches.header(piece.data, entry.position) for entry in batches.entries(piece.data))
                total += sum(head.count for head in heads if not head.control)
    return total


def hidden(port: ClusterPort, query: str) -> list[ProducerIdentity]:
    """Transactions that were decided and are still open."""
    decision = port.last(query)
    decided = decision.transactions if decision is not None else ()
    states = port.states([str(one.transactional_id) for one in decided])
    open_ones = {(one.producer_id, one.epoch) for one in states.values() if one.name == ONGOING}
    return [one for one in decided if (one.producer_id, one.epoch) in open_ones]


def verdict(history: History, ends: list[Ended]) -> str:
    """ "equal" or "refused"; AssertionError for anything else."""
    topics = [history.topic, *([history.other] if history.other else [])]
    found = Counter(
        (value or b"").decode()
        for topic in topics
        for some in content(history.broker, topic).values()
        for _, _, value, _ in some
    )
    for sentence in history.told:
        assert any(re.search(one, sentence, re.DOTALL) for one in REFUSALS), f"no reason to stop: {sentence}"
    assert not [row for row, count in found.items() if count > 1], "rows are there twice"
    assert not found.keys() - set(history.source), "rows that nobody gave"
    queries = {json.loads(path.read_text())["id"] for path in history.folder.glob("*/metadata")}
    with Cluster(history.broker.bootstrap) as cluster:
        for query in queries:
            assert not hidden(ClusterPort(cluster), query), "rows are decided, and not visible"
            left = ongoing(cluster, attempts(query))
            assert not left or not all(end.done for end in ends), f"transactions are left open: {left}"
    if all(end.done for end in ends):
        missing = sorted(set(history.source) - found.keys())
        assert not missing, f"{len(missing)} rows lost in silence, from {missing[0]} to {missing[-1]}"
        return "equal"
    return "refused"


class Keeper:
    """Restarts the broker when a driver asks for it, beside what waits for that driver."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.broker, self.folder = broker, folder
        self.over = False

    def watch(self) -> None:
        while not self.over:
            for path in self.folder.glob("*/restart"):
                if isinstance(self.broker, Kafka):
                    self.broker.stop(kill=True)
                else:
                    self.broker.kill()
                self.broker.start()
                path.unlink()
            time.sleep(0.05)


def one(broker: Broker, folder: Path, name: str, kill: Kill | None, after: bool) -> tuple[str, History]:
    folder.mkdir()
    history = History(broker, folder, f"{folder.name}-a", kill, after)
    with Cluster(broker.bootstrap) as cluster:
        cluster.create(history.topic, 2)
        if name in ("copied-elsewhere", "changed-topic"):
            history.other = f"{folder.name}-b"
            cluster.create(history.other, 2)
    return verdict(history, list(ATTACKS[name](history))), history


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", nargs="+", choices=["ottla", "kafka"], default=["ottla", "kafka"])
    parser.add_argument("--attacks", nargs="+", choices=list(ATTACKS), default=list(ATTACKS))
    parser.add_argument("--kills", nargs="+", choices=list(KILLS), default=list(KILLS))
    parser.add_argument("--every", action="store_true", help="kill before each call of a commit, not before one")
    parser.add_argument("--quick", action="store_true", help="a selection, as the suite runs it")
    given = parser.parse_args(arguments)
    chosen = [cell for name in given.attacks for cell in cells(name, given.kills, every=given.every)]
    wrong = 0
    for which in given.brokers:
        with tempfile.TemporaryDirectory(prefix="attacks-") as place:
            wrong += attack(which, Path(place), list(QUICK) if given.quick else chosen)
    return 1 if wrong else 0


def attack(which: str, place: Path, chosen: list[Cell]) -> int:
    wrong, totals = 0, Counter[tuple[str, str, str]]()
    made = Ottla(place / "broker") if which == "ottla" else Kafka(place / "broker")
    with made as broker:
        keeper = Keeper(broker, place)
        thread = threading.Thread(target=keeper.watch, daemon=True)
        thread.start()
        for number, (name, kill, after) in enumerate(chosen):
            random.seed(number)
            victim = f"{kill.victim}{'+' if after else '-'}{kill.call}" if kill else "nobody"
            try:
                result, history = one(broker, place / f"{number:03}-{name}", name, kill, after)
                reason = f": {history.told[-1][:90]}" if history.told else ""
            except AssertionError as error:
                result, reason = "WRONG", f": {error}"
                wrong += 1
            totals[name, kill.victim if kill else "nobody", result] += 1
            print(f"{which:6} {name:17} {victim:9} {result}{reason}", flush=True)
        keeper.over = True
        thread.join()
    for (name, victim, result), count in sorted(totals.items()):
        print(f"TOTAL {which:6} {name:17} {victim:7} {result:8} {count}")
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
