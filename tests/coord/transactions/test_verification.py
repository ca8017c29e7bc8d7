"""Whether a batch may start a transaction: answers of coordinators elsewhere, and markers that arrive meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.cluster.image import EMPTY, NO_LEADER, Broker
from ottla.cluster.peers import PeerError, UnsupportedError
from ottla.coord.transactions.verification import Verification
from ottla.errors import BrokerError, ErrorCode
from ottla.wire.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ME, OTHER = 1, 2


class Asked:
    """A partition led here; its coordinators are on broker 2, unless the test says otherwise."""

    def __init__(self) -> None:
        brokers = {one: Broker(one, {}, None, one) for one in (ME, OTHER)}
        self.metadata: Any = SimpleNamespace(node_id=ME, image=EMPTY._replace(brokers=brokers))
        self.leader = OTHER
        self.transactions: Any = SimpleNamespace(leader_of=self.leader_of)
        self.verification = Verification(self.transactions, self.metadata, self)  # type: ignore[arg-type]
        self.requests: list[AddPartitionsToTxnRequest] = []
        self.code: Callable[[str, str, int], int] = lambda name, topic, index: 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.trouble: Exception | None = None
        self.error = 0

    def leader_of(self, name: str) -> int:
        if name == "nowhere":
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self.leader

    async def ask(self, broker: Broker, request: AddPartitionsToTxnRequest, **how: Any) -> AddPartitionsToTxnResponse:
        assert broker.id == OTHER
        assert how["least"] == 4
        assert how["client_id"] == "AddPartitionsManager-client-1"
        self.requests.append(request)
        await self.gate.wait()
        if self.trouble is not None:
            raise self.trouble
        return AddPartitionsToTxnResponse(
            error_code=self.error,
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=one.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(
                                    partition_index=index,
                                    partition_error_code=self.code(one.transactional_id, topic.name, index),
                                )
                                for index in topic.partitions
                            ],
                        )
                        for topic in one.topics
                    ],
                )
                for one in request.transactions
            ],
        )

    async def admitted(self, partition: Any, name: str = "x", *, adds: bool = False, epoch: int = 0) -> ErrorCode:
        while True:
            code = self.verification.admit(partition, name, (7, epoch), adds=adds)
            if isinstance(code, ErrorCode):
                return code
            await code


def a_partition(topic: str = "t", index: int = 0, *, open_: bool = False) -> Any:
    producers = SimpleNamespace(in_transaction=lambda *_: open_)
    return Namespace(topic=topic, index=index, epoch=0, log=SimpleNamespace(producers=producers))


class Namespace(SimpleNamespace):
    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__


def play(story: Callable[[Asked], Awaitable[None]]) -> None:
    async def scene() -> None:
        asked = Asked()
        await asyncio.wait_for(story(asked), 10)
        await asked.verification.stop()
        assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task() and not task.done()][1:]

    asyncio.run(scene())


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.PRODUCER_FENCED])
def test_the_coordinator_elsewhere_decides(code: ErrorCode, *, adds: bool) -> None:
    async def story(asked: Asked) -> None:
        asked.code = lambda *_: code
        assert await asked.admitted(a_partition(), adds=adds) is code
        one = asked.requests[0].transactions[0]
        assert (one.transactional_id, one.producer_id, one.producer_epoch, one.verify_only) == ("x", 7, 0, not adds)
        assert [(topic.name, topic.partitions) for topic in one.topics] == [("t", [0])]
        assert not asked.verification._checks, "a verdict is taken once"

    play(story)


def test_a_producer_whose_transaction_is_open_here_is_not_asked_about() -> None:
    async def story(asked: Asked) -> None:
        assert await asked.admitted(a_partition(open_=True)) is ErrorCode.NONE
        assert not asked.requests

    play(story)


def test_many_are_asked_about_in_one_request_and_one_producer_of_an_id_at_a_time() -> None:
    async def story(asked: Asked) -> None:
        asked.gate.clear()
        asked.code = lambda name, topic, index: index
        waiting = [asyncio.ensure_future(asked.admitted(a_partition(index=0), "first"))]
        await asyncio.sleep(0.005)
        waiting += [asyncio.ensure_future(asked.admitted(a_partition(index=i), f"x{i % 2}")) for i in (1, 2, 3)]
        waiting += [asyncio.ensure_future(asked.admitted(a_partition("u", 4), "x0", epoch=1))]
        await asyncio.sleep(0.005)
        asked.gate.set()
        assert [int(await one) for one in waiting] == [0, 1, 2, 3, 4]
        told = [
            [(one.transactional_id, one.producer_epoch, [topic.partitions for topic in one.topics]) for one in sent]
            for sent in (request.transactions for request in asked.requests)
        ]
        assert told == [[("first", 0, [[0]])], [("x1", 0, [[1, 3]]), ("x0", 0, [[2]])], [("x0", 1, [[4]])]]

    play(story)


def test_a_marker_in_between_has_the_question_asked_again() -> None:
    async def story(asked: Asked) -> None:
        partition = a_partition()
        asked.gate.clear()
        first = asked.verification.admit(partition, "x", (7, 0), adds=False)
        assert not isinstance(first, ErrorCode)
        await asyncio.sleep(0.005)
        asked.verification.end_transaction(partition, 7, True)  # while the coordinator is being asked
        asked.gate.set()
        await first
        second = asked.verification.admit(partition, "x", (7, 0), adds=False)
        assert not isinstance(second, ErrorCode)
        await second
        asked.verification.end_transaction(partition, 7, True)  # after it has answered
        asked.code = lambda *_: ErrorCode.TRANSACTION_ABORTABLE
        assert await asked.admitted(partition) is ErrorCode.TRANSACTION_ABORTABLE
        assert len(asked.requests) == 3

    play(story)


def test_a_verdict_is_for_one_leader_epoch_and_one_producer() -> None:
    async def story(asked: Asked) -> None:
        partition = a_partition()
        waiting = asked.verification.admit(partition, "x", (7, 0), adds=False)
        assert not isinstance(waiting, ErrorCode)
        await waiting
        partition.epoch = 1  # meanwhile another broker led it, and markers came from there
        assert not isinstance(asked.verification.admit(partition, "x", (7, 0), adds=False), ErrorCode)
        assert not isinstance(asked.verification.admit(partition, "x", (7, 1), adds=False), ErrorCode)
        assert await asked.admitted(partition, epoch=1) is ErrorCode.NONE

    play(story)


@pytest.mark.parametrize("trouble", [PeerError("lost"), RuntimeError("a bug")])
def test_without_an_answer_the_client_is_to_try_again(trouble: Exception) -> None:
    async def story(asked: Asked) -> None:
        asked.trouble = trouble
        assert await asked.admitted(a_partition()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await asked.admitted(a_partition(), "nowhere") is ErrorCode.COORDINATOR_NOT_AVAILABLE
        asked.leader = NO_LEADER
        assert await asked.admitted(a_partition()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        asked.leader, asked.trouble, asked.error = OTHER, None, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert await asked.admitted(a_partition()) is ErrorCode.INVALID_TXN_STATE

    play(story)


def test_a_coordinator_that_cannot_be_asked_is_trusted_but_nothing_is_added_there() -> None:
    async def story(asked: Asked) -> None:
        asked.trouble = UnsupportedError("too old")
        assert await asked.admitted(a_partition()) is ErrorCode.NONE
        assert await asked.admitted(a_partition(), adds=True) is ErrorCode.UNSUPPORTED_VERSION

    play(story)


def test_a_coordinator_here_is_believed_when_what_it_says_is_committed() -> None:
    async def story(asked: Asked) -> None:
        asked.leader = ME
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = ("t", 0)
        machine = SimpleNamespace(verify=lambda *_: {place: ErrorCode.NONE})
        asked.transactions.peek = lambda name: machine
        asked.transactions.pending_commit = lambda name, _: None if committed.done() else committed
        waiting = asked.verification.admit(a_partition(), "x", (7, 0), adds=False)
        assert not isinstance(waiting, ErrorCode)
        committed.set_result(None)
        await waiting
        assert asked.verification.admit(a_partition(), "x", (7, 0), adds=False) is ErrorCode.NONE

    play(story)


def test_a_producer_and_its_zombie_each_get_their_own_verdict() -> None:
    async def story(asked: Asked) -> None:
        partition = a_partition()
        codes = await asyncio.gather(*(asked.admitted(partition, epoch=epoch) for epoch in (0, 1)))
        assert codes == [ErrorCode.NONE, ErrorCode.NONE]
        assert len(asked.requests) == 2, "neither pushes out what the other is waiting for"
        assert not asked.verification._checks

    play(story)
