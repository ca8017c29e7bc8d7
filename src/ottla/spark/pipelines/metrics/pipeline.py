"""Metrics of hosts and applications: windows with percentiles, alerts that are raised once and resolved once.

    metrics ── metrics-windows  ─► metrics-windows   count, mean, max, p50, p95, p99 of each window, host and metric
                                ─► metrics-alerts    a rule is broken; later: it holds again
                                ─► metrics-late      what came too late for its window, or is not an event; counted

    an event  {"host": "web-1", "metric": "cpu", "value": 12.5, "at": "2026-01-31T12:00:00.250Z"}
    a rule    cpu mean > 90 for 3      raised when three windows in a row break it, resolved by the first that does not

One streaming query, exactly once: the three topics always agree. Time is event time, and each partition of the topic
has its clock: the youngest event seen in it, but never later than the record of that event. So a host whose clock is
ahead makes its own windows, and no other host late. A window is final when the clock is `late` past its end; an event
of a final window is too late. Both depend only on the order in the partition and not on how Spark cuts it into batches,
so a run that was killed or repeated gives the same windows. A silent host does not keep its windows open, since others
in its partition continue.

An event that is `ahead` of the time it was written, or of the moment it is read, is put aside. Such events, and what is
not an event, are counted in the progress of the run; with `dead.letter` they also go to that topic unchanged, exactly
once. The state holds the values of the open windows, since the percentiles are exact.

Try it:

    ottla serve
    ottla pipeline run metrics --generate --rate 200 --option window=10s --option late=5s
    ottla consume metrics-alerts
    ottla pipeline run metrics --generate --option sample=true      measurements of this machine
"""

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import functions as F

from ottla.spark.pipelines.metrics.machines import MADE_UP, records, sample_machine
from ottla.spark.runner import Option, Pipeline, Run, UsageError, main
from ottla.spark.runner.letters import NO_HEADERS, letter_rows
from ottla.spark.runner.meter import ASIDE

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.state import GroupState

OPTIONS: Final = (
    Option("metrics", "metrics", "The topic to read."),
    Option("windows", "metrics-windows", "The topic for windows."),
    Option("alerts", "metrics-alerts", "The topic for alerts."),
    Option("aside", "metrics-late", "The topic for events that are not in any window."),
    Option("window", "1 minute", "How long a window is."),
    Option("late", "30 seconds", "How long to wait for late events before a window is final."),
    Option("ahead", "1 hour", "An event that is this much younger than its record is put aside."),
    Option(
        "dead.letter",
        "",
        "The topic for the original records that are not events or are ahead; empty: they are only in `aside`.",
    ),
    Option("rules", "cpu mean > 90 for 2, memory max > 95, latency_ms p99 > 500", "When to raise alerts."),
    Option("rows", "200000", "At most this many events in a micro-batch."),
    Option("hosts", "8", "How many hosts to generate."),
    Option("start", "", "Start of generated events, such as 2026-01-31T12:00; empty: now, or so that they end now."),
    Option("sample", "false", "Instead of generating events, measure this machine every second."),
)
SCHEMA: Final = "host string, metric string, value double, at timestamp"
OUTPUT: Final = "topic string, key string, value string"
PARTITIONS: Final = 4
SECOND: Final = 1_000_000  # times are microseconds
PERCENTILES: Final = {"p50": 50, "p95": 95, "p99": 99}
STATISTICS: Final = ("count", "mean", "max", *PERCENTILES)
RULE: Final = re.compile(rf"\s*(\S+)\s+({'|'.join(STATISTICS)})\s*([<>])\s*(-?\d+(?:\.\d+)?)(?:\s+for\s+(\d+))?\s*")


def run(run: Run) -> None:
    letters = run["dead.letter"]
    for topic in (run["metrics"], run["windows"], run["alerts"], run["aside"], *([letters] if letters else [])):
        run.ensure_topic(topic, PARTITIONS)
    settings = WindowSettings(
        window=round(run.seconds("window", above_zero=True) * SECOND),
        late=round(run.seconds("late") * SECOND),
        ahead=round(run.seconds("ahead") * SECOND),
        rules=rules(run["rules"]),
        topics={option: run[option] for option in ("windows", "alerts", "aside")},
    )
    unusable = is_broken() | is_ahead(settings.ahead)
    everything = events(run, headers=bool(letters)).observe(ASIDE, F.count_if(unusable).alias("count"))
    output = (
        everything.select("partition", "offset", "text", "host", "metric", "number", "at", "arrived")
        .groupBy("partition")
        .applyInPandasWithState(new_step(settings), OUTPUT, "state string", "append", "NoTimeout")
    )
    if letters:
        reason = F.when(is_broken(), "it is not an event").otherwise("its time is after that of its record")
        output = output.selectExpr(
            "topic", "cast(key as binary) as key", "cast(value as binary) as value", f"{NO_HEADERS} as headers"
        ).union(letter_rows(everything.where(unusable), reason, run["metrics"], letters))
    run.to_topic(output, None, name="metrics-windows", dead_letter=letters)


