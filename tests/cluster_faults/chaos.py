"""Chaos in a real cluster: brokers are killed, paused and cut off, ZooKeeper is restarted, while clients work.

    python -m cluster_faults.chaos --minutes 60 --seed 7      (in `tests`; `make chaos MINUTES=60` does this)

Idempotent producers (confluent-kafka, acks=all) retry without limit; members of a group read and commit; a
watcher reads the end offsets of the partitions. All of them record the responses, and at the end the history is
checked: no acknowledged record may be lost, duplicated or reordered, no end offset may go back, and every replica must
have the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster_faults.history import Recorder, examine
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import wait_until

from ottla.testing import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.sim.history import Violation

TOPIC = "chaos"
PARTITIONS = 3
CALM_S = 120.0
GAP_S_MAX = 4.0  # between two faults
CHUNK = 64 << 10


class Work(threading.Thread):
    """A client that runs until it is stopped; `end` raises the exception if it failed earlier."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.stopping = threading.Event()
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as failure:  # raised again by `end`
            self._failure = failure

    def work(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        self.stopping.set()
        self.join(2 * CALM_S)  # a writer waits CALM_S for its last records
        assert not self.is_alive(), f"{self.name} does not end"
        if self._failure is not None:
            raise self._failure


class Writer(Work):
    def __init__(self, cluster: Cluster, recorder: Recorder, number: int, rate: float) -> None:
        super().__init__(f"p{number}")
        self.failed: Counter[str] = Counter()
        self._recorder = recorder
        self._rate = rate
        self._chance = random.Random(number)
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "delivery.timeout.ms": 600_000,
                "request.timeout.ms": 5000,
                "socket.timeout.ms": 10_000,
                "reconnect.backoff.max.ms": 1000,
                "topic.metadata.refresh.interval.ms": 5000,
                "retry.backoff.max.ms": 500,
            }
        )

    def work(self) -> None:
        count = 0
        while not self.stopping.is_set():
            partition = self._chance.randrange(PARTITIONS)
            value = f"{self.name} {count} {'.' * self._chance.randrange(200)}"
            count += 1
            self._recorder.note("sent", self.name, TOPIC, partition, value)
            while True:
                try:
                    self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._delivered)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self._producer.poll(0)
            time.sleep(self._chance.expovariate(self._rate))
        left = self._producer.flush(CALM_S)
        assert left == 0, f"{left} records were neither acknowledged nor refused"

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self._recorder.note("acked", TOPIC, message.partition(), message.offset(), message.value().decode())
        else:
            self.failed[error.name()] += 1


class Member(Work):
    """A member of a group. After each assignment it counts as a new reader."""

    def __init__(self, cluster: Cluster, recorder: Recorder, number: int) -> None:
        super().__init__(f"g{number}")
        self._recorder = recorder
        self._stretch = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "chaos",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 10_000,
                "auto.commit.interval.ms": 1000,
                "reconnect.backoff.max.ms": 1000,
            }
        )

    def work(self) -> None:
        self._consumer.subscribe([TOPIC], on_assign=self._assigned)
        while not self.stopping.is_set():
            for message in self._consumer.consume(100, 0.2):
                if message.error() is None:
                    where = (message.topic(), message.partition(), message.offset())
                    self._recorder.note("read", f"{self.name} {self._stretch}", *where, message.value().decode())
        self._consumer.close()

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        self._stretch += 1


class Watcher(Work):
    """Reads the end offset of each partition."""

    def __init__(self, cluster: Cluster, recorder: Recorder) -> None:
        super().__init__("watcher")
        self._recorder = recorder
        self._consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "watcher"})

    def work(self) -> None:
        while not self.stopping.is_set():
            for partition in range(PARTITIONS):
                with suppress(KafkaException):
                    _, high = self._consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=2)
                    self._recorder.note("high", self.name, TOPIC, partition, high)
            self.stopping.wait(0.2)
        self._consumer.close()


