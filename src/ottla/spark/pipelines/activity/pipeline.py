"""What visitors of a site do, live and day by day: one topic, two independent consumer groups.

    activity ──┬─ activity-live    ─► activity-sessions   one record for each session that has ended
               │                   ─► activity-minutes    views, clicks and searches of each page and minute
               └─ activity-report  ─► tables/ and report/ in the folder of the run, or below `path` on any storage:
                                      daily tables, HTML pages with plots

Live: one streaming query, exactly once. A session ends when its user has done nothing for `gap`. A session or a minute
is written when it is final: when an event has been seen that is `late` younger. Events later than that are left to the
report.

No event may be younger than its record, or than the moment it is read. An event with a later time gets that time; one
that is more than `ahead` later is put aside, because a wrong clock would make all other events late. What is put aside,
and what is not an event, is counted (in the progress of a run, and by day in the report) and goes to the topic
`dead.letter` if there is one, exactly once.

Report: processes what is new since the last time and ends, like a nightly job. `--option report=1h` sets how often,
unless the run is `--once`. Events are kept as files, a folder for each micro-batch; a repeated batch writes its folder
again. The tables of every day that got new events are then computed from these files and replaced as a whole. A visit
of the report ends at midnight (UTC), so that a day needs no other day.

    days       day, events, users, visits, views, clicks, searches, bounces (visits of one event), broken (no events),
               ahead (put aside)
    hours      day, hour, visits (that began then), users, views, clicks, searches
    pages      day, page, views, clicks, entries, exits
    searches   day, query, searches
    referrers  day, referrer, visits
    funnel     day, position, step, visits

Try it:

    ottla serve
    ottla pipeline run activity --generate --option gap=10s --option late=10s --option report=30s
    ottla consume activity-sessions
    ottla groups describe activity-live

    ottla pipeline run activity --generate --once --option part=report --folder trial     two days in a few seconds
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from ottla.spark.pipelines.activity.pages import render
from ottla.spark.pipelines.activity.site import Site, text
from ottla.spark.runner import Option, Pipeline, Run, UsageError, main
from ottla.spark.runner.generating import Record
from ottla.spark.runner.letters import NO_HEADERS, letter_rows
from ottla.spark.runner.meter import ASIDE
from ottla.spark.runner.places import STORAGE, locate
from ottla.spark.storage.daily import FORMATS, Daily
from ottla.spark.storage.reading import read
from ottla.spark.storage.store import HIDDEN, Store
from ottla.spark.storage.writing import write_files

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

    from ottla.spark.storage.location import Location

OPTIONS: Final = (
    Option("part", "both", "What to do.", ("live", "report", "both")),
    Option("events", "activity", "The topic to read."),
    Option("sessions", "activity-sessions", "The topic for sessions."),
    Option("minutes", "activity-minutes", "The topic for counts per minute."),
    Option("gap", "30 minutes", "A session or visit ends when its user has done nothing for this long."),
    Option("late", "2 minutes", "How long the live part waits for late events."),
    Option("ahead", "1 minute", "An event that is this much younger than its record is put aside."),
    Option("dead.letter", "", "The topic for what is put aside or is not an event; empty: it is only counted."),
    Option("rows", "200000", "At most this many events in a micro-batch."),
    Option("path", "", "Where tables and pages go, a folder or URL; empty: the run's own folder."),
    Option("report", "1 hour", "How often to update the report."),
    Option("format", "parquet", "Of the daily tables.", FORMATS),
    Option("start", "", "Start of generated events, such as 2026-01-31; empty: now, or `days` ago without a rate."),
    Option("days", "2", "How many days generated events without a rate cover."),
    *STORAGE,
)
SCHEMA: Final = "at timestamp, user string, type string, page string, referrer string, query string, target string"
KEPT: Final = f"offset long, timestamp timestamp, {SCHEMA}, ahead boolean, day date"
KINDS: Final = {"view": "views", "click": "clicks", "search": "searches"}
FILE: Final = re.compile(r"batch=(\d+)/day=([^/]+)/[^/]+\.parquet$")
PARTITIONS: Final = 4
STEPS: Final = (  # of the funnel: a name, and a condition for its events
    ("any page", "true"),
    ("a product", "type = 'view' and page rlike '^/[^/]+/[^/]+'"),
    ("the cart", "type = 'view' and page = '/cart'"),
    ("the checkout", "type = 'view' and page = '/checkout'"),
    ("an order", "type = 'view' and page = '/thanks'"),
)


def run(run: Run) -> None:
    Store(locate(run, run["path"]))  # a location that cannot be opened fails before the first batch
    run.ensure_topic(run["events"], PARTITIONS)
    if run["part"] in ("live", "both"):
        live(run)
    if run["part"] in ("report", "both"):
        while True:
            report(run)
            if run.once or run.stopping:
                return
            run.wait(seconds=run.seconds("report"))
            if run.stopping:
                return


def events(run: Run, group: str, *, headers: bool = False) -> "DataFrame":
    """A row for each record. `ahead` marks an event too far after its record; other later times are cut to the
    record's."""
    more = ("headers",) if headers else ()
    rows = run.stream(
        run["events"],
        group=group,
        maxOffsetsPerTrigger=str(run.integer("rows", least=1)),
        includeHeaders=str(headers).lower(),
    )
    ahead = F.make_dt_interval(secs=F.lit(run.seconds("ahead")))
    read_at = F.current_timestamp()  # of the batch: the same when it is repeated
    return (
        rows.withColumn("event", F.from_json(F.col("value").cast("string"), SCHEMA))
        .withColumn("bound", F.least(F.coalesce("timestamp", read_at), read_at))
        .withColumn("ahead", F.coalesce(F.col("event.at") > F.col("bound") + ahead, F.lit(False)))
        .withColumn(
            "event",
            F.col("event").withField(
                "at", F.when(F.expr("event.at > bound"), F.col("bound")).otherwise(F.col("event.at"))
            ),
        )
        .select("key", "value", *more, "partition", "offset", "timestamp", "ahead", "event.*")
    )