def events(run: Run, *, headers: bool) -> "DataFrame":
    """A row for each record, with its content in columns; null where it is unusable."""
    read_at = F.current_timestamp()  # of the batch: the same when it is repeated
    arrived = F.least(F.coalesce("timestamp", read_at), read_at)
    text = F.col("value").cast("string")
    rows = run.stream(
        run["metrics"],
        group="metrics-windows",
        maxOffsetsPerTrigger=str(run.integer("rows", least=1)),
        includeHeaders=str(headers).lower(),
    )
    return rows.withColumn("event", F.from_json(text, SCHEMA)).select(
        *("key", "value", *(("headers",) if headers else ()), "partition", "offset", text.alias("text")),
        *("event.host", "event.metric", F.col("event.value").alias("number")),
        F.unix_micros("event.at").alias("at"),
        F.unix_micros(arrived).alias("arrived"),
    )


def is_broken() -> "Column":
    """For a row of `events`; the same condition as in `put_aside`."""
    number = F.col("number")
    missing = F.col("host").isNull() | F.col("metric").isNull() | F.col("at").isNull() | number.isNull()
    return missing | F.isnan(number) | (F.abs(number) == math.inf)


def is_ahead(ahead: int) -> "Column":
    return F.coalesce(F.col("at") - F.col("arrived") > ahead, F.lit(False))


class AlertRule(NamedTuple):
    text: str
    metric: str
    statistic: str
    above: bool
    threshold: float
    windows: int

    def is_broken_by(self, value: float) -> bool:
        return value > self.threshold if self.above else value < self.threshold


@dataclass(frozen=True)
class WindowSettings:
    window: int
    late: int
    ahead: int
    rules: tuple[AlertRule, ...]
    topics: dict[str, str]


def rules(text: str) -> tuple[AlertRule, ...]:
    found = []
    for part in filter(None, (part.strip() for part in re.split("[,;]", text))):
        match = RULE.fullmatch(part)
        if not match:
            raise UsageError(
                f"{part!r} is not a rule: write it like `cpu mean > 90 for 3`, with one of {', '.join(STATISTICS)}"
            )
        metric, statistic, sign, threshold, windows = match.groups()
        found.append(AlertRule(part, metric, statistic, sign == ">", float(threshold), int(windows or 1)))
    return tuple(found)


# How the events of one partition are processed: state and events in, rows for the topics out.


@dataclass
class Open:
    """The state of a partition: its clock, its open windows, its unresolved alerts."""

    clock: int = 0
    aside: int = 0  # events put aside so far
    windows: dict[str, list[float]] = field(default_factory=dict)  # values by "start host metric"
    alerts: dict[str, int] = field(default_factory=dict)  # by "host rule": windows in a row that broke it; -1 if raised


def new_step(settings: WindowSettings) -> "Callable[..., Iterator[pandas.DataFrame]]":
    """The function that Spark calls with the new events of each partition."""

    def step(
        key: tuple[Any, ...], frames: "Iterator[pandas.DataFrame]", state: "GroupState"
    ) -> "Iterator[pandas.DataFrame]":
        import pandas

        now = Open(**json.loads(state.get[0])) if state.exists else Open()
        events = pandas.concat(list(frames), ignore_index=True).sort_values("offset")
        rows = [*put_aside(events, now, settings), *close_windows(now, settings)]
        state.update((json.dumps(vars(now)),))
        yield pandas.DataFrame(rows, columns=["topic", "key", "value"])

    return step


