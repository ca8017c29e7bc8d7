"""The controller on a simulated store and connections: elections, commands, and failures."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from waiting import until

from ottla.cluster import znodes
from ottla.cluster.alterations import SET, OptionChange
from ottla.cluster.control import engine
from ottla.cluster.control.channel import Channel, merge
from ottla.cluster.control.departure import depart
from ottla.cluster.control.driver import Control
from ottla.cluster.image import Broker, Partition, Topic
from ottla.cluster.metadata import Metadata
from ottla.cluster.metadata_store import Create, SessionEvent, StoreError, Unavailable
from ottla.cluster.peers import PeerError
from ottla.cluster.plans import NewTopic
from ottla.cluster.sqlite_store import MEMORY, SqliteStore
from ottla.config import load
from ottla.errors import BrokerError, ErrorCode
from ottla.wire.messages.peers import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from ottla.cluster.commands import Commands

DELETED = -2


class Clock:
    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic(self) -> float:
        return 0.0


class Store(SqliteStore):
    """A metadata store whose session and responses the test controls."""

    def __init__(self) -> None:
        super().__init__(MEMORY)
        self.refuse: Callable[[str], bool] = lambda path: False
        self.listeners: list[Callable[[SessionEvent], None]] = []

    async def get(self, path: str) -> Any:
        if self.refuse(path):
            raise Unavailable(path)
        return await super().get(path)

    def subscribe(self, callback: Callable[[SessionEvent], None]) -> Callable[[], None]:
        self.listeners.append(callback)
        return super().subscribe(callback)

    def say(self, event: SessionEvent) -> None:
        for listener in self.listeners:
            listener(event)


class Peers:
    """Every broker, including this one: they accept every request, and this one's metadata is updated."""

    def __init__(self, metadata: Metadata) -> None:
        self.metadata = metadata
        self.asked: list[tuple[int, Any]] = []
        self.silent: set[int] = set()
        self.failures = 0

    async def ask(self, broker: Broker, request: Any, **rest: Any) -> Any:
        await asyncio.sleep(0)
        await until(lambda: broker.id not in self.silent)
        if self.failures:
            self.failures -= 1
            raise PeerError("no")
        self.asked.append((broker.id, request))
        if isinstance(request, UpdateMetadataRequest):
            if broker.id == self.metadata.node_id:
                self.follow(request)
            return UpdateMetadataResponse(error_code=0)
        if isinstance(request, LeaderAndIsrRequest):
            return LeaderAndIsrResponse(error_code=0, topics=[])
        if isinstance(request, StopReplicaRequest):
            return StopReplicaResponse(error_code=0, partition_errors=[])
        assert isinstance(request, ControlledShutdownRequest)
        return ControlledShutdownResponse(error_code=0, remaining_partitions=[])

    def close_channel(self, broker_id: int, channel: str) -> None:
        pass

    def follow(self, request: UpdateMetadataRequest) -> None:
        image = self.metadata.image
        brokers = {
            one.id: Broker(one.id, {end.listener: (end.host, end.port) for end in one.endpoints}, one.rack, 0)
            for one in request.live_brokers
        }
        image = image._replace(cluster_id="c", brokers=brokers, controller_id=request.controller_id)
        for told in request.topic_states:
            known = image.topics.get(told.topic_name)
            states = {one.index: one for one in known.partitions} if known is not None else {}
            states |= {
                one.partition_index: Partition(
                    one.partition_index, tuple(one.replicas), tuple(one.isr), one.leader, one.leader_epoch
                )
                for one in told.partition_states
            }
            if any(one.leader == DELETED for one in told.partition_states):
                image = image.without_topics(told.topic_name) if known is not None else image
            else:
                configs = {} if known is None else known.configs
                ordered = tuple(states[index] for index in sorted(states))
                image = image.with_topics(Topic(told.topic_name, told.topic_id, ordered, configs))
        self.metadata.publish(image)


class Setup:
    def __init__(self, store: Store, metadata: Metadata, peers: Peers, control: Control) -> None:
        self.store = store
        self.metadata = metadata
        self.peers = peers
        self.control = control

    def is_idle(self) -> bool:
        return not self.control._engine._more.is_set()

    async def register(self, broker: int) -> None:
        described = Broker(broker, {"PLAINTEXT": ("127.0.0.1", 9000 + broker)}, None, 0)
        await self.store.create(znodes.broker_path(broker), znodes.encode_broker(described, 0), ephemeral=True)


