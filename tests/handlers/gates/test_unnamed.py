"""A topic id that the metadata does not name yet, or no longer, gives nobody a right to the topic's records.

A broker of a cluster learns of its replicas before the topics, and forgets deleted topics before their replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest
from log.making import produced
from replica.making import TOPIC_ID, Host, state
from replica.test_partition import play

from ottla.cluster.image import Partition as State
from ottla.cluster.image import Topic
from ottla.errors import ErrorCode
from ottla.handlers import gates
from ottla.handlers.fetch import fetch
from ottla.handlers.gates.gate import GATES, EarlyReply, Guard, at_once, check, proceed
from ottla.replica import sessions
from ottla.security.acl import AclEntry, Resource
from ottla.security.authorizer import Authorizer
from ottla.wire.access import Operation, Permission, ResourceType
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from pathlib import Path

FETCH, PRODUCE = 1, 0


class Asking(NamedTuple):
    """The parts of a call that the gates and the handler use."""

    key: int
    version: int = 13
    principal: str = "User:ann"
    host: str = "127.0.0.1"
    client_id: str = ""
    listener: str = "PLAINTEXT"


def ask(host: Host, request: Any, authorizer: Authorizer, call: Asking) -> Any:
    gates.load()
    outcome = at_once(check(GATES[call.key], Guard(authorizer, host.parts, cast("Any", call)), request))
    if isinstance(outcome, EarlyReply):
        return outcome.response
    response = proceed(fetch, host.parts, cast("Any", call), request, outcome)
    return at_once(response) if hasattr(response, "send") else response


def request(session: int = 0, epoch: int = 0, *, named: bool = True) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100_000)
    topics = [FetchTopic(topic_id=TOPIC_ID, partitions=[partition])] if named else []
    return FetchRequest(max_wait_ms=0, min_bytes=0, session_id=session, session_epoch=epoch, topics=topics)


def codes(response: Any) -> list[int]:
    return [data.error_code for topic in response.responses for data in topic.partitions]


def permit(*names: str) -> Authorizer:
    authorizer = Authorizer()
    entry = AclEntry("User:ann", "*", Operation.ALL, Permission.ALLOW)
    authorizer.replace({Resource(ResourceType.TOPIC, name): frozenset((entry,)) for name in names})
    return authorizer


def test_a_replica_of_a_topic_without_a_name_is_not_read_or_written(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        host.append(host.assign(state(replicas=(0,), isr=(0,))))
        assert TOPIC_ID not in host.metadata.image.names_by_id
        assert codes(ask(host, request(), permit("other"), Asking(FETCH))) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert codes(ask(host, request(), permit("t"), Asking(FETCH))) == [ErrorCode.NONE]
        data = [
            TopicProduceData(topic_id=TOPIC_ID, partition_data=[PartitionProduceData(index=0, records=produced(1))])
        ]
        answer = ask(host, ProduceRequest(acks=1, timeout_ms=1000, topic_data=data), permit("other"), Asking(PRODUCE))
        assert [one.error_code for topic in answer.responses for one in topic.partition_responses] == [
            ErrorCode.TOPIC_AUTHORIZATION_FAILED
        ]

    play(tmp_path, story)


@pytest.mark.parametrize(("name", "code"), [("other", ErrorCode.TOPIC_AUTHORIZATION_FAILED), ("t", ErrorCode.NONE)])
def test_a_session_that_waits_for_a_topic_is_checked_when_it_comes(tmp_path: Path, name: str, code: ErrorCode) -> None:
    async def story(host: Host) -> None:
        authorizer = permit(name)
        opened = ask(host, request(), authorizer, Asking(FETCH))
        assert codes(opened) == [ErrorCode.UNKNOWN_TOPIC_ID]
        host.append(host.assign(state(replicas=(0,), isr=(0,))))
        host.metadata.publish(host.metadata.image.with_topics(Topic("t", TOPIC_ID, (State(0, (0,), (0,), 0, 1),), {})))
        later = ask(host, request(opened.session_id, 1, named=False), authorizer, Asking(FETCH))
        assert codes(later) == [code]

    play(tmp_path, story)


def test_refused_partitions_count_among_those_of_all_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are kept with the session, and a client can name as many as it likes."""
    monkeypatch.setattr(sessions, "WATCHED_MAX", 4)

    async def story(host: Host) -> None:
        host.assign(state(replicas=(0,), isr=(0,)))
        authorizer, opening = permit("t"), request()
        for topic in opening.topics:
            topic.topic = "t"
        opened = ask(host, opening, authorizer, Asking(FETCH, version=12))
        assert opened.session_id
        for epoch in (1, 2):
            more = request(opened.session_id, epoch)
            for topic in more.topics:
                topic.topic, topic.topic_id = f"hidden{epoch}", ZERO_UUID
                topic.partitions = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1) for n in (0, 1)]
            answer = ask(host, more, authorizer, Asking(FETCH, version=12))
            assert len(codes(answer)) == 2 * epoch, "those of the session are told again"
            assert bool(answer.session_id) is (epoch == 1), "the client goes on without a session"
        assert len(host.sessions) == 0
        assert host.sessions._count == 0

    play(tmp_path, story)
