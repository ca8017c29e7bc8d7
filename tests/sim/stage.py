"""A simulated cluster for step-by-step scenarios: brokers 0, 1, 2, ... and usually one partition."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.sim.checks import StoredState, list_hosted
from ottla.sim.link import LinkError
from ottla.sim.world import World
from ottla.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.topics import (
    AlterPartitionReassignmentsRequest,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    ReassignablePartition,
    ReassignableTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path

TOPIC = "t"
PATIENCE_S = 60.0
TOPIC_RESOURCE, SET = 2, 0


class Stage:
    def __init__(self, folder: Path, *, brokers: int = 3, seed: int = 1, **options: str) -> None:
        self.world = World(
            seed,
            folder,
            brokers=brokers,
            options={name.replace("_", "."): value for name, value in options.items()},
        )
        self.nodes = self.world.nodes
        self.client = self.world.client("client")

    def play(self, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            await self.world.in_process("client", story())

        self.world.run(whole)

    # Brokers.

    async def up(self, *numbers: int) -> None:
        """Start these brokers and wait until each is registered."""
        for number in numbers:
            self.world.start(self.nodes[number])
        await self.until(lambda: set(map(str, numbers)) <= set(self.registered()))

    def registered(self) -> list[str]:
        return self.world.store.children("/brokers/ids") if self.world.store.tree("/brokers/ids") else []

    async def down(self, *numbers: int) -> None:
        """Kill these brokers, one after the other, and wait until the cluster has noticed each."""
        for number in numbers:
            self.nodes[number].kill()
            await self.until(lambda number=number: str(number) not in self.registered())  # type: ignore[misc]

    def forget_what_was_committed(self) -> None:
        """Call before an unclean election, which may lose committed records."""
        self.world.checks.unclean = True
        self.world.checks.truths.clear()
        self.world.loop.after = None

    def cut(self, one: int, other: int) -> None:
        for way in ((one, other), (other, one)):
            self.world.network.cut(*(self.nodes[number].name for number in way))

    async def until(self, is_true: Callable[[], Any], *, within_s: float = PATIENCE_S) -> None:
        until = self.world.loop.time() + within_s
        while not is_true():
            assert self.world.loop.time() < until, f"not within {within_s:g} s: {self.world.checks.states}"
            await asyncio.sleep(0.1)

    def state(self, topic: str = TOPIC, index: int = 0) -> StoredState:
        return self.world.checks.states[topic, index]

    def leads(self, leader: int, *isr: int) -> Callable[[], bool]:
        return lambda: (
            (TOPIC, 0) in self.world.checks.states
            and (self.state().leader, sorted(self.state().isr)) == (leader, sorted(isr))
        )

    def values(self, number: int, topic: str = TOPIC) -> list[bytes]:
        """What is in the log of a broker, committed or not."""
        for partition in list_hosted(self.nodes[number]):
            if partition.topic == topic:
                found = partition.log.read(partition.log.start, 1 << 20, offset_max=partition.log.end)
                data = b"" if found is None else found.read()
                entries = batch.entries(data)
                return [one.value or b"" for entry in entries for one in batch.iterate(data, entry.position)]
        return []

    def hosts(self, number: int) -> list[str]:
        return sorted(f"{one.topic}-{one.index}" for one in list_hosted(self.nodes[number]) if not one.internal)

    # Requests.

    async def ask_controller(self, request: object, version: int) -> Any:
        while True:
            await self.client.refresh()
            address = self.client.address(self.client.controller)
            with suppress(LinkError):
                if address is not None:
                    return await self.client.ask(address, request, version, timeout_s=10)
            await self.client.rest()

    async def create(self, replicas: Sequence[int] = (0, 1, 2), topic: str = TOPIC, **configs: str) -> None:
        wish = CreatableTopic(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))],
            configs=[CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()],
        )
        code = ErrorCode.NOT_CONTROLLER
        while code in (ErrorCode.NOT_CONTROLLER, ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.TOPIC_ALREADY_EXISTS):
            answer = await self.ask_controller(CreateTopicsRequest(topics=[wish]), 5)
            code = ErrorCode(answer.topics[0].error_code)
            await self.client.rest()
        assert code is ErrorCode.NONE, answer
        await self.until(lambda: (topic, 0) in self.world.checks.states)

    async def delete(self, topic: str = TOPIC) -> None:
        self.world.checks.deletable.add(topic)
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=topic, topic_id=bytes(16))], topic_names=[topic], timeout_ms=5000
        )
        answer = await self.ask_controller(request, 5)
        assert answer.responses[0].error_code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)

    async def configure(self, **configs: str) -> None:
        changes = [
            IncrementalAlterableConfig(name=name.replace("_", "."), config_operation=SET, value=value)
            for name, value in configs.items()
        ]
        resource = IncrementalAlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configs=changes)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        for _ in range(100):  # a controller that has just restarted may not know the topic yet
            answer = await self.ask_controller(request, 1)
            if answer.responses[0].error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                break
            await asyncio.sleep(0.1)
        assert not answer.responses[0].error_code, answer

    async def move(self, *replicas: int) -> None:
        one = ReassignablePartition(partition_index=0, replicas=list(replicas))
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=TOPIC, partitions=[one])])
        answer = await self.ask_controller(request, 0)
        assert not answer.error_code, answer
        assert not answer.responses[0].partitions[0].error_code, answer

    async def produce(self, *values: str, acks: int = -1, timeout_s: float = 3.0) -> ErrorCode:
        """Send one batch to the leader, once; return its error code, REQUEST_TIMED_OUT without a response."""
        await self._find_leader()
        address = self.client.leader((TOPIC, 0))
        if address is None:
            return ErrorCode.LEADER_NOT_AVAILABLE
        records = [batch.Record(at, 0, None, value.encode()) for at, value in enumerate(values)]
        data = PartitionProduceData(index=0, records=memoryview(batch.build(records)))
        topic = TopicProduceData(name=TOPIC, partition_data=[data])
        request = ProduceRequest(acks=acks, timeout_ms=int(timeout_s * 1000), topic_data=[topic])
        try:
            answer = await self.client.ask(address, request, 9, timeout_s=timeout_s + 1)
        except LinkError:
            return ErrorCode.REQUEST_TIMED_OUT
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    async def produced(self, *values: str) -> None:
        """Send until it is acknowledged."""
        while await self.produce(*values) is not ErrorCode.NONE:
            await self.client.rest()

    async def _find_leader(self) -> None:
        for _ in range(5):
            await self.client.refresh(TOPIC)

    async def read(self) -> list[str]:
        """What a consumer reads from the beginning; nothing if there is no leader."""
        await self._find_leader()
        address, found = self.client.leader((TOPIC, 0)), list[str]()
        if address is None:
            raise LinkError("nobody leads")
        while True:
            one = FetchPartition(partition=0, fetch_offset=len(found), partition_max_bytes=1 << 20)
            topic = FetchTopic(topic=TOPIC, partitions=[one])
            request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=[topic])
            answer = (await self.client.ask(address, request, 11)).responses[0].partitions[0]
            if answer.error_code:
                raise LinkError(ErrorCode(answer.error_code).name)
            data = bytes(answer.records or b"")
            if not data:
                return found
            for entry in batch.entries(data):
                found += [(record.value or b"").decode() for record in batch.iterate(data, entry.position)]

    async def reads(self, *values: str) -> None:
        """Wait until a consumer reads exactly this."""
        until = self.world.loop.time() + PATIENCE_S
        while True:
            found: object = "nothing"
            with suppress(LinkError):
                found = await self.read()
                if found == list(values):
                    return
            assert self.world.loop.time() < until, f"{found}, not {values}"
            await self.client.rest()