@asynccontextmanager
async def made(*brokers: int) -> AsyncIterator[Setup]:
    store = Store()
    await store.open()
    await store.multi([Create(path) for path in znodes.PARENTS])
    config = load({"node.id": "0", "log.dirs": "/nowhere"})
    metadata = Metadata(config, Clock())
    peers = Peers(metadata)
    count = iter(range(1, 10_000))
    control = Control(store, peers, metadata, Clock(), random_bytes=lambda size: next(count).to_bytes(size))
    setup = Setup(store, metadata, peers, control)
    for broker in brokers:
        await setup.register(broker)
    await control.start()
    try:
        yield setup
    finally:
        await control.stop()
        await store.close()


def run(work: Callable[[Setup], Awaitable[None]], *brokers: int) -> None:
    async def scene() -> None:
        async with made(*(brokers or (0, 1, 2))) as setup:
            await until(lambda: setup.control.in_office and len(setup.metadata.image.brokers) > 0)
            await until(setup.is_idle)
            await work(setup)

    asyncio.run(scene())


def test_it_is_elected_and_every_broker_hears_of_it() -> None:
    async def work(setup: Setup) -> None:
        await until(lambda: {broker for broker, _ in setup.peers.asked} == {0, 1, 2})
        assert znodes.decode_controller((await setup.store.get(znodes.CONTROLLER)).data) == 0
        assert (await setup.store.get(znodes.CONTROLLER_EPOCH)).data == b"1"

    run(work)


def test_control_is_what_handlers_expect() -> None:
    async def work(setup: Setup) -> None:
        commands: Commands = setup.control
        commands.check_controller()

    run(work)


def test_topics_are_made_grown_and_deleted() -> None:
    async def work(setup: Setup) -> None:
        control = setup.control
        wishes = [NewTopic("t", 2, 3), NewTopic("u", 1, 9), NewTopic("v", configs={"retention.ms": "5"})]
        first, second, third = await control.create_topics(wishes)
        assert isinstance(first, Topic)
        assert isinstance(second, BrokerError)
        assert second.code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert isinstance(third, Topic)
        assert setup.metadata.image.topics["t"].id == first.id
        assert znodes.decode_configs((await setup.store.get(znodes.topic_config_path("v"))).data) == {
            "retention.ms": "5"
        }
        again = await control.create_topics([NewTopic("t")])
        assert isinstance(again[0], BrokerError)
        assert again[0].code == ErrorCode.TOPIC_ALREADY_EXISTS
        await control.create_partitions("t", 5)
        assert len(setup.metadata.image.topics["t"].partitions) == 5
        with pytest.raises(BrokerError):
            await control.create_partitions("t", 3)
        gone = await control.delete_topics(["t", "none"])
        assert isinstance(gone[0], Topic)
        assert isinstance(gone[1], BrokerError)
        assert "t" not in setup.metadata.image.topics
        assert await setup.store.children(znodes.TOPICS) == ["v"]
        assert isinstance((await control.create_topics([NewTopic("t")]))[0], Topic)

    run(work)


def test_a_topic_that_gets_no_leader_in_time_is_said_to_be_late() -> None:
    async def work(setup: Setup) -> None:
        setup.peers.silent = {0}
        late = await setup.control.create_topics([NewTopic("t")], timeout_ms=0)
        assert isinstance(late[0], BrokerError)
        assert late[0].code == ErrorCode.REQUEST_TIMED_OUT
        setup.peers.silent = set()
        await until(lambda: "t" in setup.metadata.image.topics)

    run(work)


def test_validate_only_changes_nothing() -> None:
    async def work(setup: Setup) -> None:
        assert isinstance((await setup.control.create_topics([NewTopic("t")], validate_only=True))[0], Topic)
        assert await setup.store.children(znodes.TOPICS) == []

    run(work)


def test_any_broker_makes_a_missing_topic_and_changes_options() -> None:
    async def work(setup: Setup) -> None:
        topic = await setup.control.auto_create("auto")
        assert topic.partitions[0].leader >= 0
        changing = asyncio.ensure_future(setup.control.alter_topic("auto", [OptionChange("retention.ms", SET, "7")]))
        path = znodes.topic_config_path("auto")
        while not znodes.decode_configs((await setup.store.get(path)).data):
            await asyncio.sleep(0.001)
        assert not changing.done(), "this broker does not know of it yet"
        known = setup.metadata.image.topics["auto"]._replace(configs={"retention.ms": "7"})
        setup.metadata.publish(setup.metadata.image.with_topics(known))
        await changing
        notices = await setup.store.children(znodes.CONFIG_CHANGES)
        assert len(notices) == 1

    run(work)


