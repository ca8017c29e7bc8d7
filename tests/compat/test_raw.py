"""Requests that no client library sends: Ottla and Apache Kafka 3.9 must give the same answers.

The old SimpleConsumer's versions with magic 0 and 1 messages, nested gzip sets, bad and hostile records, and
idempotent producers (duplicates, gaps, fences). Each scenario runs on both brokers, and the results are compared. The
important facts are asserted as well, so that a reader need not run Kafka to know them.
"""

from __future__ import annotations

import gzip
import struct
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import judge
import pytest
from compat.raw import (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    Closed,
    Message,
    Produced,
    Raw,
    array,
    batch,
    create_topic,
    fetch,
    init_producer,
    list_offset,
    message,
    message_set,
    messages,
    produce,
    produce_body,
    read_all,
    seal,
    string,
    wrapped,
)
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from process import Ottla

pytestmark = pytest.mark.xdist_group("raw")
T = TypeVar("T")
TIME = 1_700_000_000_000
OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, UNKNOWN_TOPIC, INVALID_ACKS = 1, 2, 3, 21
UNSUPPORTED_COMPRESSION, UNKNOWN_SERVER_ERROR = 76, -1
OUT_OF_ORDER_SEQUENCE, DUPLICATE_SEQUENCE, INVALID_EPOCH, INVALID_RECORD = 45, 46, 47, 87


class Both(NamedTuple):
    ours: Raw
    theirs: Raw

    def tell(self, story: Callable[[Raw], T]) -> T:
        """Run a scenario on both brokers. The results must be equal."""
        ours, theirs = story(self.ours), story(self.theirs)
        assert ours == theirs, "left: Ottla, right: Apache Kafka"
        return ours


@pytest.fixture(scope="module")
def kafka(broker: Ottla | judge.Kafka) -> Iterator[judge.Kafka]:
    with judge.Kafka(version=judge.ZOOKEEPER, settings={"log.retention.ms": "-1"}) as running:
        yield running


@pytest.fixture
def both(old_broker: Ottla | judge.Kafka, kafka: judge.Kafka) -> Iterator[Both]:
    with Raw(old_broker.port) as ours, Raw(kafka.port) as theirs:
        yield Both(ours, theirs)


@pytest.fixture
def topic(both: Both, fresh: Callable[[str], str]) -> str:
    # Kafka 4 has another default for times to come than Kafka 3.9 has.
    return made(both, fresh("raw"), {"retention.ms": "-1", "message.timestamp.after.max.ms": str((1 << 63) - 1)})


def made(both: Both, name: str, configs: dict[str, str]) -> str:
    for raw in both:
        assert create_topic(raw, name, 1, configs) == 0
        # Apache Kafka answers before its leader leads.
        wait_until(lambda raw=raw: fetch(raw, name, 0).error == 0, f"{name} at {raw.socket.getpeername()}")  # type: ignore[misc]
    return name


def answer(raw: Raw, key: int, version: int, body: bytes) -> bytes | str:
    """The bytes after the correlation id, or that the connection was closed."""
    with Raw(raw.socket.getpeername()[1]) as own:
        try:
            return own.call(key, version, body).rest()
        except Closed:
            return "closed"


# --- the old SimpleConsumer ------------------------------------------------------------------------------------------


def opened(data: bytes) -> list[Message]:
    """Messages with their nested sets unpacked."""
    found: list[Message] = []
    for one in messages(data):
        if one.attributes & 7 == 1:
            assert one.value is not None
            found += messages(gzip.decompress(one.value))
        else:
            found.append(one)
    return found


