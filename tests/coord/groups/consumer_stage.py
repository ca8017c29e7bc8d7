"""The stage with topics, and with members of the new consumer protocol."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from coord.groups.stage import RULES, Stage

from ottla.cluster.image import EMPTY, Image, Partition, Topic
from ottla.coord.groups.consumer import ConsumerGroup
from ottla.coord.groups.group import ConsumerRules
from ottla.coord.groups.machine import GroupMachine
from ottla.coord.machine import Caller
from ottla.errors import ErrorCode
from ottla.wire.messages.consumers import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.coord.groups.group import GroupRules

FOLLOWS = ConsumerRules(session_ms=6000, heartbeat_ms=1000, assignment_interval_ms=0, pattern_refresh_ms=60_000)
Owned = dict[str, set[int]]  # by topic name


class ConsumerStage(Stage):
    def __init__(self, rules: GroupRules = RULES, topics: dict[str, int] | None = None, **options: Any) -> None:
        self.image: Image = EMPTY
        self._topic_ids = itertools.count(1)
        for name, count in ({"t": 4} if topics is None else topics).items():
            self.topic(name, count)
        super().__init__(rules._replace(consumer=FOLLOWS._replace(**options)))

    def _new_machine(self) -> GroupMachine:
        return GroupMachine(self.rules, lambda: str(next(self._ids)), lambda: self.image)

    # Topics.

    def topic(self, name: str, count: int) -> None:
        """Create a topic, or add partitions to it."""
        known = self.image.topics.get(name)
        topic_id = next(self._topic_ids).to_bytes(16) if known is None else known.id
        parts = tuple(Partition(index, (1,), (1,), 1, 0) for index in range(count))
        self.image = self.image.with_topics(Topic(name, topic_id, parts, {}))

    def delete_topic(self, name: str) -> None:
        self.image = self.image.without_topics(name)

    def by_name(self, part: Iterable[Any]) -> Owned:
        """Partitions of an answer, by topic name; topics that no longer exist are left out."""
        names = self.image.names_by_id
        return {names[one.topic_id]: set(one.partitions) for one in part if one.topic_id in names}

    # Heartbeats.

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        group: str = "g",
        topics: Iterable[str] | None = None,
        pattern: str | None = None,
        owned: Owned | None = None,
        instance: str | None = None,
        rebalance_ms: int = -1,
        assignor: str | None = None,
        rack: str | None = None,
        version: int = 1,
        client: str = "c",
    ) -> Any:
        ids = {name: topic.id for name, topic in self.image.topics.items()}
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance,
            rack_id=rack,
            rebalance_timeout_ms=rebalance_ms,
            subscribed_topic_names=None if topics is None else list(topics),
            subscribed_topic_regex=pattern,
            server_assignor=assignor,
            topic_partitions=None
            if owned is None
            else [
                ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=ids[name], partitions=sorted(indexes))
                for name, indexes in owned.items()
                if name in ids
            ],
        )
        caller = Caller(client, "/127.0.0.1", version)
        token = self.ask(lambda token: self.machine.consumer_heartbeat(request, caller, token, self.now_ms))
        answer = self.answers.pop(token)
        assert not isinstance(answer, ErrorCode), "a heartbeat is refused in its own words"
        return answer

    def enter(self, member_id: str, *topics: str, **options: Any) -> Any:
        """Join, with a full request."""
        asked = {"topics": topics or ("t",), "rebalance_ms": 5000, "owned": {}} | options
        return self.beat(member_id, 0, **asked)

    def part(self, answer: Any) -> Owned | None:
        assert answer.error_code == 0, (ErrorCode(answer.error_code), answer.error_message)
        return None if answer.assignment is None else self.by_name(answer.assignment.topic_partitions)

    def settle(self, *members: str, group: str = "g", instances: dict[str, str] | None = None) -> dict[str, Owned]:
        """Let these members follow their instructions until there are none left."""
        held: dict[str, Owned] = {}
        for _ in range(12):
            for name in members:
                present = self.group(group).members[name]
                answer = self.beat(
                    name,
                    present.epoch,
                    group=group,
                    owned={
                        self.image.names_by_id[topic]: set(indexes)
                        for topic, indexes in present.holding.assigned.items()
                        if topic in self.image.names_by_id
                    },
                    instance=(instances or {}).get(name),
                )
                assert answer.error_code == 0, (ErrorCode(answer.error_code), answer.error_message)
            self.now_ms += 10
        for name in members:
            holding = self.group(group).members[name].holding
            held[name] = {
                self.image.names_by_id[topic]: set(indexes)
                for topic, indexes in holding.assigned.items()
                if topic in self.image.names_by_id
            }
        return held

    def group(self, name: str = "g") -> ConsumerGroup:
        group = self.machine.groups[name]
        assert isinstance(group, ConsumerGroup)
        return group

    def check_replay(self) -> None:
        assert self.machine.durable() == self.replayed().durable()