class Nemesis:
    def __init__(self, cluster: Cluster, seed: int, say: Callable[[str], None], *, gap_s: float) -> None:
        self.done: Counter[str] = Counter()
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._say = say
        self._gap_s = gap_s
        self._kinds: dict[str, Callable[[], None]] = {
            "kill": self._kill,
            "kill two": self._kill_two,
            "pause": self._pause,
            "restart": self._restart,
            "isolate from zookeeper": lambda: self._isolate(brokers=False),
            "isolate from brokers": lambda: self._isolate(zookeeper=False),
            "isolate": self._isolate,
            "cut one way": self._cut,
            "zookeeper kill": self._zookeeper_kill,
            "zookeeper pause": self._zookeeper_pause,
        }

    def run(self, until: float) -> None:
        names = sorted(self._kinds)
        order: list[str] = []
        while time.monotonic() < until:
            if not order:
                order = self._chance.sample(names, len(names))
            kind = order.pop()
            self._say(kind)
            self._kinds[kind]()
            self.done[kind] += 1
            time.sleep(self._chance.uniform(0.5, self._gap_s))

    def _one(self) -> int:
        return self._chance.choice(self._cluster.numbers)

    def _rest(self) -> None:
        """Mostly shorter than a session, often longer."""
        time.sleep(self._chance.choice((0.2, 2.0, 9.0)) * self._chance.uniform(0.5, 1.2))

    def _kill(self) -> None:
        number = self._one()
        self._cluster.kill(number)
        self._rest()
        self._cluster.start(number)

    def _kill_two(self) -> None:
        one, other = self._chance.sample(self._cluster.numbers, 2)
        self._cluster.kill(one)
        time.sleep(self._chance.uniform(0, 1))
        self._cluster.kill(other)
        self._rest()
        for number in self._chance.sample((one, other), 2):
            self._cluster.start(number)

    def _pause(self) -> None:
        number = self._one()
        self._cluster.pause(number)
        self._rest()
        self._cluster.resume(number)

    def _restart(self) -> None:
        self._cluster.restart(self._one())

    def _isolate(self, **which: bool) -> None:
        self._cluster.isolate(self._one(), **which)
        self._rest()
        self._cluster.heal()

    def _cut(self) -> None:
        one, other = self._chance.sample((*self._cluster.numbers, "zookeeper"), 2)
        self._cluster.cut((one, other))
        self._rest()
        self._cluster.heal()

    def _zookeeper_kill(self) -> None:
        self._cluster.zookeeper.kill()
        self._rest()
        self._cluster.zookeeper.start()

    def _zookeeper_pause(self) -> None:
        self._cluster.zookeeper.pause()
        self._rest()
        self._cluster.zookeeper.resume()