def test_topics_and_brokers_are_seen_through_watches() -> None:
    async def work(setup: Setup) -> None:
        await setup.control.create_topics([NewTopic("t", 1, 3)])
        leader = setup.metadata.image.topics["t"].partitions[0].leader
        others = [broker for broker in (1, 2) if broker != leader]
        if leader != 0:
            await setup.store.delete(znodes.broker_path(leader))
            await until(lambda: setup.metadata.image.topics["t"].partitions[0].leader not in (-1, leader))
        await setup.store.delete(znodes.broker_path(others[0]))
        await until(lambda: others[0] not in setup.metadata.image.brokers)
        await setup.register(7)
        await until(lambda: 7 in setup.metadata.image.brokers)

    run(work)


def test_session_lost_ends_the_term_and_a_new_one_begins_with_the_next() -> None:
    async def work(setup: Setup) -> None:
        setup.store.say(SessionEvent.LOST)
        assert not setup.control.in_office
        with pytest.raises(BrokerError) as caught:
            setup.control.check_controller()
        assert caught.value.code == ErrorCode.NOT_CONTROLLER
        await setup.store.delete(znodes.CONTROLLER)
        setup.store.say(SessionEvent.CONNECTED)
        await until(lambda: setup.control.in_office)
        assert (await setup.store.get(znodes.CONTROLLER_EPOCH)).data == b"2"
        assert isinstance((await setup.control.create_topics([NewTopic("t")]))[0], Topic)

    run(work)


def test_controller_node_deleted_forces_an_election() -> None:
    async def work(setup: Setup) -> None:
        await setup.store.delete(znodes.CONTROLLER)
        await until(lambda: setup.control.in_office and setup.control._engine.epoch == 2)

    run(work)


def test_deposed_controller_answers_what_was_asked_with_not_controller() -> None:
    async def work(setup: Setup) -> None:
        await setup.store.set(znodes.CONTROLLER_EPOCH, b"9")
        with pytest.raises(BrokerError) as caught:
            await setup.control.take_producer_ids(0, (await setup.store.get(znodes.broker_path(0))).stat.czxid)
        assert caught.value.code == ErrorCode.NOT_CONTROLLER

    run(work)


def test_requests_are_repeated_until_a_broker_answers() -> None:
    async def work(setup: Setup) -> None:
        setup.peers.failures = 5
        assert isinstance((await setup.control.create_topics([NewTopic("t", 1, 3)]))[0], Topic)

    run(work)


def test_step_that_fails_is_survived_by_reading_everything_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "RETRY_S", 0.001)

    async def work(setup: Setup) -> None:
        machine = setup.control._engine._machine
        assert machine is not None
        handle, failures = machine.handle, iter([True])

        def failing(event: Any) -> Any:
            if next(failures, False):
                raise RuntimeError("a bug")
            return handle(event)

        monkeypatch.setattr(machine, "handle", failing)
        with pytest.raises(BrokerError) as caught:
            await setup.control.shut_down_broker(1, -1)
        assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert await setup.control.shut_down_broker(1, -1) == []

    run(work)


def test_reads_wait_for_a_store_that_is_away() -> None:
    async def work(setup: Setup) -> None:
        setup.store.refuse = lambda path: path.startswith(znodes.TOPICS)
        setup.store.say(SessionEvent.SUSPENDED)
        making = asyncio.ensure_future(setup.control.create_topics([NewTopic("t")]))
        await asyncio.sleep(0.02)
        assert not making.done()
        setup.store.refuse = lambda path: False
        setup.store.say(SessionEvent.CONNECTED)
        assert isinstance((await making)[0], Topic)

    run(work)


def test_leaders_are_elected_and_partitions_moved_by_command() -> None:
    async def work(setup: Setup) -> None:
        control = setup.control
        await control.create_topics([NewTopic("t", assignments={0: [0, 1]})])
        results = await control.elect_leaders([("t", 0)], 0)
        error = results["t", 0]
        assert error is not None
        assert error.code == ErrorCode.ELECTION_NOT_NEEDED
        assert await control.move_partitions({("t", 0): [2, 0]}) == {("t", 0): None}
        moving = control.moving_partitions(None)["t", 0]
        assert (moving.replicas, moving.adding, moving.removing) == ((2, 0, 1), (2,), (1,))
        assert await control.move_partitions({("t", 0): None}) == {("t", 0): None}
        assert control.moving_partitions([("t", 0)]) == {}

    run(work)


