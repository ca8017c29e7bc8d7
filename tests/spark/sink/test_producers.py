"""A worker keeps its producers: one producer id and few connections for any number of small tasks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest
from process import Ottla
from spark.copies import content

from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.failure import Failed
from ottla.client.fetching import fetch
from ottla.client.offsets import latest
from ottla.records import batch
from ottla.spark.sink import producers
from ottla.spark.sink.options import SinkOptions
from ottla.spark.sink.producers import producer
from ottla.spark.sink.writing import Writer

if TYPE_CHECKING:
    from collections.abc import Iterator

TASKS: Final = 40


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ottla]:
    with Ottla(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    producers.close()
    yield
    producers.close()


def options(broker: Ottla, topic: str, **given: str) -> SinkOptions:
    there = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    return SinkOptions.load({**there, **{name.replace("_", "."): value for name, value in given.items()}})


def task(broker: Ottla, topic: str, *values: str, **given: str) -> None:
    """What a task does that writes at least once."""
    chosen = options(broker, topic, **given)
    with producer(chosen) as one:
        Writer(one, chosen, frozenset({"value"})).write([pa.record_batch([pa.array(values)], ["value"])])


def writers(broker: Ottla, topic: str) -> set[int]:
    """The producer ids of what is in a topic."""
    found = set()
    with Cluster(broker.bootstrap) as cluster:
        for index in range(cluster.topics([topic])[topic].partitions):
            where = TopicPartition(topic, index)
            for piece in fetch(cluster, where, start=0, stop=latest(cluster, [where])[where]):
                found |= {batch.header(piece.data, entry.position).producer_id for entry in batch.entries(piece.data)}
    return found


def descriptors() -> int:
    return len(list(Path(f"/proc/{os.getpid()}/fd").iterdir()))


def test_many_small_tasks_have_one_producer_id(broker: Ottla) -> None:
    task(broker, "small", "first")
    before = descriptors()
    for number in range(TASKS):
        task(broker, "small", str(number))
        task(broker, "other", str(number))
    assert descriptors() <= before + 1
    assert len(writers(broker, "small") | writers(broker, "other")) == 1
    found = [value for some in content(broker, "small").values() for _, _, value, _ in some]
    assert sorted(map(bytes, filter(None, found))) == sorted([b"first", *(str(n).encode() for n in range(TASKS))])


def test_a_task_that_failed_leaves_no_producer(broker: Ottla) -> None:
    task(broker, "failing", "a")
    with pytest.raises(Failed, match=r"kafka\.max\.request\.size"):
        task(broker, "failing", "x" * 2_000_000)
    task(broker, "failing", "b")
    assert len(writers(broker, "failing")) == 2


def test_what_is_kept_is_bounded(broker: Ottla) -> None:
    before = descriptors()
    for number in range(3 * producers.KEPT_MAX):
        task(broker, "many", "a", kafka_client_id=f"client{number}")
    assert len(producers._kept) == producers.KEPT_MAX
    assert descriptors() <= before + 3 * producers.KEPT_MAX


def test_one_that_was_idle_for_long_is_not_used(broker: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers close idle connections."""
    task(broker, "idle", "a")
    monkeypatch.setattr(producers, "IDLE_S", -1.0)
    task(broker, "idle", "b")
    assert len(writers(broker, "idle")) == 2


def test_a_broker_that_restarts_is_met_again(tmp_path: Path) -> None:
    with Ottla(tmp_path) as broker:
        task(broker, "restarted", "a")
        broker.kill()
        broker.start()
        task(broker, "restarted", "b")
        assert len(writers(broker, "restarted")) == 1
        assert sum(map(len, content(broker, "restarted").values())) == 2


def test_a_topic_made_anew_takes_the_next_sequence(broker: Ottla) -> None:
    from spark.topics import Topics

    task(broker, "anew", "a", "b", "c")
    topics = Topics(broker.bootstrap)
    topics.delete("anew")
    topics.make("anew", 1)
    task(broker, "anew", "d")
    assert [value for _, _, value, _ in content(broker, "anew")[0]] == [b"d"]
