"""Any topic to a table of Parquet files or to a Delta table, written as Arrow inside the Python workers.

    ottla pipeline run export --option topics=orders --option path=tables/orders
    ottla pipeline run export --option topics=orders --option format=delta --option partition=day

The columns are those of the source: key, value, topic, partition, offset, timestamp, timestampType, headers. Rows never
enter the JVM: a task fetches a range of a partition, decodes it and writes it as Parquet. Files become part of the
table in one commit with the offsets they reach to, so that a run that is killed and resumed has each record once
(`ottla.spark.pipelines.export.ledger`, `delta_ledger`). With `dead.letter`, records that do not fit into the table go
to that topic, each once (`letters`). Progress is committed to group `ottla-export-<name>`.
"""

from __future__ import annotations

import logging
import time
import uuid
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.client import offsets
from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed, passes
from ottla.spark.groups import EXPORT, Shown
from ottla.spark.pipelines.export.exporting import ExportedRange, TableShape, write
from ottla.spark.pipelines.export.ledger import STAGING, FolderLedger, TableProgress
from ottla.spark.pipelines.export.letters import DeadLetters, LetterFile
from ottla.spark.runner import Option, Pipeline, Run, main
from ottla.spark.runner.places import STORAGE, locate
from ottla.spark.runner.rounds import Rounds, spread
from ottla.spark.selection import TopicSelection
from ottla.spark.sink.options import SinkOptions
from ottla.spark.source import planning
from ottla.spark.source.options import SourceOptions
from ottla.spark.source.sampling import Sampler
from ottla.spark.trouble import Trouble, WorkerLost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.client.cluster import Cluster
    from ottla.spark.pipelines.export.ledger import TableLedger
    from ottla.spark.runner.generating import Record
    from ottla.spark.source.planning import Range, Split
    from ottla.spark.storage.location import Location

log = logging.getLogger("ottla.spark")

ROUND_TASKS: Final = 8  # per core, in one commit: what a kill costs
TASK_BYTES_MIN: Final = 8 << 20  # tasks are not made smaller than this to keep all cores busy

OPTIONS = (
    Option("topics", None, "names and patterns (regular expressions), separated by commas; all go to one table"),
    Option("path", "", "the folder or URL of the table; tables/<name> in the run's own folder if not given"),
    Option("name", "export", "of this export: its group at the source is ottla-export-<name>"),
    Option("format", "parquet", "of the table", ("parquet", "delta")),
    Option("partition", "none", "none, or a folder for each day of the records' timestamps (UTC)", ("none", "day")),
    Option("key", "binary", "what the column key is", ("binary", "string")),
    Option("value", "binary", "what the column value is", ("binary", "string")),
    Option("headers", "true", "whether to add a column headers", ("true", "false")),
    Option("compression", "snappy", "of the files", ("snappy", "zstd", "lz4", "gzip", "none")),
    Option("level", "", "of the compression; its own default if not given"),
    Option("file.bytes", "134217728", "about how many bytes go into one file"),
    Option(
        "sync", "false", "sync to disk before each commit, to survive a power cut and not only kills", ("true", "false")
    ),
    Option("interval", "30 seconds", "between commits while little comes in; with more, there is no pause"),
    Option("failOnDataLoss", "true", "fail if records are gone before they were exported", ("true", "false")),
    Option("patience", "10 minutes", "how long to retry while the cluster is unreachable"),
    Option("dead.letter", "", "the topic for records that the table cannot hold; empty: they end the run"),
    *STORAGE,
)


def run(run: Run) -> None:
    selection = TopicSelection.parse(run["topics"])
    shape = TableShape(
        key=run["key"],
        value=run["value"],
        headers=run.flag("headers"),
        by_day=run["partition"] == "day",
        compression=run["compression"],
        level=run.integer("level") if run["level"] else None,
        file_bytes=run.integer("file.bytes", least=1),
        synced=run.flag("sync"),
    )
    source = SourceOptions.load(
        {
            "kafka.bootstrap.servers": run.bootstrap,
            "subscribe": "the splits say what",
            "kafka.isolation.level": "read_committed",
            "includeHeaders": "true" if run["dead.letter"] else run["headers"],
            "failOnDataLoss": run["failOnDataLoss"],
            "kafkaConsumer.pollTimeoutMs": str(int(run.seconds("patience") * 1000)),
            **{f"kafka.{name}": value for name, value in run.properties.items()},
        }
    )
    place = locate(run, run["path"], "tables", run["name"])
    if run["dead.letter"] in selection.names:
        raise Failed(f"topic {run['dead.letter']} cannot be both exported and the dead-letter topic: name another one")
    if run["dead.letter"]:
        run.ensure_topic(run["dead.letter"])
    with source.cluster() as cluster:
        if run["format"] == "delta":
            from ottla.spark.pipelines.export.delta_ledger import DeltaLedger

            ledger: TableLedger = DeltaLedger(place, shape, cluster.id or "")
        else:
            ledger = FolderLedger(place, shape)
        try:
            Export(run, cluster, source, selection, shape, ledger, place).loop()
        finally:
            ledger.close()


