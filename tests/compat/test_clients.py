"""Every client library in typical use gets the same answers as from Apache Kafka.

One scenario for all: `pytest --judge tests/compat` runs it against Apache Kafka. What a library does not support (old
formats have no headers, some have no admin calls) is in its `lacks`; such a test does not exist for that client.
"""

from __future__ import annotations

import time
from itertools import groupby
from typing import TYPE_CHECKING, Final

import pytest
from compat.clients import EARLIEST, LATEST, Client, Record, Refused, Stored
from compat.families import LACKS, OLD, opened
from compat.raw import Raw, create_topic, fetch, read_all
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import judge
    from process import Ottla

    Broker = Ottla | judge.Kafka

# An hour ago, on a second: within every retention and every limit on timestamps.
START: Final = int(time.time()) * 1000 - 3_600_000

MESSAGE_TOO_LARGE, INVALID_CONFIG, TOPIC_EXISTS, INVALID_PARTITIONS = 10, 40, 36, 37
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, INVALID_TOPIC, INVALID_REPLICATION = 1, 3, 17, 38


def story(client: Client) -> list[Record]:
    """Records with absent, empty, repeated and long parts, as far as the client supports them."""
    headers: list[tuple[tuple[str, bytes | None], ...]] = [()] * 5
    if "headers" not in client.lacks:
        headers = [
            (("a", b"1"),),
            (("b", b""),),
            (("c", b"\x00\xff"), ("c", b"2"), ("d", b"3")),
            (),
            (("é", "ü".encode()),),
        ]
        if "null headers" not in client.lacks:
            headers[3] = (("none", None), ("some", b"x"))
    bodies = [
        (b"key", b"value"),
        (None, b"no key " + b"again " * 500),
        (b"tombstone", None),
        (b"", b""),
        (bytes(range(256)), "Ottla písala sestra".encode()),
    ]
    return [Record(START + 1000 * n, key, value, headers[n % 5]) for n, (key, value) in enumerate(bodies * 2)]


def named(feature: str | None = None) -> pytest.MarkDecorator:
    """One test for each client that has the feature; the tests of one client stay on one worker, in one process."""
    return pytest.mark.parametrize(
        "client",
        [
            pytest.param(name, marks=pytest.mark.xdist_group(f"client-{name}"))
            for name, lacks in LACKS.items()
            if feature not in lacks
        ],
        indirect=True,
        scope="module",
    )


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    broker = request.getfixturevalue("old_broker" if request.param in OLD else "broker")
    running = opened(request.param, broker.bootstrap)
    yield running
    running.close()


@pytest.fixture
def place(client: Client, request: pytest.FixtureRequest) -> Iterator[Raw]:
    """A second connection to the client's broker, to check what it did."""
    with Raw(request.getfixturevalue("old_broker" if client.name in OLD else "broker").port) as raw:
        yield raw


@pytest.fixture
def topic(place: Raw, fresh: Callable[[str], str], client: Client) -> str:
    """An empty topic of two partitions whose batches may have 100,000 bytes."""
    name = fresh(f"topic-{client.name}")
    assert create_topic(place, name, 2, {"max.message.bytes": "100000"}) == 0
    settled(lambda: client.partitions(name) == 2)
    return name


def settled(answer: Callable[[], bool]) -> None:
    """Wait until a change is visible: Apache Kafka answers before all its nodes know it."""
    last: object = "not yet"

    def ready() -> bool:
        nonlocal last
        try:
            return answer()
        except Refused as refused:
            last = refused
            return False

    wait_until(ready, lambda: last)


