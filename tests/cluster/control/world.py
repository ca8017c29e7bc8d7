"""An in-memory cluster for the controller's machine: a store, brokers that only receive, and one controller at a time.

`World.run` carries out the effects of an event. `stop_after` stops it after so many effects, as a crash would, and
the next controller takes over.
"""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any

from ottla.cluster import znodes
from ottla.cluster.control import events, nodes
from ottla.cluster.control.context import ControlSettings, Term
from ottla.cluster.control.effects import List, Read, Send, UnwatchTopics, WatchTopics, Write
from ottla.cluster.control.machine import Machine
from ottla.cluster.control.messages import deletions_in
from ottla.cluster.image import Broker
from ottla.cluster.metadata_store import (
    ANY,
    BadVersion,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    Set,
    Stat,
    StoreError,
    VersionCheck,
    Znode,
)
from ottla.errors import ErrorCode
from ottla.wire.messages.peers import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    BrokerState,
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.cluster.control.memory import Assignment, Key, Lead

EMPTY_NODES = (
    "/brokers",
    "/brokers/ids",
    "/brokers/topics",
    "/admin",
    "/admin/delete_topics",
    "/config",
    "/config/topics",
    "/isr_change_notification",
    "/log_dir_event_notification",
)


class Crashed(Exception):
    """The controller was stopped in the middle of an event."""


class Tree:
    """Nodes, versions and transactions, as a metadata store has them."""

    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {path: Znode(b"", Stat(0, 0, False)) for path in EMPTY_NODES}
        self.zxid = 1
        self.written: list[Op] = []

    def multi(self, ops: Sequence[Op]) -> StoreError | None:
        before, self.zxid = dict(self.nodes), self.zxid + 1
        try:
            for op in ops:
                self._apply(op)
        except StoreError as error:
            self.nodes = before
            return error
        self.written += ops
        return None

    def do(self, *ops: Op) -> None:
        error = self.multi(ops)
        if error is not None:
            raise error

    def _apply(self, op: Op) -> None:
        node = self.nodes.get(op.path)
        if isinstance(op, Create):
            if node is not None:
                raise NodeExists(op.path)
            if op.path.rpartition("/")[0] and op.path.rpartition("/")[0] not in self.nodes:
                raise NoNode(op.path)
            self.nodes[op.path] = Znode(op.data, Stat(0, self.zxid, op.ephemeral))
            return
        if node is None:
            raise NoNode(op.path)
        if op.version not in (ANY, node.stat.version):
            raise BadVersion(op.path)
        if isinstance(op, Set):
            self.nodes[op.path] = Znode(op.data, node.stat._replace(version=node.stat.version + 1))
        elif isinstance(op, Delete):
            if self.children(op.path):
                raise NotEmpty(op.path)
            del self.nodes[op.path]

    def children(self, path: str) -> list[str]:
        start = f"{path}/"
        return sorted(one[len(start) :] for one in self.nodes if one.startswith(start) and "/" not in one[len(start) :])


