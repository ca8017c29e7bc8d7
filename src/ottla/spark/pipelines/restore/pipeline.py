"""State rebuilt from a compacted topic, as a table: the last value of every key, now or at any past offset or time.

    accounts ── restore ─► tables/accounts/     key, value, partition, offset, timestamp

    at=                              now
    at=2026-01-31T12:00:00Z          with the records up to that moment, in each partition (UTC if there is no zone)
    at=1769860800000                 the same, in milliseconds since 1970
    at=1200                          before offset 1200 of each partition
    at={"0": 1200, "1": 1100}        before these offsets

A record without a value is a tombstone: its key is not in the table. Only committed transactions count. A key that was
written to several partitions, as happens when their number changed, has the value with the latest timestamp. The table
is replaced as a whole, so readers see the old state or the new one, even if a run is killed: on a disk folders are
swapped, elsewhere a Parquet table is one file, and Delta has its own commits. A folder that contains anything but a
table is refused. Files are written by the tasks, on any storage (`ottla.spark.storage`).

The past can only be rebuilt as far as it was kept. Compaction removes what was overwritten later: a key that changed
after `at` may have lost the value it had then. The summary says how many keys that can be: those whose every record is
later than `at`, if offsets before it are missing. (`min.compaction.lag.ms` of a topic keeps its past for that long.)

Try it:

    ottla serve
    ottla pipeline run restore --generate --once --option topic=accounts --option show=5
    ottla pipeline run restore --once --option topic=accounts --option at=500 --folder earlier
"""

import errno
import glob
import json
import re
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as F

from ottla.client import offsets
from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed
from ottla.spark.lock import NAME as LOCK
from ottla.spark.lock import InUse, Lock
from ottla.spark.runner import Option, Pipeline, Run, UsageError, main
from ottla.spark.runner.generating import Record
from ottla.spark.runner.places import STORAGE, locate
from ottla.spark.runner.rounds import Rounds
from ottla.spark.storage import delta
from ottla.spark.storage.daily import FORMATS
from ottla.spark.storage.exchange import exchange
from ottla.spark.storage.location import Location
from ottla.spark.storage.reading import arrow
from ottla.spark.storage.reading import read as read_files
from ottla.spark.storage.store import COPIED_MAX, HIDDEN, Store
from ottla.spark.storage.writing import WrittenFile, write_empty, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPTIONS: Final = (
    Option("topic", None, "The topic, usually one with cleanup.policy=compact."),
    Option("at", "", "The moment: empty for now, a time, an offset, or offsets by partition."),
    Option("path", "", "The folder or URL of the table; empty: tables/<topic> in the run's own folder."),
    Option("format", "parquet", "Of the table.", FORMATS),
    Option("key", "string", "What the column key is.", ("binary", "string")),
    Option("value", "string", "What the column value is.", ("binary", "string")),
    Option("show", "10", "How many rows to print."),
    Option("keys", "100", "How many different keys generated records have."),
    *STORAGE,
)
COLUMNS: Final = ("key", "value", "partition", "offset", "timestamp")
MILLISECONDS: Final = 100_000_000_000  # a number from here on is a time: of March 1973 or later
PARTITIONS: Final = 2
OF_A_TABLE: Final = re.compile(r"part-.*\.parquet|_SUCCESS|_delta_log|\..*\.crc")
WHOLE: Final = "part-00000.parquet"  # a table of one file, which can be replaced atomically everywhere
EXPECTED: Final = (
    'a time such as 2026-01-31T12:00:00Z, milliseconds, an offset, or offsets such as {"0": 1200, "1": 1100}'
)


class RestorePoint(NamedTuple):
    """Records up to this time, or before these offsets; everything if both are None."""

    time_ms: int | None = None
    offset: int | None = None
    offsets: dict[int, int] | None = None


def moment(text: str) -> RestorePoint:
    text = text.strip()
    if not text or text in ("now", "latest"):
        return RestorePoint()
    if text.isdecimal():
        return RestorePoint(time_ms=int(text)) if int(text) >= MILLISECONDS else RestorePoint(offset=int(text))
    try:
        if text.startswith("{"):
            return RestorePoint(offsets={int(index): int(offset) for index, offset in json.loads(text).items()})
        at = datetime.fromisoformat(text)
    except (ValueError, TypeError, AttributeError):
        raise UsageError(f"at={text}: expected {EXPECTED}") from None
    return RestorePoint(time_ms=int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000))


