"""What visitors of a site do, as it happens and day by day: one topic, two groups that do not know of each other.

    activity ──┬─ activity-live    ─► activity-sessions   one record for each session that has ended
               │                   ─► activity-minutes    views, clicks and searches of each page and minute
               └─ activity-report  ─► tables/ and report/ in the folder of the run: daily tables, HTML pages with plots

Live: one streaming query, exactly once. A session ends when its user has done nothing for `gap`; a session or a minute
is written when it is final, that is when an event has been seen that is `late` younger. Events later than that are
left to the report.

Report: works through what is new since the last time and ends, as a job at night does; `--option report=1h` is how
often, unless the run is `--once`. Events are kept as files, a folder for each micro-batch, which a batch that comes
again writes again; the tables of every day that got new events are then computed from these files and replaced whole. A
visit of the report ends at midnight (UTC), so that a day needs no other day.

    days       day, events, users, visits, views, clicks, searches, bounces (visits of one event), broken (no events)
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

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from ottla.spark.pipeline import Option, Pipeline, Run, Wrong, main
from ottla.spark.pipeline.generating import Record
from ottla.spark.pipelines.daily import FORMATS, Daily
from ottla.spark.pipelines.report import render
from ottla.spark.pipelines.site import Site, text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

OPTIONS: Final = (
    Option("part", "both", "What to do.", ("live", "report", "both")),
    Option("events", "activity", "The topic to read."),
    Option("sessions", "activity-sessions", "The topic for sessions."),
    Option("minutes", "activity-minutes", "The topic for counts by the minute."),
    Option("gap", "30 minutes", "A session or visit ends when its user has done nothing for so long."),
    Option("late", "2 minutes", "The live part waits so long for events that arrive late."),
    Option("rows", "200000", "At most so many events in a micro-batch."),
    Option("report", "1 hour", "Bring the report up to date so often."),
    Option("format", "parquet", "Of the daily tables.", FORMATS),
    Option("start", "", "Made-up events begin then, such as 2026-01-31; empty: now, or `days` ago without a rate."),
    Option("days", "2", "Made-up events without a rate cover so many days."),
)
SCHEMA: Final = "at timestamp, user string, type string, page string, referrer string, query string, target string"
KEPT: Final = f"offset long, timestamp timestamp, {SCHEMA}, batch int, day date"
KINDS: Final = {"view": "views", "click": "clicks", "search": "searches"}
PARTITIONS: Final = 4
STEPS: Final = (  # of the funnel: a name, and what an event of it looks like
    ("any page", "true"),
    ("a product", "type = 'view' and page rlike '^/[^/]+/[^/]+'"),
    ("the cart", "type = 'view' and page = '/cart'"),
    ("the checkout", "type = 'view' and page = '/checkout'"),
    ("an order", "type = 'view' and page = '/thanks'"),
)


def run(run: Run) -> None:
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


def events(run: Run, group: str) -> "DataFrame":
    rows = run.stream(run["events"], group=group, maxOffsetsPerTrigger=run["rows"])
    return rows.select("offset", "timestamp", F.from_json(F.col("value").cast("string"), SCHEMA).alias("event")).select(
        "offset", "timestamp", "event.*"
    )


# Live.


def live(run: Run) -> "StreamingQuery":
    for topic in (run["sessions"], run["minutes"]):
        run.ensure_topic(topic, PARTITIONS)
    timed = events(run, "activity-live").where(whole()).withWatermark("at", f"{run.seconds('late')} seconds")
    output = sessions(timed, run.seconds("gap"), run["sessions"]).union(minutes(timed, run["minutes"]))
    return run.to_topic(output, None, name="activity-live")


def sessions(timed: "DataFrame", gap_s: float, topic: str) -> "DataFrame":
    order = F.struct("at", "offset")  # one user's events are in one partition, so offsets decide between equal times
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
    return rows.select(F.lit(topic).alias("topic"), F.col(key).alias("key"), F.to_json(F.struct(*names)).alias("value"))


# Report.


def report(run: Run) -> list[Path]:
    """Take in what is new, bring the tables of its days up to date, render; the pages that were written."""
    kept = run.folder / "tables" / "events"
    rows = events(run, "activity-report").withColumn("day", F.to_date(F.coalesce("at", "timestamp")))
    query = run.each_batch(rows, partial(keep, kept), name="activity-report", once=True)
    run.wait(query)
    marker = run.folder / "tables" / "reported"
    batches = new_batches(kept, marker)
    changed = sorted({path.name.removeprefix("day=") for batch in batches for path in batch.glob("day=*")})
    if not changed or run.stopping:
        return []
    tables = Daily(run.folder / "tables", run["format"])
    files = [str(path) for day in changed for path in kept.glob(f"batch=*/day={day}")]
    rows = run.spark.read.schema(KEPT).option("basePath", str(kept)).parquet(*files)
    here = visited(rows.where(whole()), run.seconds("gap")).cache()
    frames = computed(here) | {"days": totals(rows, here)}
    for name, frame in frames.items():
        tables.replace(name, changed, frame.withColumn("day", F.col("day").cast("string")).toArrow())
    here.unpersist()
    everything = {name: tables.read(name, changed) for name in frames} | {"days": tables.read("days")}
    pages = render(everything, changed, run.folder / "report")
    # Last: whoever is killed before this does the same days again.
    marker.write_text(str(max(number(batch) for batch in batches)))
    return pages


def keep(folder: Path, rows: "DataFrame", batch: int) -> None:
    """Write the events of a batch. One that comes again, after a crash, replaces what it had written."""
    place = folder / f"batch={batch}"
    rows.repartition("day").write.mode("overwrite").partitionBy("day").parquet(str(place))


def new_batches(kept: Path, marker: Path) -> list[Path]:
    last = int(marker.read_text()) if marker.exists() else -1
    return [path for path in kept.glob("batch=*") if number(path) > last]


def number(batch: Path) -> int:
    return int(batch.name.removeprefix("batch="))


def visited(rows: "DataFrame", gap_s: float) -> "DataFrame":
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
    broken = rows.groupBy("day").agg(F.count_if(~whole()).alias("broken"))
    return broken.join(days, "day", "left").fillna(0)


def computed(here: "DataFrame") -> "dict[str, DataFrame]":
    """Every other table."""
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
    """Is it an event, or something else that somebody wrote to the topic?"""
    return F.col("at").isNotNull() & F.col("user").isNotNull() & F.col("type").isNotNull() & F.col("page").isNotNull()


# Made-up input.


def generate(run: Run) -> None:
    run.ensure_topic(run["events"], PARTITIONS)
    run.send(records(run, datetime.now(UTC)))


def records(run: Run, now: datetime) -> Iterator[Record]:
    """At a rate: as it might happen from now on. Without: so many days, with quiet nights."""
    think_s = min(20.0, run.seconds("gap") / 5)
    days = run.number("days")
    if run.rate:
        site = Site(run.seed, step_s=1 / run.rate, think_s=think_s)
        start = began(run["start"]) or now
    else:
        if run.count is None:
            raise Wrong("made-up events without a rate need a number: give --count, or --rate")
        site = Site(run.seed, step_s=days * 86400 / run.count, think_s=think_s, rhythm=True)
        start = began(run["start"]) or now - timedelta(days=days)
    for event in site.events(start):
        yield Record(run["events"], event["user"], text(event))


def began(start: str) -> datetime | None:
    try:
        return datetime.fromisoformat(start).replace(tzinfo=UTC) if start else None
    except ValueError:
        raise Wrong(f"start={start}: expected a day or a moment such as 2026-01-31 or 2026-01-31T12:00:00") from None


PIPELINE = Pipeline(
    "activity", "Sessions and counts of a site as it is visited, and daily reports.", run, OPTIONS, generate
)

if __name__ == "__main__":
    main(PIPELINE)
