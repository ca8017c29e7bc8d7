"""Quotas on a running broker: throttle times in answers, and connections that are not read meanwhile.

Quotas here are tiny, so that a client that is over one would wait for hours: nothing depends on how fast a test runs.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING

import pytest
from handlers.wired import Wired
from quota.asking import alteration, entity, fetch, is_muted, make_topic, port_of, produce, set_quota
from waiting import wait_until

from ottla.embed import BrokerThread
from ottla.errors import ErrorCode
from ottla.wire.messages.metadata import ApiVersionsRequest, MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

PRODUCE, FETCH, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
LARGE = 100_000
OPTIONS = {"listeners": "PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0",
           "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
           "auto.create.topics.enable": "true"}  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(options=OPTIONS) as running:
        yield running


@pytest.fixture(scope="module")
def port(broker: BrokerThread) -> int:
    made = port_of(broker)
    make_topic(made, "t")
    return made


@pytest.fixture
def name(request: pytest.FixtureRequest, port: int) -> Iterator[str]:
    """A client id of the test's own, whose quotas go with it."""
    yield request.node.name
    keys = dict.fromkeys((PRODUCE, FETCH, REQUEST, "controller_mutation_rate"))
    set_quota(port, entity(client_id=request.node.name), **keys)


def test_a_producer_over_its_quota_is_told_and_not_read(port: int, name: str) -> None:
    set_quota(port, entity(client_id=name), producer_byte_rate=1)
    with Wired(port, client_id=name) as client, Wired(port, client_id="free") as free:
        answer = client.ask(produce("t", LARGE), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0, "it was carried out"
        assert answer.throttle_time_ms == pytest.approx((LARGE - 10) * 1000, rel=0.01)
        client.send(ApiVersionsRequest(), 0)
        assert is_muted(port, client)
        assert free.ask(produce("t", LARGE), 9).throttle_time_ms == 0
        set_quota(port, entity(client_id=name), producer_byte_rate=None)
        client.receive()  # it is read again at once
        assert client.ask(produce("t", LARGE), 9).throttle_time_ms == 0


def test_the_short_way_of_a_produce_leads_past_no_quota(port: int, name: str) -> None:
    """It is taken as long as there are no quotas at all."""
    with Wired(port, client_id=name) as client:
        assert client.ask(produce("t", LARGE), 9).throttle_time_ms == 0
        set_quota(port, entity(client_id=name), producer_byte_rate=1)
        assert client.ask(produce("t", LARGE), 9).throttle_time_ms > 0
    set_quota(port, entity(client_id=name), producer_byte_rate=None)
    with Wired(port, client_id=name) as client:
        assert client.ask(produce("t", LARGE), 9).throttle_time_ms == 0


def test_another_quota_lets_nobody_off(port: int, name: str) -> None:
    set_quota(port, entity(client_id=name), producer_byte_rate=1)
    with Wired(port, client_id=name) as client:
        client.ask(produce("t", LARGE), 9)
        set_quota(port, entity(client_id="other"), producer_byte_rate=7)
        set_quota(port, entity(client_id="other"), producer_byte_rate=None)
        client.send(ApiVersionsRequest(), 0)
        assert is_muted(port, client)


def test_requests_that_were_sent_ahead_wait_in_order(port: int, name: str) -> None:
    set_quota(port, entity(client_id=name), producer_byte_rate=1)
    with Wired(port, client_id=name) as client:
        for _ in range(50):
            client.send(produce("t", 2000), 9)
        assert client.receive().throttle_time_ms > 0
        assert is_muted(port, client)
        set_quota(port, entity(client_id=name), producer_byte_rate=None)
        offsets = [client.receive().responses[0].partition_responses[0].base_offset for _ in range(49)]
        assert offsets == sorted(offsets)


def test_a_producer_that_wants_no_answer_is_not_read_either(port: int, name: str) -> None:
    set_quota(port, entity(client_id=name), producer_byte_rate=1)
    with Wired(port, client_id=name) as client:
        client.send(produce("t", LARGE, acks=0), 9)
        client.forget()
        client.send(ApiVersionsRequest(), 0)
        assert is_muted(port, client)


def test_what_came_along_with_the_request_that_was_too_much_waits(port: int, name: str) -> None:
    """Also behind a request that is not answered."""
    set_quota(port, entity(client_id=name), producer_byte_rate=1)
    clients = [Wired(port, client_id=name) for _ in range(5)]
    for client in clients:
        client._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)  # so that both arrive together
        client.send(produce("t", 2000, acks=0), 9)
        client.forget()
        client.send(ApiVersionsRequest(), 0)
        client._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    assert all(is_muted(port, client) for client in clients)
    set_quota(port, entity(client_id=name), producer_byte_rate=None)
    for client in clients:
        with client:
            client.receive()


