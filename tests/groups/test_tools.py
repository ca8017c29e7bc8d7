"""Apache Kafka's tools against our groups: kafka-consumer-groups, kafka-get-offsets, verifiable clients, consoles.

One group has a member all the time, one is empty and has offsets; every table a tool prints is compared row by row.
"""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Final

import judge
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from process import Ottla

pytestmark = pytest.mark.xdist_group("group-tools")

GROUPS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
OFFSETS: Final = "org.apache.kafka.tools.GetOffsetShell"
PRODUCER: Final = "org.apache.kafka.tools.VerifiableProducer"
CONSUMER: Final = "org.apache.kafka.tools.VerifiableConsumer"
CONSOLE: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
FORMATTERS: Final = "org.apache.kafka.tools.consumer"
START_MS: Final = int(time.time() * 1000) - 86_400_000  # yesterday


class Place:
    """A topic of two partitions with ten records each, and its groups."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.live, self.idle = f"live-{topic}", f"idle-{topic}"
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        admin.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "-1"})])[topic].result(30)
        producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
        for at in range(10):
            for index in (0, 1):
                producer.produce(topic, b"%d" % at, partition=index, timestamp=START_MS + 1000 * at)
        assert producer.flush(30) == 0
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()
        self.commit(self.idle, 4, 7)
        assert self._ready.wait(30)

    def _live(self) -> None:
        """The member: it has read everything and committed a part of it."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.live, "client.id": "member",
                             "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 2,
                             "partition.assignment.strategy": "range"})  # fmt: skip
        consumer.subscribe([self.topic])
        while len(consumer.assignment()) < 2:
            consumer.poll(0.05)
        places = [TopicPartition(self.topic, 0, 4), TopicPartition(self.topic, 1, 10)]
        consumer.commit(offsets=places, asynchronous=False)
        self._ready.set()
        while not self._stop.is_set():
            consumer.poll(0.05)
        consumer.close()

    def commit(self, group: str, *offsets: int) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "log_level": 2})
        places = [TopicPartition(self.topic, index, offset) for index, offset in enumerate(offsets)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def run(self, tool: str, *arguments: str) -> judge.Output:
        return judge.tool(tool, "--bootstrap-server", self.bootstrap, *arguments)

    def groups(self, *arguments: str) -> judge.Output:
        return self.run(GROUPS, *arguments)

    def table(self, *arguments: str) -> list[dict[str, str]]:
        """Rows of what kafka-consumer-groups prints, by the names of its columns, in order of their text."""
        lines = [line for line in self.groups(*arguments).out.splitlines() if line.strip()]
        assert lines, arguments
        names = lines[0].replace("COORDINATOR (ID)", "COORDINATOR ID").split()
        return [dict(zip(names, line.split(), strict=False)) for line in sorted(lines[1:])]


@pytest.fixture(scope="module")
def place(group_broker: Ottla | judge.Kafka, fresh: Callable[[str], str]) -> Iterator[Place]:
    place = Place(group_broker.bootstrap, fresh("tools"))
    yield place
    place.close()


def test_groups_are_listed_with_states_and_types(place: Place) -> None:
    assert {place.live, place.idle} <= set(place.groups("--list").out.split())
    states = {row["GROUP"]: row["STATE"] for row in place.table("--list", "--state")}
    assert (states[place.live], states[place.idle]) == ("Stable", "Empty")
    stable = {row["GROUP"] for row in place.table("--list", "--state", "stable")}
    assert place.live in stable
    assert place.idle not in stable
    types = {row["GROUP"]: row["TYPE"] for row in place.table("--list", "--type")}
    assert types[place.live] == types[place.idle] == "Classic"


def test_a_group_with_a_member_is_described(place: Place) -> None:
    first, second = place.table("--describe", "--group", place.live)
    assert [first["TOPIC"], second["TOPIC"]] == [place.topic] * 2
    for row, wanted in ((first, ("0", "4", "10", "6")), (second, ("1", "10", "10", "0"))):
        assert tuple(row[name] for name in ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")) == wanted
        assert row["CONSUMER-ID"].startswith("member-")
        assert row["HOST"] == "/127.0.0.1"
        assert row["CLIENT-ID"] == "member"
    (member,) = place.table("--describe", "--group", place.live, "--members", "--verbose")
    assert member["CONSUMER-ID"] == first["CONSUMER-ID"]
    assert member["#PARTITIONS"] == "2"
    assert member["CURRENT-ASSIGNMENT"] == f"{place.topic}:0,1"
    (state,) = place.table("--describe", "--group", place.live, "--state")
    assert list(state.values())[1:] == [place.bootstrap, "(1)", "range", "Stable", "1"]


def test_a_group_without_members_is_described_and_an_unknown_one_is_not(place: Place) -> None:
    found = place.groups("--describe", "--group", place.idle)
    assert f"Consumer group '{place.idle}' has no active members." in found.err
    rows = place.table("--describe", "--group", place.idle)
    assert [(row["CURRENT-OFFSET"], row["LAG"], row["CONSUMER-ID"]) for row in rows] == [
        ("4", "6", "-"),
        ("7", "3", "-"),
    ]
    unknown = place.groups("--describe", "--group", "nobody")
    assert "GroupIdNotFoundException: Group nobody not found." in unknown.out + unknown.err


def offsets_of(place: Place, group: str) -> dict[str, str]:
    return {row["PARTITION"]: row["CURRENT-OFFSET"] for row in place.table("--describe", "--group", group)}


@pytest.mark.parametrize(
    ("way", "wanted"),
    [
        (("--to-earliest",), ("0", "0")),
        (("--to-latest",), ("10", "10")),
        (("--to-offset", "5"), ("5", "5")),
        (("--to-offset", "50"), ("10", "10")),
        (("--shift-by", "2"), ("6", "9")),
        (("--shift-by", "-5"), ("0", "2")),
        (("--to-current",), ("4", "7")),
        (
            ("--to-datetime", time.strftime("%Y-%m-%dT%H:%M:%S.999+00:00", time.gmtime(START_MS // 1000 + 2))),
            ("3", "3"),
        ),
        (("--by-duration", "P2D"), ("0", "0")),
    ],
)
def test_offsets_are_reset(
    place: Place, way: tuple[str, ...], wanted: tuple[str, str], fresh: Callable[[str], str]
) -> None:
    group = fresh(f"reset-{place.topic}")
    place.commit(group, 4, 7)
    chosen = ("--reset-offsets", "--group", group, "--topic", place.topic, *way)
    dry = place.table(*chosen, "--dry-run")
    assert tuple(row["NEW-OFFSET"] for row in dry) == wanted
    assert offsets_of(place, group) == {"0": "4", "1": "7"}, "nothing was done yet"
    place.groups(*chosen, "--execute")
    assert tuple(offsets_of(place, group).values()) == wanted


def test_offsets_are_reset_from_a_file(place: Place, tmp_path: object, fresh: Callable[[str], str]) -> None:
    group = fresh(f"file-{place.topic}")
    place.commit(group, 1, 1)
    file = f"{tmp_path}/offsets.csv"
    export = place.groups("--reset-offsets", "--group", group, "--topic", place.topic, "--to-offset", "8", "--export")
    assert sorted(export.out.split()) == [f"{place.topic},0,8", f"{place.topic},1,8"]
    with open(file, "w") as target:
        target.write(export.out)
    place.groups("--reset-offsets", "--group", group, "--from-file", file, "--execute")
    assert offsets_of(place, group) == {"0": "8", "1": "8"}


def test_a_group_with_members_is_neither_reset_nor_deleted(place: Place) -> None:
    chosen = ("--group", place.live)
    refused = place.groups("--reset-offsets", *chosen, "--topic", place.topic, "--to-earliest", "--execute")
    text = f"Assignments can only be reset if the group '{place.live}' is inactive, but the current state is Stable."
    assert text in refused.out + refused.err
    deleted = place.groups("--delete", *chosen, "--group", "nobody")
    for name, error in ((place.live, "GroupNotEmptyException"), ("nobody", "GroupIdNotFoundException")):
        assert f"Group '{name}' could not be deleted due to: org.apache.kafka.common.errors.{error}" in (
            deleted.out + deleted.err
        )
    offsets = place.groups("--delete-offsets", *chosen, "--topic", place.topic)
    assert (offsets.out + offsets.err).count("GroupSubscribedToTopicException") == 2
    assert offsets_of(place, place.live) == {"0": "4", "1": "10"}


def test_offsets_and_groups_are_deleted(place: Place, fresh: Callable[[str], str]) -> None:
    group = fresh(f"gone-{place.topic}")
    place.commit(group, 4, 7)
    place.groups("--delete-offsets", "--group", group, "--topic", f"{place.topic}:0")
    assert offsets_of(place, group) == {"1": "7"}
    assert f"deleted successfully: '{group}'" in place.groups("--delete", "--group", group).out.replace("\n", " ") or (
        group not in place.groups("--list").out.split()
    )
    assert group not in place.groups("--list").out.split()


def test_get_offsets(place: Place) -> None:
    chosen = ("--topic", place.topic)
    assert place.run(OFFSETS, *chosen).out.split() == [f"{place.topic}:0:10", f"{place.topic}:1:10"]
    assert place.run(OFFSETS, *chosen, "--time", "-2").out.split() == [f"{place.topic}:0:0", f"{place.topic}:1:0"]
    assert place.run(OFFSETS, *chosen, "--time", "-3", "--partitions", "1").out.split() == [f"{place.topic}:1:9"]
    at = str(START_MS + 3500)
    assert place.run(OFFSETS, *chosen, "--time", at).out.split() == [f"{place.topic}:0:4", f"{place.topic}:1:4"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_verifiable_clients(place: Place, protocol: str, fresh: Callable[[str], str]) -> None:
    topic = fresh(f"verified-{protocol}")
    place.run(PRODUCER, "--topic", topic, "--max-messages", "50", "--acks", "-1", "--value-prefix", "7")
    chosen = ("--topic", topic, "--group-id", topic, "--max-messages", "50", "--reset-policy", "earliest")
    found = place.run(CONSUMER, *chosen, "--group-protocol", protocol, "--verbose").out
    events = [json.loads(line) for line in found.splitlines()]
    assert events[-1]["name"] == "shutdown_complete"
    read = [(event["value"], event["offset"]) for event in events if event["name"] == "record_data"]
    assert read == [(f"7.{at}", at) for at in range(50)]
    commits = [event for event in events if event["name"] == "offsets_committed"]
    assert all(event["success"] for event in commits)
    assert commits[-1]["offsets"] == [{"topic": topic, "partition": 0, "offset": 50}]
    assert offsets_of(place, topic) == {"0": "50"}


def test_the_console_goes_on_where_its_group_was(place: Place, fresh: Callable[[str], str]) -> None:
    chosen = ("--topic", place.topic, "--group", fresh("console"))
    first = place.run(CONSOLE, *chosen, "--from-beginning", "--max-messages", "15", "--timeout-ms", "20000").out
    rest = place.run(CONSOLE, *chosen, "--max-messages", "5", "--timeout-ms", "20000").out
    assert sorted((first + rest).split()) == sorted([str(at) for at in range(10)] * 2)


def test_kafka_reads_the_records_of_our_coordinator(place: Place) -> None:
    """Its own formatters decode `__consumer_offsets`."""
    chosen = ("--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", "1500")
    offsets = decoded(place.run(CONSOLE, *chosen, "--formatter", f"{FORMATTERS}.OffsetsMessageFormatter").out)
    mine = {
        record["key"]["data"]["partition"]: record["value"]["data"]["offset"]
        for record in offsets
        if record["key"]["data"]["group"] == place.idle and record["value"] is not None
    }
    assert mine == {0: 4, 1: 7}
    groups = decoded(place.run(CONSOLE, *chosen, "--formatter", f"{FORMATTERS}.GroupMetadataMessageFormatter").out)
    last = [record for record in groups if record["key"]["data"]["group"] == place.live][-1]["value"]
    assert last["version"] == 3
    assert (last["data"]["protocolType"], last["data"]["protocol"]) == ("consumer", "range")
    (member,) = last["data"]["members"]
    assert member["clientId"] == "member"
    assert last["data"]["leader"] == member["memberId"]


def decoded(text: str) -> list[dict[str, dict[str, dict[str, object]]]]:
    """Objects one after the other without anything between them."""
    decoder, position, found = json.JSONDecoder(), 0, []
    while position < len(text.rstrip()):
        value, position = decoder.raw_decode(text, position)
        found.append(value)
    return found