# Live.


def live(run: Run) -> "StreamingQuery":
    letters = run["dead.letter"]
    for topic in (run["sessions"], run["minutes"], *([letters] if letters else [])):
        run.ensure_topic(topic, PARTITIONS)
    everything = events(run, "activity-live", headers=bool(letters)).observe(ASIDE, F.count_if(~whole()).alias("count"))
    timed = everything.where(whole()).withWatermark("at", f"{run.seconds('late')} seconds")
    output = sessions(timed, run.seconds("gap", above_zero=True), run["sessions"]).union(minutes(timed, run["minutes"]))
    if letters:
        reason = F.when(F.col("ahead"), "its time is after that of its record").otherwise("it is not an event")
        output = output.union(letter_rows(everything.where(~whole()), reason, run["events"], letters))
    return run.to_topic(output, None, name="activity-live", dead_letter=letters)


def sessions(timed: "DataFrame", gap_s: float, topic: str) -> "DataFrame":
    order = F.struct("at", "offset")  # one user's events are in one partition, so offsets order equal times
    found = timed.groupBy(F.session_window("at", f"{gap_s} seconds"), "user").agg(
        F.min("at").alias("start"),
        F.max("at").alias("end"),
        *kinds(),
        F.min_by("page", order).alias("entry"),
        F.max_by("page", order).alias("exit"),
    )
    names = ("user", "start", "end", "views", "clicks", "searches", "entry", "exit")
    return output(found, topic, "user", names)


def minutes(timed: "DataFrame", topic: str) -> "DataFrame":
    found = timed.groupBy(F.window("at", "1 minute").alias("window"), "page", "type").count()
    return output(found.withColumn("minute", F.col("window.start")), topic, "page", ("minute", "page", "type", "count"))


