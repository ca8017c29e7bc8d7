"""The broker is killed and started again under working groups: they go on, and no commit is lost.

The coordinator finds members and generations in its log, so whoever did not notice goes on as it was: that is shown
with raw members, who wait for as long as it takes. Real clients may do otherwise when the broker is away: their polls
raise, they give their partitions up, join again, and read again what they had not committed. How soon they do so
depends on the machine. So they must only settle again, and obey the laws of `history.py` all the time. Raw committers,
whose broker is killed again and again, find after each restart no less than was acknowledged.
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
from groups.scenario import HEARTBEAT_MS, PARTITIONS, SETTINGS, Plan, Writer, remembered, settled
from handlers.story import Story, describe
from handlers.test_consumers import ConsumerStory
from process import Ottla
from waiting import wait_until

from ottla.errors import ErrorCode

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
# A member that gave up leaves its old self behind, and the others wait for the end of that one's session.
SESSION_MS: Final = 10_000
MEMBERS: Final = ("a", "b", "c")
TOPICS: Final = ("left", "right")


def mortal(folder: Path, pytestconfig: pytest.Config, *, session_ms: int = SESSION_MS) -> Ottla | judge.Kafka:
    kind = judge.Kafka if pytestconfig.getoption("judge") else Ottla
    return kind(folder, settings={**SETTINGS, "group.consumer.session.timeout.ms": str(session_ms)})


def kill(broker: Ottla | judge.Kafka) -> None:
    if isinstance(broker, Ottla):
        broker.kill()
    else:
        broker.stop(kill=True)


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
        host = Host(family, broker.bootstrap, journal)
        writer = Writer(broker.bootstrap, TOPICS)
        try:
            for plan in plans:
                for member in MEMBERS:
                    host.join(f"{plan}/{member}", str(plan), topics=",".join(TOPICS), assignor=plan.assignor,
                              protocol=plan.protocol, session_ms=str(SESSION_MS),
                              heartbeat_ms=str(HEARTBEAT_MS))  # fmt: skip
            assert journal.wait(lambda: all(ready(journal, plan) for plan in plans)), "the groups never settled"
            assert journal.wait(lambda: len(high(journal)) == len(plans) * 2 * PARTITIONS), "nobody commits"
            for _ in range(2):
                kill(broker)
                for plan in plans:
                    journal.add(history.Event(time.monotonic_ns(), str(plan), "broker", "away"))
                broker.start()
                reached = high(journal)
                assert journal.wait(lambda reached=reached: past(journal, reached)), "nobody commits any more"  # type: ignore[misc]
            assert journal.wait(lambda: all(ready(journal, plan) for plan in plans)), "the groups never settled again"
            ends = writer.stop()
            reads = journal.wait(lambda: all(last(journal, str(plan)) == ends for plan in plans))
            assert reads, {str(plan): last(journal, str(plan)) for plan in plans}
            known = {plan: remembered(admin, str(plan)) for plan in plans}
        finally:
            writer.stop()
            host.close()
    for plan in plans:
        events = journal.of(str(plan))
        assert not history.failures([event for event in events if event.what != "raised"])
        if plan.protocol == "classic":
            assert not history.one_owner_in_a_generation(events)
        assert not history.one_owner(events)
        assert not history.one_reader(events)
        assert not history.no_way_back(events)
        assert not history.nothing_lost(events, ends, known[plan])


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


# --- members that wait -----------------------------------------------------------------------------------------------


def test_members_keep_their_generation_and_their_partitions(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """What a restart owes to a member that has only waited: its heartbeat and its commit are good as before."""
    with mortal(tmp_path, pytestconfig, session_ms=60_000) as broker:
        with Story(broker.port, "classic") as story, ConsumerStory(broker.port, "newer") as newer:
            story.invite("A", session_ms=600_000)
            story.send(story.join("A", session_ms=600_000), 9, "A")
            generation = story.hear("joined", "A").generation_id
            story.ask("shared out", story.sync("A", generation, {"A": b"all of it"}), 5)
            epoch = newer.enter("N").member_epoch
            wait_until(lambda: newer.parts("N") == [2], "the partitions of the newer member")
        ids = story.ids
        for _ in range(2):
            kill(broker)
            broker.start()
            with Story(broker.port, "classic") as story, ConsumerStory(broker.port, "newer") as newer:
                story.ids = ids
                assert story.ask("beats", story.heartbeat("A", generation), 4).error_code == ErrorCode.NONE
                answer = story.ask("commits", story.commit("A", generation, (0, 7, "")), 8)
                assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
                (found,) = story.wire().ask(describe("classic"), 5).groups
                assert [(one.member_id, one.member_assignment) for one in found.members] == [(ids["A"], b"all of it")]
                beat = newer.beat("N", epoch)
                assert (beat.error_code, beat.member_epoch) == (ErrorCode.NONE, epoch)
                assert newer.parts("N") == [2]


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
    wait_until(lambda: raw.call(FIND_COORDINATOR, 0, string(group)).int16() == 0, "the coordinator")


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
            before = [one.acked for one in committers]
            wait_until(lambda before=before: all(one.acked > was for one, was in zip(committers, before, strict=True)))  # type: ignore[misc]
            time.sleep(chance.uniform(0, 0.2))  # the moment of the kill
            kill(broker)
            stop.set()
            for thread in threads:
                thread.join()
            broker.start()
            with Raw(broker.port) as raw:
                for one in committers:
                    check(raw, one)
    assert min(one.acked for one in committers) >= kills, "each kill came after a commit"


def check(raw: Raw, one: Committer) -> None:
    wait_until(lambda: fetched(raw, one.group)[0] == 0, "the coordinator has loaded")
    _, found = fetched(raw, one.group)
    offset, metadata = found[0]
    assert found == [(offset, metadata)] * PARTITIONS, "both partitions of one commit, or none"
    offset = max(offset, 0)
    assert one.acked <= offset <= one.sent, f"{one.group}: {one.acked} acknowledged, {one.sent} sent, {offset} there"
    assert not offset or metadata == f"at {offset}"
    one.acked = one.sent = offset