class Chaos:
    """One run: `violations` lists what went wrong, `failures` which clients gave up, `report` what happened."""

    def __init__(
        self, folder: Path, seconds: float, seed: int, *, rate: float = 150.0, gap_s: float = GAP_S_MAX
    ) -> None:
        self.recorder = Recorder(folder / "history.jsonl")
        self.violations: list[Violation] = []
        self.failures: list[str] = []
        self.report = ""
        self._folder = folder
        self._seconds = seconds
        self._seed = seed
        self._rate = rate
        self._gap_s = gap_s

    def say(self, what: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)

    def run(self) -> None:
        options = {
            "replica.lag.time.max.ms": 5000,
            "offsets.topic.num.partitions": 1,
            "controlled.shutdown.retry.backoff.ms": 500,
        }
        with Cluster(brokers=3, folder=self._folder / "cluster", cuts=True, options=options) as cluster:
            self._create(cluster)
            writers = [Writer(cluster, self.recorder, number, self._rate) for number in (1, 2)]
            others: list[Work] = [Member(cluster, self.recorder, number) for number in (1, 2)]
            others.append(Watcher(cluster, self.recorder))
            for work in (*writers, *others):
                work.start()
            nemesis = Nemesis(cluster, self._seed, self.say, gap_s=self._gap_s)
            nemesis.run(time.monotonic() + self._seconds)
            self.say("calm")
            self._settle(cluster)
            for work in (*writers, *others):
                self._end(work)
            self._read(cluster)
            self._compare(cluster)
        self.recorder.close()
        self.violations = examine(self.recorder.events)
        failed = sum((writer.failed for writer in writers), Counter())
        counts = {kind: self.recorder.count(kind) for kind in ("sent", "acked", "read", "high", "found")}
        self.report = f"{counts}, refused {dict(failed)}, troubles {dict(nemesis.done)}, {len(self.violations)} wrong"

    def _end(self, work: Work) -> None:
        """A failed client is reported at the end, because the others' observations count as well."""
        try:
            work.end()
        except Exception as failure:
            self.failures.append(f"{work.name} gave up: {failure!r}")

    def _create(self, cluster: Cluster) -> None:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        wish = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([wish], operation_timeout=30)[TOPIC].result(60)

    def _settle(self, cluster: Cluster) -> None:
        """End all faults, and wait until every replica is in sync again."""
        cluster.heal()

        def in_sync() -> bool:
            states[:] = [cluster.state(TOPIC, partition) for partition in range(PARTITIONS)]
            return all(state is not None and len(state["isr"]) == 3 and state["leader"] > 0 for state in states)

        states: list[Any] = []
        wait_until(in_sync, lambda: f"every replica is in sync again: {states}", CALM_S)

    def _read(self, cluster: Cluster) -> None:
        """Read all records of the partitions at the end."""
        settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "end", "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "enable.partition.eof": False})
        ends = {}
        for partition in range(PARTITIONS):
            _, ends[partition] = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=CALM_S)
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in ends])
        until = time.monotonic() + CALM_S
        positions = dict.fromkeys(ends, 0)
        while any(positions[partition] < end for partition, end in ends.items()):
            assert time.monotonic() < until, f"the end cannot be read: {positions} of {ends}"
            for message in consumer.consume(1000, 0.5):
                if message.error() is None:
                    where = (message.partition(), message.offset())
                    positions[where[0]] = where[1] + 1
                    self.recorder.note("found", TOPIC, *where, message.value().decode())
        consumer.close()

    def _compare(self, cluster: Cluster) -> None:
        """Record the bytes of every replica, once they are equal everywhere or after a time limit."""
        until = time.monotonic() + CALM_S
        while True:
            digests = {
                partition: {number: digest(cluster.folder, number, partition) for number in cluster.numbers}
                for partition in range(PARTITIONS)
            }
            if all(len(set(one.values())) == 1 for one in digests.values()) or time.monotonic() > until:
                break
            time.sleep(0.5)
        for partition, of_brokers in digests.items():
            for number, content in of_brokers.items():
                self.recorder.note("bytes", TOPIC, partition, number, content)


def digest(folder: Path, number: int, partition: int) -> str:
    """A digest of a replica's log, read in chunks."""
    logs = sorted((folder / f"broker-{number}" / f"{TOPIC}-{partition}").glob("*.log"))
    data = b"".join(log.read_bytes() for log in logs)
    return "".join(hashlib.sha256(data[at : at + CHUNK]).hexdigest()[:8] for at in range(0, len(data), CHUNK))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--rate", type=float, default=150.0, help="records in a second of each producer")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ottla-chaos-"))
    print(f"seed {options.seed}, history in {folder}")
    chaos = Chaos(folder, options.minutes * 60, options.seed, rate=options.rate)
    chaos.run()
    print(chaos.report)
    for wrong in (*chaos.failures, *chaos.violations[:50]):
        print(wrong)
    return 1 if chaos.violations or chaos.failures else 0


if __name__ == "__main__":
    sys.exit(main())
