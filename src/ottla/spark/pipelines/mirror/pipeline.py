"""Copies topics of one cluster to another as whole record batches, exactly once.

    ottla pipeline run mirror --bootstrap west:9092 --option to=east:9092 --option topics=orders --option prefix=west.

Keys, values, headers, timestamps, partitions and codecs stay as they are; records never become rows. Topics are created
at the target with the configs of the original. New topics that match are picked up, and added partitions are added.
Aborted records are not copied. The committed offsets of groups are translated to the target, so that consumers can
switch over (`groups`). A topic that came from the target is not copied back.

`loop` plans rounds: what is new in which partition. Each round is a Spark job whose tasks copy partitions. `ottla
mirror` runs the same loop in one process, without Spark.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.client.security import security
from ottla.spark.pipelines.mirror.endpoint import Endpoint, properties
from ottla.spark.pipelines.mirror.following import Followed
from ottla.spark.pipelines.mirror.loop import Mirror, Pace
from ottla.spark.pipelines.mirror.mirroring import CopyOutcome, Job, PartitionTask, copy
from ottla.spark.pipelines.mirror.roster import Roster
from ottla.spark.runner import Option, Pipeline, Run, main
from ottla.spark.runner.rounds import Rounds, spread
from ottla.spark.selection import TopicSelection

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ottla.client.cluster import TopicPartition
    from ottla.spark.runner.generating import Record

OPTIONS = (
    Option("to", None, "the cluster to copy to: host:port, separated by commas"),
    Option("topics", "*", "names and patterns (regular expressions), separated by commas; * is all"),
    Option("prefix", "", "put before the names at the target, such as west."),
    Option("name", "mirror", "of this mirror: two of one name to one target replace each other"),
    Option("groups", ".*", "pattern of the groups whose offsets are translated; empty: none"),
    Option("existing", "refuse", "what to do with a topic at the target that has other records", ("refuse", "append")),
    Option("failOnDataLoss", "true", "fail if the source has lost records before they were copied", ("true", "false")),
    Option("to.properties", "", "file of client properties for the target (security.protocol and so on)"),
    Option("replicas", "-1", "of topics that are created at the target; -1: the target's default"),
    Option("round", "5 seconds", "how long a task copies before topics and groups are checked again"),
    Option("transaction.bytes", "67108864", "committed together at the target"),
    Option("topics.every", "5 seconds", "how often to look for new topics and partitions"),
    Option("groups.every", "5 seconds", "how often to translate groups"),
    Option("patience", "10 minutes", "how long to retry while a cluster is unreachable"),
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
            transaction_bytes=run.integer("transaction.bytes", least=1),
            fail_on_data_loss=run.flag("failOnDataLoss"),
        )
        pace = Pace(run.seconds("topics.every"), run.seconds("groups.every"), run.seconds("patience"))
        host = SparkHost(run, job.name)
        try:
            Mirror(host, job, here, there, roster, followed, pace).loop()
        finally:
            host.rounds.stop()


class SparkHost:
    """Each round is a Spark job: a task for each lane."""

    def __init__(self, run: Run, name: str) -> None:
        self._run = run
        self.rounds = Rounds(name)
        run.queries.append(self.rounds)  # type: ignore[arg-type]  # it is one to all who ask
        run.report(run)

    @property
    def once(self) -> bool:
        return self._run.once

    @property
    def stopping(self) -> bool:
        return self._run.stopping

    @property
    def lanes(self) -> int:
        return 2 * self._run.spark.sparkContext.defaultParallelism

    def pause(self, seconds: float) -> None:
        self._run.pause(seconds)

    def copy(self, job: Job, lanes: list[list[PartitionTask]]) -> list[CopyOutcome]:
        return [one for some in spread(self._run.spark, lanes, partial(copy, job)) for one in some]

    def report(self, records: int, reached: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        self.rounds.done(records, reached, ends)
        self._run.report(self._run)


def generate(run: Run) -> None:
    """Orders by customer, in the first topic that is given by name (or `orders`)."""
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