class PartitionSpan(NamedTuple):
    """Of one partition: its start, where the state ends, and its end."""

    start: int
    bound: int
    end: int


def run(run: Run) -> None:
    place = locate(run, run["path"], "tables", run["topic"])
    if run["format"] == "parquet":
        check_replaceable(place)
    else:
        delta.table_at(place)
    rounds = Rounds("restore")
    run.queries.append(rounds)  # type: ignore[arg-type]  # it is one to all who ask
    try:
        spans = bounds(run, moment(run["at"]))
        state = last(between(run, spans, later=False)).where("value is not null")
        frame = state.select(*(F.col(name).cast(run[name]) if name in ("key", "value") else name for name in COLUMNS))
        parts = write(frame, place, run["format"])
        read_count = tell(run, place, parts, frame, spans)
        reached = {TopicPartition(run["topic"], index): span.bound for index, span in spans.items()}
        rounds.done(read_count, reached, reached)
    finally:
        rounds.stop()


def bounds(run: Run, at: RestorePoint) -> dict[int, PartitionSpan]:
    topic = run["topic"]
    with run.cluster() as cluster:
        found = cluster.topics([topic]).get(topic)
        if found is None:
            raise Failed(f"topic {topic} does not exist at {run.bootstrap}: create it, or correct the name")
        wheres = [TopicPartition(topic, index) for index in range(found.partitions)]
        starts = offsets.earliest(cluster, wheres)
        ends = offsets.latest(cluster, wheres, committed=True)
        chosen = dict(ends)
        later: dict[TopicPartition, tuple[int, int] | None] = {}
        if at.time_ms is not None:
            later = offsets.at_time(cluster, dict.fromkeys(wheres, at.time_ms + 1))
            chosen |= {where: one[0] for where, one in later.items() if one is not None}
        elif at.offset is not None:
            chosen = dict.fromkeys(wheres, at.offset)
        elif at.offsets is not None:
            if unknown := at.offsets.keys() - {where.partition for where in wheres}:
                raise UsageError(f"at names partition {min(unknown)}, but {topic} has 0 to {len(wheres) - 1}")
            chosen = {where: at.offsets.get(where.partition, starts[where]) for where in wheres}
    for where in wheres:
        # If the first record is later than the moment, earlier ones are gone. If no record is later, nothing has
        # changed.
        if chosen[where] < starts[where] or (later.get(where) is not None and chosen[where] == starts[where] > 0):
            raise Failed(
                f"{topic} partition {where.partition} starts at offset {starts[where]} now, after the requested "
                "moment: its state then is gone, choose a later one"
            )
    return {
        where.partition: PartitionSpan(starts[where], min(chosen[where], ends[where]), ends[where]) for where in wheres
    }


def between(run: Run, spans: dict[int, PartitionSpan], *, later: bool) -> "DataFrame":
    """The records before the bounds, or from there on."""
    ranges = {index: (span.bound, span.end) if later else (span.start, span.bound) for index, span in spans.items()}
    named = {
        option: json.dumps({run["topic"]: {str(index): span[place] for index, span in ranges.items()}})
        for place, option in enumerate(("startingOffsets", "endingOffsets"))
    }
    return run.table(run["topic"], **named).where("key is not null")


def last(rows: "DataFrame") -> "DataFrame":
    """The last record of each key: by offset in a partition, by time between partitions."""
    record = F.struct("value", "partition", "offset", "timestamp").alias("record")
    by_partition = rows.groupBy("key", "partition").agg(F.max_by(record, "offset").alias("record"))
    order = F.struct("record.timestamp", "record.partition")
    return by_partition.groupBy("key").agg(F.max_by("record", order).alias("record")).select("key", "record.*")


def write(frame: "DataFrame", place: Location, format: str) -> list[WrittenFile]:
    """Replace the table atomically. Returns its files."""
    if format == "delta":
        parts = write_files(frame, place, suffix=".parquet", int96=False)
        delta.commit(place, parts, arrow(frame.schema), overwrite=True)
        return parts
    if place.local is None:
        return [write_whole(frame, place)]
    with beside(place.local) as fresh:
        there = Location.parse(fresh)
        parts = write_files(frame, there, suffix=".parquet") or [write_empty(there, WHOLE, arrow(frame.schema))]
        check_replaceable(place)
        replace(fresh, place.local)
    return parts


