"""The mirror pipeline on real Spark between real clusters, compared record by record."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import judge
import pytest
from compat.clients import Record
from compat.confluent import Confluent
from confluent_kafka import Consumer
from process import Ottla
from spark import copies, filling
from spark.launching import OTTLA, Launched, finished
from waiting import wait_until

from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.failure import Failed
from ottla.client.groups import read_offsets
from ottla.spark.pipelines.mirror import loop
from ottla.spark.pipelines.mirror.endpoint import Endpoint
from ottla.spark.pipelines.mirror.mirroring import KEPT_S, CopyOutcome, Job
from ottla.spark.pipelines.mirror.pipeline import PIPELINE
from ottla.spark.pipelines.mirror.provenance import MirrorRegistry, Provenance, refusal
from ottla.spark.pipelines.mirror.roster import Mirrored
from ottla.spark.pipelines.mirror.translation import MirrorPosition, OffsetMap
from ottla.spark.runner import Run
from ottla.tools import start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    Broker = Ottla | judge.Kafka


@pytest.fixture(scope="module")
def east(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ottla]:
    with Ottla(tmp_path_factory.mktemp("east")) as running:
        yield running


class Mirrors:
    """Mirrors between two brokers, each run to its end."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder

    def run(self, source: Broker, target: Broker, **options: str) -> int:
        """How many records were copied."""
        run = self.prepared(source, target, once=True, **options)
        PIPELINE.run(run)
        return sum(one["numInputRows"] for one in run.queries[0].recentProgress)

    def prepared(self, source: Broker, target: Broker, *, once: bool, **options: str) -> Run:
        given = {"to": target.bootstrap, **{name.replace("_", "."): value for name, value in options.items()}}
        return Run(
            pipeline=PIPELINE,
            bootstrap=source.bootstrap,
            folder=self.folder,
            once=once,
            options=given,
            session=self.spark,
        )


@pytest.fixture
def mirrors(spark: SparkSession, tmp_path: Path) -> Mirrors:
    return Mirrors(spark, tmp_path)


def test_every_run_renews_the_positions_of_idle_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """With --once from cron no run lasts until a position is old: the first check of each run must renew it."""
    where, now = TopicPartition("t", 0), 1_000_000.0
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(loop.offsets, "earliest", lambda cluster, wheres: dict.fromkeys(wheres, 0))
    monkeypatch.setattr(loop.offsets, "latest", lambda cluster, wheres, committed: dict.fromkeys(wheres, 5))
    host = SimpleNamespace(once=False)
    job = Job("mirror", Endpoint("nowhere:1"), Endpoint("nowhere:2"), "c")
    here = loop.Mirror(host, job, None, None, None, None)  # type: ignore[arg-type]
    here._topics = [Mirrored("t", "t", "id", 1, Provenance("mirror", "t", ("c",)), 1 << 20)]

    def planned() -> list[bool]:
        return [part.refresh for part in here._plan()[0]]

    assert planned() == [True], "nobody knows how old it is"
    here._take([CopyOutcome(where, where, MirrorPosition(5, "c", "id", OffsetMap()))])
    assert planned() == []
    now += KEPT_S + 1
    assert planned() == [True]


@pytest.mark.parametrize("way", ["ottla-ottla", "kafka-ottla", "ottla-kafka"])
def test_every_record_arrives_once_and_unchanged(
    mirrors: Mirrors, ottla: Ottla, east: Ottla, request: pytest.FixtureRequest, way: str, fresh: Callable[[str], str]
) -> None:
    """All codecs, nulls, headers, times out of order; gaps of compaction; aborted transactions."""
    kafka = request.getfixturevalue("kafka") if "kafka" in way else None
    source, target = {"ottla-ottla": (ottla, east), "kafka-ottla": (kafka, east), "ottla-kafka": (ottla, kafka)}[way]
    plain, thin, transactions = (fresh(f"{way}-{kind}") for kind in ("plain", "thin", "transactions"))
    filling.plain(source, plain)
    filling.compacted(source, thin)
    _, visible = filling.transactional(source, transactions)
    assert mirrors.run(source, target, topics=f"{way}-.*", name=way) > visible
    for topic in (plain, thin, transactions):
        assert copies.content(target, topic) == copies.content(source, topic), topic
    assert sum(map(len, copies.content(target, transactions).values())) == visible
    assert copies.codecs(target, plain) == copies.codecs(source, plain)
    options = Confluent(target.bootstrap).configs(plain)
    assert (options["retention.ms"], options["compression.type"]) == ("-1", "producer")
    assert mirrors.run(source, target, topics=f"{way}-.*", name=way) == 0, "nothing is new"
    lag_is_visible(source, way, plain)


