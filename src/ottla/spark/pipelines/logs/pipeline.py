"""Log files of many hosts, through one topic, into a table with a folder for each day and host.

    files ─ ship ─► logs ── logs ─► tables/logs/day=2026-01-31/host=web-1/   at, level, message, file, partition, offset

On each host, `--option ship=` sends the lines of its files as they are written, each exactly once (`shipping.py`).
Other programs may write to the topic too: a record is {"host", "file", "line"} as JSON, exactly these three and all of
them text, or simply a line, with the host as its key. `at` is the time in the line (ISO 8601, or as web servers write
it), else that of the record; `level` is the first word of the line that is a level. A host whose name cannot be a
folder's (too long, or with characters other than letters, digits and .-_:@) gets a valid name with a hash.

A query writes every micro-batch to the table, each line once, and compacts the many small files of a folder while
others read (`archive.py`). Delta or Parquet.

Try it:

    ottla serve
    ottla pipeline run logs --generate --rate 500
    ottla pipeline run logs --once --option ship='/var/log/*.log' --folder trial
    python -c "import pandas; print(pandas.read_parquet('trial/tables/logs').groupby(['day', 'host']).size())"

    ottla pipeline run logs --option part=ship --option 'ship=/var/log/*.log'     on the other hosts
"""

import json
import re
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ottla.spark.pipelines.logs.archive import Archive, ArchiveLayout, archive
from ottla.spark.pipelines.logs.shipping import Shipper
from ottla.spark.runner import Option, Pipeline, Run, UsageError, main
from ottla.spark.runner.generating import Record
from ottla.spark.runner.places import STORAGE, locate

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OPTIONS: Final = (
    Option("part", "both", "Ship files, store lines, or both.", ("ship", "store", "both")),
    Option("topic", "logs", "The topic that has the lines."),
    Option("ship", "", "Files to ship from this machine: patterns such as /var/log/*.log, separated by commas."),
    Option("host", "", "This machine's name in the table; empty: its host name."),
    Option("path", "", "The folder or URL of the table; empty: tables/logs in the run's own folder."),
    Option("format", "parquet", "Of the table.", ("parquet", "delta")),
    Option("rows", "500000", "At most this many lines in a micro-batch."),
    Option("compact", "8", "Compact a folder when this many of its files are small; 0: never."),
    Option("small", "33554432", "Bytes below which a file is small."),
    Option("hosts", "5", "How many hosts write generated lines."),
    Option("start", "", "Start of generated lines, such as 2026-01-31; empty: now."),
    *STORAGE,
)
SHIPPED: Final = "host string, file string, line string"
BY: Final = ("day", "host")
ORDER: Final = ("partition", "offset")  # in order of arrival: the lines of a host are in one partition
COLUMNS: Final = ("at", "level", "message", "file", "partition", "offset")
PARTITIONS: Final = 4

# A form that only the shipper writes: a structured log that has a `line` has more fields, or numbers. The plus signs
# keep Java from backtracking, and so from a stack overflow on a long line.
TEXT: Final = r'"(?:[^"\\]|\\.)*+"'
MEMBER: Final = rf'"(?:host|file|line)"\s*:\s*{TEXT}\s*'
OURS: Final = rf"(?s)\A\s*\{{\s*{MEMBER}(?:,\s*{MEMBER}){{2}}\}}\s*\z"
# At most 255 bytes with `host=` before it, even if it is not ASCII.
HOST: Final = r"\A(?:[\p{L}\p{N}._:@-]{1,60}|[A-Za-z0-9._-]{1,200})\z"

# (?s): a message may have several lines, and Java recognises more line ends than others.
ISO: Final = r"(?s)^(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?(?:Z|[+-]\d\d:?\d\d)?)\s*(.*)"
WEB: Final = r"\[(\d\d/[A-Z][a-z][a-z]/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\]"
WEB_FORMAT: Final = "dd/MMM/yyyy:HH:mm:ss Z"
LEVELS: Final = ("TRACE", "DEBUG", "INFO", "NOTICE", "WARN", "WARNING", "ERROR", "CRITICAL", "FATAL")
LEVEL: Final = rf"(?s)^.{{0,100}}?\b({'|'.join(LEVELS)})\b"


def run(run: Run) -> None:
    run.ensure_topic(run["topic"], PARTITIONS)
    shipper = shipping(run)
    if shipper is not None and run.once:
        shipper.all()
    elif shipper is not None:
        shipper.start()
    if run["part"] in ("store", "both"):
        store(run)
    while shipper is not None and not run.once and not run.stopping:
        run.wait(seconds=1.0)
    if shipper is not None and shipper.failure is not None:
        raise shipper.failure


def shipping(run: Run) -> Shipper | None:
    if run["part"] == "store" or (not run["ship"] and run["part"] == "both"):
        return None
    if not run["ship"]:
        raise UsageError("part=ship needs files: --option ship=/var/log/*.log")
    return Shipper(run, run["topic"], run["ship"], run["host"] or socket.gethostname())


# The table.


def store(run: Run) -> None:
    place = locate(run, run["path"], "tables", "logs")
    files = run.integer("compact")
    table = archive(place, run["format"], ArchiveLayout(BY, ORDER, files, run.integer("small")))

    def add(rows: "DataFrame", batch: int) -> None:
        table.add(rows, batch)
        if files:
            table.compact(before=batch)

    query = run.each_batch(lines(run), add, name="logs")
    if run.once:
        try:
            run.wait(query)
            tidy(run, table, query.id, files)
        finally:
            table.close()