def write_whole(frame: "DataFrame", place: Location) -> WrittenFile:
    """Where folders cannot be swapped: one file, written beside the table and then moved into place."""
    store, beside = Store(place), f"{HIDDEN}/{uuid.uuid4().hex}"
    try:
        staged = write_files(frame.coalesce(1), place / beside) or [
            write_empty(place / beside, "part-empty.part", arrow(frame.schema))
        ]
        if staged[0].size > COPIED_MAX:
            raise Failed(
                f"the table has {staged[0].size:,} bytes, too many to be replaced atomically: set format=delta"
            )
        check_replaceable(place)
        store.move(f"{beside}/{staged[0].name}", WHOLE)
    finally:
        store.remove_folder(beside)
    return WrittenFile(WHOLE, (), staged[0].rows, staged[0].size)


def check_replaceable(place: Location) -> None:
    """Existing content is removed, so it must be a table. The folder above, for example, has those of others."""
    path = place.local
    if path is None:
        names = {one.name for one in Store(place).files() if not one.name.startswith(f"{HIDDEN}/")} - {WHOLE}
    elif path.exists() and not path.is_dir():
        raise Failed(f"{path} is not a folder: choose another path for the table")
    else:
        names = {one.name for one in path.iterdir() if not OF_A_TABLE.fullmatch(one.name)} if path.exists() else set()
    if names:
        raise Failed(
            f"{place} has {min(names)} in it, which is not part of a table and would be removed: choose another path"
        )


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A unique name next to the table. What is there is removed at the end, or by the next run."""
    for lock in path.parent.glob(f"{HIDDEN}-{glob.escape(path.name)}-*/{LOCK}"):
        sweep(lock.parent)
    own = path.parent / f"{HIDDEN}-{path.name}-{uuid.uuid4().hex}"
    own.mkdir(parents=True)
    held = Lock(own)
    try:
        yield own / "table"
    finally:
        shutil.rmtree(own, ignore_errors=True)
        held.release()


def sweep(folder: Path) -> None:
    """Remove what killed runs left, but not the files of a live one."""
    try:
        left = Lock(folder)
    except (InUse, OSError):
        return
    if left.real:
        shutil.rmtree(folder, ignore_errors=True)
    left.release()


def replace(fresh: Path, path: Path) -> None:
    """Swap in a table where there may be one; the old one is then where the new one was."""
    try:
        fresh.rename(path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        exchange(fresh, path)


def tell(
    run: Run, place: Location, parts: list[WrittenFile], frame: "DataFrame", spans: dict[int, PartitionSpan]
) -> int:
    """Print rows of the table and a summary; returns the number of records read."""
    table = read_files(run.spark, place, [part.name for part in parts], frame.schema)
    table.orderBy("key").show(run.integer("show", least=0), truncate=60)
    records, uncertain = between(run, spans, later=False).count(), 0
    if gaps(records, spans):
        before = between(run, spans, later=False).select("key").distinct()
        uncertain = between(run, spans, later=True).select("key").distinct().join(before, "key", "left_anti").count()
    keys = sum(part.rows for part in parts)
    said = f"{keys:,} keys of {run['topic']} in {place}, restored from {records:,} records"
    if uncertain:
        said += (
            f"; {uncertain:,} more keys were written later and may have had a value then, which compaction has removed "
            "since"
        )
    print(said, file=sys.stderr, flush=True)
    return records


def gaps(records: int, spans: dict[int, PartitionSpan]) -> bool:
    """Are offsets before the bounds missing? Those of transaction markers are too, so this may be too cautious."""
    return records < sum(span.bound - span.start for span in spans.values())


# Generated input.


def generate(run: Run) -> None:
    run.ensure_topic(run["topic"], PARTITIONS, cleanup_policy="compact")
    run.send(records(run))


def records(run: Run) -> Iterator[Record]:
    """Accounts that are opened, changed, and sometimes closed."""
    random, keys = Random(run.seed), run.integer("keys", least=1)
    balances: dict[str, int] = {}
    for change in count(1):
        account = f"account-{random.randrange(keys)}"
        if account in balances and random.random() < 0.1:
            del balances[account]
            yield Record(run["topic"], account, None)
            continue
        balances[account] = balances.get(account, 0) + random.randrange(1, 100)
        yield Record(run["topic"], account, json.dumps({"balance": balances[account], "change": change}))


PIPELINE = Pipeline(
    "restore", "The state of a compacted topic as a table, now or at any past offset or time.", run, OPTIONS, generate
)

if __name__ == "__main__":
    main(PIPELINE)