def output(rows: "DataFrame", topic: str, key: str, names: tuple[str, ...]) -> "DataFrame":
    value = F.to_json(F.struct(*names)).cast("binary")
    return rows.select(
        F.lit(topic).alias("topic"),
        F.col(key).cast("binary").alias("key"),
        value.alias("value"),
        F.expr(NO_HEADERS).alias("headers"),
    )


# Report.


def report(run: Run) -> list[str]:
    """Store new events, update the tables of their days, render pages. Returns the names of those pages."""
    place = locate(run, run["path"])
    kept = Store(place / "tables" / "events")
    everything = events(run, "activity-report")
    at = F.when(~F.col("ahead"), F.col("at"))
    rows = everything.withColumn("day", F.to_date(F.coalesce(at, F.col("timestamp"), F.current_timestamp())))
    wanted = rows.drop("key", "value", "partition")
    query = run.each_batch(wanted, partial(keep, kept.location), name="activity-report", once=True)
    run.wait(query)
    files = [one.name for one in kept.files() if number(one.name) is not None]
    reported = int((Store(place / "tables").read("reported") or b"-1").decode())
    new = [name for name in files if (number(name) or 0) > reported]
    changed = sorted({day_of(name) for name in new})
    if not changed or run.stopping:
        return []
    tables = Daily(place / "tables", run["format"])
    rows = read(run.spark, kept.location, [name for name in files if day_of(name) in changed], struct(KEPT))
    rows = rows.withColumn("ahead", F.coalesce("ahead", F.lit(False)))  # files of an older version lack it
    here = number_visits(rows.where(whole()), run.seconds("gap", above_zero=True)).cache()
    frames = compute_tables(here) | {"days": totals(rows, here)}
    for name, frame in frames.items():
        tables.replace(name, changed, frame.withColumn("day", F.col("day").cast("string")).toArrow())
    here.unpersist()
    shown = {name: tables.read(name, changed) for name in frames} | {"days": tables.read("days")}
    pages = render(shown, changed, Store(place / "report"))
    # Last: a run that is killed before this does the same days again.
    Store(place / "tables").put("reported", str(max(number(name) or 0 for name in new)).encode())
    return pages


def keep(place: "Location", rows: "DataFrame", batch: int) -> None:
    """Write the events of a batch. A batch repeated after a crash replaces what it had written."""
    store, staging = Store(place), f"{HIDDEN}/{batch}"
    parts = write_files(rows, place / staging, by=("day",), order=("offset",))
    own = {f"batch={batch}/{part.folder}/rows.parquet": f"{staging}/{part.name}" for part in parts}
    store.move_all([(staged, name) for name, staged in own.items()])
    for left in store.files(f"batch={batch}"):
        if left.name not in own:
            store.remove(left.name)
    store.remove_folder(staging)


def number(name: str) -> int | None:
    """The batch of a file in batch=7/day=2026-01-31; None for other files."""
    found = FILE.match(name)
    return int(found[1]) if found else None


def day_of(name: str) -> str:
    found = FILE.match(name)
    assert found, "only files of batches have a number"
    return found[2]


def struct(text: str) -> "StructType":
    from pyspark.sql.types import StructType

    found = StructType.fromDDL(text)
    assert isinstance(found, StructType), "a list of columns"
    return found


def number_visits(rows: "DataFrame", gap_s: float) -> "DataFrame":
    """Number the visits of each user and day, and mark the first and the last event of each."""
    order = Window.partitionBy("day", "user").orderBy("at", "offset")
    pause_us = F.unix_micros("at") - F.unix_micros(F.lag("at").over(order))
    began = rows.withColumn("first", F.coalesce(pause_us > round(gap_s * 1_000_000), F.lit(True)))
    return began.withColumn("visit", F.sum(F.col("first").cast("int")).over(order)).withColumn(
        "last", F.coalesce(F.lead("first").over(order), F.lit(True))
    )


