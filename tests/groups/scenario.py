"""One scenario for every client library, run by several groups at once: members join, leave, crash, freeze and crowd.

Each group has an assignor of its own; all read the same two topics of two partitions, to which a producer writes all
the time. After each step the groups must settle: all partitions owned, as the assignor assigns them.

    alone     a                  the first member has everything
    three     a b v              two more, one of them in a process that will not live long
    two       a v                b left, politely
    frozen    a                  the process of v sleeps longer than its session lasts
    thawed    a v                it wakes up, finds its partitions lost, and joins again
    crashed   a                  and is killed
    crowd     a c d e f          more members than partitions
    last      f                  the others leave

A group of static members lives beside them: s in the main process, t in the one that freezes and is killed. Their
session is long: what starts again under the instance id of t (here named u) gets what t had, and s never notices. In
the newer protocol a static member that crashed keeps its place shut until its session ends; there t closes instead,
which a static member does without giving up its place.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from groups.host import SETTLE_S, Host, Journal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confluent_kafka import KafkaError, Message
    from groups.history import Event

PARTITIONS: Final = 2
SESSION_MS: Final = 3000
STATIC_SESSION_MS: Final = 30_000
HEARTBEAT_MS: Final = 200
# Both brokers must let sessions be as short as a test wants them.
SETTINGS: Final = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "5",
}


class Plan(NamedTuple):
    """One group of the story."""

    assignor: str
    protocol: str = "classic"
    static: bool = False

    def __str__(self) -> str:
        return f"{self.protocol}-{self.assignor}" + ("-static" if self.static else "")


class Story(NamedTuple):
    """The results of a group. `steps` has what each member owned whenever the group had settled."""

    plan: Plan
    events: list[Event]
    steps: dict[str, dict[str, frozenset[str]]]
    ends: dict[str, int]
    remembered: dict[str, int]
    unsettled: str  # the step that did not come to an end, if any


class Writer:
    """Writes to every partition all the time. `stop` returns how many records each has."""

    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        # Idempotent: a record is there once, also when its broker was killed between the append and the answer.
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 2, "enable.idempotence": True}
        )
        self._failures: list[str] = []
        self._places = [(topic, index) for topic in topics for index in range(PARTITIONS)]
        self._count = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        while not self._stop.wait(0.02):
            self._count += 1
            for topic, index in self._places:
                self._producer.produce(topic, b"%d" % self._count, partition=index, callback=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append(f"{message.topic()}-{message.partition()}: {error}")

    def stop(self) -> dict[str, int]:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert not self._failures
        return {f"{topic}-{index}": self._count for topic, index in self._places}


def shape(plan: Plan, topics: Sequence[str], members: int) -> Counter[frozenset[str]] | Counter[int]:
    """The assignment for this many members: what each owns, or only how much if the assignor has a choice."""
    left, right = sorted(topics)
    if plan.assignor not in ("range", "roundrobin"):
        total = 2 * PARTITIONS
        return Counter(total // members + (at < total % members) for at in range(members))
    sets: list[set[str]] = [set() for _ in range(members)]
    for at, topic in enumerate((left, right)):
        for index in range(PARTITIONS):
            if plan.assignor == "range":
                sets[index * min(members, PARTITIONS) // PARTITIONS].add(f"{topic}-{index}")
            else:
                sets[(at * PARTITIONS + index) % members].add(f"{topic}-{index}")
    return Counter(map(frozenset, sets))


def settled(plan: Plan, topics: Sequence[str], members: Sequence[str], owned: Mapping[str, frozenset[str]]) -> bool:
    sets = [owned.get(member, frozenset()) for member in members]
    if set(owned) - set(members) or len(set().union(*sets)) != 2 * PARTITIONS:
        return False
    wanted = shape(plan, topics, len(members))
    return Counter(sets) == wanted or Counter(map(len, sets)) == wanted


class Teller:
    def __init__(self, family: str, bootstrap: str, plans: Sequence[Plan], topics: Sequence[str]) -> None:
        self.family, self.bootstrap, self.plans, self.topics = family, bootstrap, plans, topics
        self.journal = Journal()
        self.main = Host(family, bootstrap, self.journal)
        self.victim = Host(family, bootstrap, self.journal)
        self.hosts = [self.main, self.victim]
        self.steps: dict[Plan, dict[str, dict[str, frozenset[str]]]] = {plan: {} for plan in plans}
        self.unsettled: dict[Plan, str] = {}
        self.closing = any(plan.static and plan.protocol == "consumer" for plan in plans)  # t closes, and is not killed

    def group(self, plan: Plan) -> str:
        return f"{self.topics[0]}-{plan}"

    def join(self, host: Host, *members: str, static: bool = False, instance: str = "") -> None:
        for plan in self.plans:
            if plan.static is not static:
                continue
            for member in members:
                options = {"topics": ",".join(self.topics), "assignor": plan.assignor, "protocol": plan.protocol,
                           "session_ms": str(STATIC_SESSION_MS if static else SESSION_MS),
                           "heartbeat_ms": str(HEARTBEAT_MS)}  # fmt: skip
                if static:
                    options["instance"] = instance or member
                host.join(f"{plan}/{member}", self.group(plan), **options)

    def leave(self, *members: str, static: bool = False) -> None:
        for plan in self.plans:
            if plan.static is static:
                for member in members:
                    self.main.leave(f"{plan}/{member}")

    def settle(self, step: str, *members: str, static: bool = False) -> None:
        """Wait for all groups, and record what their members own. A group that does not settle is left out."""

        def ready(plan: Plan) -> bool:
            owned = self.journal.owned(self.group(plan))
            if settled(plan, self.topics, [f"{plan}/{member}" for member in members], owned):
                self.steps[plan].setdefault(step, owned)
            return step in self.steps[plan]

        waiting = [plan for plan in self.plans if plan.static is static and plan not in self.unsettled]
        self.journal.wait(lambda: {ready(plan) for plan in waiting} <= {True})  # each is asked, whatever another says
        for plan in waiting:
            if step not in self.steps[plan]:
                self.unsettled[plan] = f"{step} not settled in {SETTLE_S} s: {self.journal.owned(self.group(plan))}"

    def tell(self) -> None:
        self.join(self.main, "s", static=True)
        self.join(self.main, "a")
        self.settle("alone", "a")
        self.join(self.main if self.closing else self.victim, "t", static=True)
        self.join(self.main, "b")
        self.join(self.victim, "v")
        self.settle("three", "a", "b", "v")
        self.settle("static", "s", "t", static=True)
        self.leave("b")
        self.settle("two", "a", "v")
        self.victim.freeze()
        self.settle("frozen", "a")
        self.victim.thaw()
        self.settle("thawed", "a", "v")
        self.victim.kill()
        if self.closing:
            self.leave("t", static=True)
            self.journal.wait(
                lambda: any(event.what == "left" and event.member[-2:] == "/t" for event in self.journal.events)
            )
            self.join(self.main, "u", static=True, instance="t")
        elif any(plan.static for plan in self.plans):
            self.hosts.append(Host(self.family, self.bootstrap, self.journal))
            self.join(self.hosts[-1], "u", static=True, instance="t")
        self.settle("crashed", "a")
        self.settle("restarted", "s", "u", static=True)
        self.join(self.main, "c", "d", "e", "f")
        self.settle("crowd", "a", "c", "d", "e", "f")
        self.leave("a", "c", "d", "e")
        self.settle("last", "f")

    def drain(self, ends: Mapping[str, int]) -> None:
        """Until every group has committed to the end."""

        def done(plan: Plan) -> bool:
            last = dict.fromkeys(ends, 0)
            for event in self.journal.of(self.group(plan)):
                if event.what == "committed":
                    last |= event.facts["offsets"]
            return last == ends

        waiting = [plan for plan in self.plans if plan not in self.unsettled]
        self.journal.wait(lambda: all(done(plan) for plan in waiting))

    def close(self) -> None:
        for host in self.hosts:
            host.close()


def told(family: str, bootstrap: str, plans: Sequence[Plan], topics: Sequence[str]) -> dict[Plan, Story]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
        future.result(30)
    teller = Teller(family, bootstrap, plans, topics)
    writer = Writer(bootstrap, topics)
    try:
        teller.tell()
        ends = writer.stop()
        teller.drain(ends)
    finally:
        writer.stop()
        teller.close()
    groups = {plan: teller.group(plan) for plan in plans}
    return {
        plan: Story(plan, teller.journal.of(group), teller.steps[plan], ends, remembered(admin, group),
                    teller.unsettled.get(plan, ""))
        for plan, group in groups.items()
    }  # fmt: skip


def remembered(admin: AdminClient, group: str) -> dict[str, int]:
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {f"{place.topic}-{place.partition}": place.offset for place in future.result(30).topic_partitions}
