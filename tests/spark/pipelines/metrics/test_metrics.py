"""Windows, alerts and late events of `metrics`, compared with a computation of one event at a time."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pandas
import pytest
from confluent_kafka import Producer
from spark.launching import OTTLA, Launched, finished
from spark.topics import committed, letters

from ottla.spark.pipelines.metrics import pipeline as metrics
from ottla.spark.pipelines.metrics.machines import records
from ottla.spark.pipelines.metrics.pipeline import PIPELINE, SECOND, AlertRule, Open, WindowSettings, rules
from ottla.spark.runner import Run, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from process import Ottla

pytestmark = pytest.mark.timeout(1200)

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
COUNT = 6000  # of four hosts: five minutes
WINDOW_S, LATE_S = 30, 10
RULES = "cpu mean > 70 for 2, latency_ms p99 > 150"
TOPICS = {"windows": "metrics-windows", "alerts": "metrics-alerts", "aside": "metrics-late"}
SETTINGS = WindowSettings(WINDOW_S * SECOND, LATE_S * SECOND, 3600 * SECOND, rules(RULES), TOPICS)
REASONS = {"broken": "it is not an event", "future": "its time is after that of its record"}
BROKEN = ("no JSON", '{"host": "web-1", "metric": "cpu", "at": "2026-01-31T12:00:00Z"}', '{"value": "NaN"}')


def test_killed_and_resumed_every_event_is_in_its_window_or_put_aside(ottla: Ottla, tmp_path: Path) -> None:
    run = Run(pipeline=PIPELINE, bootstrap=ottla.bootstrap, folder=tmp_path)
    run.ensure_topic("metrics", 2, retention_ms="-1")
    produce(ottla.bootstrap)
    options = {
        "window": f"{WINDOW_S}s",
        "late": f"{LATE_S}s",
        "rules": RULES,
        "rows": "1500",
        "dead.letter": "metrics-dead",
    }
    words = [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
    command = [*OTTLA, "pipeline", "run", "metrics", "--once", *words]
    folder = tmp_path / "run"
    with Launched(command, folder=folder, bootstrap=ottla.bootstrap) as running:
        running.until_rows("metrics-windows", 1500)
        running.kill()
    finished(command, folder=folder, bootstrap=ottla.bootstrap)

    windows, alerts, aside = by_hand(committed(ottla.bootstrap, "metrics"))
    assert len(alerts) > 4, "the made-up trouble must show"
    assert {each["reason"] for each in aside} == {"broken", "future", "late"}
    found = [json.loads(message.value()) for message in committed(ottla.bootstrap, "metrics-windows")]
    assert len(found) == len(windows)
    compare(found, windows)
    told = [json.loads(message.value()) for message in committed(ottla.bootstrap, "metrics-alerts")]
    assert alert_stories(told) == alert_stories(alerts)
    late = [json.loads(message.value()) for message in committed(ottla.bootstrap, "metrics-late")]
    keep = ("partition", "offset", "reason", "so_far")
    assert sorted([each[name] for name in keep] for each in late) == sorted([each[n] for n in keep] for each in aside)
    raw = {(one.partition(), one.offset()): one for one in committed(ottla.bootstrap, "metrics")}
    places = [
        (each["partition"], each["offset"], REASONS[each["reason"]]) for each in aside if each["reason"] != "late"
    ]
    expected = sorted((*place, raw[place[:2]].value()) for place in places)
    assert letters(ottla.bootstrap, "metrics-dead") == expected, "as they came, each once"
    (first, *_) = committed(ottla.bootstrap, "metrics-dead")
    assert (first.key(), first.headers()[0]) == (b"web-1", ("trace", b"7")), "with its key and its own headers"


def produce(bootstrap: str) -> None:
    """The generator's events, with some invalid ones between them."""
    producer = Producer({"bootstrap.servers": bootstrap})
    future = json.dumps({"host": "web-9", "metric": "cpu", "value": 1, "at": "2036-01-01T00:00:00Z"})
    for number, record in enumerate(islice(records("metrics", 11, 4, START), COUNT)):
        if number % 2000 == 1999:
            for text in (*BROKEN, future):
                producer.produce("metrics", text, "web-1", timestamp=record.timestamp_ms, headers=[("trace", b"7")])
        producer.produce("metrics", record.value, record.key, timestamp=record.timestamp_ms)
        producer.poll(0)
    assert producer.flush(30) == 0