def totals(rows: "DataFrame", here: "DataFrame") -> "DataFrame":
    days = here.groupBy("day").agg(
        F.count("*").alias("events"),
        F.countDistinct("user").alias("users"),
        F.count_if("first").alias("visits"),
        F.count_if(F.col("first") & F.col("last")).alias("bounces"),
        *kinds(),
    )
    broken = rows.groupBy("day").agg(
        F.count_if(~whole() & ~F.col("ahead")).alias("broken"), F.count_if("ahead").alias("ahead")
    )
    return broken.join(days, "day", "left").fillna(0)


def compute_tables(here: "DataFrame") -> "dict[str, DataFrame]":
    """All other tables."""
    visits = here.groupBy("day", "user", "visit").agg(
        F.min_by("referrer", F.struct("at", "offset")).alias("referrer"),
        *(F.bool_or(F.expr(condition)).alias(f"step{position}") for position, (_, condition) in enumerate(STEPS)),
    )
    referrer = F.when(F.col("referrer") != "", F.col("referrer")).otherwise("(none)")
    return {
        "hours": here.groupBy("day", F.hour("at").alias("hour")).agg(
            F.count_if("first").alias("visits"), F.countDistinct("user").alias("users"), *kinds()
        ),
        "pages": here.groupBy("day", "page").agg(
            *kinds()[:2], F.count_if("first").alias("entries"), F.count_if("last").alias("exits")
        ),
        "searches": here.where("type = 'search'").groupBy("day", "query").agg(F.count("*").alias("searches")),
        "referrers": visits.groupBy("day", referrer.alias("referrer")).agg(F.count("*").alias("visits")),
        "funnel": funnel(visits),
    }


def funnel(visits: "DataFrame") -> "DataFrame":
    """How many visits did each step and all before it."""
    reached = [" and ".join(f"step{before}" for before in range(position + 1)) for position in range(len(STEPS))]
    counts = visits.groupBy("day").agg(*(F.count_if(F.expr(reach)).alias(f"n{i}") for i, reach in enumerate(reached)))
    rows = [
        F.struct(F.lit(position).alias("position"), F.lit(name).alias("step"), F.col(f"n{position}").alias("visits"))
        for position, (name, _) in enumerate(STEPS)
    ]
    return counts.select("day", F.inline(F.array(*rows)))


def kinds() -> "list[Column]":
    return [F.count_if(F.col("type") == kind).alias(name) for kind, name in KINDS.items()]


def whole() -> "Column":
    """Is this row an event with a possible time?"""
    told = F.col("at").isNotNull() & F.col("user").isNotNull() & F.col("type").isNotNull() & F.col("page").isNotNull()
    return told & ~F.col("ahead")


# Generated input.


def generate(run: Run) -> None:
    run.ensure_topic(run["events"], PARTITIONS)
    run.send(records(run, datetime.now(UTC)))


def records(run: Run, now: datetime) -> Iterator[Record]:
    """With a rate: live events from now on. Without: some days of events, with quiet nights."""
    think_s = min(20.0, run.seconds("gap", above_zero=True) / 5)
    days = run.number("days")
    if run.rate:
        site = Site(run.seed, step_s=1 / run.rate, think_s=think_s)
        start = began(run["start"]) or now
    else:
        if run.count is None:
            raise UsageError("generated events without a rate need a number: give --count, or --rate")
        site = Site(run.seed, step_s=days * 86400 / run.count, think_s=think_s, rhythm=True)
        start = began(run["start"]) or now - timedelta(days=days)
    for event in site.events(start):
        yield Record(run["events"], event["user"], text(event))


def began(start: str) -> datetime | None:
    try:
        return datetime.fromisoformat(start).replace(tzinfo=UTC) if start else None
    except ValueError:
        raise UsageError(
            f"start={start}: expected a day or a moment such as 2026-01-31 or 2026-01-31T12:00:00"
        ) from None


PIPELINE = Pipeline(
    "activity", "Live sessions and counts of a site's visitors, and daily reports.", run, OPTIONS, generate
)

if __name__ == "__main__":
    main(PIPELINE)
