"""The broker is killed and started again under working groups: they go on as they were, and no commit is lost.

Members of real clients keep their partitions and their generation, because the coordinator finds both in its log. And
raw committers, whose broker is killed again and again, find after each restart no less than was acknowledged.
"""

from __future__ import annotations

import random
import struct
import threading
import time
from typing import TYPE_CHECKING, Final

import judge
import pytest
from compat.raw import Closed, Raw, array, create_topic, string
from confluent_kafka.admin import AdminClient, NewTopic
from groups import history
from groups.host import Host, Journal
from groups.scenario import HEARTBEAT_MS, PARTITIONS, SETTINGS, STATIC_SESSION_MS, Plan, Writer, settled
from process import Ottla

if TYPE_CHECKING:
    from pathlib import Path

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
FAMILIES: Final = {
    "confluent-kafka": (Plan("roundrobin"), Plan("cooperative-sticky"), Plan("uniform", "consumer")),
    "kafka-python": (Plan("roundrobin"), Plan("cooperative-sticky")),
    "aiokafka": (Plan("roundrobin"),),
    "java-4.3.1": (Plan("roundrobin"), Plan("cooperative-sticky"), Plan("uniform", "consumer")),
    "franz-go": (Plan("roundrobin"), Plan("cooperative-sticky"), Plan("uniform", "consumer")),
    # Not kafkajs: with its only broker away it stops its consumer and joins anew, or gives up.
}
MEMBERS: Final = ("a", "b", "c")
TOPICS: Final = ("left", "right")


def mortal(folder: Path, pytestconfig: pytest.Config) -> Ottla | judge.Kafka:
    kind = judge.Kafka if pytestconfig.getoption("judge") else Ottla
    return kind(folder, settings={**SETTINGS, "group.consumer.session.timeout.ms": str(STATIC_SESSION_MS)})


def kill(broker: Ottla | judge.Kafka) -> None:
    if isinstance(broker, Ottla):
        broker.kill()
    else:
        broker.stop(kill=True)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "family", [pytest.param(family, marks=pytest.mark.xdist_group(f"restart-{family}")) for family in FAMILIES]
)
def test_groups_outlive_their_broker(family: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    journal = Journal()
    plans = FAMILIES[family]
    with mortal(tmp_path, pytestconfig) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
        for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in TOPICS]).values():
            future.result(30)
        writer = Writer(broker.bootstrap, TOPICS)
        host = Host(family, broker.bootstrap, journal)
        try:
            for plan in plans:
                for member in MEMBERS:
                    host.join(f"{plan}/{member}", str(plan), topics=",".join(TOPICS), assignor=plan.assignor,
                              protocol=plan.protocol, session_ms=str(STATIC_SESSION_MS),
                              heartbeat_ms=str(HEARTBEAT_MS))  # fmt: skip
            assert journal.wait(lambda: all(ready(journal, plan) for plan in plans)), "the groups never settled"
            assert journal.wait(lambda: len(high(journal)) == len(plans) * 2 * PARTITIONS), "nobody commits"
            before = {plan: journal.owned(str(plan)) for plan in plans}
            settled_at = len(journal.events)
            for _ in range(2):
                kill(broker)
                broker.start()
                reached = high(journal)
                assert journal.wait(lambda reached=reached: past(journal, reached)), "nobody commits any more"  # type: ignore[misc]
            ends = writer.stop()
            reads = journal.wait(lambda: all(last(journal, str(plan)) == ends for plan in plans))
            assert reads, {str(plan): last(journal, str(plan)) for plan in plans}
        finally:
            writer.stop()
            host.close()
    later = journal.events[settled_at:]
    for plan in plans:
        events = journal.of(str(plan))
        assert journal.owned(str(plan)) == before[plan]
        moved = [str(event) for event in later if event.group == str(plan) and event.what in ("revoked", "lost")]
        assert not moved, "who owned a partition owns it still"
        assert not history.failures(events)
        assert not history.one_owner(events)
        assert not history.one_reader(events)
        assert not history.no_way_back(events)
        assert not history.nothing_lost(events, ends, last(journal, str(plan)))