def by_hand(messages: list[Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Windows, alerts and dead letters, one event at a time, in pandas and plain Python."""
    final: list[dict[str, Any]] = []
    aside: list[dict[str, Any]] = []
    for partition in sorted({message.partition() for message in messages}):
        clock, kept, count = datetime.min.replace(tzinfo=UTC), [], 0
        for message in (each for each in messages if each.partition() == partition):
            reason = None
            try:
                event = json.loads(message.value())
                at = datetime.fromisoformat(event["at"])
                host, metric, value = event["host"], event["metric"], float(event["value"])
            except (ValueError, KeyError):
                reason = "broken"
            else:
                start = datetime.fromtimestamp(at.timestamp() // WINDOW_S * WINDOW_S, UTC)
                if at - datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC) > timedelta(hours=1):
                    reason = "future"
                else:
                    clock = max(clock, at)
                    if start + timedelta(seconds=WINDOW_S + LATE_S) <= clock:
                        reason = "late"
            if reason:
                count += 1
                place = {"partition": partition, "offset": message.offset()}
                aside.append({"reason": reason, **place, "so_far": count})
            else:
                kept.append((start, host, metric, value))
        frame = pandas.DataFrame(kept, columns=["start", "host", "metric", "value"])
        grouped = frame.groupby(["start", "host", "metric"])["value"]
        table = grouped.agg(["count", "mean", "max"])
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            table[name] = grouped.quantile(share)
        table = table.reset_index()
        final += table[table["start"] + timedelta(seconds=WINDOW_S + LATE_S) <= clock].to_dict("records")
    return final, alerts_by_hand(final), aside


def alerts_by_hand(windows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    alerts = []
    for text, metric, statistic, threshold, times in (
        ("cpu mean > 70 for 2", "cpu", "mean", 70, 2),
        ("latency_ms p99 > 150", "latency_ms", "p99", 150, 1),
    ):
        series = defaultdict(list)
        for window in sorted(windows, key=lambda each: each["start"]):
            if window["metric"] == metric:
                series[window["host"]].append(window)
        for host, each in series.items():
            broken = [window[statistic] > threshold for window in each]
            up = False
            for number, window in enumerate(each):
                if not up and number + 1 >= times and all(broken[number + 1 - times : number + 1]):
                    up = True
                    alerts.append({"rule": text, "host": host, "state": "raised", "start": window["start"]})
                elif up and not broken[number]:
                    up = False
                    alerts.append({"rule": text, "host": host, "state": "resolved", "start": window["start"]})
    return alerts


def compare(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    by = ["start", "host", "metric"]
    frames = []
    for rows in (found, expected):
        frame = pandas.DataFrame(rows)
        frame["start"] = pandas.to_datetime(frame["start"], utc=True)
        frames.append(frame.drop(columns=["end"], errors="ignore").sort_values(by).reset_index(drop=True))
    pandas.testing.assert_frame_equal(frames[0], frames[1], check_dtype=False, rtol=1e-9, check_like=True)


def alert_stories(alerts: list[dict[str, Any]]) -> dict[tuple[str, str], list[tuple[str, datetime]]]:
    """The alerts of each rule for each host, in order; raised and resolved alternate."""
    stories = defaultdict(list)
    for alert in alerts:
        start = datetime.fromisoformat(str(alert["start"]))
        stories[alert["rule"], alert["host"]].append((alert["state"], start))
    for story in stories.values():
        assert story[0][0] == "raised"
        assert all(one[0] != other[0] and one[1] < other[1] for one, other in pairwise(story)), story
    return dict(stories)


@pytest.mark.parametrize("seed", range(5))
def test_batches_may_be_cut_anywhere(seed: int) -> None:
    """The rows are the same however batches are cut, and those of one window or alert are in the same order."""
    random = Random(seed)
    events = table(islice(records("metrics", seed, 3, START), 4000))
    whole = told(Open(), [events])
    assert whole["metrics-windows"]
    assert whole["metrics-late"]
    cuts = sorted({0, len(events), *(random.randrange(len(events)) for _ in range(random.randrange(20)))})
    pieces = [events.iloc[start:stop] for start, stop in pairwise(cuts)]
    assert told(Open(), pieces) == whole


def table(made: Any) -> pandas.DataFrame:
    rows = []
    for offset, record in enumerate(made):
        event = json.loads(record.value)
        at = round(datetime.fromisoformat(event["at"]).timestamp() * 1e6)
        rows.append((0, offset, record.value, event["host"], event["metric"], event["value"], at, at))
    return pandas.DataFrame(rows, columns=["partition", "offset", "text", "host", "metric", "number", "at", "arrived"])


def told(now: Open, pieces: list[pandas.DataFrame]) -> dict[str, list[Any]]:
    rows = defaultdict(list)
    for piece in pieces:
        now = Open(**json.loads(json.dumps(vars(now))))  # as Spark keeps it between batches
        for topic, key, value in [*metrics.put_aside(piece, now, SETTINGS), *metrics.close_windows(now, SETTINGS)]:
            rows[topic].append((key, value))
    return rows


def test_rules_are_read_and_wrong_ones_are_refused() -> None:
    assert rules("cpu mean > 90 for 3; queue count<-1.5,") == (
        AlertRule("cpu mean > 90 for 3", "cpu", "mean", True, 90.0, 3),
        AlertRule("queue count<-1.5", "queue", "count", False, -1.5, 1),
    )
    with pytest.raises(
        UsageError, match="'cpu median > 90' is not a rule: write it like `cpu mean > 90 for 3`, with one of count"
    ):
        rules("memory max > 1, cpu median > 90")


def test_the_same_seed_makes_the_same_events() -> None:
    first, again, other = (list(islice(records("m", seed, 4, START), 500)) for seed in (1, 1, 2))
    assert first == again != other


def test_made_up_events_go_to_the_topic_and_end_about_now(ottla: Ottla, tmp_path: Path) -> None:
    options = {"metrics": "made-up"}
    run = Run(pipeline=PIPELINE, bootstrap=ottla.bootstrap, folder=tmp_path, options=options, count=20_000)
    metrics.generate(run)
    moments = [message.timestamp()[1] / 1000 for message in committed(ottla.bootstrap, "made-up")]
    assert len(moments) == 20_000
    assert max(moments) <= datetime.now(UTC).timestamp() + 600
    with pytest.raises(UsageError, match="without a rate need a number"):
        metrics.generate(Run(pipeline=PIPELINE, bootstrap=ottla.bootstrap, folder=tmp_path, options=options))


def test_this_machine_can_be_sampled(ottla: Ottla, tmp_path: Path) -> None:
    run = Run(pipeline=PIPELINE, bootstrap=ottla.bootstrap, folder=tmp_path, options={"sample": "true"})
    events = [json.loads(record.value) for record in islice(metrics.sample_machine(run), 6)]
    assert [event["metric"] for event in events] == ["cpu", "memory", "latency_ms"] * 2
    assert all(0 <= event["value"] <= 100 for event in events if event["metric"] != "latency_ms")


def test_a_clock_that_is_ahead_makes_nobody_late() -> None:
    """Fifty minutes ahead is less than `ahead`, and far more than `late`."""
    minute = 60 * SECOND
    settings = metrics.WindowSettings(minute, minute // 2, 60 * minute, (), {"aside": "aside"})
    now = metrics.Open()
    start = 1_769_860_800 * SECOND
    hosts = ["wrong", "right", "right", "right"]
    ahead = [50 * minute, 0, 0, 0]
    frame = pandas.DataFrame(
        {
            "partition": 0, "offset": range(4), "text": "", "host": hosts, "metric": "cpu", "number": 1.0,
            "arrived": [start + number * 10 * SECOND for number in range(4)],
        }
    )  # fmt: skip
    frame["at"] = frame["arrived"] + ahead
    assert metrics.put_aside(frame, now, settings) == []
    assert now.clock == start + 30 * SECOND, "that of the records"
    assert sum(map(len, now.windows.values())) == 4
    far = frame.assign(at=frame["arrived"] + 61 * minute)
    assert [json.loads(row[2])["reason"] for row in metrics.put_aside(far, now, settings)] == ["future"] * 4
    assert now.clock == start + 30 * SECOND
