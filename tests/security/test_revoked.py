"""A right that is taken away holds at once, also for a client that has an open fetch session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from handlers.wired import Wired
from security.test_rights import SETTINGS, TOPIC, VICTIM, Judged, records

from ottla.embed import BrokerThread
from ottla.errors import ErrorCode
from ottla.wire.access import Operation, ResourceType
from ottla.wire.messages.acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.auth import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.topics import CreatableTopic, CreateTopicsRequest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def judged() -> Iterator[Judged]:
    with BrokerThread(options=SETTINGS) as running:
        made = Judged(int(running.bootstrap.rpartition(":")[2]))
        made.prepare()
        yield made


def fetch(client: Wired, session: int, epoch: int, *, named: bool) -> Any:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100_000)
    topics = [FetchTopic(topic=TOPIC, partitions=[partition])] if named else []
    request = FetchRequest(max_wait_ms=0, min_bytes=0, session_id=session, session_epoch=epoch, topics=topics)
    return client.ask(request, 11)


def produce(client: Wired) -> None:
    data = [TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=records())])]
    answer = client.ask(ProduceRequest(acks=1, timeout_ms=10_000, topic_data=data), 9)
    assert not answer.responses[0].partition_responses[0].error_code


def test_an_open_session_reads_nothing_more(judged: Judged) -> None:
    produce(judged.admin)
    opened = fetch(judged.victim, 0, 0, named=True)
    assert opened.session_id
    assert opened.responses[0].partitions[0].records
    judged.deny(ResourceType.TOPIC, Operation.READ)
    produce(judged.admin)
    later = fetch(judged.victim, opened.session_id, 1, named=False)
    assert later.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not later.responses
    again = fetch(judged.victim, 0, 0, named=True)
    assert again.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not again.responses[0].partitions[0].records


def test_a_session_says_each_time_what_is_refused_in_it(judged: Judged) -> None:
    other = Wired(judged.port, source=VICTIM)
    judged.deny(ResourceType.TOPIC, Operation.READ)
    refused = fetch(other, 0, 0, named=True)
    assert refused.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    judged.pardon()
    assert not fetch(other, 0, 0, named=True).responses[0].partitions[0].error_code


def test_a_session_does_not_help_at_another_address(judged: Judged) -> None:
    """Permissions may be for one address only, and a user may log in from several."""
    judged.deny(ResourceType.TOPIC, Operation.READ)
    produce(judged.admin)
    opened = fetch(judged.admin, 0, 0, named=True)
    assert opened.responses[0].partitions[0].records
    produce(judged.admin)
    stolen = fetch(judged.victim, opened.session_id, 1, named=False)
    assert (stolen.error_code, stolen.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    fetch(judged.victim, opened.session_id, -1, named=False)
    assert fetch(judged.admin, opened.session_id, 1, named=False).responses[0].partitions[0].records


MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def log_in(port: int, user: str) -> Wired:
    client = Wired(port)
    assert not client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0pw".encode()), 1)
    assert not answer.error_code, answer
    return client


def test_a_session_is_its_owners_whoever_knows_its_number() -> None:
    users = " ".join(f'user_{name}="pw"' for name in ("root", "ann", "bob"))
    options = {
        **SETTINGS,
        "allow.everyone.if.no.acl.found": "false",
        "super.users": "User:root",
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{MODULE} required {users};",
    }
    with BrokerThread(options=options) as running:
        port = int(running.bootstrap.rpartition(":")[2])
        root, ann, bob = (log_in(port, name) for name in ("root", "ann", "bob"))
        new = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        assert not root.ask(CreateTopicsRequest(topics=[new]), 7).topics[0].error_code
        assert (
            ann.ask(CreateTopicsRequest(topics=[new]), 7).topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )
        rule = AclCreation(
            resource_type=ResourceType.TOPIC,
            resource_name=TOPIC,
            resource_pattern_type=3,
            principal="User:ann",
            host="*",
            operation=Operation.READ,
            permission_type=3,
        )
        assert not root.ask(CreateAclsRequest(creations=[rule]), 2).results[0].error_code
        produce(root)
        opened = fetch(ann, 0, 0, named=True)
        assert opened.responses[0].partitions[0].records
        produce(root)
        stolen = fetch(bob, opened.session_id, 1, named=False)
        assert (stolen.error_code, stolen.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
        nothing = [FetchTopic(topic="x", partitions=[])]  # for which an answer has no place for a code
        asked = FetchRequest(max_wait_ms=0, min_bytes=0, session_id=opened.session_id, session_epoch=1, topics=nothing)
        assert bob.ask(asked, 11).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        fetch(bob, opened.session_id, -1, named=False)  # nor can they close it
        assert fetch(ann, opened.session_id, 1, named=False).responses[0].partitions[0].records
