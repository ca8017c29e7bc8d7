"""`activity` killed in the middle and resumed: its topics, tables and pages against pandas on the same events."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import islice
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from confluent_kafka import Producer
from spark.launching import OTTLA, Launched, finished
from spark.topics import committed

from ottla.spark.pipelines.activity import pipeline as activity
from ottla.spark.pipelines.activity.site import LATE_S, Site
from ottla.spark.runner import Run
from ottla.spark.storage.daily import FORMATS, Daily
from ottla.spark.storage.location import Location

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process import Ottla
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1200)

COUNT = 3000
START = datetime(2026, 1, 30, 6, tzinfo=UTC)
GAP, LATE = pd.Timedelta("30 minutes"), pd.Timedelta("2 minutes")
FUTURE = json.dumps({"at": "2099-01-01T00:00:00.000Z", "user": "u1", "type": "view", "page": "/"})  # a clock is wrong
BROKEN = ("no event", '{"user": "u1"}', "")
KINDS = {"view": "views", "click": "clicks", "search": "searches"}


def made_up(seed: int, count: int, start: datetime = START) -> list[dict[str, Any]]:
    return list(islice(Site(seed, step_s=36 * 3600 / COUNT, rhythm=True).events(start), count))


def test_events_are_the_same_for_the_same_seed_and_never_later_than_promised() -> None:
    events = made_up(1, COUNT)
    assert events == made_up(1, COUNT)
    assert events != made_up(2, COUNT)
    assert {event["type"] for event in events} == set(KINDS)
    at = pd.to_datetime([event["at"] for event in events])
    assert not at.is_monotonic_increasing, "some are late"
    assert (pd.Series(at).cummax() - at).max() <= pd.Timedelta(seconds=LATE_S)


def test_killed_and_resumed_it_gives_what_pandas_gives(
    ottla: Ottla, tmp_path: Path, spark: SparkSession, fresh: Callable[[str], str]
) -> None:
    folder, events = tmp_path / "my run: ü 100%", made_up(1, COUNT)
    topics = {name: fresh(f"activity-{name}") for name in ("events", "sessions", "minutes", "dead.letter")}
    options = {**topics, "rows": "500", "report": "1 second"}
    words = [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
    by_name = [*OTTLA, "pipeline", "run", "activity", *words]
    produce(ottla.bootstrap, topics["events"], [FUTURE, *(json.dumps(event) for event in events[:2500])])

    with Launched(by_name, folder=folder, bootstrap=ottla.bootstrap) as running:
        running.until_rows("activity-live", 1000)
        running.kill()
    produce(ottla.bootstrap, topics["events"], [*(json.dumps(event) for event in events[2500:]), FUTURE])
    told = finished([*by_name, "--once"], folder=folder, bootstrap=ottla.bootstrap)
    assert re.search(r"rows read in this run, [12] of them put aside", told)

    frame = framed(events)
    watermark = frame["at"].max() - LATE
    assert read(ottla.bootstrap, topics["sessions"]) == sessions(frame, watermark)
    assert read(ottla.bootstrap, topics["minutes"]) == minutes(frame, watermark)
    check_tables(folder, "parquet", frame, broken=0)
    letters = committed(ottla.bootstrap, topics["dead.letter"])
    assert [message.value().decode() for message in letters] == [FUTURE, FUTURE], "seen, and each once"
    assert sorted(dict(message.headers())["ottla.dead.offset"] for message in letters) == [b"0", b"%d" % (COUNT + 1)]

    # More of a day that was reported, and what is no event: the day is replaced, and the others stay as they are.
    more = made_up(2, 100, datetime(2026, 1, 31, 3, tzinfo=UTC))
    untouched = (folder / "report" / "2026-01-30.html").stat().st_mtime_ns
    produce(ottla.bootstrap, topics["events"], [*(json.dumps(event) for event in more), *BROKEN])
    run = Run(pipeline=activity.PIPELINE, bootstrap=ottla.bootstrap, folder=folder, options=options, once=True)
    run.session = spark
    pages = activity.report(run)
    assert [page for page in pages if page != "index.html"] == changed(more)
    check_tables(folder, "parquet", framed(events + more), broken=len(BROKEN))
    assert (folder / "report" / "2026-01-30.html").stat().st_mtime_ns == untouched
    for page in pages:
        check_page(folder / "report" / page)
    assert activity.report(run) == [], "nothing is new"

    # From the beginning into Delta tables: the same.
    options = {"events": topics["events"], "format": "delta"}
    run = Run(
        pipeline=activity.PIPELINE, bootstrap=ottla.bootstrap, folder=tmp_path / "delta", options=options, once=True
    )
    run.session = spark
    activity.report(run)
    check_tables(tmp_path / "delta", "delta", framed(events + more), broken=len(BROKEN))


def produce(bootstrap: str, topic: str, values: list[str]) -> None:
    """To one partition: with several, events of a backlog would come to Spark in an order that is later than `late`."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def read(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    return in_order([json.loads(message.value()) for message in committed(bootstrap, topic)])


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def framed(events: list[dict[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(events)
    frame["at"] = pd.to_datetime(frame["at"]).dt.tz_convert(None)
    frame["order"] = range(len(frame))
    return frame.sort_values(["user", "at", "order"]).reset_index(drop=True)


def counted(frame: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    return pd.DataFrame(
        {name: frame["type"].eq(kind).groupby([frame[key] for key in by]).sum() for kind, name in KINDS.items()}
    )


def sessions(frame: pd.DataFrame, watermark: pd.Timestamp) -> list[dict[str, Any]]:
    began = frame["at"] - frame.groupby("user")["at"].shift() > GAP
    found = frame.assign(session=began.groupby(frame["user"]).cumsum())
    grouped = found.groupby(["user", "session"])
    table = counted(found, ["user", "session"]).assign(
        start=grouped["at"].min(), end=grouped["at"].max(), entry=grouped["page"].first(), exit=grouped["page"].last()
    )
    final = table[table["end"] + GAP <= watermark].reset_index().drop(columns="session")
    assert 200 < len(final) < len(table), "some have not ended"
    rows = final.assign(start=final["start"].map(stamp), end=final["end"].map(stamp)).to_dict("records")
    return in_order(rows)


def minutes(frame: pd.DataFrame, watermark: pd.Timestamp) -> list[dict[str, Any]]:
    minute = frame["at"].dt.floor("min")
    table = frame.groupby([minute.rename("minute"), "page", "type"]).size().rename("count").reset_index()
    final = table[table["minute"] + pd.Timedelta("1 minute") <= watermark]
    return in_order(final.assign(minute=final["minute"].map(stamp)).to_dict("records"))


def stamp(at: pd.Timestamp) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"


def check_tables(folder: Path, format: str, frame: pd.DataFrame, *, broken: int, ahead: int = 2) -> None:
    found = Daily(Location.parse(folder / "tables"), format)
    expected = tables(frame)
    for name, rows in expected.items():
        there = found.read(name)
        if name == "days":
            assert sum(row.pop("broken") for row in there) == broken
            assert sum(row.pop("ahead") for row in there) == ahead
            there = [row for row in there if row["events"]]  # what is no event counts on the day that it arrived
        assert in_order(there) == in_order(rows), name


def tables(frame: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
    frame = frame.assign(day=frame["at"].dt.strftime("%Y-%m-%d"), hour=frame["at"].dt.hour)
    of_user = frame.groupby(["user", "day"])
    frame["first"] = (frame["at"] - of_user["at"].shift() > GAP) | of_user["at"].shift().isna()
    frame["visit"] = frame.groupby(["user", "day"])["first"].cumsum()
    by_visit = frame.groupby(["day", "user", "visit"])
    frame["last"] = by_visit.cumcount(ascending=False) == 0
    visits = by_visit.size().rename("events").reset_index()
    visits["referrer"] = (
        by_visit["referrer"].apply(lambda column: column.iloc[0]).fillna("").replace("", "(none)").values
    )
    steps = [
        ("any page", lambda rows: rows["page"].notna()),
        ("a product", lambda rows: rows["page"].str.count("/").eq(2) & rows["type"].eq("view")),
        ("the cart", lambda rows: rows["page"].eq("/cart") & rows["type"].eq("view")),
        ("the checkout", lambda rows: rows["page"].eq("/checkout") & rows["type"].eq("view")),
        ("an order", lambda rows: rows["page"].eq("/thanks") & rows["type"].eq("view")),
    ]
    reached = pd.Series(True, index=pd.MultiIndex.from_frame(visits[["day", "user", "visit"]]))
    funnel = []
    for position, (step, matches) in enumerate(steps):
        did = matches(frame).groupby([frame["day"], frame["user"], frame["visit"]]).any()
        reached = reached & did
        funnel += [
            {"day": day, "position": position, "step": step, "visits": int(count)}
            for day, count in reached.groupby("day").sum().items()
        ]
    days = counted(frame, ["day"]).assign(
        events=frame.groupby("day").size(),
        users=frame.groupby("day")["user"].nunique(),
        visits=visits.groupby("day").size(),
        bounces=visits["events"].eq(1).groupby(visits["day"]).sum(),
    )
    hours = counted(frame, ["day", "hour"]).assign(
        users=frame.groupby(["day", "hour"])["user"].nunique(), visits=frame.groupby(["day", "hour"])["first"].sum()
    )
    pages = counted(frame, ["day", "page"]).drop(columns="searches")
    pages = pages.assign(
        entries=frame.groupby(["day", "page"])["first"].sum(), exits=frame.groupby(["day", "page"])["last"].sum()
    )
    searches = frame[frame["type"] == "search"].groupby(["day", "query"]).size().rename("searches")
    referrers = visits.groupby(["day", "referrer"]).size().rename("visits")
    named = {"days": days, "hours": hours, "pages": pages, "searches": searches, "referrers": referrers}
    return {name: table.reset_index().to_dict("records") for name, table in named.items()} | {"funnel": funnel}


def changed(events: list[dict[str, Any]]) -> list[str]:
    """The pages of the days of these events, and of today, when the broken ones arrived."""
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    return [f"{day}.html" for day in sorted({event["at"][:10] for event in events} | {today})]


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.bars = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        self.bars += tag == "rect"
        assert not [value for name, value in attributes if name in ("src", "onload")], "nothing from elsewhere"

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def check_page(path: Path) -> None:
    text = path.read_text()
    page = Page()
    page.feed(text)
    assert not page.open, "every tag is closed"
    assert "http" not in text
    assert "<loose>" not in text
    if path.name == "2026-01-31.html":
        assert "tea & honey <loose>" in page.text
        assert page.bars > 24 + 10


@pytest.mark.parametrize("format", FORMATS)
def test_a_day_is_replaced_and_the_others_stay(tmp_path: Path, format: str) -> None:
    import pyarrow as pa

    tables = Daily(Location.parse(tmp_path), format)

    def rows(*counts: tuple[str, int]) -> pa.Table:
        return pa.table(
            {"day": [day for day, _ in counts], "count": pa.array([count for _, count in counts], pa.int64())}
        )

    tables.replace("t", ["2026-01-01", "2026-01-02"], rows(("2026-01-01", 1), ("2026-01-02", 2), ("2026-01-02", 3)))
    tables.replace("t", ["2026-01-02", "2026-01-03"], rows(("2026-01-02", 4), ("2026-01-03", 5)))
    every = {("2026-01-01", 1), ("2026-01-02", 4), ("2026-01-03", 5)}
    assert {(row["day"], row["count"]) for row in tables.read("t")} == every
    assert tables.read("t", ["2026-01-03"]) in (
        [{"day": "2026-01-03", "count": 5}],
        [{"count": 5, "day": "2026-01-03"}],
    )
    tables.replace("t", ["2026-01-02"], rows())
    assert {(row["day"], row["count"]) for row in tables.read("t")} == every - {("2026-01-02", 4)}