def test_magic_0_sets_go_in_and_come_out(both: Both, topic: str) -> None:
    plain = message_set([message(b"k", b"v"), message(None, b"no key"), message(b"gone", None)])
    nested = wrapped(message_set([message(None, b"one"), message(b"2", b"two")]))

    def story(raw: Raw) -> tuple[list[Produced], list[Message], int]:
        results = [produce(raw, topic, data, version=version) for data in (plain, nested) for version in (0, 1, 2)]
        found = fetch(raw, topic, 0, version=0)
        assert found.error == 0
        return results, opened(found.data), found.high

    results, found, high = both.tell(story)
    assert [result.base for result in results] == [0, 3, 6, 9, 11, 13]
    assert high == 15
    assert [(one.magic, one.key, one.value) for one in found[:4]] == [
        (0, b"k", b"v"),
        (0, None, b"no key"),
        (0, b"gone", None),
        (0, b"k", b"v"),
    ]
    assert [one.offset for one in found] == list(range(15)), "nested magic 0 sets have absolute offsets"
    assert [one.value for one in found[-2:]] == [b"one", b"two"]


def test_magic_1_sets_keep_their_times(both: Both, topic: str) -> None:
    plain = message_set(
        [message(b"k", b"v", magic=1, timestamp=TIME), message(None, b"w", magic=1, timestamp=TIME + 5)]
    )
    inner = message_set([message(None, b"%d" % n, magic=1, timestamp=TIME + n) for n in range(3)])
    nested = wrapped(inner, magic=1, timestamp=TIME + 2)

    def story(raw: Raw) -> tuple[list[Produced], list[list[Message]], list[int]]:
        results = [produce(raw, topic, data, version=2) for data in (plain, nested)]
        reads = [opened(fetch(raw, topic, 0, version=version).data) for version in (0, 2, 3)]
        return results, reads, [list_offset(raw, topic, TIME + n) for n in (0, 1, 5, 6)]

    results, reads, offsets = both.tell(story)
    assert [result.base for result in results] == [0, 2]
    assert [one.timestamp for one in reads[1][:2]] == [TIME, TIME + 5]
    assert {one.magic for one in reads[0]} == {0}
    assert offsets == [0, 1, 1, -1]


def test_simple_consumer_fetches_parts_and_stalls_as_it_did(both: Both, topic: str) -> None:
    sets = [message_set([message(None, b"%d" % n * 100)]) for n in range(5)]

    def story(raw: Raw) -> list[tuple[int, int, list[Message]]]:
        for data in sets:
            produce(raw, topic, data, version=0)
        reads = [fetch(raw, topic, at, version=0, size_max=size) for at, size in
                 ((0, 10), (0, 300), (2, 1000), (5, 1000), (6, 1000))]  # fmt: skip
        return [(found.error, found.high, messages(found.data)) for found in reads]

    small, some, later, end, beyond = both.tell(story)
    assert small == (0, 5, []), "less than the first batch: nothing, and no error"
    assert some[0] == 0
    assert [one.offset for one in later[2]] == [2, 3, 4]
    assert end == (0, 5, [])
    assert beyond[0] == OFFSET_OUT_OF_RANGE


def test_list_offsets_v0_tells_segments(both: Both, topic: str) -> None:
    def story(raw: Raw) -> list[bytes | str]:
        for _ in range(3):
            produce(raw, topic, message_set([message(None, b"x")]), version=0)
        return [
            answer(raw, LIST_OFFSETS, 0, struct.pack(">i", -1) + array([string(topic) + array([place])]))
            for place in (
                struct.pack(">iqi", 0, -1, 1),
                struct.pack(">iqi", 0, -2, 1),
                struct.pack(">iqi", 0, -1, 10),
                struct.pack(">iqi", 0, TIME, 10),
                struct.pack(">iqi", 9, -1, 1),
            )
        ]

    latest, earliest, *_ = both.tell(story)
    assert isinstance(latest, bytes)
    assert latest[-8:] == (3).to_bytes(8, "big")
    assert isinstance(earliest, bytes)
    assert earliest[-8:] == (0).to_bytes(8, "big")


