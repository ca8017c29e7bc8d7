"""Topics of one cluster, copied to another as whole record batches, exactly once.

    ottla pipeline run mirror --bootstrap west:9092 --option to=east:9092 --option topics=orders --option prefix=west.

Keys, values, headers, timestamps, partitions and codecs stay as they are; records never become rows. Topics are made at
the target with the options of the original, new ones that match are picked up, partitions are added as they are added.
What was aborted at the source is not copied. Groups of the source stand at the target where they would go on, so that
consumers can change over (`groups`). A topic that came from the target is not copied back.

The loop below plans rounds: what is new in which partition. Each round is a Spark job whose tasks copy partitions
(`mirroring` has the proof of exactly once). The driver holds nothing that matters: it may die at any time. Progress is
committed at the source to group `ottla-mirrored-<name>`, for whoever watches lag there.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.client import offsets
from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed, passes
from ottla.client.security import security
from ottla.spark.groups import MIRROR, Shown
from ottla.spark.pipelines.mirror.endpoint import Endpoint, properties
from ottla.spark.pipelines.mirror.following import Followed
from ottla.spark.pipelines.mirror.mirroring import KEPT_S, CopyOutcome, Job, PartitionTask, copy
from ottla.spark.pipelines.mirror.roster import Roster
from ottla.spark.runner import Option, Pipeline, Run, main
from ottla.spark.runner.rounds import Rounds, Trouble, spread
from ottla.spark.selection import TopicSelection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.client.cluster import Cluster
    from ottla.spark.pipelines.mirror.roster import Mirrored
    from ottla.spark.pipelines.mirror.translation import MirrorPosition
    from ottla.spark.runner.generating import Record

log = logging.getLogger("ottla.spark")

IDLE_S: Final = 0.1  # so long is waited when there is nothing new
FENCED_MAX: Final = 3  # so often in a row: not a twin of a task of ours, but another run

OPTIONS = (
    Option("to", None, "the cluster to copy to: host:port, several with commas"),
    Option("topics", "*", "names and patterns (regular expressions) with commas between them; * is all"),
    Option("prefix", "", "put before the names at the target, such as west."),
    Option("name", "mirror", "of this mirror: two of one name to one target replace each other"),
    Option("groups", ".*", "pattern of the groups whose offsets are translated; empty: none"),
    Option("existing", "refuse", "what to do with a topic at the target that has other records", ("refuse", "append")),
    Option("failOnDataLoss", "true", "end when the source has lost records before they were copied", ("true", "false")),
    Option("to.properties", "", "file of client properties for the target (security.protocol and so on)"),
    Option("replicas", "-1", "of topics that are made at the target; -1: the target's default"),
    Option("round", "5 seconds", "how long a task goes on copying before the next look at topics and groups"),
    Option("transaction.bytes", "67108864", "committed together at the target"),
    Option("topics.every", "5 seconds", "how often to look for new topics and partitions"),
    Option("groups.every", "5 seconds", "how often to translate groups"),
    Option("patience", "10 minutes", "how long to try again while a cluster is away"),
)


def run(run: Run) -> None:
    selection = TopicSelection.parse(run["topics"], run["prefix"])
    followed = Followed(run["name"], run["groups"]) if run["groups"] else None
    source = Endpoint(run.bootstrap, security(run.properties), "ottla-mirror")
    other = properties(run["to.properties"]) if run["to.properties"] else security({})
    target = Endpoint(run["to"], other, "ottla-mirror")
    with source.connect() as here, target.connect() as there:
        replicas, append = run.integer("replicas"), run["existing"] == "append"
        roster = Roster(here, there, selection, mirror=run["name"], replicas=replicas, append=append)
        job = Job(
            run["name"],
            source,
            target,
            here.id or "",
            seconds=run.seconds("round"),
            transaction_bytes=run.integer("transaction.bytes"),
            fail_on_data_loss=run.flag("failOnDataLoss"),
        )
        Mirror(run, job, here, there, roster, followed).loop()


class Mirror:
    def __init__(
        self, run: Run, job: Job, source: Cluster, target: Cluster, roster: Roster, followed: Followed | None
    ) -> None:
        self._run = run
        self._job = job
        self._shown = Shown(MIRROR, "mirror", job.name)
        self._source = source
        self._target = target
        self._roster = roster
        self._followed = followed
        self._rounds = Rounds(job.name)
        self._trouble = Trouble(run.seconds("patience"))
        self._topics: list[Mirrored] = []
        self._positions: dict[TopicPartition, tuple[TopicPartition, MirrorPosition]] = {}
        self._stored_at: dict[TopicPartition, float] = {}
        self._fenced: dict[TopicPartition, int] = {}
        self._bounds: dict[TopicPartition, int] | None = None  # where a run ends that ends by itself
        self._looked = self._translated = self._told = float("-inf")
        self._copied = 0  # records, since they were told last

    def loop(self) -> None:
        run, rounds = self._run, self._rounds
        run.queries.append(rounds)  # type: ignore[arg-type]  # it is one to all who ask
        run.report(run)
        try:
            while not run.stopping:
                try:
                    busy = self._round()
                except Failed as error:
                    if not passes(error):
                        raise
                    self._trouble.bear(str(error))
                    self._source.forget()
                    self._target.forget()
                    run.pause(1.0)
                    continue
                run.report(run)
                if not busy:
                    if run.once:
                        break
                    run.pause(IDLE_S)
            self._translate(at_once=True)
        finally:
            rounds.stop()

    def _round(self) -> bool:
        """Copy what is new; whether anything was."""
        self._look()
        parts, ends = self._plan()
        if parts:
            lanes = share_out(parts, self._positions, 2 * self._run.spark.sparkContext.defaultParallelism)
            try:
                results = spread(self._run.spark, lanes, partial(copy, self._job))
            except Trouble.OF_SPARK as error:  # a worker was killed: the next round begins where it was
                self._trouble.bear(error)
                return True
            self._take([outcome for some in results for outcome in some])
            self._tell()
        if parts or time.monotonic() - self._told > 1.0:
            self._told = time.monotonic()
            reached = {where: position.offset for where, (_, position) in self._positions.items()}
            self._rounds.done(self._copied, reached, {where: ends[where] for where in reached if where in ends})
            self._copied = 0
        self._translate()
        return bool(parts)

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked < self._run.seconds("topics.every"):
            return
        self._topics, notes = self._roster.refresh()
        self._looked = now
        for note in notes:
            log.warning("mirror %s: %s", self._job.name, note)
        ids = {(one.name, one.topic_id) for one in self._topics}
        for where, (_, position) in list(self._positions.items()):
            if (where.topic, position.topic_id) not in ids:
                del self._positions[where]  # deleted, or made anew: the next task finds out

    def _plan(self) -> tuple[list[PartitionTask], dict[TopicPartition, int]]:
        """Partitions with something new, or that nobody has looked at yet; and where all of them end."""
        wheres = [TopicPartition(one.name, index) for one in self._topics for index in range(one.partitions)]
        firsts, ends = offsets.earliest(self._source, wheres), offsets.latest(self._source, wheres, committed=True)
        if self._run.once:
            if self._bounds is None:
                self._bounds = ends
            ends = {where: self._bounds[where] for where in wheres if where in self._bounds}
        parts, now = [], time.monotonic()
        for one in self._topics:
            for index in range(one.partitions):
                where, to = TopicPartition(one.name, index), TopicPartition(one.twin, index)
                if where not in ends:
                    continue
                known = self._positions.get(where)
                # At the first look too: runs that are all shorter would let the positions of idle partitions expire.
                stale = known is None or now - self._stored_at.get(where, now) > KEPT_S
                if known is None or stale or known[1].offset < ends[where]:
                    registered = one.provenance.ends.get(index, 0)
                    parts.append(
                        PartitionTask(
                            where, to, one.topic_id, firsts[where], ends[where], registered, one.size_max, stale
                        )
                    )
        return parts, ends

    def _take(self, outcomes: list[CopyOutcome]) -> None:
        """What the tasks say: positions, lasting troubles (raised), and passing ones (borne for a while)."""
        troubles = []
        for one in outcomes:
            for note in one.notes:
                log.warning("mirror %s: %s", self._job.name, note)
            self._copied += one.records
            if one.position is not None:
                self._positions[one.where] = (one.to, one.position)
                self._stored_at[one.where] = time.monotonic()
                self._fenced.pop(one.where, None)
                continue
            if not one.passing:
                raise Failed(one.error)
            if one.fenced:
                self._fenced[one.where] = self._fenced.get(one.where, 0) + 1
                if self._fenced[one.where] >= FENCED_MAX:
                    raise Failed(
                        f"another run of mirror {self._job.name} copies the same topics: stop one of the two, or give "
                        "this one another name and prefix"
                    )
            troubles.append(one.error)
        if troubles:
            self._trouble.bear(troubles[0], progress=len(troubles) < len(outcomes))
            self._run.pause(1.0)
        else:
            self._trouble.over()

    def _tell(self) -> None:
        """Commit progress at the source, where lag is watched. That it fails is no reason to stop."""
        try:
            self._shown.tell(self._source, {where: position.offset for where, (_, position) in self._positions.items()})
        except Failed as error:
            log.warning("mirror %s: its progress was not committed at the source (%s)", self._job.name, error)

    def _translate(self, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if self._followed is None or not self._positions:
            return
        if not at_once and now - self._translated < self._run.seconds("groups.every"):
            return
        self._translated = now
        try:
            _, notes = self._followed.follow(self._source, self._target, self._positions)
        except Failed as error:
            notes = [f"groups were not translated ({error})"]
        for note in notes:
            log.warning("mirror %s: %s", self._job.name, note)


def share_out(
    parts: list[PartitionTask], positions: dict[TopicPartition, tuple[TopicPartition, MirrorPosition]], lanes: int
) -> list[list[PartitionTask]]:
    """Parts for each task, about the same number of offsets; those with the most come first."""

    def size(part: PartitionTask) -> int:
        known = positions.get(part.where)
        return part.stop - (known[1].offset if known else part.first)

    found: list[tuple[int, list[PartitionTask]]] = [(0, []) for _ in range(min(lanes, len(parts)))]
    for part in sorted(parts, key=size, reverse=True):
        index = min(range(len(found)), key=lambda i: (found[i][0], len(found[i][1])))
        total, some = found[index]
        found[index] = (total + size(part), [*some, part])
    return [some for _, some in found]


def generate(run: Run) -> None:
    """Orders by customer, in the first of the topics that is a name (or `orders`)."""
    topic = TopicSelection.parse(run["topics"]).name_or("orders")
    run.ensure_topic(topic, partitions=4)
    run.send(orders(topic, run.seed))


def orders(topic: str, seed: int) -> Iterator[Record]:
    import json
    import random

    from ottla.spark.runner.generating import Record

    chance = random.Random(seed)
    number = 0
    while True:
        customer = f"customer-{chance.randrange(1000):03}"
        value = {"order": number, "customer": customer, "cents": chance.randrange(100, 100_000)}
        yield Record(topic, customer, json.dumps(value), headers=(("seed", b"%d" % seed),))
        number += 1


PIPELINE = Pipeline(
    "mirror", "Copy topics to another cluster, exactly once.", run=run, options=OPTIONS, generate=generate
)

if __name__ == "__main__":
    main(PIPELINE)
