"""Exchanged data folders: Apache Kafka's tools accept ours, Apache Kafka starts on ours, and Ottla starts on Kafka's.

Both serve the same from one folder: the same batches byte for byte, the same offsets, and the same state of idempotent
producers.
"""

from __future__ import annotations

import random
import shutil
import time
from typing import TYPE_CHECKING, NamedTuple

import judge
import pytest
from compat.clients import CODECS, Record
from compat.confluent import Confluent
from compat.folders import Content, content, dumped, meta, znodes
from compat.raw import Raw, batch, create_topic, fetch, init_producer, list_offset, produce
from confluent_kafka import Consumer, Producer, TopicPartition
from durability.load import Load, Writer, prepare
from process import Ottla
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

OUT_OF_ORDER_SEQUENCE = 45
NOW = int(time.time()) * 1000


@pytest.mark.xdist_group("dump")
class TestKafkasToolsAcceptOurFolders:
    """DumpLogSegments with deep iteration, and its index sanity checks, find nothing wrong."""

    def test_after_producing_and_rolling(self, tmp_path: Path) -> None:
        with Ottla(tmp_path, settings={"log.index.interval.bytes": "200"}) as broker:
            client = Confluent(broker.bootstrap)
            client.create("t", 1, {"segment.bytes": "20000"})
            records = [Record(NOW + n, b"key %d" % n, b"value " * 30, (("h", b"%d" % n),)) for n in range(50)]
            for _ in range(3):
                for codec in CODECS:
                    client.produce("t", records, codec=codec, idempotent=True)
            client.close()
            assert broker.stop() == 0
        assert len(list((broker.log_dir / "t-0").glob("*.log"))) > 1
        found = dumped(broker.log_dir / "t-0")
        assert found.records == 3 * len(CODECS) * 50
        assert found.entries >= found.batches // 2, "an index entry for about every batch at this interval"
        assert found.producers == len(CODECS), "one idempotent producer for each codec"

    def test_after_compaction(self, tmp_path: Path) -> None:
        settings = {"log.cleaner.backoff.ms": "50", "log.index.interval.bytes": "200"}
        with Ottla(tmp_path, settings=settings) as broker, Raw(broker.port) as raw:
            configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "4096"}
            assert create_topic(raw, "t", 1, configs) == 0
            for n in range(200):
                keys = [b"key %d" % (n % 10), b"key %d" % (n * 7 % 10)]
                assert produce(raw, "t", batch([b"%d" % n * 20] * 2, keys=keys, timestamp=NOW)).error == 0
            wait_until(lambda: sum(part.count for part in content(broker.port, "t").batches) <= 200)
            assert list_offset(raw, "t", -1) == 400
            assert broker.stop() == 0
        found = dumped(broker.log_dir / "t-0", holes=True)
        assert 10 <= found.records <= 200

    def test_after_a_crash(self, tmp_path: Path) -> None:
        load = Load([Writer(f"w{n}", 0, random.Random(n), acks=1, idempotent=n == 0) for n in range(2)])
        with Ottla(tmp_path, settings={"log.index.interval.bytes": "200"}) as broker:
            prepare(broker.port, 1, {"segment.bytes": "65536"})
            for _ in range(3):
                load.start(broker.port)
                load.under_way(100)
                broker.kill()
                load.stop()
                with max((broker.log_dir / "load-0").glob("*.log")).open("ab") as torn:
                    torn.write(batch([b"never acknowledged"])[:50])
                for index in (broker.log_dir / "load-0").glob("*.index"):
                    index.unlink()
                    break
                broker.start()
            served = content(broker.port, "load")
            assert broker.stop() == 0
        found = dumped(broker.log_dir / "load-0")
        assert found.records == served.records == served.end
        assert found.producers == 1