def put_aside(events: "pandas.DataFrame", now: Open, settings: WindowSettings) -> list[tuple[str, str | None, str]]:
    """Add events to their windows, in the order of the partition. Returns the rows for events without a window."""
    whole = events[["host", "metric", "number", "at"]].notna().all(axis=1) & (events["number"].abs() < math.inf)
    future = whole & (events["at"] - events["arrived"] > settings.ahead)
    timed = events[whole & ~future].astype({"at": "int64"})
    clock = timed[["at", "arrived"]].min(axis=1).cummax().clip(lower=now.clock)
    start = timed["at"] // settings.window * settings.window
    late = start + settings.window + settings.late <= clock
    for (first, host, metric), values in timed[~late].groupby([start[~late], "host", "metric"])["number"]:
        now.windows.setdefault(join_name(int(first), host, metric), []).extend(values.tolist())
    now.clock = int(clock.max()) if len(clock) else now.clock

    reasons = {**dict.fromkeys(events.index[~whole], "broken"), **dict.fromkeys(events.index[future], "future")}
    reasons |= dict.fromkeys(timed.index[late], "late")
    rows = []
    for event in events.loc[[index for index in events.index if index in reasons]].itertuples():
        now.aside += 1
        said = {
            "reason": reasons[event.Index],
            "partition": event.partition,
            "offset": event.offset,
            "event": event.text,
            "so_far": now.aside,
        }
        rows.append((settings.topics["aside"], text_or_none(event.host), json.dumps(said)))
    return rows


def close_windows(now: Open, settings: WindowSettings) -> Iterator[tuple[str, str | None, str]]:
    """Rows for the windows that are final, oldest first, and for the alerts that they raise or resolve."""
    final = [name for name in now.windows if begin(name) + settings.window + settings.late <= now.clock]
    for name in sorted(final, key=lambda each: (begin(each), each)):
        _, host, metric = json.loads(name)
        found = statistics(now.windows.pop(name))
        window = {"start": moment(begin(name)), "end": moment(begin(name) + settings.window)}
        told = {**window, "host": host, "metric": metric, **found}
        yield settings.topics["windows"], host, json.dumps(told)
        for rule in settings.rules:
            if rule.metric == metric and (change := judge_alert(now, rule, host, found[rule.statistic])):
                alert = {"state": change, "rule": rule.text, "host": host, "value": found[rule.statistic], **window}
                yield settings.topics["alerts"], host, json.dumps(alert)


def judge_alert(now: Open, rule: AlertRule, host: str, value: float) -> str | None:
    """Raised, resolved, or nothing new. A raised alert is stored as -1 until it is resolved."""
    name = join_name(host, rule.text)
    broken = now.alerts.get(name, 0)
    if not rule.is_broken_by(value):
        now.alerts.pop(name, None)
        return "resolved" if broken < 0 else None
    if broken < 0:
        return None
    now.alerts[name] = -1 if broken + 1 >= rule.windows else broken + 1
    return "raised" if now.alerts[name] < 0 else None


def statistics(values: list[float]) -> dict[str, float]:
    import numpy

    percentiles = numpy.percentile(values, list(PERCENTILES.values())).tolist()
    return {
        "count": len(values),
        "mean": math.fsum(values) / len(values),
        "max": max(values),
        **dict(zip(PERCENTILES, percentiles, strict=True)),
    }


def join_name(*parts: object) -> str:
    return json.dumps(parts)


def begin(name: str) -> int:
    return int(name[1 : name.index(",")])


def text_or_none(host: object) -> str | None:
    return host if isinstance(host, str) else None


def moment(micros: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).isoformat()


# Generated input, and real.


def generate(run: Run) -> None:
    run.ensure_topic(run["metrics"], PARTITIONS)
    if run.flag("sample"):
        run.send(sample_machine(run))
        return
    hosts = run.integer("hosts", least=1)
    if run.rate:
        tick_s, start = hosts * len(MADE_UP) / run.rate, datetime.now(UTC)
    elif run.count:  # the last ones are of now: brokers refuse timestamps far ahead
        tick_s, start = 1.0, datetime.now(UTC) - timedelta(seconds=run.count / hosts / len(MADE_UP))
    else:
        raise UsageError("generated events without a rate need a number: give --count, or --rate")
    run.send(records(run["metrics"], run.seed, hosts, began(run["start"]) or start, tick_s))


def began(start: str) -> datetime | None:
    try:
        return datetime.fromisoformat(start).replace(tzinfo=UTC) if start else None
    except ValueError:
        raise UsageError(f"start={start}: expected a moment such as 2026-01-31T12:00") from None


PIPELINE = Pipeline("metrics", "Windows, percentiles and alerts of hosts and applications.", run, OPTIONS, generate)

if __name__ == "__main__":
    main(PIPELINE)