def test_spark_goes_on_where_the_command_stopped(
    mirrors: Mirrors, ottla: Ottla, east: Ottla, fresh: Callable[[str], str]
) -> None:
    topic = fresh("handed-over")
    filling.transactional(ottla, topic)
    where = ["--from", ottla.bootstrap, "--to", east.bootstrap]
    assert start.tools(["mirror", *where, "--topics", topic, "--name", topic, "--groups", "", "--once"]) == 0
    Confluent(ottla.bootstrap).produce(topic, [Record(filling.NOW_MS, None, b"later")])
    assert mirrors.run(ottla, east, topics=topic, name=topic) == 1
    assert copies.content(east, topic) == copies.content(ottla, topic)


def lag_is_visible(source: Broker, mirror: str, topic: str) -> None:
    """With Apache Kafka's tool."""
    command = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    output = judge.tool(
        command, "--bootstrap-server", source.bootstrap, "--describe", "--group", f"ottla-mirrored-{mirror}"
    )
    lines = [line.split() for line in output.out.splitlines() if f" {topic} " in line]
    assert len(lines) == filling.PARTITIONS, output
    assert all(line[3] == line[4] and line[5] == "0" for line in lines), output.out


def test_messages_of_the_old_formats(mirrors: Mirrors, east: Ottla, tmp_path: Path) -> None:
    with Ottla(tmp_path / "old") as old:
        count = filling.legacy(old, "old-messages")
        assert mirrors.run(old, east, topics="old-messages", name="old") == count
        assert copies.content(east, "old-messages") == copies.content(old, "old-messages")