def test_metadata_v0_names_the_leader(both: Both, topic: str) -> None:
    def story(raw: Raw) -> tuple[int, list[tuple[int, str | None, list[tuple[int, int, bool, int, int]]]]]:
        found = raw.call(METADATA, 0, array([string(topic), string("bad name!")]))
        brokers = {}
        for _ in range(found.int32()):
            node = found.int32()
            brokers[node] = (found.string(), found.int32())
        assert list(brokers.values()) == [("127.0.0.1", raw.socket.getpeername()[1])], "the address that was dialled"
        topics = []
        for _ in range(found.int32()):
            error, name = found.int16(), found.string()
            partitions = []
            for _ in range(found.int32()):
                code, index, leader = found.int16(), found.int32(), found.int32()
                replicas = [found.int32() for _ in range(found.int32())]
                isr = [found.int32() for _ in range(found.int32())]
                partitions.append((code, index, leader in brokers, len(replicas), len(isr)))
            topics.append((error, name, partitions))
        assert found.rest() == b""
        return len(brokers), sorted(topics, key=str)

    _, topics = both.tell(story)
    assert (0, topic, [(0, 0, True, 1, 1)]) in topics
    assert (17, "bad name!", []) in topics


def test_acks_0_gets_no_answer_and_odd_acks_an_error(both: Both, topic: str) -> None:
    def story(raw: Raw) -> tuple[int, list[bytes | str]]:
        for _ in range(2):
            raw.send(PRODUCE, 0, produce_body(topic, message_set([message(None, b"x")]), acks=0, version=0))
        end = list_offset(raw, topic, -1)  # an answer to acks=0 would be taken for this one, and fail
        odd = [answer(raw, PRODUCE, 2, produce_body(topic, message_set([message(None, b"x")]), acks=acks, version=2))
               for acks in (2, -2, 7)]  # fmt: skip
        return end, odd

    end, odd = both.tell(story)
    assert end == 2
    assert all(struct.pack(">h", INVALID_ACKS) in found for found in odd if isinstance(found, bytes))


# --- bad records -----------------------------------------------------------------------------------------------------


