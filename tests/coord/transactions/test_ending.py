"""Sending the end of a transaction to other brokers, whose leaders refuse, move, fail or are deleted."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from waiting import until

from ottla.cluster.image import EMPTY, NO_LEADER, Broker, Partition, Topic
from ottla.cluster.peers import PeerError
from ottla.coord.transactions import ending as module
from ottla.coord.transactions.ending import Endings
from ottla.coord.transactions.transaction import WriteMarkers
from ottla.errors import BrokerError, ErrorCode
from ottla.wire.messages.transactions import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

STATE = "__transaction_state"
ME = 1


class World:
    """A coordinator on broker 1: the leaders, the answers of other brokers, and what was sent and returned."""

    def __init__(self) -> None:
        self.metadata: Any = SimpleNamespace(node_id=ME, image=EMPTY)
        self.machine: Any = SimpleNamespace(is_ending=lambda effect: effect not in self.over)
        self.over: list[WriteMarkers] = []
        self.told: list[str] = []
        self.sent: list[tuple[int, list[tuple[int, int, list[tuple[str, int]]]]]] = []
        self.answers: Callable[[int, str, int], int] = lambda broker, topic, index: 0
        self.here: list[tuple[str, int]] = []
        self.writes: Callable[[str, int], Any] = lambda topic, index: None
        self.epoch = 4
        self.delay_s = 0.0
        self.closed: list[int] = []
        self.hanging: asyncio.Future[Any] | None = None
        self.lead({STATE: [ME]})
        runtime: Any = SimpleNamespace(peek=self.peek, epoch=lambda _: self.epoch, decide=self.decide)
        self.endings = Endings(runtime, self.metadata, self, self, STATE)  # type: ignore[arg-type]

    def lead(self, topics: dict[str, list[int]], alive: tuple[int, ...] = (1, 2, 3)) -> None:
        brokers = {one: Broker(one, {}, None, one) for one in alive}
        image = EMPTY._replace(brokers=brokers)
        for name, leaders in topics.items():
            states = tuple(Partition(at, (leader,), (leader,), leader, 0) for at, leader in enumerate(leaders))
            image = image.with_topics(Topic(name, name.encode(), states, {}))
        self.metadata.image = image

    def peek(self, index: int) -> Any:
        if self.machine is None:
            raise BrokerError(ErrorCode.NOT_COORDINATOR)
        return self.machine

    def decide(self, index: int, operation: Any) -> None:
        noted = SimpleNamespace(complete=lambda name, *_: self.told.append(name))
        operation(noted, 0)

    def write(self, topic: str, index: int, marker: Any) -> Any:
        self.here.append((topic, index))
        return self.writes(topic, index)

    async def ask(self, broker: Broker, request: WriteTxnMarkersRequest, **how: Any) -> WriteTxnMarkersResponse:
        assert how["channel"] == "markers"
        assert how["client_id"] == "broker-1-txn-marker-sender"
        self.sent.append(
            (
                broker.id,
                [
                    (
                        one.producer_id,
                        one.coordinator_epoch,
                        [(topic.name, index) for topic in one.topics for index in topic.partition_indexes],
                    )
                    for one in request.markers
                ],
            )
        )
        await asyncio.sleep(self.delay_s)
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=one.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=self.answers(broker.id, topic.name, index)
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in one.topics
                    ],
                )
                for one in reversed(request.markers)  # in any order, as Kafka
            ]
        )

    def close_channel(self, broker_id: int, channel: str) -> None:
        assert channel == "markers"
        self.closed.append(broker_id)
        if self.hanging is not None:
            self.hanging.set_exception(PeerError("closed"))

    async def finished(self, *names: str) -> None:
        await until(lambda: len(self.told) >= len(names))
        assert sorted(self.told) == sorted(names)


def an_end(name: str, *places: tuple[str, int], producer_id: int = 7) -> WriteMarkers:
    return WriteMarkers(name, producer_id, 3, commits=True, partitions=frozenset(places), version=0)


def play(story: Callable[[World], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.005)

    async def scene() -> None:
        world = World()
        await asyncio.wait_for(story(world), 10)
        await world.endings.stop()

    asyncio.run(scene())


def test_each_leader_gets_one_request_with_all_its_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        world.lead({STATE: [ME], "t": [1, 2, 3, 2]})
        world.endings.write(0, an_end("x", ("t", 0), ("t", 1), ("t", 2), ("t", 3)))
        await world.finished("x")
        assert world.here == [("t", 0)]
        assert world.sent == [(2, [(7, 4, [("t", 1), ("t", 3)])]), (3, [(7, 4, [("t", 2)])])]

    play(story, monkeypatch)


def test_what_comes_while_a_request_is_on_its_way_is_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        world.lead({STATE: [ME], "t": [2]})
        world.delay_s = 0.01
        for number in range(5):
            world.endings.write(0, an_end(f"x{number}", ("t", 0), producer_id=number))
            await asyncio.sleep(0)
        await world.finished(*(f"x{number}" for number in range(5)))
        assert len(world.sent) == 2
        assert [producer for _, markers in world.sent for producer, *_ in markers] == [0, 1, 2, 3, 4]

    play(story, monkeypatch)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        9999,
    ],
)
def test_a_leader_that_refuses_has_not_written_and_the_next_one_is_asked(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        world.lead({STATE: [ME], "t": [2, 2]})
        world.answers = lambda broker, topic, index: code if broker == 2 and index == 0 else 0
        world.endings.write(0, an_end("x", ("t", 0), ("t", 1)))
        await until(lambda: len(world.sent) >= 3)
        assert world.told == []
        assert world.sent[1:] == [(2, [(7, 4, [("t", 0)])])] * (len(world.sent) - 1), "the other one is written"
        world.lead({STATE: [ME], "t": [3, 2]})
        world.epoch = 5
        await world.finished("x")
        assert world.sent[-1] == (3, [(7, 5, [("t", 0)])])

    play(story, monkeypatch)


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_a_partition_that_knows_a_newer_epoch_needs_none(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        world.lead({STATE: [ME], "t": [2]})
        world.answers = lambda *_: code
        world.endings.write(0, an_end("x", ("t", 0)))
        await world.finished("x")
        assert len(world.sent) == 1

    play(story, monkeypatch)


def test_partitions_without_a_leader_or_with_a_dead_one_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        world.lead({STATE: [ME], "t": [NO_LEADER, 3]}, alive=(1, 2))
        world.endings.write(0, an_end("x", ("t", 0), ("t", 1)))
        await asyncio.sleep(0.03)
        assert (world.told, world.sent) == ([], [])
        world.lead({STATE: [ME], "t": [2, 3]})
        await world.finished("x")

    play(story, monkeypatch)


def test_a_lost_connection_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        world.lead({STATE: [ME], "t": [2]})
        losses = [PeerError("lost"), RuntimeError("a bug"), TimeoutError()]
        genuine = world.ask

        async def ask(*arguments: Any, **how: Any) -> Any:
            if losses:
                raise losses.pop()
            return await genuine(*arguments, **how)

        monkeypatch.setattr(world, "ask", ask)
        world.endings.write(0, an_end("x", ("t", 0)))
        await world.finished("x")
        assert not losses

    play(story, monkeypatch)


def test_a_deleted_partition_needs_no_marker_but_an_unknown_cluster_is_not_a_deleted_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World) -> None:
        world.lead({})
        world.endings.write(0, an_end("x", ("t", 0), ("u", 5)))
        await asyncio.sleep(0.03)
        assert world.told == []
        world.lead({STATE: [ME], "u": [2]})
        await world.finished("x")
        assert world.sent == []

    play(story, monkeypatch)


@pytest.mark.parametrize("how", ["lost", "another", "over"])
def test_who_coordinates_no_more_stops(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        world.lead({STATE: [ME], "t": [NO_LEADER]})
        effect = an_end("x", ("t", 0))
        world.endings.write(0, effect)
        await asyncio.sleep(0)
        if how == "lost":
            world.machine = None
        elif how == "another":
            world.machine = SimpleNamespace(is_ending=lambda _: True)
        else:
            world.over.append(effect)
        world.lead({STATE: [ME], "t": [2]})
        await until(lambda: not world.endings._tasks)
        assert (world.sent, world.told) == ([], [])
        world.machine = None
        world.endings.write(0, effect)
        assert world.sent == []

    play(story, monkeypatch)


def test_a_marker_here_counts_when_it_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        world.lead({STATE: [ME], "t": [1]})
        commits: list[asyncio.Future[None]] = []

        def write(topic: str, index: int) -> asyncio.Future[None]:
            commits.append(asyncio.get_running_loop().create_future())
            return commits[-1]

        world.writes = write
        world.endings.write(0, an_end("x", ("t", 0)))
        await asyncio.sleep(0.02)
        assert world.told == []
        commits[0].set_exception(BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        await until(lambda: len(commits) >= 2)
        commits[1].set_result(None)
        await world.finished("x")

    play(story, monkeypatch)


def test_a_silent_leader_that_is_gone_is_waited_for_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        world.lead({STATE: [ME], "t": [2]})
        genuine, hanging = world.ask, asyncio.get_running_loop().create_future()
        world.hanging = hanging

        async def ask(broker: Broker, *arguments: Any, **how: Any) -> Any:
            return await (hanging if broker.id == 2 else genuine(broker, *arguments, **how))

        monkeypatch.setattr(world, "ask", ask)
        world.endings.write(0, an_end("x", ("t", 0)))
        await asyncio.sleep(0.005)
        world.lead({STATE: [ME], "t": [3]}, alive=(1, 3))
        world.endings.drop_broker(3)
        world.endings.drop_broker(2)
        await world.finished("x")
        assert world.closed == [2], "there is no channel to the other"

    play(story, monkeypatch)


def test_the_end_of_a_large_transaction_lets_others_have_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        world.lead({STATE: [ME], "t": [ME] * 1500, "u": [2] * 300})
        turn, turns = 0, []

        async def others() -> None:
            nonlocal turn
            while not world.told:
                turn += 1
                await asyncio.sleep(0)

        world.writes = lambda topic, index: turns.append(turn)
        places = [*(("t", index) for index in range(1500)), *(("u", index) for index in range(300))]
        world.endings.write(0, an_end("x", *places))
        await others()
        await world.finished("x")
        assert len(turns) == 1500, "once each"
        assert max(turns.count(one) for one in set(turns)) <= module.AT_ONCE
        assert sorted(place for _, markers in world.sent for *_, sent in markers for place in sent) == sorted(
            places[1500:]
        )

    play(story, monkeypatch)