@named()
def test_every_codec_round_trips_keys_values_headers_and_times(client: Client, topic: str, place: Raw) -> None:
    records = story(client)
    base = 0
    for codec in client.codecs:
        assert client.produce(topic, records, codec=codec) == list(range(base, base + len(records)))
        stored = client.consume(topic, base, len(records))
        assert [at for at, _ in stored] == list(range(base, base + len(records)))
        assert [record for _, record in stored] == expected(client, records)
        base += len(records)
    written = read_all(place, topic)
    # A client that is slow to gather its records sends them in more than one batch, and librdkafka leaves a batch as it
    # is when compression does not make it smaller.
    compressed = [batch.codec for batch in written if batch.codec != "none"]
    assert [codec for codec, _ in groupby(compressed)] == [codec for codec in client.codecs if codec != "none"], (
        "compression.type=producer keeps the codec that the producer chose"
    )
    assert written[0].codec == client.codecs[0]
    assert client.offset(topic, LATEST) == base


def expected(client: Client, records: list[Record]) -> list[Record]:
    """What the client reads of what it wrote: formats before 0.10 have no timestamps."""
    return [record._replace(timestamp=None) for record in records] if "times" in client.lacks else records


@named()
def test_a_consumer_may_start_anywhere(client: Client, topic: str) -> None:
    records = expected(client, story(client))
    client.produce(topic, records, partition=1)
    assert client.consume(topic, 7, 2, partition=1) == [Stored(7, records[7]), Stored(8, records[8])]
    assert client.consume(topic, 2, 1, partition=1) == [Stored(2, records[2])], "back again"
    assert client.consume(topic, EARLIEST, 1, partition=1) == [Stored(0, records[0])]
    assert client.offset(topic, EARLIEST, partition=1) == 0
    assert client.offset(topic, LATEST, partition=1) == 10
    assert client.offset(topic, LATEST, partition=0) == 0, "the other partition is empty"


@named("times")
def test_offsets_for_times(client: Client, topic: str) -> None:
    client.produce(topic, story(client), codec="gzip")
    assert client.offset(topic, START - 1) == 0
    assert client.offset(topic, START) == 0
    assert client.offset(topic, START + 1) == 1, "the first record at or after the time, inside a compressed batch"
    assert client.offset(topic, START + 3000) == 3
    assert client.offset(topic, START + 9000) == 9
    assert client.offset(topic, START + 9001) is None


@named()
def test_acks_none_one_and_all(client: Client, topic: str) -> None:
    record = Record(START, b"k", b"v")
    assert client.produce(topic, [record], acks="all") == [0]
    client.produce(topic, [record], acks="0")
    settled(lambda: client.offset(topic, LATEST) == 2)
    assert client.produce(topic, [record], acks="1") == [2]
    assert [at for at, _ in client.consume(topic, 0, 3)] == [0, 1, 2]


@named("headers")  # the clients of magic 2, whose batches have one size for one content
def test_a_batch_of_the_largest_size_fits_and_one_more_byte_does_not(client: Client, topic: str) -> None:
    # 61 bytes of header; length 3, attributes 1, times 1, offset 1, no key 1, value length 3, headers 1.
    largest = 100_000 - 72
    assert client.produce(topic, [Record(START, None, b"x" * largest)]) == [0]
    with pytest.raises(Refused) as refused:
        client.produce(topic, [Record(START, None, b"x" * (largest + 1))])
    assert refused.value.code == MESSAGE_TOO_LARGE
    assert client.offset(topic, LATEST) == 1, "what was refused left nothing"
    assert client.consume(topic, 0, 1)[0].record.value == b"x" * largest


@named()
def test_a_large_message_below_the_limit_comes_back_whole_and_one_above_it_is_refused(
    client: Client, topic: str
) -> None:
    large = bytes(range(256)) * 370
    assert client.produce(topic, [Record(START, b"k", large)]) == [0]
    assert client.consume(topic, 0, 1)[0].record.value == large
    with pytest.raises(Refused) as refused:
        client.produce(topic, [Record(START, b"k", large + large)])
    assert refused.value.code == MESSAGE_TOO_LARGE


@named("idempotence")
def test_an_idempotent_producer_numbers_its_batches(client: Client, topic: str, place: Raw) -> None:
    records = story(client)
    for _ in range(3):
        client.produce(topic, records, idempotent=True)
    written = read_all(place, topic)
    assert len({(batch.producer_id, batch.epoch) for batch in written}) == 1
    assert written[0].producer_id >= 0
    assert [batch.sequence for batch in written] == [batch.base for batch in written], "sequences without gaps"
    assert sum(batch.count for batch in written) == 30