def ready(journal: Journal, plan: Plan) -> bool:
    members = [f"{plan}/{member}" for member in MEMBERS]
    return settled(plan, TOPICS, members, journal.owned(str(plan)))


def last(journal: Journal, group: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for event in journal.of(group):
        if event.what == "committed":
            found |= event.facts["offsets"]
    return found


def high(journal: Journal) -> dict[tuple[str, str], int]:
    groups = {event.group for event in journal.events}
    return {(group, part): offset for group in groups for part, offset in last(journal, group).items()}


def past(journal: Journal, reached: dict[tuple[str, str], int]) -> bool:
    now = high(journal)
    return all(now[place] > offset + 5 for place, offset in reached.items())


# --- acknowledged commits --------------------------------------------------------------------------------------------


class Committer:
    """Commits 1, 2, 3, ... for one group; knows what was acknowledged and what was under way."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.acked = self.sent = 0

    def run(self, port: int, stop: threading.Event) -> None:
        try:
            with Raw(port) as raw:
                while not stop.is_set():
                    self.sent = self.acked + 1
                    if commit(raw, self.group, self.sent) == 0:
                        self.acked = self.sent
        except (Closed, OSError):
            pass


def find(raw: Raw, group: str) -> None:
    """FindCoordinator v0, which makes the topic of the offsets when there is none."""
    while raw.call(FIND_COORDINATOR, 0, string(group)).int16():
        time.sleep(0.02)


def commit(raw: Raw, group: str, offset: int) -> int:
    """OffsetCommit v2 of both partitions by nobody in particular."""
    places = [struct.pack(">iq", index, offset) + string(f"at {offset}") for index in range(PARTITIONS)]
    body = string(group) + struct.pack(">i", -1) + string("") + struct.pack(">q", -1)
    answer = raw.call(OFFSET_COMMIT, 2, body + array([string("left") + array(places)]))
    assert answer.int32() == 1
    answer.string()
    errors = set()
    for _ in range(answer.int32()):
        answer.int32()
        errors.add(answer.int16())
    (error,) = errors
    return error


def fetched(raw: Raw, group: str) -> tuple[int, list[tuple[int, str | None]]]:
    """OffsetFetch v1: the error, and offset and metadata of each partition."""
    body = string(group) + array([string("left") + array([struct.pack(">i", index) for index in range(PARTITIONS)])])
    answer = raw.call(OFFSET_FETCH, 1, body)
    assert answer.int32() == 1
    answer.string()
    found, error = [], 0
    for _ in range(answer.int32()):
        answer.int32()
        found.append((answer.int64(), answer.string()))
        error = answer.int16() or error
    return error, found


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(2))
def test_no_acknowledged_commit_is_lost(seed: int, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    chance = random.Random(f"commits {seed}")
    committers = [Committer(f"group-{at}") for at in range(6)]
    kills = 2 if pytestconfig.getoption("judge") else 8
    with mortal(tmp_path, pytestconfig) as broker:
        with Raw(broker.port) as raw:
            assert create_topic(raw, "left", PARTITIONS) == 0
            find(raw, committers[0].group)
        for _ in range(kills):
            stop = threading.Event()
            threads = [threading.Thread(target=one.run, args=(broker.port, stop)) for one in committers]
            for thread in threads:
                thread.start()
            time.sleep(chance.uniform(0.02, 0.3))  # the moment of the kill
            kill(broker)
            stop.set()
            for thread in threads:
                thread.join()
            broker.start()
            with Raw(broker.port) as raw:
                for one in committers:
                    check(raw, one)
    assert min(one.acked for one in committers) > kills, "too little was acknowledged for the kills to mean anything"


def check(raw: Raw, one: Committer) -> None:
    deadline = time.monotonic() + 30
    error, found = fetched(raw, one.group)
    while error:
        assert time.monotonic() < deadline, f"error {error} for 30 s"
        error, found = fetched(raw, one.group)
    offset, metadata = found[0]
    assert found == [(offset, metadata)] * PARTITIONS, "both partitions of one commit, or none"
    offset = max(offset, 0)
    assert one.acked <= offset <= one.sent, f"{one.group}: {one.acked} acknowledged, {one.sent} sent, {offset} there"
    assert not offset or metadata == f"at {offset}"
    one.acked = one.sent = offset