def tidy(run: Run, table: Archive, query: str, files: int) -> None:
    """Compact small files. After a run that ended by itself, no batch can be repeated."""
    if files and not run.stopping:
        table.own(query)
        table.compact()


def lines(run: Run) -> "DataFrame":
    return parse_lines(run.stream(run["topic"], group="logs", maxOffsetsPerTrigger=str(run.integer("rows", least=1))))


def parse_lines(rows: "DataFrame") -> "DataFrame":
    """A row for each line. In a record that our shipper did not write, the value is the line and the key the host."""
    text = F.col("value").cast("string")
    shipped = rows.where("value is not null").select(
        "*", text.alias("text"), F.when(text.rlike(OURS), F.from_json(text, SHIPPED)).alias("shipped")
    )
    ours = F.expr("shipped.host is not null and shipped.file is not null and shipped.line is not null")
    host = F.when(ours, F.col("shipped.host")).otherwise(F.col("key").cast("string"))
    named = shipped.select(
        folder(F.coalesce(F.nullif(host, F.lit("")), F.lit("unknown"))).alias("host"),
        F.when(ours, F.col("shipped.file")).alias("file"),
        F.when(ours, F.col("shipped.line")).otherwise(F.col("text")).alias("line"),
        "timestamp",
        "partition",
        "offset",
    )
    found = named.withColumns(
        {
            "at": F.coalesce(line_time(F.col("line")), F.col("timestamp")),
            "level": F.nullif(F.regexp_extract("line", LEVEL, 1), F.lit("")),
            "message": F.when(F.col("line").rlike(ISO), F.regexp_extract("line", ISO, 2)).otherwise(F.col("line")),
        }
    )
    day = F.date_format("at", "yyyy-MM-dd").alias("day")
    return found.select(day, "host", *COLUMNS)


def folder(host: "Column") -> "Column":
    """A host as a valid folder name. Different hosts get different names, also those that are not valid text."""
    plain = F.substring(F.regexp_replace(host, "[^A-Za-z0-9._-]", "_"), 1, 60)
    mark = F.substring(F.sha2(host.cast("binary"), 256), 1, 8)
    return F.when(host.rlike(HOST), host).otherwise(F.concat(plain, F.lit("-"), mark))


def line_time(line: "Column") -> "Column":
    """The time in a line; without a zone it is UTC."""
    iso = F.translate(F.nullif(F.regexp_extract(line, ISO, 1), F.lit("")), ",", ".")
    web = F.nullif(F.regexp_extract(line, WEB, 1), F.lit(""))
    return F.coalesce(iso.try_cast("timestamp"), F.try_to_timestamp(web, F.lit(WEB_FORMAT)))


# Generated input.


def generate(run: Run) -> None:
    run.ensure_topic(run["topic"], PARTITIONS)
    run.send(records(run, datetime.now(UTC)))


def records(run: Run, now: datetime) -> Iterator[Record]:
    """What the hosts would ship. Without a rate, a line every ten seconds: a few thousand span some hours."""
    at = began(run["start"]) or now
    step = timedelta(seconds=1 / run.rate if run.rate else 10)
    random = Random(run.seed)
    hosts = [f"web-{number}" for number in range(1, run.integer("hosts", least=1) + 1)]
    while True:
        host, (file, line) = random.choice(hosts), make_line(random, at)
        yield Record(run["topic"], host, json.dumps({"host": host, "file": file, "line": line}))
        at += step


def make_line(random: Random, at: datetime) -> tuple[str, str]:
    """A line of one of three files: an application's, sometimes with a trace, or a web server's."""
    kind = random.random()
    user, ms = random.randrange(1000), random.randrange(5, 900)
    moment = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if kind < 0.5:
        web = at.strftime("%d/%b/%Y:%H:%M:%S +0000")
        page = random.choice(("/", "/cart", "/search?q=shoes", "/p/42"))
        return "/var/log/access.log", f'10.0.0.{user % 256} - - [{web}] "GET {page} HTTP/1.1" 200 {ms * 7}'
    if kind < 0.95:
        level = random.choices(("DEBUG", "INFO", "WARN", "ERROR"), (30, 60, 7, 3))[0]
        return "/var/log/app.log", f"{moment} {level} request of user {user} took {ms} ms"
    return "/var/log/app.log", random.choice(("  at shop.Cart.add(Cart.java:42)", "Caused by: timeout"))


def began(start: str) -> datetime | None:
    if start and not re.match(r"\d{4}-", start):
        raise UsageError(f"start={start}: expected a day or a moment such as 2026-01-31 or 2026-01-31T12:00:00")
    try:
        return datetime.fromisoformat(start).replace(tzinfo=UTC) if start else None
    except ValueError:
        raise UsageError(
            f"start={start}: expected a day or a moment such as 2026-01-31 or 2026-01-31T12:00:00"
        ) from None


PIPELINE = Pipeline(
    "logs", "Log files of many hosts into a table by day and host, with compaction.", run, OPTIONS, generate
)

if __name__ == "__main__":
    main(PIPELINE)