class Export:
    def __init__(
        self,
        run: Run,
        cluster: Cluster,
        source: SourceOptions,
        selection: TopicSelection,
        shape: TableShape,
        ledger: TableLedger,
        place: Location,
    ) -> None:
        self._run = run
        self._shown = Shown(EXPORT, "export", run["name"])
        self._cluster = cluster
        self._selection = selection
        self._ledger = ledger
        self._shape = shape
        self._sampler = Sampler(cluster)
        self._rounds = Rounds(run["name"])
        self._trouble = Trouble(run.seconds("patience"))
        folder = ledger.staging or place
        self._letters: DeadLetters | None = None
        aside: Location | None = None
        if topic := run["dead.letter"]:
            aside = ledger.staging or place / STAGING / uuid.uuid4().hex
            options = SinkOptions.load({**run.kafka(), "topic": topic, "exactly.once": "true"})
            self._letters = DeadLetters(cluster, options, ledger.table_id(), aside)
        self._write = partial(
            write, options=source, shape=shape, folder=folder, staged=ledger.staging is not None, aside=aside
        )
        self._bounds: dict[TopicPartition, int] | None = None  # where a run that ends by itself ends

    def loop(self) -> None:
        run = self._run
        run.queries.append(self._rounds)  # type: ignore[arg-type]  # it is one to all who ask
        run.report(run)
        try:
            while not run.stopping:
                began = time.monotonic()
                try:
                    more = self._round()
                except Failed as error:
                    if not passes(error):
                        raise
                    self._trouble.bear(str(error))
                    self._cluster.forget()
                    run.pause(1.0)
                    continue
                run.report(run)
                if more:
                    continue
                if run.once:
                    break
                self._rest(began + run.seconds("interval"))
        finally:
            self._rounds.stop()

    def _rest(self, until: float) -> None:
        while time.monotonic() < until and not self._run.stopping:
            self._run.pause(min(1.0, until - time.monotonic()))
            self._run.report(self._run)

    def _round(self) -> bool:
        """Write and commit new records, up to a limit. Returns whether there are more."""
        ids, ends = self._ends()
        reached = self._ledger.read_progress({where: ids[where.topic] for where in ends})
        firsts = offsets.earliest(self._cluster, ends)
        ranges = self._ranges(reached, ids, ends, firsts)
        splits, more = self._splits(ranges)
        if splits:
            try:
                written = spread(self._run.spark, splits, self._write)
            except WorkerLost as error:
                self._trouble.bear(str(error))  # a worker was killed: its files are never read
                return True
            for one in written:
                if one.error:
                    raise Failed(one.error)
            reached = self._commit(written, ranges, reached, ids)
            self._trouble.over()
        rows = sum(one.rows for one in written) if splits else 0
        self._rounds.done(rows, {where: reached.offsets.get(where, firsts[where]) for where in ends}, ends)
        return more

    def _ends(self) -> tuple[dict[str, str], dict[TopicPartition, int]]:
        topics = self._cluster.topics()
        for name in self._selection.names:
            if name not in topics:
                raise Failed(f"topic {name} does not exist: create it, or name a pattern that may match")
        chosen = self._selection.choose(topics)
        chosen.pop(self._run["dead.letter"], None)
        wheres = [TopicPartition(name, index) for name in chosen for index in range(topics[name].partitions)]
        ends = offsets.latest(self._cluster, wheres, committed=True)
        if self._run.once:
            if self._bounds is None:
                self._bounds = ends
            ends = {where: self._bounds[where] for where in wheres if where in self._bounds}
        return {name: str(topics[name].id or name) for name in chosen}, ends

    def _ranges(
        self,
        reached: TableProgress,
        ids: dict[str, str],
        ends: dict[TopicPartition, int],
        firsts: dict[TopicPartition, int],
    ) -> list[Range]:
        if reached.cluster is not None and reached.cluster != self._cluster.id:
            raise Failed(
                f"the table has records of cluster {reached.cluster}, but {self._run.bootstrap} is "
                f"{self._cluster.id}: export to another path"
            )
        found = []
        for where, end in ends.items():
            start, first = reached.offsets.get(where), firsts[where]
            what = f"{where.topic} partition {where.partition}"
            if start is not None and reached.ids.get(where.topic) != ids[where.topic]:
                self._lose(f"{what} was deleted and recreated since it was exported")
                start = None
            if start is not None and start < first:
                self._lose(f"{what} now begins at offset {first}, but was exported only up to {start}")
                start = first
            start = first if start is None else start
            if start < end:
                found.append(planning.Range(where, start, end))
        return found

    def _lose(self, text: str) -> None:
        if self._run.flag("failOnDataLoss"):
            raise Failed(f"{text}; set failOnDataLoss=false to continue with what is there")
        log.warning("export: %s; continuing with what is there", text)

    def _splits(self, ranges: list[Range]) -> tuple[list[Split], bool]:
        """The ranges cut into files, as many as one commit takes, from the front of each; and whether some are left."""
        if not ranges:
            return [], False
        cores = self._run.spark.sparkContext.defaultParallelism
        profiles = self._sampler.profiles(ranges, split_bytes=self._shape.file_bytes)
        size = sum(profile.size for profile in profiles.values())
        split_bytes = min(self._shape.file_bytes, max(int(size / cores) + 1, TASK_BYTES_MIN))
        cut = planning.splits(ranges, profiles, split_bytes=split_bytes)
        lines: dict[TopicPartition, list[Split]] = {}
        for split in cut:
            lines.setdefault(split.where, []).append(split)
        chosen: list[Split] = []
        depth = 0
        while len(chosen) < min(len(cut), cores * ROUND_TASKS):
            chosen += [line[depth] for line in lines.values() if depth < len(line)]
            depth += 1
        return chosen, len(chosen) < len(cut)

    def _commit(
        self, written: list[ExportedRange], ranges: list[Range], before: TableProgress, ids: dict[str, str]
    ) -> TableProgress:
        """Commit everything that was written. Ranges must follow each other without a gap, or the offsets would be
        wrong."""
        reached = {one.where: one.start for one in ranges}
        for one in sorted(written, key=lambda one: (one.where, one.start)):
            assert reached[one.where] == one.start, f"{one.where} was not written from {reached[one.where]} on"
            reached[one.where] = one.stop
        after = TableProgress(self._cluster.id, {**before.offsets, **reached}, {**before.ids, **ids})
        asides = [LetterFile(one.where, one.aside) for one in written if one.aside]
        if asides:
            assert self._letters is not None, "tasks put records aside only if letters are on"
            self._letters.send(asides, reached, ids)
        self._ledger.commit([file for one in written for file in one.files], after)
        if self._letters is not None:
            self._letters.forget(asides)
        try:
            self._shown.tell(self._cluster, after.offsets)
        except Failed as error:
            log.warning("export: progress was not committed to group %s (%s)", self._shown.group, error)
        return after


def generate(run: Run) -> None:
    """Readings of sensors, in the first topic that is given by name (or `readings`)."""
    topic = TopicSelection.parse(run["topics"]).name_or("readings")
    run.ensure_topic(topic, partitions=4)
    run.send(readings(topic, run.seed))


def readings(topic: str, seed: int) -> Iterator[Record]:
    import json
    import random

    from ottla.spark.runner.generating import Record

    chance = random.Random(seed)
    number = 0
    while True:
        sensor = f"sensor-{chance.randrange(200):03}"
        value = {"number": number, "sensor": sensor, "celsius": round(chance.gauss(20, 5), 2)}
        yield Record(topic, sensor, json.dumps(value), headers=(("seed", b"%d" % seed),))
        number += 1


PIPELINE = Pipeline(
    "export", "Write topics to Parquet files or a Delta table.", run=run, options=OPTIONS, generate=generate
)

if __name__ == "__main__":
    main(PIPELINE)
