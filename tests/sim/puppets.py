"""Brokers of which only the controller is real: for the simulation of the control plane without any records.

A puppet registers itself, takes part in controller elections, and accepts what the controller sends: the roles of its
replicas and the metadata. As a leader it requests changes of in-sync sets at random.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.cluster.control.driver import Control
from ottla.cluster.control.messages import FULL
from ottla.cluster.image import EMPTY, Broker, Partition, Topic
from ottla.cluster.metadata import Metadata
from ottla.cluster.peers import Connections, PeerError
from ottla.cluster.registration import BrokerEndpoints, Registration
from ottla.config import load
from ottla.errors import BrokerError, ErrorCode
from ottla.net.answer import Deferred
from ottla.net.connection import ConnectionLimits
from ottla.net.listener import Admission, Listener
from ottla.net.receiver import Receiver
from ottla.sim.disk import SimDisk
from ottla.sim.loop import PROCESS
from ottla.sim.node import PORT, SimNode
from ottla.sim.zookeeper import SimMetadataStore
from ottla.wire import apis, codec
from ottla.wire.frame import parse_header, response_header
from ottla.wire.messages.peers import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    BrokerState,
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    StopReplicaPartitionError,
    StopReplicaResponse,
    UpdateMetadataResponse,
)

if TYPE_CHECKING:
    from ottla.sim.history import Partition as Key

LENGTH = Struct(">i")
LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, ALTER_PARTITION = 4, 5, 6, 56


class Role(NamedTuple):
    leader: int
    epoch: int
    isr: tuple[int, ...]
    version: int
    replicas: tuple[int, ...]
    topic_id: bytes


class Puppet(SimNode):
    control: Control
    member: Registration
    metadata: Metadata
    calm = False  # when set, it proposes all live replicas

    def _begin(self) -> None:
        self._disk = SimDisk(self.device)
        self._disk.make_folder(self.folder, parents=True)
        pairs = {
            "node.id": str(self.number),
            "listeners": f"PLAINTEXT://{self.name}:{PORT}",
            "log.dirs": str(self.folder),
            **self._options,
        }
        config = load(pairs)
        self._chance = Random(f"{self.folder.name} {self.lives}")
        self._metadata_store = SimMetadataStore(self.store, self.name, timeout_s=6.0)
        self.metadata = Metadata(config, self.clock, node_id=self.number)
        self.peers = Connections("PLAINTEXT")
        make = self._chance.randbytes
        self.member = Registration(self._metadata_store, config, self.clock, self._disk, random_bytes=make)
        self.control = Control(self._metadata_store, self.peers, self.metadata, self.clock, random_bytes=make)
        self.roles: dict[Key, Role] = {}
        self.controller_epoch = 0
        self._proposals: dict[Key, tuple[int, int, list[int]]] = {}
        self._loop.create_task(self._exist())

    async def _exist(self) -> None:
        metadata_store = self._metadata_store
        assert metadata_store is not None
        await metadata_store.open()
        await self.member.identify(node_id=self.number, cluster_id=None)
        listener = Listener(
            "PLAINTEXT",
            self.network.listen(self.name, PORT, PROCESS.get()),  # type: ignore[arg-type]
            handle=self._handle,
            admission=self._admission(),
            receiver=Receiver(),
            limits=ConnectionLimits(1 << 24, 100, 1 << 24),
            connections_max=None,
            idle_s_max=0,
            send_buffer_size=0,
            receive_buffer_size=0,
        )
        listener.open()
        await self.member.register(BrokerEndpoints({"PLAINTEXT": (self.name, PORT)}, {}, None))
        await self.control.start()
        while True:
            await asyncio.sleep(self._chance.expovariate(1))
            with suppress(PeerError):
                await self._propose()

    def _admission(self) -> Admission:
        made = Admission()
        made.limit(1000, 1000, {})
        return made

    async def stop(self) -> None:
        self.kill()

    # Requests from the controller.

    def _handle(self, connection: Any, frame: memoryview) -> Any:
        key, version, correlation, _, position = parse_header(frame)
        api = apis.BY_KEY[key]
        request, _ = codec.decoder(api.request, version)(bytes(frame), position)

        def answer(response: Any) -> list[bytes]:
            body = response_header(key, version, correlation) + codec.encode(response, version)
            return [LENGTH.pack(len(body)) + body]

        if key == ALTER_PARTITION:
            task = asyncio.get_running_loop().create_task(self._alter(request, version))
            return Deferred(task, lambda done: answer(done.result()))
        if key == 18:
            from ottla.wire.messages.metadata import ApiVersion, ApiVersionsResponse

            known = [ApiVersion(api_key=ALTER_PARTITION, min_version=0, max_version=3)]
            return answer(ApiVersionsResponse(error_code=0, api_keys=known))
        code = self._fence(request)
        if key == LEADER_AND_ISR:
            return answer(self._assign(request, code))
        if key == STOP_REPLICA:
            return answer(self._stop_replicas(request, code))
        assert key == UPDATE_METADATA
        if not code:
            self._learn(request)
        return answer(UpdateMetadataResponse(error_code=code))

    def _fence(self, request: Any) -> ErrorCode:
        if request.broker_epoch != -1 and request.broker_epoch < self.member.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if request.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = request.controller_epoch
        return ErrorCode.NONE

    def _assign(self, request: Any, code: ErrorCode) -> LeaderAndIsrResponse:
        topics = []
        for topic in request.topic_states:
            errors = []
            for one in topic.partition_states:
                key = (topic.topic_name, one.partition_index)
                before = self.roles.get(key)
                new = Role(
                    one.leader,
                    one.leader_epoch,
                    tuple(one.isr),
                    one.partition_epoch,
                    tuple(one.replicas),
                    bytes(topic.topic_id),
                )
                same = before is not None and before.topic_id == new.topic_id
                if not code and (not same or before is None or new.version > before.version):
                    self.roles[key] = new
                errors.append(LeaderAndIsrPartitionError(partition_index=one.partition_index, error_code=0))
            topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
        return LeaderAndIsrResponse(error_code=code, topics=[] if code else topics)

    def _stop_replicas(self, request: Any, code: ErrorCode) -> StopReplicaResponse:
        errors = []
        for topic in request.topic_states:
            for one in topic.partition_states:
                if not code:
                    self.roles.pop((topic.topic_name, one.partition_index), None)
                errors.append(
                    StopReplicaPartitionError(
                        topic_name=topic.topic_name, partition_index=one.partition_index, error_code=0
                    )
                )
        return StopReplicaResponse(error_code=code, partition_errors=[] if code else errors)

    def _learn(self, request: Any) -> None:
        image = self.metadata.image
        brokers = {
            one.id: Broker(one.id, {end.listener: (end.host, end.port) for end in one.endpoints}, None, -1)
            for one in request.live_brokers
        }
        if image is EMPTY:
            image = EMPTY._replace(cluster_id="x")
        image = image._replace(brokers=brokers, controller_id=request.controller_id)
        if request.type == FULL:
            told = {topic.topic_name for topic in request.topic_states}
            image = image.without_topics(*(name for name in image.topics if name not in told))
        for topic in request.topic_states:
            known = image.topics.get(topic.topic_name)
            same = known is not None and known.id == bytes(topic.topic_id)
            states = {one.index: one for one in (known.partitions if known is not None and same else ())}
            gone = False
            for one in topic.partition_states:
                gone = gone or one.leader == -2
                states[one.partition_index] = Partition(
                    one.partition_index,
                    tuple(one.replicas),
                    tuple(one.isr),
                    one.leader,
                    one.leader_epoch,
                    one.zk_version,
                )
            if gone:
                if known is not None and same:
                    image = image.without_topics(topic.topic_name)
            else:
                parts = tuple(states[index] for index in sorted(states))
                image = image.with_topics(Topic(topic.topic_name, bytes(topic.topic_id), parts, {}))
        self.metadata.publish(image)

    # Proposals of a leader.

    async def _alter(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        try:
            return await self.control.alter_partition(request, version)
        except BrokerError as error:
            return AlterPartitionResponse(error_code=error.code, topics=[])

    async def _propose(self) -> None:
        """Propose all replicas that are alive as far as it knows; sometimes fewer."""
        image = self.metadata.image
        controller = image.brokers.get(image.controller_id)
        for (topic, index), role in list(self.roles.items()):
            if role.leader != self.number or controller is None:
                continue
            wanted = [one for one in role.replicas if one in image.brokers]
            asked_for = self._proposals.get((topic, index))
            if asked_for is not None and asked_for[:2] == (role.epoch, role.version):
                wanted = asked_for[2]  # no response yet: the outcome is unknown
            elif not self.calm and self._chance.random() < 0.1:
                wanted = [one for one in wanted if one == self.number or self._chance.random() < 0.5]
            if set(wanted) == set(role.isr) or self.number not in wanted:
                continue
            self._proposals[topic, index] = role.epoch, role.version, wanted
            data = AlterPartitionRequestPartitionData(
                partition_index=index,
                leader_epoch=role.epoch,
                new_isr_with_epochs=[BrokerState(broker_id=one) for one in wanted],
                partition_epoch=role.version,
            )
            asked = AlterPartitionRequestTopicData(topic_id=role.topic_id, partitions=[data])
            request = AlterPartitionRequest(
                broker_id=self.number, broker_epoch=self.member.broker_epoch, topics=[asked]
            )
            answer = await self.peers.ask(controller, request, version=3, timeout_s=3.0, channel="isr")
            if not answer.error_code:
                self._proposals.pop((topic, index), None)
            for one in [] if answer.error_code else answer.topics[0].partitions:
                now = self.roles.get((topic, index))
                if not one.error_code and now is not None and now.epoch == one.leader_epoch:
                    self.roles[topic, index] = now._replace(isr=tuple(one.isr), version=one.partition_epoch)