def broken_crc(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


GOOD = batch([b"a", b"b"], timestamp=TIME)
COVERED = GOOD[21:]
OLD = message_set([message(None, b"x")])
BAD_RECORDS = {
    "magic 0 with a bad checksum": (0, broken_crc(OLD, 14)),
    "magic 0, flipped value": (2, broken_crc(OLD, len(OLD) - 1)),
    "magic 1 in v0": (0, message_set([message(None, b"x", magic=1, timestamp=TIME)])),
    "magic 2 in v2": (2, GOOD),
    "magic 0 in v3": (3, OLD),
    "magic 0 in v7": (7, OLD),
    "magic 2 with a bad checksum": (7, broken_crc(GOOD, len(GOOD) - 1)),
    "two batches": (7, GOOD + GOOD),
    "nothing": (7, b""),
    "nothing in v0": (0, b""),
    "half a batch": (7, GOOD[:-5]),
    "a batch and a half": (7, GOOD + GOOD[:30]),
    "length too short": (7, GOOD[:8] + struct.pack(">i", 20) + GOOD[12:]),
    "length negative": (7, GOOD[:8] + struct.pack(">i", -5) + GOOD[12:]),
    "length too long": (7, GOOD[:8] + struct.pack(">i", 1 << 30) + GOOD[12:]),
    "magic 3": (7, GOOD[:16] + b"\3" + GOOD[17:]),
    "count too large": (7, seal(COVERED[:36] + struct.pack(">i", 9) + COVERED[40:])),
    "count too small": (7, seal(COVERED[:36] + struct.pack(">i", 1) + COVERED[40:])),
    "count negative": (7, seal(COVERED[:36] + struct.pack(">i", -1) + COVERED[40:])),
    "last offset delta wrong": (7, seal(COVERED[:2] + struct.pack(">i", 7) + COVERED[6:])),
    "base offset not 0": (7, seal(COVERED, base=77)),
    "a control batch": (7, batch([b"a"], attributes=0x20, timestamp=TIME)),
    "transactional without an id": (7, batch([b"a"], attributes=0x10, timestamp=TIME)),
    "zstd before v7": (6, batch([b"a"], attributes=4, timestamp=TIME)),
    "append time claimed": (7, batch([b"a"], attributes=8, timestamp=TIME)),
    "no timestamp": (7, batch([b"a"], timestamp=-1)),
    "far future": (7, batch([b"a"], timestamp=1 << 50)),
    "negative sequence with a producer": (7, batch([b"a"], producer_id=5, epoch=0, sequence=-1, timestamp=TIME)),
    "epoch without a producer": (7, batch([b"a"], epoch=3, sequence=3, timestamp=TIME)),
}


@pytest.mark.parametrize("case", BAD_RECORDS)
def test_odd_records_are_judged_alike(both: Both, topic: str, case: str) -> None:
    version, data = BAD_RECORDS[case]

    def story(raw: Raw) -> tuple[bytes | str, int]:
        # The text in the answer to newer versions is each broker's own; these versions have none.
        return answer(raw, PRODUCE, version, produce_body(topic, data, version=version)), list_offset(raw, topic, -1)

    both.tell(story)


def test_an_unknown_codec_is_refused_by_name_where_kafka_stumbles(both: Both, topic: str) -> None:
    data = batch([b"a"], attributes=5, timestamp=TIME)
    assert produce(both.ours, topic, data).error == UNSUPPORTED_COMPRESSION
    assert produce(both.theirs, topic, data).error == UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("codec", [1, 2, 3])
def test_what_does_not_inflate_is_refused(both: Both, topic: str, codec: int) -> None:
    """Kafka has no better error for it than an unknown server error."""
    data = batch([b"a"], attributes=codec, timestamp=TIME)
    assert produce(both.ours, topic, data).error == INVALID_RECORD
    assert produce(both.theirs, topic, data).error == UNKNOWN_SERVER_ERROR


COMPACTED = {"cleanup.policy": "compact"}
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
STRICT_TIMES = {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "1000"}
SMALL = {"max.message.bytes": "200"}
BY_TOPIC: dict[str, tuple[dict[str, str], int, bytes, int]] = {
    "a key in a compacted topic": (COMPACTED, 7, batch([b"a"], keys=[b"k"], timestamp=TIME), 0),
    "no key in a compacted topic": (COMPACTED, 7, batch([b"a"], timestamp=TIME), INVALID_RECORD),
    "one key missing in a compacted topic": (
        COMPACTED,
        7,
        batch([b"a", b"b"], keys=[b"k", None], timestamp=TIME),
        INVALID_RECORD,
    ),
    "magic 0 without a key in a compacted topic": (COMPACTED, 0, OLD, INVALID_RECORD),
    "too old": (STRICT_TIMES, 7, batch([b"a"], timestamp=TIME), 32),
    "too new": (STRICT_TIMES, 7, batch([b"a"], timestamp=1 << 45), 32),
    "too large": (SMALL, 7, batch([b"a" * 200], timestamp=TIME), 10),
    "as large as allowed": (SMALL, 7, batch([b"a" * 130], timestamp=TIME), 0),
    "one byte larger": (SMALL, 7, batch([b"a" * 131], timestamp=TIME), 10),
    "magic 0 too large": (SMALL, 0, message_set([message(None, b"a" * 200)]), 10),
}


@pytest.mark.parametrize("case", BY_TOPIC)
def test_topic_options_decide_what_is_accepted(both: Both, fresh: Callable[[str], str], case: str) -> None:
    configs, version, data, code = BY_TOPIC[case]
    topic = made(both, fresh("option"), configs)

    def story(raw: Raw) -> tuple[int, int, int]:
        result = produce(raw, topic, data, version=version)
        return result.error, result.base, list_offset(raw, topic, -1)

    error, _, end = both.tell(story)
    assert error == code
    assert (end == 0) == bool(code)


def test_a_topic_with_append_time_stamps_the_batch(both: Both, fresh: Callable[[str], str]) -> None:
    topic = made(both, fresh("stamped"), APPEND_TIME)

    def story(raw: Raw) -> tuple[bool, bool, int]:
        result = produce(raw, topic, GOOD)
        (found,) = read_all(raw, topic)
        return result.append_time > TIME, found.max_timestamp == result.append_time, found.attributes

    assert both.tell(story) == (True, True, 8)


def test_a_topic_with_its_own_codec_recompresses(both: Both, fresh: Callable[[str], str]) -> None:
    def story(raw: Raw) -> list[tuple[str, str, int]]:
        found = []
        for codec in ("uncompressed", "gzip", "snappy", "lz4", "zstd"):
            name = f"{base}-{codec}"
            produce(raw, name, batch([b"a" * 500, b"b" * 500], timestamp=TIME))
            (one,) = read_all(raw, name)
            found.append((codec, one.codec, one.count))
        return found

    base = fresh("codec")
    for codec in ("uncompressed", "gzip", "snappy", "lz4", "zstd"):
        made(both, f"{base}-{codec}", {"compression.type": codec})
    told = both.tell(story)
    assert [codec for _, codec, _ in told] == ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize(
    ("key", "body"),
    [
        (PRODUCE, produce_body("no-such-topic!", GOOD, version=7)),
        (
            FETCH,
            struct.pack(">iiiib", -1, 0, 1, 1 << 20, 0)
            + array([string("nope") + array([struct.pack(">iqi", 0, 0, 99)])]),
        ),
    ],
    ids=["produce", "fetch"],
)
def test_unknown_topics(both: Both, key: int, body: bytes) -> None:
    found = both.tell(lambda raw: answer(raw, key, 7 if key == PRODUCE else 4, body))
    assert isinstance(found, bytes)
    assert struct.pack(">h", UNKNOWN_TOPIC) in found or struct.pack(">h", 17) in found


# --- new records for old readers -------------------------------------------------------------------------------------


def test_old_fetch_versions_of_new_batches(both: Both, fresh: Callable[[str], str]) -> None:
    """Down-conversion, and what cannot be converted: versions below 10 do not know zstd."""
    topics = {codec: made(both, fresh(f"new-{codec}"), {"compression.type": codec})
              for codec in ("uncompressed", "gzip", "snappy", "lz4", "zstd")}  # fmt: skip

    def story(raw: Raw) -> list[tuple[str, int, int, int, list[tuple[int, int, bytes | None]]]]:
        told = []
        for codec, topic in topics.items():
            produce(raw, topic, batch([b"a" * 300, b"b" * 300, None], keys=[b"k", None, b"gone"], timestamp=TIME))
            for version in (0, 1, 2, 3, 4, 9, 10):
                found = fetch(raw, topic, 1, version=version)
                shown = found.data[16] if len(found.data) > 16 else -1
                records = []
                if shown in (0, 1) and codec in ("uncompressed", "gzip"):
                    records = [(one.magic, one.attributes, one.value) for one in opened(found.data)]
                told.append((codec, version, found.error, shown, records))
        return told

    told = {(codec, version): (error, magic, records) for codec, version, error, magic, records in both.tell(story)}
    assert [told["uncompressed", version][1] for version in (0, 1, 2, 3, 4)] == [0, 0, 1, 1, 2], "the magic of each"
    assert [one[2] for one in told["gzip", 0][2]][-2:] == [b"b" * 300, None]
    assert [told["zstd", version][0] for version in (0, 2, 4, 9, 10)] == [UNSUPPORTED_COMPRESSION] * 4 + [0]


# --- idempotent producers --------------------------------------------------------------------------------------------


class Identity:
    """One producer; `send` gives (error, base offset)."""

    def __init__(self, raw: Raw, topic: str) -> None:
        self.raw, self.topic = raw, topic
        self.id, self.epoch = init_producer(raw)

    def send(self, sequence: int, count: int = 1, *, epoch: int | None = None) -> tuple[int, int]:
        values: list[bytes | None] = [b"%d" % (sequence + n) for n in range(count)]
        epoch = self.epoch if epoch is None else epoch
        data = batch(values, producer_id=self.id, epoch=epoch, sequence=sequence, timestamp=TIME)
        result = produce(self.raw, self.topic, data)
        return result.error, result.base


def test_a_repeated_batch_is_answered_with_its_first_offsets(both: Both, topic: str) -> None:
    def story(raw: Raw) -> list[tuple[int, int]]:
        producer = Identity(raw, topic)
        return [producer.send(0, 3), producer.send(3, 2), producer.send(0, 3), producer.send(3, 2), producer.send(5)]

    assert both.tell(story) == [(0, 0), (0, 3), (0, 0), (0, 3), (0, 5)]


def test_five_batches_are_remembered(both: Both, topic: str) -> None:
    def story(raw: Raw) -> tuple[list[tuple[int, int]], int]:
        producer = Identity(raw, topic)
        for n in range(7):
            producer.send(n)
        again = [producer.send(n) for n in range(7)]
        return again, list_offset(raw, topic, -1)

    again, end = both.tell(story)
    assert again[2:] == [(0, n) for n in range(2, 7)]
    assert {error for error, _ in again[:2]} <= {OUT_OF_ORDER_SEQUENCE, DUPLICATE_SEQUENCE}
    assert end == 7


def test_a_gap_is_refused_and_changes_nothing(both: Both, topic: str) -> None:
    def story(raw: Raw) -> list[tuple[int, int]]:
        producer = Identity(raw, topic)
        return [producer.send(0, 2), producer.send(3), producer.send(1, 2), producer.send(2), producer.send(3)]

    told = both.tell(story)
    assert [error for error, _ in told] == [0, OUT_OF_ORDER_SEQUENCE, OUT_OF_ORDER_SEQUENCE, 0, 0]
    assert told[-1] == (0, 3)


def test_a_newer_epoch_fences_the_older(both: Both, topic: str) -> None:
    def story(raw: Raw) -> list[tuple[int, int]]:
        producer = Identity(raw, topic)
        return [
            producer.send(0),
            producer.send(5, epoch=1),
            producer.send(0, epoch=1),
            producer.send(1),
            producer.send(1, epoch=1),
            producer.send(0, epoch=0),
        ]

    told = both.tell(story)
    assert [error for error, _ in told] == [0, OUT_OF_ORDER_SEQUENCE, 0, INVALID_EPOCH, 0, INVALID_EPOCH]


def test_a_producer_may_begin_anywhere_and_wraps_at_the_end(both: Both, topic: str) -> None:
    def story(raw: Raw) -> list[tuple[int, int]]:
        producer = Identity(raw, topic)
        last = (1 << 31) - 1
        return [producer.send(last - 1, 2), producer.send(0), producer.send(1), producer.send(last - 1, 2)]

    told = both.tell(story)
    assert told[:3] == [(0, 0), (0, 2), (0, 3)]


def test_deleting_records_does_not_make_it_forget(both: Both, topic: str) -> None:
    def story(raw: Raw) -> list[tuple[int, int]]:
        producer = Identity(raw, topic)
        before = [producer.send(0), producer.send(1)]
        place = string(topic) + array([struct.pack(">iq", 0, -1)])
        found = raw.call(21, 0, array([place]) + struct.pack(">i", 10_000))
        found.int32()
        assert found.int32() == 1
        return [*before, producer.send(1), producer.send(3), producer.send(2)]

    told = both.tell(story)
    assert told == [(0, 0), (0, 1), (0, 1), (OUT_OF_ORDER_SEQUENCE, -1), (0, 2)]
