"""Copiers as processes: they copy a topic in transactions until they are killed, and are started again.

A copier prints `ready` (its transactional id is its own), `assigned n`, `committed n`, `aborted why` and, when somebody
else has taken its transactional id, `fenced error` before it ends with status 3. Status 4: its library is stuck.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import judge
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from exactly_once import reading

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HERE: Final = Path(__file__).parent
FENCED: Final = 3
STUCK: Final = 4
PARTITIONS: Final = 4
SETTINGS: Final = {  # of the broker
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
}
WAIT_S: Final = 60.0


class Task(NamedTuple):
    """What is copied, and by whom together."""

    bootstrap: str
    source: str
    target: str
    group: str


class Copier:
    """One process; `words` is how it was started, `lines` what it printed so far."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words
        self.lines: list[str] = []
        self._news = threading.Condition()
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.rstrip())
                self._news.notify_all()
        self.process.wait()
        with self._news:
            self._news.notify_all()

    def count(self, what: str) -> int:
        return sum(line.startswith(what) for line in self.lines)

    def wait(self, what: str, count: int = 1, seconds: float = WAIT_S) -> bool:
        """Until it has printed so many such lines; False when it ended before as STUCK."""
        with self._news:
            self._news.wait_for(lambda: self.count(what) >= count or self.ended, seconds)
        if self.count(what) < count and self.process.poll() == STUCK:
            return False
        assert self.count(what) >= count, f"no {what!r} in {seconds} s: {self.process.poll()} {self.lines[-5:]}"
        return True

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def status(self, seconds: float = WAIT_S) -> int:
        """How it ends by itself."""
        status = self.process.wait(seconds)
        self._reader.join()
        return status

    def close(self) -> None:
        judge.stop_process(self.process, kill=True)  # type: ignore[arg-type]  # that it talks text does not matter
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


def confluent(task: Task, name: str, seed: int, partitions: str) -> list[str]:
    return [sys.executable, "-m", "exactly_once.programs.confluent", *task, name, str(seed)]


def java(task: Task, name: str, seed: int, partitions: str) -> list[str]:
    path = judge.client_classpath(judge.NEWEST)
    return judge.command(HERE / "java" / "Copier.java", *task, name, str(seed), path=path)


def old_java(version: str) -> Callable[[Task, str, int, str], list[str]]:
    def command(task: Task, name: str, seed: int, partitions: str) -> list[str]:
        path = judge.client_classpath(version)
        return judge.command(HERE / "java" / "OldCopier.java", *task, name, str(seed), partitions, path=path)

    return command


COMMANDS: Final[dict[str, Callable[[Task, str, int, str], list[str]]]] = {
    "confluent-kafka": confluent,
    "java-4.3.1": java,
    "java-2.3.1": old_java("2.3.1"),
    "java-1.1.1": old_java("1.1.1"),
    "java-0.11.0.3": old_java("0.11.0.3"),
}


class Source:
    """Writes into the source topic all the time, each record once, and remembers what was acknowledged, in order."""

    def __init__(self, task: Task) -> None:
        settings = {"bootstrap.servers": task.bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 2,
                    "reconnect.backoff.max.ms": 200}  # fmt: skip
        self._producer = Producer(settings)
        self._topic = task.source
        self.written: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        count = 0
        while not self._stop.wait(0.01):
            count += 1
            for index, written in enumerate(self.written):
                value = b"%d-%d" % (index, count)
                written.append(value)
                self._producer.produce(self._topic, value, b"%d" % count, index)
            self._producer.poll(0)

    def stop(self) -> list[list[bytes]]:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        return self.written


def prepare(task: Task) -> None:
    admin = AdminClient({"bootstrap.servers": task.bootstrap, "log_level": 2})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (task.source, task.target)]).values():
        future.result(30)


def committed(task: Task) -> list[int]:
    """How far the group has come in each partition of the source."""
    found = reading.committed(task.bootstrap, task.group, task.source, PARTITIONS)
    return [found.get(index, 0) for index in range(PARTITIONS)]


def read(task: Task, topic: str, *, isolation: str = "read_committed") -> list[list[bytes]]:
    """Every value of every partition up to its end (for read_committed: to its last stable offset)."""
    consumer = Consumer({"bootstrap.servers": task.bootstrap, "group.id": "reader", "enable.auto.commit": False,
                         "isolation.level": isolation, "enable.partition.eof": True, "log_level": 2,
                         "fetch.wait.max.ms": 50})  # fmt: skip
    values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    consumer.list_topics(topic, WAIT_S)  # else librdkafka looks for the leaders half a second later
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
    open_ends = set(range(PARTITIONS))
    deadline = time.monotonic() + WAIT_S
    while open_ends:
        assert time.monotonic() < deadline, f"no end of {open_ends} in {WAIT_S} s"
        for message in consumer.consume(500, 0.1):
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                open_ends.discard(message.partition())
            else:
                values[message.partition()].append(message.value())
    consumer.close()
    return values
