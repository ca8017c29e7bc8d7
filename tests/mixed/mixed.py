"""A cluster of two kinds of brokers on one ZooKeeper: Apache Kafka 3.9, numbered from 1, and Ottla, numbered from 11.

with Mixed(protocol="2.8") as mixed:
    mixed.start_kafka(1, 2)
    mixed.start_ottla(11, 12)
    mixed.reassign({("orders", 0): [11, 1]})
    mixed.elect_controller(11)
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import judge
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from mixed.faults import faults_of_kafka, faults_of_ottla
from waiting import PAUSE_S, wait_until

from ottla.embed import BrokerProcess
from ottla.testing.zookeeper import ZooKeeperServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Self

CHUNK: Final = 64 << 10
SESSION_MS: Final = "9000"  # a busy machine must not end one
FREEZE_S: Final = 3.0  # far shorter than a session
COMMON: Final = {
    "zookeeper.session.timeout.ms": SESSION_MS,
    "offsets.topic.replication.factor": "2",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.leader.rebalance.enable": "false",
    "replica.lag.time.max.ms": "10000",
    "controlled.shutdown.retry.backoff.ms": "500",
}
REASSIGN: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT: Final = "org.apache.kafka.tools.LeaderElectionCommand"


class Mixed:
    def __init__(self, folder: Path | None = None, *, protocol: str | None = None) -> None:
        self._own_folder = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="mixed-"))
        self.kafka: dict[int, judge.Kafka] = {}
        self.ottla: dict[int, BrokerProcess] = {}
        self.zookeeper = ZooKeeperServer(self.folder / "zookeeper")
        self.store = KazooClient(self.zookeeper.address)
        self._protocol = protocol
        self._stack = ExitStack()

    # --- brokers -----------------------------------------------------------------------------------------------------

    def start_kafka(self, *numbers: int) -> None:
        settings = dict(COMMON)
        if self._protocol is not None:
            settings["inter.broker.protocol.version"] = self._protocol
            if self._protocol < "3.0":
                settings["log.message.format.version"] = self._protocol
        for number in numbers:
            if number not in self.kafka:
                broker = judge.Kafka(
                    self.folder / f"kafka-{number}",
                    version=judge.ZOOKEEPER,
                    settings=settings,
                    node_id=number,
                    zookeeper=self.zookeeper.address,
                )
                self.kafka[number] = broker
                self._stack.callback(broker.stop, kill=True)
        with ThreadPoolExecutor(len(numbers)) as pool:
            list(pool.map(lambda number: self.kafka[number].start(), numbers))

    def start_ottla(self, *numbers: int) -> None:
        for number in numbers:
            if number not in self.ottla:
                options = {**COMMON, "node.id": str(number), "zookeeper.connect": self.zookeeper.address}
                if self._protocol is not None:
                    options["inter.broker.protocol.version"] = self._protocol
                (port,) = judge.free_ports(1)
                broker = BrokerProcess(data=self.folder / f"ottla-{number}" / "data", port=port, options=options)
                self.ottla[number] = broker
                self._stack.callback(broker.kill)
            self.ottla[number].start()

    def stop(self, number: int) -> None:
        """In good order."""
        (self.kafka.get(number) or self.ottla[number]).stop()

    @property
    def brokers(self) -> dict[int, judge.Kafka | BrokerProcess]:
        """Those that run."""
        return {number: broker for number, broker in {**self.kafka, **self.ottla}.items() if broker.running}

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    # --- what ZooKeeper knows ----------------------------------------------------------------------------------------

    def read(self, path: str) -> Any:
        try:
            data: bytes = self.store.get(path)[0]
        except NoNodeError:
            return None
        return json.loads(data)

    def controller(self) -> int:
        found = self.read("/controller")
        return -1 if found is None else int(found["brokerid"])

    def topics(self) -> list[str]:
        return sorted(self.store.get_children("/brokers/topics"))

    def replicas(self, topic: str) -> dict[int, list[int]]:
        found = self.read(f"/brokers/topics/{topic}")
        return {int(index): replicas for index, replicas in found["partitions"].items()}

    def state(self, topic: str, partition: int) -> dict[str, Any]:
        return self.read(f"/brokers/topics/{topic}/partitions/{partition}/state") or {"leader": -1, "isr": []}

    def leader(self, topic: str, partition: int) -> int:
        return int(self.state(topic, partition)["leader"])

    def live(self) -> set[int]:
        return {int(number) for number in self.store.get_children("/brokers/ids")}

    # --- what an operator does ---------------------------------------------------------------------------------------

    def elect_controller(self, number: int) -> None:
        wait_until(lambda: self.controller() == number or self._runs_alone(number), f"{number} does not take office")

    def _runs_alone(self, number: int) -> bool:
        """The office is free, and the others stand still while they could run for it; whether this broker won it."""
        others = [broker.pid for one, broker in self.brokers.items() if one != number]
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
        try:
            with suppress(NoNodeError):
                self.store.delete("/controller")
            deadline = time.monotonic() + FREEZE_S
            while self.controller() != number and time.monotonic() < deadline:
                time.sleep(PAUSE_S)
        finally:
            for pid in others:
                os.kill(pid, signal.SIGCONT)
        return self.controller() == number

    def reassign(self, wishes: Mapping[tuple[str, int], Sequence[int]]) -> None:
        """Move replicas with kafka-reassign-partitions, and wait until they are there and in sync."""
        partitions = [
            {"topic": topic, "partition": index, "replicas": list(replicas)}
            for (topic, index), replicas in wishes.items()
        ]
        words = ("--reassignment-json-file", self._file("reassign", {"version": 1, "partitions": partitions}))
        self._operate(lambda: self.moved(wishes), REASSIGN, *words, "--execute")
        wait_until(lambda: self.moved(wishes), lambda: self.describe(wishes))

    def _file(self, name: str, content: object) -> str:
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(content))
        return str(path)

    def _operate(self, done: Callable[[], bool], tool: str, *words: str) -> None:
        """Run a tool as an operator does: again, when it was refused because the controller has just changed."""
        said: list[judge.Output] = []

        def taken() -> bool:
            said.append(judge.tool(tool, "--bootstrap-server", self.bootstrap, *words, check=False))
            return said[-1].status == 0 or done()

        wait_until(taken, lambda: said[-1])

    def moved(self, wishes: Mapping[tuple[str, int], Sequence[int]]) -> bool:
        return all(
            self.replicas(topic)[index] == list(replicas) and set(self.state(topic, index)["isr"]) == set(replicas)
            for (topic, index), replicas in wishes.items()
        )

    def describe(self, partitions: Iterable[tuple[str, int]]) -> str:
        return "\n".join(
            f"{topic}-{index}: {self.read(f'/brokers/topics/{topic}')} {self.state(topic, index)}"
            for topic, index in partitions
        )

    def elect_preferred(self, *partitions: tuple[str, int]) -> None:
        """With kafka-leader-election, and wait until the first replica leads."""
        file = self._file("elect", {"partitions": [{"topic": topic, "partition": i} for topic, i in partitions]})

        def elected() -> bool:
            return all(self.is_preferred(*one) for one in partitions)

        self._operate(elected, ELECT, "--election-type", "preferred", "--path-to-json-file", file)
        wait_until(elected, lambda: self.describe(partitions))

    def is_preferred(self, topic: str, index: int) -> bool:
        return self.leader(topic, index) == self.replicas(topic)[index][0]

    # --- what is found in the end ------------------------------------------------------------------------------------

    def data(self, number: int) -> Path:
        return (
            self.folder / f"kafka-{number}" / "data"
            if number in self.kafka
            else self.folder / f"ottla-{number}" / "data"
        )

    def folders(self, topic: str) -> list[Path]:
        """Where replicas of a topic are, except those that are being deleted."""
        found = [path for number in self.brokers for path in self.data(number).glob(f"{topic}-*")]
        return [path for path in found if not path.name.endswith("-delete")]

    def content(self, number: int, topic: str, index: int) -> str:
        """What a replica has written, chunk by chunk."""
        files = sorted((self.data(number) / f"{topic}-{index}").glob("*.log"))
        data = b"".join(file.read_bytes() for file in files)
        return "".join(hashlib.sha256(data[at : at + CHUNK]).hexdigest()[:8] for at in range(0, len(data), CHUNK))

    def same_content(self, topic: str, index: int) -> bool:
        contents = {self.content(number, topic, index) for number in self.replicas(topic)[index]}
        return len(contents) == 1 and contents != {""}

    def faults(self) -> list[str]:
        """What the brokers' logs say that no timing explains."""
        kafka = [line for broker in self.kafka.values() for line in faults_of_kafka(broker.log)]
        return kafka + [line for broker in self.ottla.values() for line in faults_of_ottla(broker.log)]

    # --- lifetime ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._own_folder:
            self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self._stack.enter_context(self.zookeeper)
        self.store.start()
        self._stack.callback(self.store.close)
        self._stack.callback(self.store.stop)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