class World:
    def __init__(self, *brokers: int, settings: ControlSettings | None = None) -> None:
        self.tree = Tree()
        self.settings = settings or ControlSettings()
        self.epoch = 0
        self.machine: Machine | None = None
        self.sent: list[tuple[int, Any]] = []
        self.watched: dict[str, None] = {}
        self.answers: list[events.Event] = []
        self.interfere: Callable[[Sequence[Op]], None] | None = None
        self.unsure: Callable[[], bool] | None = None  # whether the response to a write is lost
        self.failed_folders: dict[int, set[Key]] = {}
        self.former_logs: dict[int, set[Key]] = {}  # of other topics of that name
        self._ids = count(1)
        self.effects = 0
        for broker in brokers:
            self.register(broker)

    # Changes to the store by others

    def register(self, broker: int) -> None:
        described = Broker(broker, {"PLAINTEXT": ("127.0.0.1", 9000 + broker)}, None, 0)
        self.tree.do(Create(znodes.broker_path(broker), znodes.encode_broker(described, 0), ephemeral=True))

    def unregister(self, broker: int) -> None:
        self.tree.do(Delete(znodes.broker_path(broker)))

    def write_topic(self, name: str, *replicas: tuple[int, ...], with_id: bool = True, **configs: str) -> None:
        fields: dict[str, Any] = {"version": 1, "partitions": {str(i): one for i, one in enumerate(replicas)}}
        if with_id:
            fields |= {"version": 3, "topic_id": znodes.encode_uuid(self.new_id())}
            fields |= {"adding_replicas": {}, "removing_replicas": {}}
        if configs:
            pairs = {option.replace("_", "."): value for option, value in configs.items()}
            self.tree.do(Create(znodes.topic_config_path(name), znodes.encode_configs(pairs)))
        self.tree.do(Create(znodes.topic_path(name), json.dumps(fields).encode()))

    def new_id(self) -> bytes:
        return next(self._ids).to_bytes(16)

    # The controller

    def elect(self) -> None:
        """Elect a new controller; the previous one does nothing more."""
        self.become_controller()
        self.run(events.Elected())

    def become_controller(self) -> None:
        self.epoch += 1
        node = self.tree.nodes.get(znodes.CONTROLLER_EPOCH)
        epoch = str(self.epoch).encode()
        path = znodes.CONTROLLER_EPOCH
        self.tree.do(Create(path, epoch) if node is None else Set(path, epoch))
        version = self.tree.nodes[path].stat.version
        self.machine = Machine(Term(0, self.epoch, version), self.settings, self.new_id)
        self.answers.clear()

    def run(self, event: events.Event, *, stop_after: int | None = None) -> Any:
        assert self.machine is not None
        task = self.machine.handle(event)
        result: Any = None
        done = 0
        try:
            while True:
                effect = task.send(result)
                if stop_after is not None and done >= stop_after:
                    raise Crashed
                done += 1
                self.effects += 1
                result = self.carry_out(effect)
        except StopIteration as stop:
            return stop.value

    def settle(self) -> None:
        """Let every broker answer its requests, until there are none left."""
        while self.answers:
            self.run(self.answers.pop(0))

    def carry_out(self, effect: Any) -> Any:
        if isinstance(effect, Read):
            return [self.tree.nodes.get(path) for path in effect.paths]
        if isinstance(effect, List):
            return self.tree.children(effect.path) if effect.path in self.tree.nodes else None
        if isinstance(effect, Write):
            return [self.transact(ops) for ops in effect.transactions]
        if isinstance(effect, Send):
            assert self.is_registered(effect.broker)
            self.sent.append((effect.broker, effect.request))
            self.answer(effect)
        elif isinstance(effect, WatchTopics):
            self.watched.update(dict.fromkeys(effect.topics))
        elif isinstance(effect, UnwatchTopics):
            for topic in effect.topics:
                self.watched.pop(topic, None)
        return None

    def transact(self, ops: Sequence[Op]) -> StoreError | None:
        assert isinstance(ops[0], VersionCheck), "no write without the check of the epoch"
        assert ops[0].path == znodes.CONTROLLER_EPOCH
        if self.interfere is not None:
            self.interfere(ops)
        error = self.tree.multi(ops)
        if self.unsure is not None and self.unsure():
            return StoreError("no answer came")
        return error

    def is_registered(self, broker: int) -> bool:
        return znodes.broker_path(broker) in self.tree.nodes or (
            self.machine is not None and broker in self.machine.memory.brokers
        )

    def answer(self, effect: Send) -> None:
        assert self.machine is not None
        epoch = effect.request.broker_epoch
        bad = self.failed_folders.get(effect.broker, set())
        former = self.former_logs.get(effect.broker, set())
        if isinstance(effect.request, LeaderAndIsrRequest):
            topics = [
                LeaderAndIsrTopicError(
                    topic_id=topic.topic_id,
                    partition_errors=[
                        LeaderAndIsrPartitionError(
                            partition_index=one.partition_index,
                            error_code=56
                            if (topic.topic_name, one.partition_index) in bad
                            else 103
                            if (topic.topic_name, one.partition_index) in former
                            else 0,
                        )
                        for one in topic.partition_states
                    ],
                )
                for topic in effect.request.topic_states
            ]
            response: Any = LeaderAndIsrResponse(error_code=0, topics=topics)
        elif isinstance(effect.request, StopReplicaRequest):
            errors = [
                StopReplicaPartitionError(
                    topic_name=topic.topic_name, partition_index=one.partition_index, error_code=0
                )
                for topic in effect.request.topic_states
                for one in topic.partition_states
            ]
            response = StopReplicaResponse(error_code=0, partition_errors=errors)
            former.difference_update(deletions_in(effect.request))
        else:
            return
        self.answers.append(events.Answered(effect.broker, epoch, effect.request, response))

    # Observation

    def lead(self, topic: str, index: int = 0) -> Lead:
        lead = nodes.lead_of(self.tree.nodes[znodes.state_path(topic, index)])
        assert lead is not None
        return lead

    def leads(self) -> dict[Key, Lead]:
        found = {}
        for topic in self.tree.children(znodes.TOPICS):
            for name in self.tree.children(znodes.partitions_path(topic)):
                if znodes.state_path(topic, int(name)) in self.tree.nodes:
                    found[topic, int(name)] = self.lead(topic, int(name))
        return found

    def topic_id(self, topic: str) -> bytes | None:
        found = nodes.topic_of(self.tree.nodes[znodes.topic_path(topic)])
        assert found is not None
        return found[0]

    def assignment(self, topic: str, index: int = 0) -> Assignment:
        found = nodes.topic_of(self.tree.nodes[znodes.topic_path(topic)])
        assert found is not None
        return found[1][index]

    def take_sent(self, kind: type) -> list[tuple[int, Any]]:
        taken = [(broker, request) for broker, request in self.sent if isinstance(request, kind)]
        self.sent.clear()
        return taken

    def metadata(self, broker: int) -> dict[Key, int]:
        """The leaders in a broker's metadata."""
        known: dict[Key, int] = {}
        for one, request in self.sent:
            if one == broker and isinstance(request, UpdateMetadataRequest):
                for topic in request.topic_states:
                    known |= {
                        (topic.topic_name, state.partition_index): state.leader for state in topic.partition_states
                    }
        return known

    def propose(self, topic: str, index: int, isr: Sequence[int], **changes: Any) -> ErrorCode:
        """The result of a leader's AlterPartition."""
        response = self.alter(topic, index, isr, **changes)
        if response.error_code:
            return ErrorCode(response.error_code)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def alter(self, topic: str, index: int, isr: Sequence[int], **changes: Any) -> AlterPartitionResponse:
        lead = self.lead(topic, index)
        sender = changes.get("sender", lead.leader)
        epochs, version = changes.get("epochs", {}), changes.get("version", 3)
        request = AlterPartitionRequest(
            broker_id=sender,
            broker_epoch=changes.get("broker_epoch", self.broker_epoch(sender)),
            topics=[
                AlterPartitionRequestTopicData(
                    topic_name=topic if version < 2 else "",
                    topic_id=changes.get("topic_id", self.topic_id(topic) or bytes(16)),
                    partitions=[
                        AlterPartitionRequestPartitionData(
                            partition_index=index,
                            leader_epoch=changes.get("leader_epoch", lead.leader_epoch),
                            new_isr=list(isr) if version < 3 else [],
                            new_isr_with_epochs=[
                                BrokerState(broker_id=one, broker_epoch=epochs.get(one, -1)) for one in isr
                            ],
                            partition_epoch=changes.get("partition_epoch", lead.version),
                        )
                    ],
                )
            ],
        )
        response: AlterPartitionResponse = self.run(events.AlterPartition(request, version))
        return response

    def broker_epoch(self, broker: int) -> int:
        return self.tree.nodes[znodes.broker_path(broker)].stat.czxid
