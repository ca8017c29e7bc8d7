"""`ottla groups` with real groups; Apache Kafka's own tool is asked about the same ones."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import judge
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner
from waiting import wait_until

from ottla.client.cluster import Cluster
from ottla.client.cluster import TopicPartition as ClientPartition
from ottla.client.groups import Committed, commit
from ottla.embed import BrokerProcess, BrokerThread
from ottla.pytest_plugin import Namespace
from ottla.tools.groups import app
from ottla.tools.offset_file import read

Run = Callable[..., Any]
Broker = BrokerProcess | BrokerThread

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TIMEOUT_S = 60.0
HOUR_S = 3600.0


@contextmanager
def member(broker: Broker, group: str, topic: str, **options: Any) -> Iterator[Consumer]:
    """A consumer that has joined and has partitions."""
    assigned: list[TopicPartition] = []
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **options,
        }
    )
    consumer.subscribe([topic], on_assign=lambda _, parts: assigned.extend(parts))
    wait_until(lambda: consumer.poll(0.1) or assigned, "the member's partitions")
    try:
        yield consumer
    finally:
        consumer.close()


def committed(broker: Broker, group: str, *parts: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=list(parts), asynchronous=False)
    consumer.close()


def described(run: Run, group: str) -> Any:
    (found,) = run("groups", "describe", group, "--json").document
    return found


def lags(run: Run, group: str) -> dict[tuple[str, int], tuple[int | None, int, int]]:
    return {
        (row["topic"], row["partition"]): (row["committed"], row["end"], row["lag"])
        for row in described(run, group)["partitions"]
    }


@pytest.fixture
def topic(ottla_broker: Broker, ottla_namespace: Namespace) -> str:
    """Two partitions; in the first ten records of an hour ago, in the second none."""
    name = ottla_namespace.topic()
    cluster = AdminClient({"bootstrap.servers": ottla_broker.bootstrap})
    cluster.create_topics([NewTopic(name, 2)])[name].result()
    produce(ottla_broker, name, 0, HOUR_S, *map(str, range(10)))
    return name


def produce(broker: Broker, topic: str, partition: int, age_s: float, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value, partition=partition, timestamp=int((time.time() - age_s) * 1000))
    assert producer.flush(TIMEOUT_S) == 0


@pytest.fixture
def group(ottla_namespace: Namespace) -> str:
    return ottla_namespace.group()


@pytest.mark.parametrize(("protocol", "assignor"), [("classic", "range"), ("consumer", "uniform")])
def test_members_and_lag_of_a_living_group(
    run: Run, ottla_broker: Broker, topic: str, group: str, protocol: str, assignor: str
) -> None:
    options = {"client.id": "reader", "group.instance.id": "one", "group.protocol": protocol}
    with member(ottla_broker, group, topic, **options) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
        assert {"group": group, "type": protocol, "state": "Stable"} in run("groups", "list", "--json").document
        found = described(run, group)
        shown = run("groups", "describe", group).lines
    host, _, port = ottla_broker.bootstrap.rpartition(":")
    assert found["coordinator"] == {"id": ottla_broker.node_id, "host": host, "port": int(port)}
    assert (found["group"], found["state"], found["type"], found["assignor"]) == (group, "Stable", protocol, assignor)
    (one,) = found["members"]
    assert (one["instance"], one["client"], one["host"]) == ("one", "reader", "127.0.0.1")
    assert one["assignment"] == {topic: [0, 1]}
    first, second = found["partitions"]
    assert HOUR_S <= first.pop("lag_seconds") == found["lag_seconds"] < HOUR_S + 5 * TIMEOUT_S
    owner = {"member": one["member"], "client": "reader", "host": "127.0.0.1"}
    assert first == {"topic": topic, "partition": 0, "committed": 3, "start": 0, "end": 10, "lag": 7, **owner}
    nothing = {"committed": None, "start": 0, "end": 0, "lag": 0, "lag_seconds": 0.0}
    assert second == {"topic": topic, "partition": 1, **nothing, **owner}
    assert found["lag"] == 7
    assert shown[0].split()[:3] == [group, "Stable", protocol]
    assert re.fullmatch(r"lag 7 records, the oldest unread one is 3,6\d\d\.\d s old", shown[-1])


def test_what_was_never_committed_is_all_to_read(run: Run, ottla_broker: Broker, topic: str, group: str) -> None:
    produce(ottla_broker, topic, 1, 0, "young")
    with member(ottla_broker, group, topic):
        assert lags(run, group) == {(topic, 0): (None, 10, 10), (topic, 1): (None, 1, 1)}
        old, young = (row["lag_seconds"] for row in described(run, group)["partitions"])
    assert old >= HOUR_S
    assert young < TIMEOUT_S


def test_the_age_is_that_of_the_first_record_not_read(run: Run, ottla_broker: Broker, topic: str, group: str) -> None:
    produce(ottla_broker, topic, 1, 5 * HOUR_S, "a")
    produce(ottla_broker, topic, 1, 3 * HOUR_S, "b")
    committed(ottla_broker, group, TopicPartition(topic, 1, 1), TopicPartition(topic, 0, 10))
    found = described(run, group)
    assert [row["lag_seconds"] for row in found["partitions"]] == [0.0, pytest.approx(3 * HOUR_S, abs=TIMEOUT_S)]
    assert found["lag_seconds"] == pytest.approx(3 * HOUR_S, abs=TIMEOUT_S)
    assert (found["state"], found["members"]) == ("Empty", [])


def test_aborted_records_are_behind_and_yet_nothing_to_read(
    run: Run, ottla_broker: Broker, ottla_namespace: Namespace, topic: str, group: str
) -> None:
    committed(ottla_broker, group, TopicPartition(topic, 0, 10))
    transaction = ("--transactional-id", ottla_namespace.transaction(), "--partition", "0", "--timestamp", "-2h")
    run("produce", topic, "-K", ":", *transaction, text="k:v\nno separator\n", code=1)
    (row,) = described(run, group)["partitions"]
    assert row["lag"] == 2, "the record and its marker"
    assert row["lag_seconds"] == 0.0


def test_partitions_that_are_gone_have_no_lag(run: Run, ottla_broker: Broker, topic: str, group: str) -> None:
    committed(ottla_broker, group, TopicPartition(topic, 0, 3))
    before = lags(run, group)
    run("topics", "delete", topic)
    # A broker forgets the offsets of a deleted topic; one that has not yet shows them without bounds.
    after = run("groups", "describe", group, "--json").document[0]["partitions"] if exists(run, group) else []
    assert before == {(topic, 0): (3, 10, 7)}
    assert all(row["end"] is None and row["lag"] is None for row in after)


def exists(run: Run, group: str) -> bool:
    return group in {row["group"] for row in run("groups", "list", "--json").document}


def test_every_group_at_once(run: Run, ottla_broker: Broker, topic: str, ottla_namespace: Namespace) -> None:
    names = [ottla_namespace.group("one"), ottla_namespace.group("two")]
    for name in names:
        committed(ottla_broker, name, TopicPartition(topic, 0, 1))
    found = [group["group"] for group in run("groups", "describe", "--all", "--json").document]
    assert found == sorted(found)
    assert set(names) <= set(found)
    assert [group["group"] for group in run("groups", "describe", *names, "--json").document] == names


def test_a_list_can_be_filtered(run: Run, ottla_broker: Broker, topic: str, group: str) -> None:
    committed(ottla_broker, group, TopicPartition(topic, 0, 1))

    def listed(*filters: str) -> set[str]:
        return {row["group"] for row in run("groups", "list", *filters, "--json").document}

    assert group in listed("--state", "empty", "--state", "Stable", "--type", "classic")
    assert group not in listed("--state", "Stable")
    assert group not in listed("--type", "consumer")
    assert [group, "classic", "Empty"] in [line.split() for line in run("groups", "list").lines]


def test_a_group_that_is_not_there_is_one_line(run: Run, group: str) -> None:
    assert run("groups", "describe", group, code=1).err == f"ottla: {group}: there is no such group\n"
    assert "GROUP_ID_NOT_FOUND" in run("groups", "delete", group, code=1).err
    assert run("groups", "delete", group, "--if-exists", "--json").document == {"deleted": []}
    assert "has no offsets" in run("groups", "export", group, code=1).err


def test_every_way_to_reset(run: Run, ottla_broker: Broker, topic: str, group: str) -> None:
    produce(ottla_broker, topic, 0, 0, "young")
    committed(ottla_broker, group, TopicPartition(topic, 0, 5))

    def new(*goal: str) -> list[int]:
        plan = run("groups", "reset", group, "--topic", topic, *goal, "--json").document
        assert (plan["group"], plan["executed"]) == (group, False)
        assert [row["old"] for row in plan["offsets"]] == [5, None]
        return [row["new"] for row in plan["offsets"]]

    assert new("--to-earliest") == [0, 0]
    assert new("--to-latest") == [11, 0]
    assert new("--to-current") == [5, 0]
    assert new("--to-offset", "8") == [8, 0]
    assert new("--to-datetime", "2100-01-01T00:00:00Z") == [11, 0]
    assert new("--by-duration", "PT30M") == [10, 0]
    assert lags(run, group) == {(topic, 0): (5, 11, 6)}, "nothing was done"
    only = ("groups", "reset", group, "--topic", f"{topic}:0", "--json")
    assert [row["new"] for row in run(*only, "--shift-by", "3").document["offsets"]] == [8]
    assert "1 has no committed offset" in run("groups", "reset", group, "-t", topic, "--shift-by", "3", code=1).err


def test_a_reset_is_done_when_that_is_said(run: Run, ottla_broker: Broker, topic: str, group: str) -> None:
    committed(ottla_broker, group, TopicPartition(topic, 0, 5))
    goal = ("groups", "reset", group, "--all-topics", "--shift-by", "-2")
    told = run(*goal)
    assert [line.split() for line in told.lines[2:3]] == [[topic, "0", "5", "3"]]
    assert told.lines[-1] == "Nothing was changed; --execute does it."
    assert lags(run, group) == {(topic, 0): (5, 10, 5)}
    assert run(*goal, "--execute", "--json").document["executed"] is True
    assert lags(run, group) == {(topic, 0): (3, 10, 7)}
    far = run("groups", "reset", group, "--topic", f"{topic}:0", "--to-offset", "99", "--execute")
    assert f"{topic} partition 0: offset 99 is beyond the end, 10 is used" in far.err
    assert lags(run, group) == {(topic, 0): (10, 10, 0)}


def test_a_reset_may_begin_a_group(run: Run, topic: str, group: str) -> None:
    run("groups", "reset", group, "--topic", topic, "--to-latest", "--execute")
    assert lags(run, group) == {(topic, 0): (10, 10, 0), (topic, 1): (0, 0, 0)}


def test_a_group_with_members_is_left_alone(run: Run, ottla_broker: Broker, topic: str, group: str) -> None:
    with member(ottla_broker, group, topic) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
        reset = ("groups", "reset", group, "--all-topics", "--to-earliest")
        assert f"First stop its consumers: {group} has members (1, Stable)." in run(*reset).out
        assert f"{group} has members (1, Stable): stop them first" in run(*reset, "--execute", code=1).err
        assert "NON_EMPTY_GROUP" in run("groups", "delete", group, code=1).err
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in run("groups", "delete", group, "--topic", topic, code=1).err
        assert run("groups", "export", group).out == f"{topic},0,3\n"


@pytest.mark.parametrize(
    "nonsense",
    [
        ("describe",),
        ("describe", "g", "--all"),
        ("list", "--state", "Asleep"),
        ("list", "--type", "odd"),
        ("reset", "g"),
        ("reset", "g", "--to-earliest"),
        ("reset", "g", "--all-topics"),
        ("reset", "g", "--all-topics", "--to-earliest", "--to-latest"),
        ("reset", "g", "--all-topics", "--to-datetime", "-5m", "--by-duration", "5m"),
        ("reset", "g", "--all-topics", "--topic", "t", "--to-earliest"),
        ("reset", "g", "--all-topics", "--by-duration", "soon"),
        ("reset", "g", "--all-topics", "--to-datetime", "noon"),
        ("reset", "g", "--topic", "t:a", "--to-earliest"),
        ("delete", "g", "--topic", "t:"),
        ("export", "g", "--topic", "t:1,b"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused_before_anybody_is_asked(nonsense: tuple[str, ...]) -> None:
    assert CliRunner().invoke(app, [*nonsense, "--bootstrap", "127.0.0.1:1"]).exit_code == 2


def test_a_reset_of_what_is_not_there_is_refused(run: Run, topic: str, group: str) -> None:
    reset = ("groups", "reset", group, "--to-earliest")
    assert f"{topic} has no partition 2" in run(*reset, "--topic", f"{topic}:0,2", code=1).err
    assert "UNKNOWN_TOPIC_OR_PART" in run(*reset, "--topic", f"{topic}-missing", code=1).err
    assert f"{group} has no committed offsets" in run(*reset, "--all-topics", code=1).err
    run(*reset, "--topic", topic, "--execute")
    deleted = run("groups", "delete", f"{group}-missing", group, code=1)
    assert deleted.out == f"deleted {group}\n"
    assert "GROUP_ID_NOT_FOUND" in deleted.err


def test_offsets_of_a_topic_can_be_deleted_alone(
    run: Run, ottla_broker: Broker, topic: str, group: str, ottla_namespace: Namespace
) -> None:
    other = ottla_namespace.topic("other")
    run("topics", "create", other)
    places = (TopicPartition(topic, 0, 1), TopicPartition(topic, 1, 0), TopicPartition(other, 0, 0))
    committed(ottla_broker, group, *places)
    assert (
        run("groups", "delete", group, "--topic", f"{topic}:1").out
        == f"deleted the offsets of {topic}:1 from {group}\n"
    )
    assert lags(run, group).keys() == {(topic, 0), (other, 0)}
    assert run("groups", "delete", group, "-t", topic, "--json").document == {"deleted": [group], "topics": [topic]}
    assert lags(run, group).keys() == {(other, 0)}
    assert run("groups", "delete", group).out == f"deleted {group}\n"
    assert not exists(run, group)


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_offsets_travel_from_group_to_group(
    run: Run, ottla_broker: Broker, topic: str, ottla_namespace: Namespace, form: tuple[str, ...], tmp_path: Path
) -> None:
    source, target = ottla_namespace.group("source"), ottla_namespace.group("target")
    committed(ottla_broker, source, TopicPartition(topic, 0, 4, metadata="note"), TopicPartition(topic, 1, 0))
    (tmp_path / "offsets").write_text(run("groups", "export", source, *form).out)
    plan = run("groups", "import", target, str(tmp_path / "offsets"), "--json").document
    assert plan == {
        "group": target,
        "executed": False,
        "offsets": [
            {"topic": topic, "partition": 0, "old": None, "new": 4},
            {"topic": topic, "partition": 1, "old": None, "new": 0},
        ],
    }
    assert not exists(run, target)
    run("groups", "import", target, "--execute", text=(tmp_path / "offsets").read_text())
    entries = [{"topic": topic, "partition": 0, "offset": 4}, {"topic": topic, "partition": 1, "offset": 0}]
    if form:
        entries[0]["metadata"] = "note"
    assert run("groups", "export", target, "--json").document == entries
    assert run("groups", "export", target, "--topic", f"{topic}:1").out == f"{topic},1,0\n"


def test_metadata_has_an_end(run: Run, ottla_broker: Broker, ottla_namespace: Namespace) -> None:
    """Also where it has no zero byte behind it, up to which confluent-kafka would read on in memory."""
    topic, group = ottla_namespace.topic("noted"), ottla_namespace.group("noted")
    with Cluster(ottla_broker.bootstrap) as cluster:
        cluster.create(topic, 30)
        notes = {index: "n" * (8 * index + 104) for index in range(30)}
        found = {ClientPartition(topic, index): Committed(0, note) for index, note in notes.items()}
        commit(cluster, group, found)
    entries = run("groups", "export", group, "--json").document
    assert {entry["partition"]: entry["metadata"] for entry in entries} == notes
    assert len(described(run, group)["partitions"]) == 30


def test_an_import_that_makes_no_sense_is_one_line(run: Run, topic: str, group: str, tmp_path: Path) -> None:
    assert "stdin: line 1: expected topic,partition,offset" in run("groups", "import", group, text="x\n", code=1).err
    assert "no offsets for" in run("groups", "import", group, text="", code=1).err
    assert f"no such partition: {topic}:7" in run("groups", "import", group, text=f"{topic},7,0\n", code=1).err
    missing = tmp_path / "missing"
    assert f"{missing}: No such file" in run("groups", "import", group, str(missing), code=1).err


def test_kafkas_tool_reads_our_file_and_we_read_its(
    run: Run, ottla_broker: Broker, topic: str, group: str, ottla_namespace: Namespace, tmp_path: Path
) -> None:
    other = ottla_namespace.group("other")
    committed(ottla_broker, group, TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 0))
    ours = tmp_path / "ours.csv"
    ours.write_text(run("groups", "export", group).out)
    ask = ("--bootstrap-server", ottla_broker.bootstrap, "--reset-offsets", "--group", other)
    judge.tool(TOOL, *ask, "--from-file", str(ours), "--execute")
    assert lags(run, other) == lags(run, group) == {(topic, 0): (4, 10, 6), (topic, 1): (0, 0, 0)}
    theirs = judge.tool(TOOL, *ask, "--all-topics", "--to-current", "--export", "--dry-run").out
    assert read(theirs, other) == read(ours.read_text(), other)
    both = ("--bootstrap-server", ottla_broker.bootstrap, "--reset-offsets", "--group", group, "--group", other)
    several = judge.tool(TOOL, *both, "--all-topics", "--to-earliest", "--export", "--dry-run").out
    moved = run("groups", "import", group, "--json", text=several).document["offsets"]
    assert [(row["partition"], row["old"], row["new"]) for row in moved] == [(0, 4, 0), (1, 0, 0)]


def test_kafkas_tool_counts_the_same_lag(run: Run, ottla_broker: Broker, topic: str, group: str) -> None:
    committed(ottla_broker, group, TopicPartition(topic, 0, 4))
    shown = judge.tool(TOOL, "--bootstrap-server", ottla_broker.bootstrap, "--describe", "--group", group).out
    (row,) = [line.split() for line in shown.splitlines() if line.startswith(group)]
    assert row[1:6] == [topic, "0", "4", "10", "6"]
    assert lags(run, group) == {(topic, 0): (4, 10, 6)}


def test_consume_goes_on_where_the_group_is(run: Run, ottla_broker: Broker, topic: str, group: str) -> None:
    joined = ("consume", topic, "--group", group)
    assert run(*joined, "--max", "4").lines == list("0123")
    assert lags(run, group)[topic, 0] == (4, 10, 6)
    assert run(*joined).lines == list("456789")
    assert run(*joined).lines == []
    produce(ottla_broker, topic, 1, 0, "more")
    assert run(*joined).lines == ["more"]
    assert lags(run, group) == {(topic, 0): (10, 10, 0), (topic, 1): (1, 1, 0)}


def test_a_group_without_offsets_begins_where_it_is_told(run: Run, topic: str, group: str) -> None:
    assert run("consume", topic, "--group", group, "--from", "end").lines == []
    run("consume", topic, "--group", group, "--from", "5", code=2)
    run("consume", topic, "--group", group, "--partition", "0", code=2)
    assert "UNKNOWN_TOPIC_OR_PART" in run("consume", f"{topic}-missing", "--group", group, code=1).err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_member_that_is_told_to_end_leaves_its_group(
    run: Run, ottla_broker: Broker, topic: str, group: str, number: signal.Signals
) -> None:
    """SIGHUP: its terminal is closed. It used to hold its partitions until its session had expired."""
    follower = subprocess.Popen(
        [sys.executable, "-m", "ottla", "consume", topic, "--group", group, "--follow"],
        env={**os.environ, "OTTLA_BOOTSTRAP": ottla_broker.bootstrap},
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # the tests may run under `nohup`
    )
    assert follower.stdout
    assert follower.stdout.readline() == b"0\n"
    follower.send_signal(number)
    follower.communicate(timeout=TIMEOUT_S)
    assert follower.returncode == 128 + number
    (found,) = run("groups", "describe", group, "--json").document
    assert (found["state"], found["members"]) == ("Empty", [])


def test_members_share_the_partitions(run: Run, ottla_broker: Broker, topic: str, group: str) -> None:
    with member(ottla_broker, group, topic) as other:
        follower = subprocess.Popen(
            [sys.executable, "-m", "ottla", "consume", topic, "--group", group, "--follow", "--max", "1"],
            env={**os.environ, "OTTLA_BOOTSTRAP": ottla_broker.bootstrap},
            stdout=subprocess.PIPE,
            text=True,
        )
        wait_until(lambda: not other.poll(0.1) and len(other.assignment()) == 1, "the second member's share")
        held = other.assignment()
        theirs = 1 - held[0].partition
        produce(ottla_broker, topic, theirs, 0, "for the second")
        assert follower.stdout
        line = follower.stdout.readline()
        assert line == ("for the second\n" if theirs == 1 else "0\n")
        wait_until(lambda: not other.poll(0.1) and follower.poll() is not None, "the second member leaves")
        assert follower.returncode == 0
        follower.stdout.close()
    assert lags(run, group)[topic, theirs][0] == 1
