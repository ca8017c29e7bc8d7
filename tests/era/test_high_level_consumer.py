"""Consumers of Kafka 0.8.2 on a cluster: they find brokers and partitions in ZooKeeper, and share them there."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import judge
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from era.operator import produce, wait_led
from kazoo.exceptions import NoNodeError
from waiting import WAIT_S, wait_until

if TYPE_CHECKING:
    from typing import Self

    from ottla.testing import Cluster

pytestmark = [pytest.mark.xdist_group("era"), pytest.mark.timeout(600, func_only=True)]
TOPIC, GROUP = "ancient", "elders"


class Consumers:
    """Consumers by name in one JVM, and what each has read: partition, offset, value."""

    def __init__(self, zookeeper: str) -> None:
        words = judge.command(
            Path(__file__).with_name("HighLevel.java"), zookeeper, GROUP, TOPIC, path=judge.scala_classpath("0.8.2.2")
        )
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._done = threading.Semaphore(0)
        self.read: dict[str, list[tuple[int, int, str]]] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line == "done\n":
                self._done.release()
            else:
                name, partition, offset, value = line.split()
                self.read.setdefault(name, []).append((int(partition), int(offset), value))

    def __call__(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        assert self._done.acquire(timeout=WAIT_S), f"{command}: no answer"

    @property
    def count(self) -> int:
        return sum(map(len, self.read.values()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()


def owners(cluster: Cluster) -> list[str]:
    """The names of those that own partition 0, 1, ..."""
    with cluster.store() as store:
        try:
            found = sorted(store.get_children(f"/consumers/{GROUP}/owners/{TOPIC}"), key=int)
            nodes = [store.get(f"/consumers/{GROUP}/owners/{TOPIC}/{index}")[0].decode() for index in found]
        except NoNodeError:
            return []
    return [node.removeprefix(f"{GROUP}_").partition("-")[0] for node in nodes]


def offsets(cluster: Cluster) -> list[int]:
    with cluster.store() as store:
        folder = f"/consumers/{GROUP}/offsets/{TOPIC}"
        return [int(store.get(f"{folder}/{index}")[0]) for index in sorted(store.get_children(folder), key=int)]


def test_two_consumers_share_partitions_and_one_takes_over(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    replicas = [[1, 2], [2, 3], [3, 1], [1, 3]]
    admin.create_topics([NewTopic(TOPIC, 4, replica_assignment=replicas)])[TOPIC].result(60)
    wait_led(cluster, TOPIC, 1, 2, 3, 1)
    for index in range(4):
        produce(cluster, TOPIC, 25, partition=index, first=index * 1000)
    with Consumers(cluster.zookeeper.address) as consumers:
        consumers("open first")
        wait_until(lambda: consumers.count == 100, lambda: consumers.read)
        consumers("commit first")
        assert offsets(cluster) == [25] * 4
        consumers("open second")
        shared = ["first", "first", "second", "second"]
        wait_until(lambda: sorted(owners(cluster)) == shared, lambda: owners(cluster))
        for index in range(4):
            produce(cluster, TOPIC, 25, partition=index, first=index * 1000 + 25)
        wait_until(lambda: consumers.count == 200, lambda: consumers.read)
        assert len(consumers.read["second"]) == 50, "each has read what it owns"
        consumers("commit first")
        consumers("commit second")
        assert offsets(cluster) == [50] * 4

        consumers("close second")
        wait_until(lambda: owners(cluster) == ["first"] * 4, lambda: owners(cluster))
        for index in range(4):
            produce(cluster, TOPIC, 25, partition=index, first=index * 1000 + 50)
        wait_until(lambda: consumers.count == 300, lambda: consumers.read)
        found = sorted(record for records in consumers.read.values() for record in records)
        assert found == [(index, offset, str(index * 1000 + offset)) for index in range(4) for offset in range(75)]
        consumers("commit first")
        words = ("--zookeeper", cluster.zookeeper.address, "--group", GROUP, "--topic", TOPIC)
        checked = judge.run(
            judge.command("kafka.tools.ConsumerOffsetChecker", *words, path=judge.scala_classpath("0.8.2.2")),
            "ConsumerOffsetChecker",
        )
        rows = [line.split() for line in checked.out.splitlines() if line.startswith(GROUP)]
        assert [row[2:6] for row in rows] == [[str(index), "75", "75", "0"] for index in range(4)]
        assert all(row[6].startswith(f"{GROUP}_first") for row in rows)
        consumers("close first")