def test_both_listeners_count_for_one_quota(broker: BrokerThread, port: int, name: str) -> None:
    set_quota(port, entity(client_id=name), producer_byte_rate=LARGE // 10)
    with Wired(port, client_id=name) as one, Wired(port_of(broker, "OTHER"), client_id=name) as other:
        assert one.ask(produce("t", LARGE // 2), 9).throttle_time_ms == 0
        assert other.ask(produce("t", LARGE), 9).throttle_time_ms > 0


def test_a_client_that_leaves_is_forgotten_at_once(broker: BrokerThread, port: int, name: str) -> None:
    """And who comes back goes on where it was: a quota is not a connection's."""
    set_quota(port, entity(client_id=name), producer_byte_rate=1)
    with Wired(port, client_id=name) as client:
        client.ask(produce("t", LARGE), 9)
    with Wired(port, client_id=name) as client:
        assert client.ask(produce("t", 10), 9).throttle_time_ms > 0


def test_a_fetch_over_its_quota_gets_nothing_and_then_all(port: int, name: str) -> None:
    make_topic(port, name)
    with Wired(port, client_id="free") as free:
        for _ in range(3):
            free.ask(produce(name, LARGE), 9)
    set_quota(port, entity(client_id=name), consumer_byte_rate=LARGE // 8)
    with Wired(port, client_id=name) as client:
        first = client.ask(fetch(name), 12)
        size = len(first.responses[0].partitions[0].records)
        assert LARGE < size < 2 * LARGE, "no more than fits into the window"
        second = client.ask(fetch(name, offset=1), 12)
        assert second.throttle_time_ms > 0
        assert second.responses == []
        set_quota(port, entity(client_id=name), consumer_byte_rate=None)
        third = client.ask(fetch(name, offset=1), 12)
        assert third.throttle_time_ms == 0
        assert len(third.responses[0].partitions[0].records) > size


def test_a_session_goes_on_after_an_answer_was_withheld(port: int, name: str) -> None:
    make_topic(port, name)
    set_quota(port, entity(client_id=name), consumer_byte_rate=LARGE // 8)
    with Wired(port, client_id=name) as client, Wired(port, client_id="free") as free:
        opened = client.ask(fetch(name, epoch=0), 12)
        assert opened.session_id > 0
        for _ in range(3):
            free.ask(produce(name, LARGE - 10_000), 9)
        session = opened.session_id
        assert len(client.ask(fetch(name, session=session, epoch=1), 12).responses) == 1
        withheld = client.ask(fetch(name, session=session, epoch=2), 12)
        assert (withheld.throttle_time_ms > 0, withheld.session_id, withheld.responses) == (True, session, [])
        set_quota(port, entity(client_id=name), consumer_byte_rate=None)
        again = client.ask(fetch(name, session=session, epoch=3), 12)
        assert len(again.responses[0].partitions[0].records) > 2 * (LARGE - 10_000)


def test_a_session_is_not_opened_by_an_answer_that_was_withheld(port: int, name: str) -> None:
    make_topic(port, name)
    with Wired(port, client_id="free") as free:
        free.ask(produce(name, LARGE), 9)
    set_quota(port, entity(client_id=name), consumer_byte_rate=LARGE // 8)
    with Wired(port, client_id=name) as client:
        assert client.ask(fetch(name), 12).throttle_time_ms == 0
        withheld = client.ask(fetch(name, epoch=0), 12)
        assert (withheld.throttle_time_ms > 0, withheld.session_id) == (True, 0)


def test_a_batch_larger_than_a_whole_window_is_sent_once_nothing_else_was(port: int, name: str) -> None:
    make_topic(port, name)
    with Wired(port, client_id="free") as free:
        free.ask(produce(name, LARGE), 9)
    set_quota(port, entity(client_id=name), consumer_byte_rate=1)
    with Wired(port, client_id=name) as client:
        answer = client.ask(fetch(name), 12)
        assert len(answer.responses[0].partitions[0].records) > LARGE
        assert answer.throttle_time_ms > 0


def test_a_topic_that_cannot_be_created_is_not_charged(port: int, name: str) -> None:
    make_topic(port, f"{name}.a")
    set_quota(port, entity(client_id=name), controller_mutation_rate=0.001)
    colliding = MetadataRequestTopic(topic_id=bytes(16), name=f"{name}_a")
    with Wired(port, client_id=name) as client:
        for _ in range(5):
            answer = client.ask(MetadataRequest(topics=[colliding], allow_auto_topic_creation=True), 12)
            assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        free = MetadataRequestTopic(topic_id=bytes(16), name=f"{name}-free")
        answer = client.ask(MetadataRequest(topics=[free], allow_auto_topic_creation=True), 12)
        assert answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)


def test_followers_are_not_throttled(port: int, name: str) -> None:
    make_topic(port, name)
    with Wired(port, client_id="free") as free:
        free.ask(produce(name, LARGE), 9)
    set_quota(port, entity(client_id=name), consumer_byte_rate=1)
    with Wired(port, client_id=name) as client:
        for _ in range(2):
            answer = client.ask(fetch(name, replica=1), 12)
            assert answer.throttle_time_ms == 0


def test_time_in_handlers_is_measured(port: int, name: str) -> None:
    """Of steps, coroutines and plain answers alike."""
    set_quota(port, entity(client_id=name), request_percentage=1e-9)
    for request, version in ((ApiVersionsRequest(), 3), (MetadataRequest(topics=None), 12), (alteration([]), 1)):
        with Wired(port, client_id=name) as client:
            answer = client.ask(request, version)
            assert answer.throttle_time_ms == 1000, "as much as Kafka's: one sample"


def create(*names: str) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(name=name, num_partitions=5, replication_factor=1, assignments=[], configs=[]) for name in names
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=30_000, validate_only=False)


def test_changes_of_topics(port: int, name: str) -> None:
    """Newer versions are refused what is too much, older ones wait afterwards."""
    set_quota(port, entity(client_id=name), controller_mutation_rate=1e-6)
    over = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    with Wired(port, client_id=name) as client:
        answer = client.ask(create("m1", "m2", "t"), 7)
        codes = {one.name: one.error_code for one in answer.topics}
        assert codes == {"m1": 0, "m2": over, "t": ErrorCode.TOPIC_ALREADY_EXISTS}
        assert answer.throttle_time_ms > 1_000_000
    with Wired(port, client_id=name) as client:
        answer = client.ask(DeleteTopicsRequest(topic_names=["m1"], timeout_ms=30_000), 5)
        assert [one.error_code for one in answer.responses] == [over]
        assert answer.throttle_time_ms > 0
    grow = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="m1", count=9, assignments=None)], timeout_ms=30_000, validate_only=False
    )
    with Wired(port, client_id=name) as client:
        assert [one.error_code for one in client.ask(grow, 3).results] == [over]
    with Wired(port, client_id=name) as client:
        answer = client.ask(grow, 2)
        assert [one.error_code for one in answer.results] == [0]
        assert answer.throttle_time_ms > 0
    with Wired(port, client_id=name) as client:
        assert [one.error_code for one in client.ask(create("m3"), 5).topics] == [0]
    with Wired(port, client_id=name) as client:
        answer = client.ask(DeleteTopicsRequest(topic_names=["m1", "m3"], timeout_ms=30_000), 4)
        assert [one.error_code for one in answer.responses] == [0, 0]
        assert answer.throttle_time_ms > 0


def test_addresses_that_dial_too_often_are_hung_up_on(port: int) -> None:
    set_quota(port, entity(ip="127.0.0.9"), connection_creation_rate=1)
    try:
        clients = [Wired(port, source="127.0.0.9") for _ in range(30)]
        refused = 0
        for client in clients:
            with client:
                try:
                    client.ask(ApiVersionsRequest(), 0)
                except OSError:
                    refused += 1
        assert 0 < refused < 30
        with Wired(port) as client:
            client.ask(ApiVersionsRequest(), 0)
    finally:
        set_quota(port, entity(ip="127.0.0.9"), connection_creation_rate=None)


def test_thousands_of_muted_connections_cost_nothing_while_they_wait(
    broker: BrokerThread, port: int, name: str
) -> None:
    """And all are let go when the quota goes."""
    count = 300
    set_quota(port, entity(client_id=name), producer_byte_rate=1)
    with Wired(port, client_id=name) as client:
        client.ask(produce("t", LARGE), 9)
    clients = []
    try:
        for _ in range(count):
            client = Wired(port, client_id=name)
            clients.append(client)
            client.send(produce("t", 1), 9)
            client.send(ApiVersionsRequest(), 0)
        for client in clients:
            assert client.receive().throttle_time_ms > 0
        spent = time.thread_time()
        assert is_muted(port, clients[-1])
        assert time.thread_time() - spent < 5
        set_quota(port, entity(client_id=name), producer_byte_rate=None)
        for client in clients:
            client.receive()
    finally:
        for client in clients:
            client._socket.close()


def test_who_closes_while_muted_is_gone_when_the_time_is_over(broker: BrokerThread, port: int, name: str) -> None:
    set_quota(port, entity(client_id=name), producer_byte_rate=1)
    listener = broker._broker._root._listeners[0]  # type: ignore[union-attr]
    before = len(listener.connections)
    with Wired(port, client_id=name) as client:
        client.ask(produce("t", LARGE), 9)
        client._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    set_quota(port, entity(client_id=name), producer_byte_rate=None)
    wait_until(lambda: len(listener.connections) <= before)


def test_a_broker_stops_with_connections_that_are_muted() -> None:
    with BrokerThread() as broker:
        here = port_of(broker)
        make_topic(here, "t")
        set_quota(here, entity(client_id=None), producer_byte_rate=1)
        client = Wired(here, client_id="c")
        client.ask(produce("t", LARGE), 9)
        client.send(ApiVersionsRequest(), 0)
    client._socket.close()
