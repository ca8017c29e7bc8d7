"""The rows of a task in topics: every column, partitions as Kafka's clients choose them, and one-sentence errors."""

from __future__ import annotations

import datetime
import itertools
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from process import Ottla
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)
from spark.copies import codecs, content

from ottla.client.cluster import Cluster
from ottla.client.failure import Failed
from ottla.client.transaction import end, identify
from ottla.spark.sink import writing
from ottla.spark.sink.columns import KINDS, columns
from ottla.spark.sink.options import CODECS, SinkOptions
from ottla.spark.sink.producers import Producer as Kept
from ottla.spark.sink.tally import Tally, moments
from ottla.spark.sink.writing import Writer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.client.transaction import ProducerIdentity

PARTITIONS: Final = 5
HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ottla]:
    settings = {"auto.create.topics.enable": "false", "transaction.max.timeout.ms": "1000000"}
    with Ottla(tmp_path_factory.mktemp("broker"), settings=settings) as running:
        yield running


@pytest.fixture
def cluster(broker: Ottla) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap) as connected:
        yield connected


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"written{next(_numbers)}"
    cluster.create(name, PARTITIONS)
    return name


def write(
    cluster: Cluster,
    *batches: dict[str, pa.Array],
    identity: ProducerIdentity | None = None,
    zone: str = "UTC",
    **options: str,
) -> int:
    given = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        **{name.replace("_", "."): one for name, one in options.items()},
    }
    made = [pa.record_batch(list(one.values()), list(one)) for one in batches]
    used = frozenset(KINDS.keys() & made[0].schema.names) - ({"topic"} if "topic" in given else set())
    loaded = SinkOptions.load(given)
    tally = Tally(loaded, used, zone)
    Writer(Kept(cluster), loaded, used, identity).write(tally.over(made))
    return tally.rows


def strings(*values: str | None) -> pa.Array:
    return pa.array(values, pa.string())


