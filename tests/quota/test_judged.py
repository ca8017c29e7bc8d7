"""Quotas against Apache Kafka: the same requests to both, the same codes, words and throttle times. And Kafka's tools.

One difference is on purpose: Kafka takes what is no number (NaN), and then throttles everything.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import judge
import pytest
from handlers.wired import Wired, plain
from quota.asking import alteration, entity, fetch, is_muted, list_quotas, make_topic, port_of, produce, set_quota
from waiting import wait_until

from ottla.embed import BrokerThread
from ottla.wire.messages.metadata import ApiVersionsRequest, MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    OpData,
)
from ottla.wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.xdist_group("client")  # with those that start Apache Kafka anyway

EXACT, DEFAULT, SPECIFIED = range(3)
LATE_MAX = 500  # a KRaft broker learns of a change after its controller has answered
STRANGE = "x/y ü*~+"


@pytest.fixture(scope="module")
def theirs() -> Iterator[int]:
    with judge.Kafka() as kafka:
        yield kafka.port


@pytest.fixture(scope="module")
def ours() -> Iterator[int]:
    with BrokerThread() as broker:
        yield port_of(broker)


def describe(*components: tuple[str, int, str | None], strict: bool = False) -> DescribeClientQuotasRequest:
    wanted = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    return DescribeClientQuotasRequest(components=wanted, strict=strict)


def entry(key: str, value: float, **names: str | None) -> AlterClientQuotasRequestEntryData:
    return AlterClientQuotasRequestEntryData(entity=entity(**names), ops=[OpData(key=key, value=value, remove=False)])


RATE = {"producer_byte_rate": 1e9}
ENTITIES: list[dict[str, str | None]] = [
    {},
    {"user": "a"},
    {"user": None},
    {"user": ""},
    {"client_id": "c"},
    {"client_id": None},
    {"client_id": ""},
    {"user": "a", "client_id": "c"},
    {"user": None, "client_id": None},
    {"user": "a", "client_id": None},
    {"user": STRANGE},
    {"user": "<default>"},
    {"client_id": "k" * 10_000},
    {"host": "x"},
    {"ip": "1.2.3.4", "user": "a"},
]
ADDRESSES: list[str | None] = ["1.2.3.4", None, "", "no such host", "::1", "localhost"]
VALUES = [
    ("producer_byte_rate", 0.0),
    ("producer_byte_rate", -1.0),
    ("producer_byte_rate", 0.5),
    ("producer_byte_rate", 1.5),
    ("producer_byte_rate", math.inf),
    ("producer_byte_rate", 1e30),
    ("request_percentage", 0.0),
    ("request_percentage", -1.0),
    ("request_percentage", 2000.5),
    ("request_percentage", math.inf),
    ("controller_mutation_rate", 0.5),
    ("controller_mutation_rate", 0.0),
    ("consumer_byte_rate", 5e9),
    ("connection_creation_rate", 1.0),
    ("SCRAM-SHA-256", 1.0),
    ("", 1.0),
]
FILTERS: list[tuple[tuple[str, int, str | None], ...]] = [
    (),
    (("user", SPECIFIED, None),),
    (("user", SPECIFIED, "x"),),
    (("user", DEFAULT, None),),
    (("user", DEFAULT, "a"),),
    (("user", EXACT, None),),
    (("user", EXACT, "a"),),
    (("user", EXACT, ""),),
    (("user", EXACT, STRANGE),),
    (("user", EXACT, "nobody"),),
    (("client-id", SPECIFIED, None),),
    (("user", SPECIFIED, None), ("client-id", SPECIFIED, None)),
    (("user", EXACT, "a"), ("client-id", DEFAULT, None)),
    (("ip", SPECIFIED, None),),
    (("ip", DEFAULT, None),),
    (("ip", EXACT, "1.2.3.4"),),
    (("ip", SPECIFIED, None), ("user", SPECIFIED, None)),
    (("host", SPECIFIED, None),),
    (("", SPECIFIED, None),),
    (("user", 3, None),),
    (("user", -1, None),),
    (("user", SPECIFIED, None), ("user", DEFAULT, None)),
]


def alterations() -> Iterator[tuple[Any, int]]:
    for names in ENTITIES:
        yield alteration(entity(**names), **RATE), 1
    for address in ADDRESSES:
        yield alteration(entity(ip=address), connection_creation_rate=1e6), 1
    for value in (0.0, 1.5, 3e9):
        yield alteration(entity(ip="9.9.9.9"), connection_creation_rate=value), 0
    yield alteration(entity(ip="9.9.9.9"), producer_byte_rate=5.0), 1
    yield alteration([*entity(user="a"), *entity(user="b")], **RATE), 1
    for key, value in VALUES:
        yield AlterClientQuotasRequest(entries=[entry(key, value, user="v")], validate_only=False), 1
        yield describe(("user", EXACT, "v")), 1
    yield alteration(entity(user="v"), producer_byte_rate=None, nope=None), 1
    yield alteration(entity(user="never"), producer_byte_rate=None), 0
    yield alteration(entity(user="v"), producer_byte_rate=5.0, nope=1.0), 1
    yield alteration(entity(user="v")), 1
    for key, value in (("producer_byte_rate", 8.0), ("nope", 8.0)):
        yield AlterClientQuotasRequest(entries=[entry(key, value, user="w")], validate_only=True), 1
    twice = [entry("producer_byte_rate", value, user="w") for value in (1.0, 2.0)]
    yield AlterClientQuotasRequest(entries=twice, validate_only=False), 1
    repeated = entry("producer_byte_rate", 5.0, user="v")
    repeated.ops.append(OpData(key="producer_byte_rate", value=7.0, remove=False))
    yield AlterClientQuotasRequest(entries=[repeated], validate_only=False), 1
    yield AlterClientQuotasRequest(entries=[], validate_only=False), 1


def test_the_answers_are_kafkas(ours: int, theirs: int) -> None:
    asked = [*alterations(), *((describe(*one, strict=strict), 1) for one in FILTERS for strict in (False, True))]
    with Wired(ours) as us, Wired(theirs) as them:
        for request, version in asked:
            mine = repr(plain(us.ask(request, version)))
            for _ in range(LATE_MAX if isinstance(request, DescribeClientQuotasRequest) else 1):
                other = repr(plain(them.ask(request, version)))
                if mine == other:
                    break
            assert mine == other, f"{request!r} v{version}"[:2000]


@pytest.fixture(params=["ours", "theirs"])
def port(request: pytest.FixtureRequest) -> int:
    found: int = request.getfixturevalue(request.param)
    return found


def limit(port: int, client_id: str, **values: float) -> None:
    """Of the most specific kind: it wins over those of the stories above."""
    names = {"client-id": client_id, "user": "ANONYMOUS"}
    set_quota(port, entity(**names), **values)
    wait_until(lambda: list_quotas(port).get(tuple(names.items())) == values)


def test_a_producer_is_throttled_for_the_same_time(port: int) -> None:
    make_topic(port, "produced")
    limit(port, "producing", producer_byte_rate=1000.0)
    with Wired(port, client_id="producing") as client:
        throttle_ms = 0
        for _ in range(100):  # a new quota may reach the measuring a moment after the description
            throttle_ms = client.ask(produce("produced", 50_000), 9).throttle_time_ms
            if throttle_ms:
                break
        assert throttle_ms == pytest.approx(40_000, rel=0.05), "50,000 at 1,000 a second, less a window of ten"
        client.send(ApiVersionsRequest(), 0)
        assert is_muted(port, client)


def test_a_fetch_over_its_quota_is_answered_with_nothing(port: int) -> None:
    make_topic(port, "fetched")
    with Wired(port) as free:
        wait_until(
            lambda: free.ask(produce("fetched", 50_000), 9).responses[0].partition_responses[0].error_code == 0,
            "no leader",
        )
    limit(port, "fetching", consumer_byte_rate=6000.0)
    offered = []
    for _ in range(20):
        with Wired(port, client_id="fetching") as client:
            answer = client.ask(fetch("fetched"), 12)
        offered.append((bool(answer.responses), answer.throttle_time_ms > 0))
        if offered[-1] == (False, True):
            break
    assert offered[0] == (True, False)
    assert offered[-1] == (False, True)


def topics(*names: str) -> CreateTopicsRequest:
    wanted = [
        CreatableTopic(name=name, num_partitions=50, replication_factor=1, assignments=[], configs=[]) for name in names
    ]
    return CreateTopicsRequest(topics=wanted, timeout_ms=30_000, validate_only=False)


def test_changes_of_topics_are_refused_or_throttled(ours: int, theirs: int) -> None:
    """The first may always be too much; then newer versions are refused, and older ones carried out."""
    growth = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="q1", count=60, assignments=None)], timeout_ms=30_000, validate_only=False
    )
    story: list[tuple[Any, int]] = [
        (topics("q1", "q2"), 7),
        (topics("q1", "q3", "not a name"), 6),
        (growth, 3),
        (growth, 2),
        (topics("q4"), 5),
        (DeleteTopicsRequest(topic_names=["q1", "nope"], timeout_ms=30_000), 5),
        (DeleteTopicsRequest(topic_names=["q1", "q4"], timeout_ms=30_000), 4),
    ]
    said = {}
    for port in (ours, theirs):
        limit(port, "changing", controller_mutation_rate=0.001)
        said[port] = []
        for request, version in story:
            with Wired(port, client_id="changing") as client:  # the last one is muted
                answer = client.ask(request, version)
            items = getattr(answer, "topics", None) or getattr(answer, "results", None) or answer.responses
            codes = sorted((one.name, one.error_code) for one in items)
            said[port].append((codes, answer.throttle_time_ms > 1000))
    assert said[ours] == said[theirs]


def asking_for(name: str, *, creates: bool = True) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=bytes(16), name=name)], allow_auto_topic_creation=creates
    )


def test_a_topic_that_a_question_creates_counts(ours: int, theirs: int) -> None:
    """Once too much was made, the next is not: the client is not told why, and is not throttled."""
    said = {}
    for port in (ours, theirs):
        limit(port, "asking", controller_mutation_rate=0.001)
        with Wired(port, client_id="asking") as client, Wired(port, client_id="free") as free:

            def is_there(name: str, wired: Wired = free) -> bool:
                return wired.ask(asking_for(name, creates=False), 12).topics[0].error_code == 0

            client.ask(asking_for("asked1"), 12)
            wait_until(lambda: is_there("asked1"))
            answers = [client.ask(asking_for("asked2"), 12) for _ in range(5)]
            told = [(one.topics[0].error_code, one.throttle_time_ms) for one in answers]
            with Wired(port, client_id="asking") as other:  # which is muted
                created = other.ask(topics("asked3"), 7)
            told += [(created.topics[0].error_code, created.throttle_time_ms > 1000), is_there("asked2")]
            free.ask(asking_for("asked2"), 12)
            wait_until(lambda: is_there("asked2"))
        said[port] = told
    assert said[ours] == said[theirs]


def test_apache_kafkas_tool_sets_shows_and_removes_them(ours: int) -> None:
    def configs(*words: str) -> str:
        return judge.tool("kafka.admin.ConfigCommand", "--bootstrap-server", f"127.0.0.1:{ours}", *words).out

    ann = ("--entity-type", "users", "--entity-name", "ann")
    app = ("--entity-type", "clients", "--entity-name", "my app")
    password = "SCRAM-SHA-256=[iterations=4096,password=sesame]"
    configs("--alter", "--add-config", "producer_byte_rate=1024,request_percentage=50", *ann)
    configs("--alter", "--add-config", "consumer_byte_rate=2048", *ann, *app)
    configs("--alter", "--add-config", "producer_byte_rate=4096", "--entity-type", "clients", "--entity-default")
    configs("--alter", "--add-config", password, *ann)
    configs(
        "--alter", "--add-config", "connection_creation_rate=100", "--entity-type", "ips", "--entity-name", "1.1.1.1"
    )
    shown = configs("--describe", *ann)
    assert "producer_byte_rate=1024.0" in shown
    assert "request_percentage=50.0" in shown
    assert "SCRAM-SHA-256" in shown
    assert "consumer_byte_rate=2048.0" in configs("--describe", *ann, *app)
    assert "connection_creation_rate=100.0" in configs("--describe", "--entity-type", "ips")
    configs("--alter", "--delete-config", "producer_byte_rate,request_percentage", *ann)
    assert (("user", "ann"),) not in list_quotas(ours)
    assert "SCRAM-SHA-256" in configs("--describe", *ann)