def test_groups_go_on_at_the_target(mirrors: Mirrors, ottla: Ottla, east: Ottla, fresh: Callable[[str], str]) -> None:
    """A consumer that moves to the target misses nothing, and reads no record twice before the last copied piece."""
    topic, group = fresh("changing"), fresh("readers")
    filling.transactional(ottla, topic)  # so that offsets differ
    mirrors.run(ottla, east, topics=topic, name=topic)
    client = Confluent(ottla.bootstrap)
    client.produce(topic, [Record(filling.NOW_MS, None, b"later %d" % n) for n in range(40)], partition=1)
    held = copies.placed(ottla, topic)
    stands = {0: held[0][len(held[0]) // 2][0], 1: held[1][-10][0]}
    consumer = consuming(ottla, group)
    consumer.commit(offsets=[place(topic, index, offset) for index, offset in stands.items()], asynchronous=False)
    consumer.close()
    mirrors.run(ottla, east, topics=topic, name=topic, groups=f"{group}|others")
    expected = {index: [one for offset, one in some if offset >= stands[index]] for index, some in held.items()}
    assert {index: continued(east, group, topic, index) for index in stands} == expected
    # What it commits at the target is its own from then on.
    consumer = consuming(east, group)
    consumer.commit(offsets=[place(topic, 1, 1)], asynchronous=False)
    consumer.close()
    mirrors.run(ottla, east, topics=topic, name=topic)
    with Cluster(east.bootstrap) as cluster:
        assert read_offsets(cluster, group)[TopicPartition(topic, 1)].offset == 1


def test_a_group_with_members_at_the_target_is_left_alone(
    mirrors: Mirrors, ottla: Ottla, east: Ottla, fresh: Callable[[str], str]
) -> None:
    topic, group = fresh("taken"), fresh("active")
    filling.create(ottla, topic, 1)
    Confluent(ottla.bootstrap).produce(topic, [Record(filling.NOW_MS, None, b"x")] * 5)
    consumer = consuming(ottla, group)
    consumer.commit(offsets=[place(topic, 0, 4)], asynchronous=False)
    consumer.close()
    mirrors.run(ottla, east, topics=topic, name=topic, groups="")
    member = consuming(east, group)
    member.subscribe([topic])
    wait_until(lambda: member.consume(1, 0.1) and bool(member.assignment()), "the member to have its partition")
    mirrors.run(ottla, east, topics=topic, name=topic)
    with Cluster(east.bootstrap) as cluster:
        assert not read_offsets(cluster, group)
    member.close()
    mirrors.run(ottla, east, topics=topic, name=topic)
    with Cluster(east.bootstrap) as cluster:
        assert read_offsets(cluster, group)[TopicPartition(topic, 0)].offset == 4


def test_topics_and_partitions_are_picked_up_while_it_runs(
    mirrors: Mirrors, ottla: Ottla, east: Ottla, fresh: Callable[[str], str]
) -> None:
    family = fresh("growing")
    first, second = f"{family}-first", f"{family}-second"
    filling.create(ottla, first, 1)
    client = Confluent(ottla.bootstrap)
    client.produce(first, [Record(filling.NOW_MS, b"k", b"one")])
    run = mirrors.prepared(
        ottla, east, once=False, topics=f"{family}-.*", name=family, prefix="west.", topics_every="100 ms"
    )
    failures: list[BaseException] = []

    def work() -> None:
        try:
            PIPELINE.run(run)
        except BaseException as error:
            failures.append(error)
            raise

    thread = threading.Thread(target=work)
    thread.start()
    try:
        arrives(east, f"west.{first}", 1, failures)
        client.grow(first, 3)
        client.produce(first, [Record(filling.NOW_MS, b"k", b"two")], partition=2)
        filling.create(ottla, second, 2)
        client.produce(second, [Record(filling.NOW_MS, b"k", b"three")], partition=1)
        arrives(east, f"west.{first}", 2, failures)
        arrives(east, f"west.{second}", 1, failures)
    finally:
        run.ask_to_stop()
        thread.join(60)
    assert not failures
    assert not thread.is_alive()
    for name in (first, second):
        assert copies.content(east, f"west.{name}") == copies.content(ottla, name)


def arrives(broker: Ottla, topic: str, count: int, failures: list[BaseException]) -> None:
    def there() -> bool:
        assert not failures
        with Cluster(broker.bootstrap) as cluster:
            if topic not in cluster.topics([topic]):
                return False
        return sum(map(len, copies.content(broker, topic).values())) >= count

    wait_until(there, f"{count} records in {topic}")


def test_a_loop_back_is_refused(mirrors: Mirrors, ottla: Ottla, east: Ottla, fresh: Callable[[str], str]) -> None:
    topic = fresh("round")
    filling.create(ottla, topic, 1)
    Confluent(ottla.bootstrap).produce(topic, [Record(filling.NOW_MS, None, b"x")])
    with pytest.raises(Failed, match="source and target are the same cluster"):
        mirrors.run(ottla, ottla, topics=topic, prefix="copy.")
    mirrors.run(ottla, east, topics=topic, prefix="west.", name=topic)
    with pytest.raises(Failed, match=rf"topic west\.{topic} comes from cluster .* copied back there for ever"):
        mirrors.run(east, ottla, topics=f"west.{topic}", name="back")
    # A pattern takes the others. Both directions together are fine, as long as nothing goes back.
    own = fresh("own")
    filling.create(east, own, 1)
    Confluent(east.bootstrap).produce(own, [Record(filling.NOW_MS, None, b"y")])
    assert mirrors.run(east, ottla, topics=rf".*{topic}|{own}", prefix="east.", name="back") == 1
    with Cluster(ottla.bootstrap) as cluster:
        found = cluster.topics()
        assert f"east.{own}" in found
        assert not [name for name in found if topic in name and name != topic]
    assert mirrors.run(ottla, east, topics=rf".*({topic}|{own})", prefix="west.", name=topic) == 0


def test_what_may_not_be_copied_is_said_in_a_sentence() -> None:
    assert refusal("t", "C", mirror="m", path=("A", "B"), here=None) is None
    longer = refusal("t", "A", mirror="m", path=("A", "B", "C"), here=None)
    assert longer is not None
    assert "comes from cluster A" in longer
    here = Provenance("other", "t", ("B",))
    taken = refusal("t", "C", mirror="m", path=("B",), here=here)
    assert taken is not None
    assert "already filled by mirror other from cluster B" in taken
    assert refusal("t", "C", mirror="other", path=("A", "B"), here=here) is None, "it goes on under its name"


def test_where_topics_come_from_is_kept_in_their_cluster(tmp_path: Path) -> None:
    with Ottla(tmp_path / "alone") as broker, Cluster(broker.bootstrap) as cluster:
        assert MirrorRegistry(cluster).look() == {}
        first = Provenance("m", "t", ("A", "B"), {0: 5})
        registry = MirrorRegistry(cluster)
        registry.write({"west.t": first, "u": Provenance("m", "u", ("A",))})
        assert registry.look()["west.t"] == first
        registry.write({"u": None})
        assert set(registry.look()) == set(MirrorRegistry(cluster).look()) == {"west.t"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"topics": "no-such-topic"}, "topic no-such-topic does not exist at the source"),
        ({"topics": "(("}, "neither a name nor a regular expression"),
        ({"prefix": "a b"}, "cannot begin the name of a topic"),
        ({"groups": "("}, "is not a regular expression"),
        ({"to_properties": "nowhere.properties"}, "cannot be read"),
        ({"round": "soon"}, "expected a duration"),
    ],
)
def test_wrong_options(mirrors: Mirrors, ottla: Ottla, east: Ottla, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(Failed, match=sentence):
        mirrors.run(ottla, east, **options)


def test_a_target_that_would_change_timestamps_is_told(
    mirrors: Mirrors, ottla: Ottla, east: Ottla, fresh: Callable[[str], str]
) -> None:
    topic = fresh("times")
    filling.create(ottla, topic, 1)
    filling.create(east, topic, 1, message_timestamp_type="LogAppendTime")
    with pytest.raises(Failed, match="records would lose their timestamps"):
        mirrors.run(ottla, east, topics=topic, name=topic)


def test_records_that_are_there_already(
    mirrors: Mirrors, ottla: Ottla, east: Ottla, fresh: Callable[[str], str]
) -> None:
    topic = fresh("occupied")
    for broker, value in ((ottla, b"new"), (east, b"old")):
        filling.create(broker, topic, 1)
        Confluent(broker.bootstrap).produce(topic, [Record(filling.NOW_MS, None, value)])
    with pytest.raises(Failed, match=f"topic {topic} at the target has records that no mirror wrote"):
        mirrors.run(ottla, east, topics=topic, name=topic)
    assert mirrors.run(ottla, east, topics=topic, name=topic, existing="append") == 1
    assert [one[2] for one in copies.content(east, topic)[0]] == [b"old", b"new"]
    with pytest.raises(Failed, match=f"is already filled by mirror {topic} from cluster"):
        mirrors.run(ottla, east, topics=topic, name="another")


@pytest.mark.timeout(600, func_only=True)
def test_killed_again_and_again(tmp_path: Path) -> None:
    """Drivers, workers and both brokers are killed at random times while records are written and copied."""
    chance = random.Random(4)
    with Ottla(tmp_path / "west") as west, Ottla(tmp_path / "east") as east:
        filling.create(west, "orders", 2)
        command = [*OTTLA, "pipeline", "run", "mirror"]
        options = {"to": east.bootstrap, "topics": "orders", "transaction.bytes": "20000", "round": "1 second"}
        for name, value in options.items():
            command += ["--option", f"{name}={value}"]
        ended = threading.Event()
        sent: list[int] = []

        def write() -> None:
            from confluent_kafka import Producer

            producer = Producer({"bootstrap.servers": west.bootstrap, "enable.idempotence": True, "linger.ms": 5,
                                 "message.timeout.ms": 300_000, "log_level": 0})  # fmt: skip
            while not ended.is_set():
                for _ in range(50):
                    number = len(sent)
                    producer.produce("orders", b"%d" % number * 20, b"key %d" % (number % 7), partition=number % 2)
                    sent.append(number)
                producer.poll(0)
                ended.wait(0.02)
            assert producer.flush(120) == 0

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(2):
                with Launched(command, folder=tmp_path / "run", bootstrap=west.bootstrap) as running:
                    running.until_rows("mirror", 500)
                    for victim in chance.sample(["worker", "west", "east"], 3):
                        ended.wait(chance.random())
                        if victim == "worker":
                            wait_until(lambda: workers(running.process.pid), "a worker")
                            for pid in workers(running.process.pid):
                                os.kill(pid, signal.SIGKILL)
                        else:
                            broker = west if victim == "west" else east
                            broker.kill()
                            broker.start()
                    before = max((one.rows for one in running.until(lambda now: True, "a look").progress), default=0)
                    running.until_rows("mirror", before + 200)
                    ended.wait(chance.random())
                    running.kill()
        finally:
            ended.set()
            writer.join()
        finished([*command, "--once"], folder=tmp_path / "run", bootstrap=west.bootstrap)
        there = copies.content(east, "orders")
        assert there == copies.content(west, "orders")
        assert sum(map(len, there.values())) == len(sent)


def workers(driver: int) -> list[int]:
    """Python workers of a driver: what the process that forks them (a child of the JVM) has for children."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(folder.name))
    below = [driver]
    for _ in range(3):  # the JVM, the process that forks, its workers; a shell may stand before the JVM
        below = [child for parent in below for child in children.get(parent, [])]
    return [pid for pid in below if b"pyspark" in command_line(pid)]


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def consuming(broker: Ottla, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            "log_level": 2,
        }
    )


def place(topic: str, index: int, offset: int):  # type: ignore[no-untyped-def]  # noqa: ANN201
    from confluent_kafka import TopicPartition as Place

    return Place(topic, index, offset)


def continued(broker: Ottla, group: str, topic: str, index: int) -> list[copies.Content]:
    """What a consumer of this group reads from its committed offsets on."""
    consumer = consuming(broker, group)
    (stored,) = consumer.committed([place(topic, index, 0)], 30)
    consumer.assign([stored])
    found: list[copies.Content] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for message in consumer.consume(100, 0.1):
            if message.error() is not None:
                consumer.close()
                return found
            moment, headers = message.timestamp()[1], tuple(message.headers() or ())
            found.append((moment, message.key(), message.value(), headers))  # type: ignore[arg-type]
    raise AssertionError("no end")