@named()
def test_a_topic_comes_into_being_when_somebody_writes_to_it(client: Client, fresh: Callable[[str], str]) -> None:
    name = fresh(f"unborn-{client.name}")
    assert client.produce(name, [Record(START, b"k", b"v")]) == [0]
    assert client.partitions(name) == 1
    assert client.consume(name, 0, 1)[0].record.value == b"v"


@named("create")
def test_topics_are_created_described_grown_and_deleted(client: Client, fresh: Callable[[str], str]) -> None:
    name = fresh(f"admin-{client.name}")
    client.create(name, 3, {"retention.ms": "7200000", "cleanup.policy": "compact"})
    settled(lambda: client.partitions(name) == 3)
    with pytest.raises(Refused) as refused:
        client.create(name, 3)
    assert refused.value.code == TOPIC_EXISTS
    assert client.produce(name, [Record(START, b"k", b"v")], partition=2) == [0]

    client.grow(name, 5)
    settled(lambda: client.partitions(name) == 5)
    # Other acks are another producer of the library: the first may believe in three partitions for minutes.
    assert client.produce(name, [Record(START, b"k", b"v")], partition=4, acks="1") == [0]
    with pytest.raises(Refused) as refused:
        client.grow(name, 4)
    assert refused.value.code == INVALID_PARTITIONS

    client.delete(name)
    with pytest.raises(Refused) as refused:
        client.delete(fresh("never"))
    assert refused.value.code == UNKNOWN_TOPIC


@named("create")
def test_impossible_topics_are_refused(client: Client, fresh: Callable[[str], str]) -> None:
    for name, partitions, configs, code in (
        ("no spaces", 1, {}, INVALID_TOPIC),
        (fresh("zero"), 0, {}, INVALID_PARTITIONS),
        (fresh("config"), 1, {"retention.ms": "soon"}, INVALID_CONFIG),
        (fresh("config"), 1, {"no.such.option": "1"}, INVALID_CONFIG),
    ):
        with pytest.raises(Refused) as refused:
            client.create(name, partitions, configs)
        assert refused.value.code == code, f"{name} {partitions} {configs}"


@named("configs")
def test_options_are_described_and_altered(client: Client, topic: str) -> None:
    found = client.configs(topic)
    assert found["max.message.bytes"] == "100000", "set for this topic"
    assert found["retention.ms"] == "604800000", "the default"
    assert found["cleanup.policy"] == "delete"
    assert found["compression.type"] == "producer"
    client.alter(topic, {"retention.ms": "86400000"})
    settled(lambda: client.configs(topic)["retention.ms"] == "86400000")
    replaced = "incremental alter" in client.lacks  # the old call forgets what it does not name
    assert client.configs(topic)["max.message.bytes"] == ("1048588" if replaced else "100000")
    with pytest.raises(Refused) as refused:
        client.alter(topic, {"retention.ms": "soon"})
    assert refused.value.code == INVALID_CONFIG
    assert client.configs(topic)["retention.ms"] == "86400000"


@named("trim")
def test_records_are_deleted_up_to_an_offset(client: Client, topic: str, place: Raw) -> None:
    records = story(client)
    client.produce(topic, records)
    assert client.trim(topic, 4) == 4
    assert client.offset(topic, EARLIEST) == 4
    assert client.offset(topic, LATEST) == 10
    assert client.consume(topic, EARLIEST, 1) == [Stored(4, records[4])]
    assert fetch(place, topic, 3).error == OFFSET_OUT_OF_RANGE
    with pytest.raises(Refused) as refused:
        client.trim(topic, 11)
    assert refused.value.code == OFFSET_OUT_OF_RANGE
    assert client.trim(topic, 10) == 10
    assert client.offset(topic, EARLIEST) == 10
