"""A scenario of a group, sent to a broker request by request; the transcript can be compared with another broker's.

Members have names in the scenario; in the transcript the names replace the member ids that a broker generates.
Each member has a connection of its own, so that its join may wait while others send requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from handlers.wired import Wired, plain
from waiting import wait_until

from ottla.errors import ErrorCode
from ottla.wire import codec
from ottla.wire.messages.commits import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.groups import (
    ConsumerProtocolSubscription,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.topics import CreatableTopic, CreateTopicsRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

TOPIC = "story"  # with two partitions
SUBSCRIPTION = b"\0\0" + codec.encode(ConsumerProtocolSubscription(topics=[TOPIC]), 0)
FINE = (("range", SUBSCRIPTION), ("roundrobin", SUBSCRIPTION))


class Story:
    def __init__(self, port: int, group: str) -> None:
        self.port = port
        self.group = group
        self.ids: dict[str, str] = {}
        self.transcript: list[str] = []
        self._wires: dict[str, Wired] = {}
        self.topic_id = self._prepare()

    def _prepare(self) -> bytes:
        """Create the topic and wait for a coordinator: Kafka creates the offsets topic at the first FindCoordinator."""
        topic = CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1, assignments=[], configs=[])
        self.wire().ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5)
        wait_until(
            lambda: (
                not self.wire().ask(FindCoordinatorRequest(coordinator_keys=[self.group]), 4).coordinators[0].error_code
            )
        )
        wait_until(lambda: self.wire().ask(describe(self.group), 5).groups[0].error_code == ErrorCode.NONE)
        asked = MetadataRequest(
            topics=[MetadataRequestTopic(name=TOPIC)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        return bytes(self.wire().ask(asked, 12).topics[0].topic_id)

    def wire(self, member: str = "") -> Wired:
        if member not in self._wires:
            self._wires[member] = Wired(self.port)
        return self._wires[member]

    # The transcript.

    def ask(self, what: str, request: object, version: int, member: str = "") -> Any:
        answer = self.wire(member).ask(request, version)
        self.note(what, answer)
        return answer

    def note(self, what: str, answer: Any) -> None:
        self.transcript.append(f"{what}: {self._named(plain(answer))}")

    def _named(self, value: Any) -> Any:
        """A response as plain data, with names in place of generated ids, and lists sorted by them."""
        if isinstance(value, dict):
            # Error messages differ between brokers.
            return {key: self._named(one) for key, one in value.items() if key != "error_message"}
        if isinstance(value, list):
            return sorted(map(self._named, value), key=repr)
        if value == self.topic_id:
            return "TOPIC ID"
        if isinstance(value, str):
            return self._names.get(value, value.replace(self.group, "GROUP"))
        return value

    @property
    def _names(self) -> dict[str, str]:
        return {member_id: f"<{name}>" for name, member_id in self.ids.items()}

    def send(self, request: object, version: int, member: str) -> None:
        self.wire(member).send(request, version)

    def hear(self, what: str, member: str, *, named: bool = False) -> Any:
        """Wait for a member's pending response; `named`: it contains the member's id."""
        answer = self.wire(member).receive()
        if named:
            self.ids[member] = answer.member_id
        self.note(what, answer)
        return answer

    def until_state(self, state: str) -> None:
        wait_until(lambda: self.wire().ask(describe(self.group), 5).groups[0].group_state == state)

    def until_members(self, count: int) -> None:
        wait_until(lambda: len(self.wire().ask(describe(self.group), 5).groups[0].members) == count)

    # Requests.

    def join(
        self,
        member: str = "",
        *,
        instance: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = FINE,
        kind: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 5000,
        group: str | None = None,
    ) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group if group is None else group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=self.ids.get(member, member),
            group_instance_id=instance,
            protocol_type=kind,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
        )

    def invite(self, member: str, **options: Any) -> None:
        answer = self.wire(member).ask(self.join(**options), 9)
        self.ids[member] = answer.member_id
        self.note(f"{member} is invited", answer)

    def sync(
        self,
        member: str,
        generation: int,
        parts: Mapping[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol: str = "range",
    ) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=self.ids.get(member, member),
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=self.ids.get(name, name), assignment=part)
                for name, part in (parts or {}).items()
            ],
        )

    def heartbeat(self, member: str, generation: int, instance: str | None = None) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=self.ids.get(member, member),
            group_instance_id=instance,
        )

    def leave(self, *members: tuple[str, str | None]) -> LeaveGroupRequest:
        return LeaveGroupRequest(
            group_id=self.group,
            members=[
                MemberIdentity(member_id=self.ids.get(name, name), group_instance_id=instance)
                for name, instance in members
            ],
        )

    def commit(
        self,
        member: str = "",
        generation: int = -1,
        *partitions: tuple[int, int, str | None],
        instance: str | None = None,
        topic: str = TOPIC,
        topic_ids: Sequence[bytes] = (),
        group: str | None = None,
        retention_ms: int = -1,
    ) -> OffsetCommitRequest:
        parts = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=text)
            for index, offset, text in partitions or ((0, 5, "text"),)
        ]
        return OffsetCommitRequest(
            group_id=self.group if group is None else group,
            generation_id_or_member_epoch=generation,
            member_id=self.ids.get(member, member),
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[OffsetCommitRequestTopic(topic_id=one, partitions=parts) for one in topic_ids]
            or [OffsetCommitRequestTopic(name=topic, partitions=parts)],
        )

    def fetch(
        self,
        version: int,
        *topics: tuple[str, list[int]],
        everything: bool = False,
        group: str | None = None,
        topic_id: bytes = bytes(16),
        stable: bool = False,
        member: str | None = None,
    ) -> OffsetFetchRequest:
        name, wanted = self.group if group is None else group, topics or ((TOPIC, [0, 1]),)
        if version < 8:
            old = [OffsetFetchRequestTopic(name=topic, partition_indexes=indexes) for topic, indexes in wanted]
            return OffsetFetchRequest(group_id=name, topics=None if everything else old, require_stable=stable)
        new = [
            OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=indexes)
            for topic, indexes in wanted
        ]
        one = OffsetFetchRequestGroup(group_id=name, member_id=member, topics=None if everything else new)
        return OffsetFetchRequest(groups=[one], require_stable=stable)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for wire in self._wires.values():
            wire.__exit__(kind, error, trace)


def describe(*groups: str) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=list(groups))