def fill(broker: Ottla | judge.Kafka, *, segment_bytes: str = "20000") -> None:
    """Topics with every codec, several partitions and segments, deleted records, and topics for what comes later."""
    client = Confluent(broker.bootstrap)
    for topic in ("producer", "transactions"):
        client.create(topic)
    client.create("codecs", 3, {"segment.bytes": segment_bytes, "retention.ms": "-1"})
    records = [Record(NOW + n, b"k%d" % n, b"value " * 40, (("h", None),)) for n in range(60)]
    for partition in range(3):
        for codec in CODECS:
            client.produce("codecs", records, codec=codec, partition=partition)
    client.trim("codecs", 100, partition=2)
    client.create("compact", 1, {"cleanup.policy": "compact"})
    client.produce("compact", records, idempotent=True)
    client.create("empty", 2)
    client.close()


def transact(bootstrap: str) -> None:
    """Three transactions in a topic of their own: committed, aborted, committed."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx", "linger.ms": 0})
    producer.init_transactions(60)
    for n, end in enumerate((producer.commit_transaction, producer.abort_transaction, producer.commit_transaction)):
        producer.begin_transaction()
        for value in (b"a", b"b"):
            producer.produce("transactions", value + b"%d" % n, partition=0)
        producer.flush(30)
        end(30)


PLACES = [("codecs", 0), ("codecs", 1), ("codecs", 2), ("compact", 0), ("empty", 0), ("empty", 1)]


def same_after(port: int, before: dict[tuple[str, int], Content]) -> None:
    after = {place: content(port, *place) for place in before}
    for place, found in before.items():
        assert after[place] == found, f"{place} changed hands and changed"


@pytest.mark.xdist_group("kafka-reads-ours")
@pytest.mark.timeout(600, func_only=True)
def test_apache_kafka_starts_on_a_folder_that_ottla_wrote(tmp_path: Path) -> None:
    ours = Ottla(tmp_path, settings={"log.index.interval.bytes": "500"})
    with ours:
        fill(ours)
        with Raw(ours.port) as raw:
            producer, epoch = init_producer(raw)
            sent = [batch([b"%d" % n], producer_id=producer, epoch=epoch, sequence=n, timestamp=NOW) for n in range(7)]
            assert [produce(raw, "producer", data).base for data in sent] == list(range(7))
            found = fetch(raw, "codecs", 0)
        before = {place: content(ours.port, *place) for place in [*PLACES, ("producer", 0)]}
        time_before = offset_at(ours.port, "codecs", NOW + 30)
        assert ours.stop() == 0
    assert found.error == 0
    node_id = int(meta(ours.log_dir)["broker.id"])
    settings = {"log.dirs": str(ours.log_dir)}
    kafka = judge.Kafka(tmp_path / "kafka", version=judge.ZOOKEEPER, node_id=node_id, settings=settings)
    try:
        kafka.start_zookeeper()
        words = znodes(ours.log_dir, node_id)
        judge.java(judge.SOURCES / "Znodes.java", kafka.zookeeper, *words, version=judge.ZOOKEEPER)
        kafka.start()
        with Raw(kafka.port) as raw:
            wait_until(lambda: fetch(raw, "producer", 0).error == 0)  # the new controller has made it leader
        same_after(kafka.port, before)
        assert offset_at(kafka.port, "codecs", NOW + 30) == time_before
        with Raw(kafka.port) as raw:
            again = produce(raw, "producer", sent[-1])
            assert (again.error, again.base) == (0, 6), "Kafka remembers the producer: a duplicate, not a new record"
            more = batch([b"7"], producer_id=producer, epoch=epoch, sequence=7, timestamp=NOW)
            assert produce(raw, "producer", more).base == 7
            hole = batch([b"9"], producer_id=producer, epoch=epoch, sequence=9, timestamp=NOW)
            assert produce(raw, "producer", hole).error == OUT_OF_ORDER_SEQUENCE
        assert not list(ours.log_dir.glob("*-stray")), "Kafka took a folder for a stray one"
        kafka.stop()
    finally:
        kafka.close()
    # And back again: what Kafka added is there.
    with ours:
        grown = content(ours.port, "producer")
        assert [value for part in grown.batches for value in part.values()] == [b"%d" % n for n in range(8)]
        before.pop(("producer", 0))
        same_after(ours.port, before)


def offset_at(port: int, topic: str, timestamp: int) -> int:
    with Raw(port) as raw:
        return list_offset(raw, topic, timestamp)


class Legacy(NamedTuple):
    """What an Apache Kafka served, and its folder after it stopped."""

    stopped: Path
    killed: Path
    contents: dict[tuple[str, int], Content]
    time_offset: int
    sent: list[bytes]
    producer: int
    epoch: int
    cluster: str


@pytest.fixture(scope="module", params=[judge.NEWEST, judge.ZOOKEEPER])
def legacy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Legacy:
    folder = tmp_path_factory.mktemp("kafka")
    settings = {"log.index.interval.bytes": "500", "log.index.size.max.bytes": "65536"}
    with judge.Kafka(folder, version=request.param, settings=settings) as kafka:
        # Apache Kafka 4 has a least size for segments.
        fill(kafka, segment_bytes="1048576" if request.param == judge.NEWEST else "20000")
        transact(kafka.bootstrap)
        with Raw(kafka.port) as raw:
            producer, epoch = init_producer(raw)
            sent = [batch([b"%d" % n], producer_id=producer, epoch=epoch, sequence=n, timestamp=NOW) for n in range(7)]
            assert [produce(raw, "producer", data).base for data in sent] == list(range(7))
        places = [*PLACES, ("transactions", 0), ("producer", 0)]
        contents = {place: content(kafka.port, *place) for place in places}
        time_offset = offset_at(kafka.port, "codecs", NOW + 30)
        # Nothing is being written: the files now are the files after kill -9. The deletion of records is not among
        # them, because Kafka writes the start of logs down once a minute and when it stops.
        shutil.copytree(kafka.log_dir, folder / "killed", ignore=shutil.ignore_patterns(".lock"))
        kafka.stop()
    return Legacy(
        kafka.log_dir,
        folder / "killed",
        contents,
        time_offset,
        sent,
        producer,
        epoch,
        meta(kafka.log_dir)["cluster.id"],
    )


@pytest.mark.xdist_group("we-read-kafkas")
@pytest.mark.timeout(600, func_only=True)
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_ottla_starts_on_a_folder_that_apache_kafka_wrote(legacy: Legacy, clean: bool, tmp_path: Path) -> None:
    folder = legacy.stopped if clean else legacy.killed
    assert (folder / ".kafka_cleanshutdown").exists() == clean
    with Ottla(tmp_path, settings={"log.dirs": str(folder)}) as ours:
        contents = dict(legacy.contents)
        if not clean:
            trimmed, whole = contents.pop(("codecs", 2)), content(ours.port, "codecs", 2)
            assert (whole.start, whole.end) == (0, trimmed.end)
            assert whole.batches[-len(trimmed.batches) :] == trimmed.batches
        same_after(ours.port, contents)
        assert offset_at(ours.port, "codecs", NOW + 30) == legacy.time_offset
        assert committed(ours.bootstrap) == [b"a0", b"b0", b"a2", b"b2"], "aborted records stay hidden"
        producer, epoch = legacy.producer, legacy.epoch
        with Raw(ours.port) as raw:
            again = produce(raw, "producer", legacy.sent[-1])
            assert (again.error, again.base) == (0, 6), "the producer is remembered: a duplicate, not a new record"
            more = batch([b"7"], producer_id=producer, epoch=epoch, sequence=7, timestamp=NOW)
            assert produce(raw, "producer", more).base == 7
            hole = batch([b"9"], producer_id=producer, epoch=epoch, sequence=9, timestamp=NOW)
            assert produce(raw, "producer", hole).error == OUT_OF_ORDER_SEQUENCE
            assert init_producer(raw)[0] > producer, "an id that Kafka gave away is not given again"
        assert meta(folder)["cluster.id"] == legacy.cluster, "the cluster keeps its name"
        ours.kill()
        ours.start()
        del contents["producer", 0]
        same_after(ours.port, contents)


def committed(bootstrap: str) -> list[bytes | None]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "isolation.level": "read_committed", "log_level": 2,
                "enable.partition.eof": True}  # fmt: skip
    consumer = Consumer(settings)
    consumer.assign([TopicPartition("transactions", 0, 0)])
    values = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        values.append(message.value())
    consumer.close()
    return values