def test_nothing_is_made_before_the_brokers_are_known() -> None:
    async def work(setup: Setup) -> None:
        setup.metadata.publish(setup.metadata.image._replace(brokers={}))
        with pytest.raises(BrokerError) as refused:
            await setup.control.auto_create("early")
        assert refused.value.code is ErrorCode.LEADER_NOT_AVAILABLE

    run(work)


def test_broker_departs_through_the_controller() -> None:
    async def work(setup: Setup) -> None:
        config = load({"node.id": "1", "log.dirs": "/nowhere", "controlled.shutdown.retry.backoff.ms": "1"})
        setup.peers.failures = 1
        assert await depart(config, setup.store, setup.peers, 1, 5)
        assert any(isinstance(request, ControlledShutdownRequest) for _, request in setup.peers.asked)
        setup.peers.failures = 1000
        assert not await depart(config, setup.store, setup.peers, 1, 5)

    run(work)


def test_broker_that_falls_behind_is_told_the_newest_only() -> None:
    async def scene() -> None:
        metadata = Metadata(load({"node.id": "0", "log.dirs": "/nowhere"}), Clock())
        peers = Peers(metadata)
        peers.silent = {1}
        channel = Channel(Broker(1, {}, None, 1), peers, "0", lambda broker, request, response: None)
        for epoch in range(100):
            channel.send(news(epoch), 8)
            await asyncio.sleep(0)
        peers.silent = set()
        await until(lambda: peers.asked and peers.asked[-1][1].topic_states[0].partition_states[0].leader_epoch == 99)
        assert len(peers.asked) < 20
        await channel.close()

    asyncio.run(scene())


def test_broker_that_falls_behind_is_told_in_an_order_that_it_understands() -> None:
    async def scene() -> None:
        metadata = Metadata(load({"node.id": "0", "log.dirs": "/nowhere"}), Clock())
        peers = Peers(metadata)
        peers.silent = {1}
        channel = Channel(Broker(1, {}, None, 1), peers, "0", lambda broker, request, response: None)
        brokers = UpdateMetadataRequest(controller_id=0, controller_epoch=1, live_brokers=[])
        leads = LeaderAndIsrRequest(controller_id=0, controller_epoch=1, live_leaders=[])
        sent = [news(0), news(1), brokers, leads, news(2), news(3, b"x" * 16), news(4, b"x" * 16)]
        for request in sent:
            channel.send(request, 8)
        peers.silent = set()
        await until(lambda: peers.asked and peers.asked[-1][1] == sent[-1])
        told = [request for _, request in peers.asked]
        assert told.index(brokers) < told.index(leads), "leaders are named when they are known"
        assert told.index(leads) < told.index(news(2)) < told.index(news(4, b"x" * 16))
        await channel.close()

    asyncio.run(scene())


def news(epoch: int, topic_id: bytes = bytes(16), index: int = 0) -> UpdateMetadataRequest:
    from ottla.wire.messages.peers import UpdateMetadataPartitionState, UpdateMetadataTopicState

    state = UpdateMetadataPartitionState(
        partition_index=index,
        controller_epoch=1,
        leader=1,
        leader_epoch=epoch,
        isr=[1],
        zk_version=0,
        replicas=[1],
    )
    topic = UpdateMetadataTopicState(topic_name="t", topic_id=topic_id, partition_states=[state])
    return UpdateMetadataRequest(controller_id=0, controller_epoch=1, topic_states=[topic], live_brokers=[])


def test_merged_news_hold_every_partition_once_and_not_two_topics_of_one_name() -> None:
    both = merge(news(1, index=0), news(2, index=1))
    assert both is not None
    assert [state.partition_index for state in both.topic_states[0].partition_states] == [0, 1]
    newest = merge(news(1), news(2))
    assert newest is not None
    assert [state.leader_epoch for state in newest.topic_states[0].partition_states] == [2]
    assert merge(news(1), news(2, b"x" * 16)) is None


def test_losing_candidate_watches_and_waits() -> None:
    async def scene() -> None:
        async with made(0, 1) as setup:
            await until(lambda: setup.control.in_office)
            other = Control(
                setup.store, setup.peers, Metadata(setup.metadata.static, Clock(), node_id=1), Clock(),
                random_bytes=bytes,
            )  # fmt: skip
            # The embedded store has one session for all, so the other controller must appear under a foreign session.
            other._engine._office = Stranger(setup.store, 1, Clock())
            await other.start()
            await asyncio.sleep(0.01)
            assert not other.in_office
            await other.stop()
            assert setup.control.in_office

    asyncio.run(scene())


class Stranger(engine.Office):
    async def seek(self) -> Any:
        try:
            await self._store.get(znodes.CONTROLLER)
        except StoreError:
            return await super().seek()
        return None
