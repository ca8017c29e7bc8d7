"""A regular expression in a subscription finds no topic that the client may not describe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import judge
import pytest
from security.test_rights import EVERYONE, SETTINGS, TOPIC, VICTIM, Judged
from waiting import wait_until

from ottla.embed import BrokerThread
from ottla.wire.access import Operation, Pattern, Permission, ResourceType
from ottla.wire.messages.acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.consumers import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.topics import CreatableTopic, CreateTopicsRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

HIDDEN = "salaries"


@pytest.fixture(params=["ottla", "kafka"])
def judged(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Judged]:
    made = BrokerThread(options=SETTINGS) if request.param == "ottla" else judge.Kafka(tmp_path, settings=SETTINGS)
    with made as running:
        port = running.port if isinstance(running, judge.Kafka) else int(running.bootstrap.rpartition(":")[2])
        judged = Judged(port)
        judged.prepare()
        yield judged


def join(judged: Judged, group: str, pattern: str) -> set[bytes]:
    """Join with this pattern, and with the topic that is found in any case. Returns the topics assigned first.

    Kafka looks the pattern up after its first answer, and the next ones have the assignment.
    """
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_regex=f"{TOPIC}|{pattern}",
        topic_partitions=[],
    )
    found: set[bytes] = set()

    def assigned() -> bool:
        answer = judged.victim.ask(request, 1)
        assert not answer.error_code, answer
        request.member_epoch, request.topic_partitions = answer.member_epoch, None
        if answer.assignment is not None:
            found.update(one.topic_id for one in answer.assignment.topic_partitions)
        return bool(found)

    wait_until(assigned)
    return found


def test_a_pattern_matches_only_what_the_client_may_describe(judged: Judged) -> None:
    new = CreatableTopic(name=HIDDEN, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    created = judged.admin.ask(CreateTopicsRequest(topics=[new]), 7).topics[0]
    assert not created.error_code
    rule = AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=HIDDEN,
        resource_pattern_type=Pattern.LITERAL,
        principal=EVERYONE,
        host=VICTIM,
        operation=Operation.ALL,
        permission_type=Permission.DENY,
    )
    before = len(judged.rules())
    assert not judged.admin.ask(CreateAclsRequest(creations=[rule]), 2).results[0].error_code
    wait_until(lambda: len(judged.rules()) == before + 1)
    assert join(judged, "guess", "sal.*") == {judged.topic_id}
    everything = join(judged, "all", ".*")
    assert judged.topic_id in everything
    assert created.topic_id not in everything
