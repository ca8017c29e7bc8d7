"""Rows that cannot be written go to the dead-letter topic with the reason, in the same transaction as the others."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from process import Ottla
from spark.copies import content

from ottla.client.cluster import Cluster
from ottla.client.failure import Failed
from ottla.client.transaction import end, identify
from ottla.spark import dead_letter
from ottla.spark.sink.columns import KINDS
from ottla.spark.sink.options import SinkOptions
from ottla.spark.sink.producers import Producer
from ottla.spark.sink.tally import Tally
from ottla.spark.sink.writing import Writer, now_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.client.transaction import ProducerIdentity

HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
HOUR_MS: Final = 3_600_000
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ottla]:
    with Ottla(tmp_path_factory.mktemp("broker"), settings={"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.fixture
def cluster(broker: Ottla) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap) as connected:
        yield connected


class Topic:
    """A topic with its dead letters."""

    def __init__(self, broker: Ottla, cluster: Cluster, **configs: str) -> None:
        self.broker, self.cluster = broker, cluster
        self.name = f"topic{next(_numbers)}"
        self.dead = f"{self.name}-dead"
        cluster.create(self.name, 2, configs={name.replace("_", "."): one for name, one in configs.items()})
        cluster.create(self.dead, 1)

    def write(self, rows: dict[str, pa.Array], identity: ProducerIdentity | None = None, **options: str) -> int:
        given = {"kafka.bootstrap.servers": "unused:1", "ottla.dead.letter": self.dead}
        given |= {} if "topic" in rows else {"topic": self.name}
        given |= {name.replace("_", "."): one for name, one in options.items()}
        given = {name: one for name, one in given.items() if one}
        loaded = SinkOptions.load(given)
        used = frozenset(KINDS.keys() & rows.keys()) - ({"topic"} if loaded.topic else set())
        writer, tally = Writer(Producer(self.cluster), loaded, used, identity), Tally(loaded, used)
        writer.write(tally.over([pa.record_batch(list(rows.values()), list(rows))]))
        assert bool(tally.digest) == loaded.exactly_once
        return writer.buried

    def written(self) -> list[bytes | None]:
        return [value for some in content(self.broker, self.name).values() for _, _, value, _ in some]

    def letters(self) -> list[tuple[bytes | None, bytes | None, dict[str, bytes | None]]]:
        return [(key, value, dict(named)) for _, key, value, named in content(self.broker, self.dead)[0]]

    def reasons(self) -> list[str]:
        return [(named[dead_letter.REASON] or b"").decode() for _, _, named in self.letters()]


@pytest.fixture
def topic(broker: Ottla, cluster: Cluster) -> Topic:
    return Topic(broker, cluster)


def strings(*values: str | None) -> pa.Array:
    return pa.array(values, pa.string())


def named(*lists: list[tuple[str | None, bytes]] | None) -> pa.Array:
    given = [None if one is None else [{"key": key, "value": value} for key, value in one] for one in lists]
    return pa.array(given, HEADERS)


BAD: Final[list[tuple[dict[str, Any], str]]] = [
    ({"partition": pa.array([2, 0], pa.int32())}, "has partitions 0 to 1 only"),
    ({"partition": pa.array([-1, None], pa.int32())}, "has partitions 0 to 1 only"),
    ({"timestamp": pa.array([-2, -1])}, "is before 1970"),
    ({"timestamp": pa.array([now_ms() + 30 * HOUR_MS, None])}, "is further ahead than topic .* accepts"),
    ({"headers": named([("h", b"1"), (None, b"2")], [])}, "a header without a name"),
    ({"value": strings("x" * 2_000_000, "good")}, "makes a batch of 20000.. bytes"),
    ({"headers": named([("h", b"x" * 2_000_000)], None)}, "makes a batch of 20000.. bytes"),
]


@pytest.mark.parametrize(("columns", "reason"), BAD)
def test_the_bad_row_is_put_aside_and_the_good_one_written(topic: Topic, columns: dict[str, Any], reason: str) -> None:
    rows = {"key": strings("k", "k"), "value": strings("bad", "good"), **columns}
    assert topic.write(rows) == 1
    assert topic.written() == [b"good"]
    ((key, value, headers),) = topic.letters()
    (told,) = topic.reasons()
    assert re.search(reason, told), told
    assert (key, headers[dead_letter.STAGE]) == (b"k", b"write")
    assert headers[dead_letter.TOPIC] == topic.name.encode()
    first = rows["value"][0].as_py().encode()
    assert value is not None
    assert first.startswith(value)
    assert headers.get(dead_letter.SIZE) == (str(len(first)).encode() if value != first else None)


def test_a_topic_that_is_null_or_missing(topic: Topic) -> None:
    names = strings(None, topic.name, "not-there", "no/name", topic.name)
    rows = {"topic": names, "value": strings("a", "b", "c", "d", "e"), "headers": named([("own", b"1")], *[None] * 4)}
    assert topic.write(rows) == 3
    assert sorted(map(bytes, filter(None, topic.written()))) == [b"b", b"e"]
    found = {value: headers for _, value, headers in topic.letters()}
    assert found[b"a"][dead_letter.REASON] == b"its column topic is null"
    assert (found[b"a"]["own"], dead_letter.TOPIC in found[b"a"]) == (b"1", False)
    assert b"does not exist" in (found[b"c"][dead_letter.REASON] or b"")
    assert found[b"d"][dead_letter.TOPIC] == b"no/name"


def test_a_compacted_topic_takes_no_record_without_a_key(broker: Ottla, cluster: Cluster) -> None:
    topic = Topic(broker, cluster, cleanup_policy="compact")
    assert topic.write({"key": strings(None, "k"), "value": strings("a", "b")}) == 1
    assert topic.written() == [b"b"]
    assert topic.write({"value": strings("c")}) == 1
    assert [reason.endswith("accepts no record without a key") for reason in topic.reasons()] == [True, True]


def test_a_large_value_that_compression_makes_small_is_written(topic: Topic) -> None:
    rows = {"value": strings("x" * 2_000_000)}
    assert topic.write(rows, kafka_compression_type="zstd") == 0
    assert len(topic.written()) == 1


def test_dead_letters_are_part_of_the_transaction(topic: Topic, cluster: Cluster) -> None:
    rows = {"value": strings("bad", "good"), "headers": named([(None, b"1")], [])}
    for commit in (False, True):
        identity = identify(cluster, f"letters-{topic.name}", timeout_ms=60_000)
        topic.write(rows, identity, exactly_once="true")
        end(cluster, identity, commit=commit)
        assert (len(topic.written()), len(topic.letters())) == (commit, commit)


def test_without_the_option_the_row_stops_the_write(topic: Topic) -> None:
    with pytest.raises(Failed, match="column partition gives 9, but topic"):
        topic.write({"value": strings("a"), "partition": pa.array([9], pa.int32())}, ottla_dead_letter="")


def test_a_missing_topic_of_the_option_is_nobodys_dead_letter(topic: Topic) -> None:
    """Every row would be a dead letter: the mistake is in the query, not in its rows."""
    with pytest.raises(Failed, match="topic not-there does not exist"):
        topic.write({"value": strings("a")}, topic="not-there")
    assert topic.letters() == []


def test_a_missing_dead_letter_topic_is_told(topic: Topic) -> None:
    with pytest.raises(Failed, match="topic gone does not exist"):
        topic.write({"value": strings("a"), "partition": pa.array([9], pa.int32())}, ottla_dead_letter="gone")