def test_every_column(broker: Ottla, cluster: Cluster, topic: str) -> None:
    moment = datetime.datetime(2026, 5, 1, 12, tzinfo=datetime.UTC)
    moment_ms = int(moment.timestamp() * 1000)
    rows = {
        "key": pa.array([b"a", None, b"c"], pa.binary()),
        "value": strings("one", None, "three"),
        "headers": pa.array([[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None, []], HEADERS),
        "partition": pa.array([2, 2, 2], pa.int32()),
        "timestamp": pa.array([moment, moment, None], pa.timestamp("us", "UTC")),
        "offset": pa.array([7, 8, 9]),  # as a frame that was read has it; not written
    }
    before = time_ms()
    assert write(cluster, rows, topic=topic) == 3
    first, second, third = content(broker, topic)[2]
    assert first == (moment_ms, b"a", b"one", (("h", b"1"), ("h", None)))
    assert second == (moment_ms, None, None, ())
    assert third[1:] == (b"c", b"three", ())
    assert before <= third[0] <= time_ms()


def test_a_record_may_have_no_timestamp(broker: Ottla, cluster: Cluster, topic: str) -> None:
    """Like the copy of a record that was produced without one."""
    times = pa.array([-1, 5], pa.int64())
    write(
        cluster,
        {"value": strings("a", "b"), "timestamp": times, "partition": pa.array([0, 0], pa.int32())},
        topic=topic,
    )
    assert [moment for moment, _, _, _ in content(broker, topic)[0]] == [-1, 5]


def test_times_without_a_zone_are_those_of_the_session(broker: Ottla, cluster: Cluster, topic: str) -> None:
    noon = datetime.datetime(2026, 5, 1, 12)
    rows = {"value": strings("a"), "timestamp": pa.array([noon], pa.timestamp("us"))}
    write(cluster, rows, topic=topic, zone="Asia/Tokyo")
    (found,) = [moment for some in content(broker, topic).values() for moment, _, _, _ in some]
    assert datetime.datetime.fromtimestamp(found / 1000, datetime.UTC).hour == 3


@pytest.mark.parametrize(
    ("time", "moment"),
    [
        ("2026-03-29T01:30", "2026-03-29T00:30"),
        ("2026-03-29T02:30", "2026-03-29T01:30"),  # not on any clock: the hour is left out
        ("2026-10-25T02:30", "2026-10-25T00:30"),  # twice on every clock
    ],
)
def test_times_when_clocks_change(time: str, moment: str) -> None:
    """As Spark casts them: java.time's LocalDateTime.atZone."""
    times = pa.array([datetime.datetime.fromisoformat(time)], pa.timestamp("us"))
    (found,) = moments(times, "Europe/Berlin").cast(pa.int64()).to_pylist()
    assert found == datetime.datetime.fromisoformat(f"{moment}+00:00").timestamp() * 1_000_000


def test_an_unknown_zone_is_told() -> None:
    with pytest.raises(Failed, match=r"time zone Nowhere/At_all is not known here.*cast the column timestamp"):
        moments(pa.array([datetime.datetime(2026, 1, 1)], pa.timestamp("us")), "Nowhere/At_all")


def test_keys_go_where_kafkas_clients_send_them(broker: Ottla, cluster: Cluster, topic: str) -> None:
    keys = [f"key {number}" for number in range(300)]
    write(cluster, {"key": strings(*keys), "value": strings(*keys)}, topic=topic)
    theirs = f"{topic}-theirs"
    cluster.create(theirs, PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(theirs, key, key)
    assert producer.flush(30) == 0
    assert values(broker, topic) == values(broker, theirs)


def test_rows_without_a_key_are_spread_and_none_is_lost(
    broker: Ottla, cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "GATHER_BYTES", 20_000)
    rows = [[f"{batch} {number}" for number in range(1000)] for batch in range(12)]
    assert write(cluster, *({"value": strings(*some)} for some in rows), topic=topic, kafka_batch_size="2000") == 12_000
    found = values(broker, topic)
    assert all(found.values()), "each partition has some"
    written = [value.decode() for some in found.values() for value in some]
    assert sorted(written) == sorted(itertools.chain(*rows))
    place = {row: number for number, row in enumerate(itertools.chain(*rows))}
    for some in found.values():
        assert some == sorted(some, key=lambda value: place[value.decode()]), "in the order of the rows"


def test_a_column_says_the_topic(broker: Ottla, cluster: Cluster) -> None:
    topics = [f"several{next(_numbers)}" for _ in range(3)]
    for name in topics:
        cluster.create(name, 2)
    chosen = [topics[number * number % 3] for number in range(100)]
    keys = [str(number % 4) for number in range(100)]
    rows = {"topic": strings(*chosen), "key": strings(*keys), "value": strings(*map(str, range(100)))}
    assert write(cluster, rows, rows) == 200
    for name in topics:
        expected = [str(number).encode() for number in range(100) if chosen[number] == name]
        found = values(broker, name)
        assert sorted(itertools.chain(*found.values())) == sorted(expected * 2)
        for some in found.values():
            half = [int(value) for value in some[: len(some) // 2]]
            assert half == sorted(half)
    write(cluster, rows, topic=topics[0])
    assert sum(map(len, values(broker, topics[1]).values())) == 2 * chosen.count(topics[1]), "the option wins"


@pytest.mark.parametrize("codec", CODECS)
def test_codecs(broker: Ottla, cluster: Cluster, topic: str, codec: str) -> None:
    level = {f"kafka.compression.{codec}.level": "3"} if codec in ("gzip", "lz4", "zstd") else {}
    rows = {"value": strings(*("x" * number for number in range(500)))}
    write(cluster, rows, topic=topic, **{"kafka.compression.type": codec, **level})
    assert {one for some in codecs(broker, topic) for one in some} == {CODECS[codec]}
    assert sum(map(len, values(broker, topic).values())) == 500


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_acknowledgements(broker: Ottla, cluster: Cluster, topic: str, acks: str) -> None:
    write(cluster, {"value": strings(*map(str, range(100)))}, topic=topic, kafka_acks=acks)
    reached = lambda: sum(map(len, values(broker, topic).values())) == 100  # noqa: E731
    assert reached() or any(reached() for _ in range(50)), "acks=0 says nothing, and they are there a little later"


def test_batches_are_no_larger_than_the_topic_takes(broker: Ottla, cluster: Cluster) -> None:
    name = f"small{next(_numbers)}"
    cluster.create(name, 1, configs={"max.message.bytes": "3000"})
    write(cluster, {"value": strings(*("x" * 100 for _ in range(500)))}, topic=name)
    assert len(values(broker, name)[0]) == 500
    with pytest.raises(Failed, match=r"max\.message\.bytes"):
        write(cluster, {"value": strings("x" * 5000)}, topic=name)
    assert len(values(broker, name)[0]) == 500


def test_batches_are_no_larger_than_a_request(broker: Ottla, cluster: Cluster, topic: str) -> None:
    rows = {"value": strings(*("x" * 100 for _ in range(500)))}
    write(cluster, rows, topic=topic, kafka_batch_size="100000", kafka_max_request_size="3000")
    assert sum(map(len, values(broker, topic).values())) == 500


def by_length(rows: pa.RecordBatch, partitions: int) -> pa.Array:
    lengths = [len(value) % partitions if value is not None else None for value in rows.column("value").to_pylist()]
    return pa.array(lengths, pa.int32())


def out_of_range(rows: pa.RecordBatch, partitions: int) -> pa.Array:
    return pa.array([partitions] * rows.num_rows, pa.int32())


def no_numbers(rows: pa.RecordBatch, partitions: int) -> list[int]:
    return [0]


def test_a_partitioner_of_ones_own(broker: Ottla, cluster: Cluster, topic: str) -> None:
    rows = {"value": strings(*("x" * number for number in range(20)))}
    write(cluster, rows, rows, topic=topic, ottla_partitioner=f"{__name__}:by_length")
    for index, some in values(broker, topic).items():
        assert {len(value) % PARTITIONS for value in some} == {index}


def test_a_partitioner_chooses_where_the_column_does_not(broker: Ottla, cluster: Cluster, topic: str) -> None:
    lengths = [number if number % PARTITIONS else number + 1 for number in range(20)]
    column = pa.array([0 if index % 2 else None for index in range(20)], pa.int32())
    rows = {"value": strings(*("x" * length for length in lengths)), "partition": column}
    write(cluster, rows, rows, topic=topic, ottla_partitioner=f"{__name__}:by_length")
    found = {index: sorted(map(len, some)) for index, some in values(broker, topic).items()}
    assert found.pop(0) == sorted(2 * lengths[1::2])
    for index, some in found.items():
        assert some == sorted(length for length in 2 * lengths[::2] if length % PARTITIONS == index)


ROW: Final = {"value": strings("v")}
WRONG: Final[list[tuple[dict[str, pa.Array], dict[str, str], str]]] = [
    ({**ROW, "topic": strings(None)}, {}, "a row has no topic: its column topic is null; fill it, or set option topic"),
    (ROW, {"topic": "nowhere"}, "topic nowhere does not exist, and the cluster does not create topics by itself"),
    (
        {**ROW, "partition": pa.array([9], pa.int32())},
        {},
        "column partition gives 9, but topic .* has partitions 0 to 4",
    ),
    (
        {**ROW, "partition": pa.array([-1], pa.int32())},
        {},
        "column partition gives -1, but topic .*: give one",
    ),
    (
        {"value": strings("x" * 2000)},
        {"kafka_max_request_size": "1000"},
        r"kafka\.max\.request\.size is 1000: raise it",
    ),
    ({**ROW, "headers": pa.array([[{"key": None, "value": b""}]], HEADERS)}, {}, "a row cannot be written to topic"),
    (ROW, {"ottla_partitioner": "nowhere:f"}, "ottla.partitioner nowhere:f cannot be found .*: write module:function"),
    (ROW, {"ottla_partitioner": f"{__name__}:ROW"}, "is not a function"),
    (ROW, {"ottla_partitioner": f"{__name__}:no_numbers"}, "did not return an int32 array of 1 numbers"),
    (
        ROW,
        {"ottla_partitioner": f"{__name__}:out_of_range"},
        "out_of_range gives 5, but topic .* has partitions 0",
    ),
]


@pytest.mark.parametrize(("rows", "options", "sentence"), WRONG)
def test_what_cannot_be_written(
    broker: Ottla, cluster: Cluster, topic: str, rows: dict[str, pa.Array], options: dict[str, str], sentence: str
) -> None:
    given = options if "topic" in rows else {"topic": topic, **options}
    with pytest.raises(Failed, match=sentence):
        write(cluster, rows, **given)
    write(cluster, ROW, topic=topic)
    assert sum(map(len, values(broker, topic).values())) == 1, "and afterwards everything works"


def test_in_a_transaction_nothing_shows_before_its_end(broker: Ottla, cluster: Cluster, topic: str) -> None:
    identity = identify(cluster, "writer", timeout_ms=60_000)
    write(cluster, {"value": strings(*map(str, range(100)))}, identity=identity, topic=topic, kafka_batch_size="300")
    end(cluster, identity, commit=True)
    assert sum(map(len, values(broker, topic).values())) == 100


def test_no_rows_ask_nobody() -> None:
    options = SinkOptions.load({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"})
    tally = Tally(options, frozenset({"value"}))
    empty = pa.record_batch([pa.array([], pa.string())], ["value"])
    assert list(tally.over([empty])) == []
    Writer(Kept(None), options, frozenset({"value"})).write(tally.over([empty]))  # type: ignore[arg-type]


TEXT: Final = StringType()


def headers_of(value: DataType) -> DataType:
    return ArrayType(StructType().add("key", TEXT).add("value", value))


def plan(**kinds: DataType) -> StructType:
    made = StructType()
    for name, kind in kinds.items():
        made.add(name, kind)
    return made


PLANS: Final[list[tuple[dict[str, DataType], str | None, str]]] = [
    ({"id": LongType()}, "t", "there is no column value, only id: name the one to write with selectExpr"),
    ({"value": TEXT}, None, "no topic to write to: set option topic, or add a column topic"),
    ({"value": DoubleType()}, "t", "column value is double, but must be string or binary: cast it to string"),
    ({"value": TEXT, "key": IntegerType()}, "t", "column key is int, but must be string or binary"),
    ({"value": TEXT, "topic": IntegerType()}, None, "column topic is int, but must be string"),
    (
        {"value": TEXT, "partition": LongType()},
        "t",
        "column partition is bigint, but must be int: cast it to int",
    ),
    ({"value": TEXT, "headers": MapType(TEXT, BinaryType())}, "t", "column headers is map<string,binary>"),
    ({"value": TEXT, "headers": headers_of(TEXT)}, "t", "must be array<struct<key:string,value:binary>>"),
    ({"value": TEXT, "timestamp": TEXT}, "t", "column timestamp is string, .* or drop it"),
]


@pytest.mark.parametrize(("kinds", "option", "sentence"), PLANS)
def test_plans_that_cannot_be_written(kinds: dict[str, DataType], option: str | None, sentence: str) -> None:
    with pytest.raises(Failed, match=sentence):
        columns(plan(**kinds), option)


def test_plans_that_can() -> None:
    kinds = {
        "key": BinaryType(),
        "value": TEXT,
        "topic": TEXT,
        "partition": IntegerType(),
        "timestamp": TimestampType(),
    }
    everything = plan(**kinds, headers=headers_of(BinaryType()), offset=LongType())
    assert columns(everything, None) == KINDS.keys()
    assert columns(plan(value=TEXT, topic=IntegerType()), "t") == {"value"}


def values(broker: Ottla, topic: str) -> dict[int, list[Any]]:
    return {index: [value for _, _, value, _ in some] for index, some in content(broker, topic).items()}


def time_ms() -> int:
    return int(datetime.datetime.now(datetime.UTC).timestamp() * 1000)
