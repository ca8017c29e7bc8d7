"""Transactional producers of every client family, driven step by step.

A transactor holds several producers, each under a key of its own, so that two of them may share a transactional id. In
another language it is a program that reads a line a step, words by tabs, and answers `ok` or `failed` and the errors:

    open  key  transactional id  time-out (ms)         send     key  topic  partition  value
    begin key                                          offsets  key  group  topic  partition  offset
    commit key                                         abort    key
"""

from __future__ import annotations

import asyncio
import os
import select
import subprocess
from abc import ABC, abstractmethod
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import judge
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import KafkaError as AioKafkaError
from compat.families import digest, node_program
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer
from kafka.errors import KafkaError
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata
from kafka.structs import TopicPartition as PythonPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

HERE: Final = Path(__file__).parent
WAIT_S: Final = 90.0
STOP_S: Final = 5.0
FENCED: Final = ("Fenced", "FENCED", "InvalidProducerEpoch", "INVALID_PRODUCER_EPOCH")


class Failed(Exception):
    """A step that the library refused, with the names of the errors it gave."""

    @property
    def fenced(self) -> bool:
        return any(name in str(self) for name in FENCED)


class Transactor(ABC):
    lacks: frozenset[str] = frozenset()

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @abstractmethod
    def open(self, key: str, name: str, timeout_ms: int = 60_000) -> None: ...

    @abstractmethod
    def begin(self, key: str) -> None: ...

    @abstractmethod
    def send(self, key: str, topic: str, partition: int, value: str) -> None: ...

    @abstractmethod
    def offsets(self, key: str, group: str, topic: str, partition: int, offset: int) -> None: ...

    @abstractmethod
    def commit(self, key: str) -> None: ...

    @abstractmethod
    def abort(self, key: str) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class Confluent(Transactor):
    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._producers: dict[str, Producer] = {}

    @staticmethod
    def _try(call: Callable[[], object]) -> None:
        try:
            call()
        except KafkaException as failure:
            raise Failed(failure.args[0].name(), failure.args[0].str()) from failure

    def open(self, key: str, name: str, timeout_ms: int = 60_000) -> None:
        self._producers[key] = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": name,
                                         "transaction.timeout.ms": timeout_ms, "log_level": 0,
                                         "error_cb": lambda _: None})  # fmt: skip
        self._try(lambda: self._producers[key].init_transactions(WAIT_S))

    def begin(self, key: str) -> None:
        self._try(self._producers[key].begin_transaction)

    def send(self, key: str, topic: str, partition: int, value: str) -> None:
        errors: list[Any] = []
        self._try(lambda: self._producers[key].produce(
            topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error)))  # fmt: skip
        try:
            assert self._producers[key].flush(WAIT_S) == 0
        except (KafkaException, SystemError) as failure:
            # What is fatal is raised in flush, which then goes on to the delivery report: one error inside another.
            cause = failure if isinstance(failure, KafkaException) else failure.__cause__
            if not isinstance(cause, KafkaException):
                raise
            raise Failed(cause.args[0].name(), cause.args[0].str()) from failure
        if errors != [None]:
            raise Failed(errors[0].name(), errors[0].str())

    def offsets(self, key: str, group: str, topic: str, partition: int, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        metadata, places = consumer.consumer_group_metadata(), [TopicPartition(topic, partition, offset)]
        self._try(lambda: self._producers[key].send_offsets_to_transaction(places, metadata, WAIT_S))
        consumer.close()

    def commit(self, key: str) -> None:
        self._try(lambda: self._producers[key].commit_transaction(WAIT_S))

    def abort(self, key: str) -> None:
        self._try(lambda: self._producers[key].abort_transaction(WAIT_S))

    def close(self) -> None:
        self._producers.clear()


class KafkaPython(Transactor):
    lacks = frozenset({"fencing"})  # a producer whose record was refused takes the id for itself again

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._producers: dict[str, KafkaProducer] = {}
        self._all: list[KafkaProducer] = []  # also those whose key was given to another

    @staticmethod
    def _try(call: Callable[[], object]) -> None:
        try:
            call()
        except KafkaError as failure:
            raise Failed(*chain(failure)) from failure

    def open(self, key: str, name: str, timeout_ms: int = 60_000) -> None:
        self._producers[key] = KafkaProducer(
            bootstrap_servers=self.bootstrap, transactional_id=name, transaction_timeout_ms=timeout_ms
        )
        self._all.append(self._producers[key])
        self._try(self._producers[key].init_transactions)

    def begin(self, key: str) -> None:
        self._try(self._producers[key].begin_transaction)

    def send(self, key: str, topic: str, partition: int, value: str) -> None:
        self._try(lambda: self._producers[key].send(topic, value.encode(), partition=partition).get(WAIT_S))

    def offsets(self, key: str, group: str, topic: str, partition: int, offset: int) -> None:
        offsets = {PythonPartition(topic, partition): OffsetAndMetadata(offset, "", -1)}
        metadata = ConsumerGroupMetadata(group, -1, "", None)
        self._try(lambda: self._producers[key].send_offsets_to_transaction(offsets, metadata))

    def commit(self, key: str) -> None:
        self._try(self._producers[key].commit_transaction)

    def abort(self, key: str) -> None:
        self._try(self._producers[key].abort_transaction)

    def close(self) -> None:
        for producer in self._all:
            producer.close(timeout=0)


class AioKafka(Transactor):
    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._loop = asyncio.new_event_loop()
        self._producers: dict[str, AIOKafkaProducer] = {}
        self._all: list[AIOKafkaProducer] = []

    def _try(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self._loop.run_until_complete(asyncio.wait_for(work, WAIT_S))
        except AioKafkaError as failure:
            raise Failed(*chain(failure)) from failure

    def open(self, key: str, name: str, timeout_ms: int = 60_000) -> None:
        async def start() -> None:
            self._producers[key] = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap, transactional_id=name, transaction_timeout_ms=timeout_ms
            )
            self._all.append(self._producers[key])
            await self._producers[key].start()

        self._try(start())

    def begin(self, key: str) -> None:
        self._try(self._producers[key].begin_transaction())

    def send(self, key: str, topic: str, partition: int, value: str) -> None:
        self._try(self._producers[key].send_and_wait(topic, value.encode(), partition=partition))

    def offsets(self, key: str, group: str, topic: str, partition: int, offset: int) -> None:
        self._try(self._producers[key].send_offsets_to_transaction({AioPartition(topic, partition): offset}, group))

    def commit(self, key: str) -> None:
        self._try(self._producers[key].commit_transaction())

    def abort(self, key: str) -> None:
        self._try(self._producers[key].abort_transaction())

    def close(self) -> None:
        async def stop() -> None:
            stopping = [asyncio.ensure_future(one.stop()) for one in self._all]
            await asyncio.wait(stopping, timeout=STOP_S)
            left = asyncio.all_tasks() - {asyncio.current_task()}  # those of a fenced one never end by themselves
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left, timeout=STOP_S)

        if self._all:
            self._loop.run_until_complete(stop())
        self._loop.close()


