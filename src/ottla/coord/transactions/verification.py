"""Checks, before the first batch of a transaction in a partition, that the partition is part of the transaction.

Without this check a delayed batch could open a transaction that nobody will end. The transaction coordinator knows the
answer. If it is another broker, an AddPartitionsToTxn request asks it, about many transactions at once. As in Kafka, a
coordinator that is too old for this request is not asked.

A marker can end the transaction between the coordinator's answer and the append. So the verdict is kept here: the
caller calls `admit` again when the future is done, and appends in the same turn of the event loop if the verdict is
NONE. A marker removes the verdict, and the coordinator is asked again.

    code = verification.admit(partition, name, producer, adds=...)
    while not isinstance(code, ErrorCode):
        await code                                          # what is to be appended must be a copy by now
        code = verification.admit(partition, name, producer, adds=...)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from ottla.cluster.peers import PeerError, UnsupportedError
from ottla.coord.transactions.machine import EPOCH_PER_TRANSACTION
from ottla.errors import BrokerError, ErrorCode
from ottla.steps import Steps
from ottla.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ottla.cluster.metadata import Metadata
    from ottla.cluster.peers import Peers
    from ottla.coord.coordinator import Coordinator
    from ottla.coord.transactions.machine import TransactionMachine
    from ottla.replica.partition import Partition

CHANNEL = "verification"
LEAST_VERSION = 4  # the first AddPartitionsToTxn version for use between brokers
TRANSACTIONS_MAX = 1000  # in one request
KEEP_S = 10.0  # how long a verdict is kept for its caller, which usually fetches it at once

Place = tuple[str, int]  # topic and partition
Identity = tuple[int, int]  # id and epoch of a producer


class Question(NamedTuple):
    name: str
    producer: Identity
    place: Place
    adds: bool  # add the partition to the transaction, instead of only asking whether it is part of it


class Check:
    """A question to the coordinator, and its verdict when it is known."""

    __slots__ = ("about", "future", "verdict")

    def __init__(self, about: tuple[int, Question]) -> None:
        self.about = about  # with the leader epoch of the asking broker
        self.future: asyncio.Task[None] | None = None
        self.verdict: ErrorCode | None = None


class Verification:
    def __init__(
        self, transactions: Coordinator[TransactionMachine], metadata: Metadata, peers: Peers | None = None
    ) -> None:
        self._transactions = transactions
        self._metadata = metadata
        self._peers = peers
        # By partition and producer id: one id may have a producer and its zombies, each with its own epoch.
        self._checks: dict[tuple[Partition, int], dict[tuple[int, Question], Check]] = {}
        self._askers: dict[int, Verifier] = {}

    def admit(
        self, partition: Partition, name: str, producer: Identity, *, adds: bool
    ) -> ErrorCode | asyncio.Future[None]:
        """Whether this producer may append to a partition that this broker leads.

        Returns an error code, or a future to await before calling this again. `adds`: in the producer's protocol
        version, writing to a partition adds it to the transaction.
        """
        key = (partition, producer[0])
        question = Question(name, producer, (partition.topic, partition.index), adds)
        about = (partition.epoch, question)
        check = self._checks.get(key, {}).get(about)
        if check is not None:
            if check.verdict is None:
                assert check.future is not None
                return asyncio.shield(check.future)
            self._forget(key, check)
            return check.verdict
        if partition.log.producers.in_transaction(*producer):
            return ErrorCode.NONE
        answer = self._ask(question)
        if isinstance(answer, ErrorCode):
            return answer
        check = self._checks.setdefault(key, {})[about] = Check(about)
        check.future = asyncio.ensure_future(self._settle(key, check, answer))
        return asyncio.shield(check.future)

    async def _settle(self, key: tuple[Partition, int], check: Check, answer: Awaitable[ErrorCode]) -> None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE  # if the broker stops meanwhile
        try:
            code = await answer
        except BrokerError as error:
            code = error.code
        finally:
            check.verdict = code
        asyncio.get_running_loop().call_later(KEEP_S, self._forget, key, check)

    def _forget(self, key: tuple[Partition, int], check: Check) -> None:
        """Drop a verdict: it was fetched, or its time is over."""
        checks = self._checks.get(key, {})
        if checks.get(check.about) is check:
            del checks[check.about]
            if not checks:
                del self._checks[key]

    def end_transaction(self, partition: Partition, producer_id: int, _commits: bool) -> None:
        """Called when a marker is written: verdicts on this producer's transaction are out of date."""
        self._checks.pop((partition, producer_id), None)

    def drop_broker(self, broker_id: int) -> None:
        """A broker is gone. Do not wait for its responses: callers ask again."""
        if self._peers is not None and broker_id in self._askers:
            self._peers.close_channel(broker_id, CHANNEL)

    async def stop(self) -> None:
        found = [check for checks in self._checks.values() for check in checks.values()]
        tasks = [check.future for check in found if check.future is not None]
        tasks += [asker.task for asker in self._askers.values() if asker.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ask(self, question: Question) -> ErrorCode | Awaitable[ErrorCode]:
        try:
            leader = self._transactions.leader_of(question.name)
            if leader == self._metadata.node_id:
                return self._ask_here(question)
        except BrokerError as error:
            return error.code
        if self._peers is None or leader not in self._metadata.image.brokers:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        asker = self._askers.get(leader)
        if asker is None:
            asker = self._askers[leader] = Verifier(leader, self._metadata, self._peers)
        return asker.ask(question)

    def _ask_here(self, question: Question) -> ErrorCode | Awaitable[ErrorCode]:
        name, producer, place, adds = question
        if adds:
            answer: ErrorCode | Awaitable[ErrorCode] = self._transactions.run(
                name,
                lambda machine, token, now_ms: machine.add(
                    name, *producer, frozenset((place,)), EPOCH_PER_TRANSACTION, token, now_ms
                ),
            )
            return answer
        machine = self._transactions.peek(name)
        code = machine.verify(name, *producer, frozenset((place,)))[place]
        uncommitted = self._transactions.pending_commit(name, machine)
        return code if uncommitted is None else later(code, uncommitted)


async def later(code: ErrorCode, uncommitted: Awaitable[None]) -> ErrorCode:
    await uncommitted
    return code


class Asking(NamedTuple):
    question: Question
    future: asyncio.Future[ErrorCode]


class Verifier:
    """Asks one other coordinator. One request is in flight at a time; new questions wait for the next."""

    def __init__(self, broker_id: int, metadata: Metadata, peers: Peers) -> None:
        self.task: asyncio.Task[None] | None = None
        self._broker_id = broker_id
        self._metadata = metadata
        self._peers = peers
        self._steps = Steps("ottla.coord")
        self._queue: list[Asking] = []

    def ask(self, question: Question) -> asyncio.Future[ErrorCode]:
        loop = asyncio.get_running_loop()
        asking = Asking(question, loop.create_future())
        self._queue.append(asking)
        if self.task is None or self.task.done():
            self.task = loop.create_task(self._run())
        return asking.future

    async def _run(self) -> None:
        while self._queue:
            batch = self._take()
            codes: dict[tuple[str, Place], ErrorCode] = {}
            with self._steps.attempt(f"verification by broker {self._broker_id}"):
                codes = await self._send(batch)
            for asking in batch:
                if not asking.future.done():
                    about = (asking.question.name, asking.question.place)
                    asking.future.set_result(codes.get(about, ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def _take(self) -> list[Asking]:
        """Take the next questions off the queue: one producer per transactional id, since answers are keyed by id."""
        producers: dict[str, tuple[Identity, bool]] = {}
        taken, left = [], []
        for asking in self._queue:
            name, producer, _, adds = asking.question
            room = len(producers) < TRANSACTIONS_MAX or name in producers
            if room and producers.setdefault(name, (producer, adds)) == (producer, adds):
                taken.append(asking)
            else:
                left.append(asking)
        self._queue = left
        return taken

    async def _send(self, batch: list[Asking]) -> dict[tuple[str, Place], ErrorCode]:
        broker = self._metadata.image.brokers.get(self._broker_id)
        if broker is None:
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE)
        try:
            answer: AddPartitionsToTxnResponse = await self._peers.ask(
                broker,
                AddPartitionsToTxnRequest(transactions=transactions_of(batch)),
                least=LEAST_VERSION,
                client_id=f"AddPartitionsManager-client-{self._metadata.node_id}",
                channel=CHANNEL,
            )
        except UnsupportedError:
            return {(one.question.name, one.question.place): assume_verdict(one.question) for one in batch}
        except PeerError as error:
            raise BrokerError(ErrorCode.NETWORK_EXCEPTION, str(error)) from None
        if answer.error_code:
            code = read_code(answer.error_code)
            if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                code = ErrorCode.INVALID_TXN_STATE  # the client must not see an error about broker authorization
            return {(one.question.name, one.question.place): code for one in batch}
        return {
            (result.transactional_id, (topic.name, one.partition_index)): read_code(one.partition_error_code)
            for result in answer.results_by_transaction
            for topic in result.topic_results
            for one in topic.results_by_partition
        }


def assume_verdict(question: Question) -> ErrorCode:
    """The verdict if the coordinator is too old to be asked: no check, but nothing can be added either."""
    return ErrorCode.UNSUPPORTED_VERSION if question.adds else ErrorCode.NONE


def read_code(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:  # sent by a newer broker
        return ErrorCode.UNKNOWN_SERVER_ERROR


def transactions_of(batch: list[Asking]) -> list[AddPartitionsToTxnTransaction]:
    transactions: dict[str, AddPartitionsToTxnTransaction] = {}
    topics: dict[tuple[str, str], AddPartitionsToTxnTopic] = {}
    for (name, producer, (topic, index), adds), _ in batch:
        if name not in transactions:
            transactions[name] = AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=producer[0],
                producer_epoch=producer[1],
                verify_only=not adds,
                topics=[],
            )
        if (name, topic) not in topics:
            topics[name, topic] = AddPartitionsToTxnTopic(name=topic, partitions=[])
            transactions[name].topics.append(topics[name, topic])
        if index not in topics[name, topic].partitions:
            topics[name, topic].partitions.append(index)
    return list(transactions.values())