def chain(failure: BaseException | None) -> list[str]:
    """The names of an error and of its causes."""
    names = []
    while failure is not None:
        names += [type(failure).__name__, str(failure)]
        failure = failure.__cause__
    return names


class Agent(Transactor):
    """A program in another language."""

    def __init__(self, bootstrap: str, words: list[str]) -> None:
        super().__init__(bootstrap)
        environment = {**os.environ, "NODE_PATH": str(node_program().parent / "node_modules")}
        self._process = subprocess.Popen(
            [*words, bootstrap], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def _ask(self, *words: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], WAIT_S)
        assert ready, f"no answer to {words} in {WAIT_S} s"
        answer = self._process.stdout.readline().strip()
        if answer != "ok":
            raise Failed(answer)

    def open(self, key: str, name: str, timeout_ms: int = 60_000) -> None:
        self._ask("open", key, name, timeout_ms)

    def begin(self, key: str) -> None:
        self._ask("begin", key)

    def send(self, key: str, topic: str, partition: int, value: str) -> None:
        self._ask("send", key, topic, partition, value)

    def offsets(self, key: str, group: str, topic: str, partition: int, offset: int) -> None:
        self._ask("offsets", key, group, topic, partition, offset)

    def commit(self, key: str) -> None:
        self._ask("commit", key)

    def abort(self, key: str) -> None:
        self._ask("abort", key)

    def close(self) -> None:
        judge.stop_process(self._process, kill=True)  # type: ignore[arg-type]  # that it talks text does not matter
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@cache
def go_program() -> str:
    folder = HERE / "go"

    def build(target: Path) -> None:
        judge.run(["go", "build", "-trimpath", "-o", target / "program", "."], "building the Go program", cwd=folder)

    return str(judge.cached(f"go-transactor-{digest(folder, 'main.go', 'go.mod', 'go.sum')}", build) / "program")


def java(version: str) -> Callable[[str], Transactor]:
    source = HERE / "java" / "Transactor.java"
    return lambda bootstrap: Agent(bootstrap, judge.command(source, path=judge.client_classpath(version)))


def franz_go(bootstrap: str) -> Transactor:
    agent = Agent(bootstrap, [go_program()])
    agent.lacks = frozenset({"offsets"})
    return agent


def kafkajs(bootstrap: str) -> Transactor:
    return Agent(bootstrap, ["node", str(HERE / "node" / "transactor.js")])


OPENERS: Final[dict[str, Callable[[str], Transactor]]] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
    "java-4.3.1": java("4.3.1"),
    "java-2.3.1": java("2.3.1"),
    "java-1.1.1": java("1.1.1"),
    "java-0.11.0.3": java("0.11.0.3"),
    "franz-go": franz_go,
    "kafkajs": kafkajs,
}
OLD: Final = ("java-1.1.1", "java-0.11.0.3")  # not served by Apache Kafka 4
