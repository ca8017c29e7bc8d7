"""Each kind of row runs for a moment against Ottla and gives sane numbers; how fast is the business of `make bench`."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))

from bench import captured, consume, coordinators, footprint, latency, produce, replay, requests, run, table, tls
from bench.brokers import Ottla
from bench.client import Client
from bench.rows import Goal, Row, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.xdist_group("bench")  # one broker and one JVM for all of them

RAW = [
    replay.replay(100, 16),
    replay.replay(100, 16, "lz4-4M", 6, 8),
    *[row for row in captured.rows() if "gzip, 16 kB of 100 B" in row.name and row.client != "java"],
    *requests.rows()[:1],
    *[row for row in consume.rows() if isinstance(row, consume.Fetch)],
    *footprint.rows(),
    *coordinators.rows(),
]
CLIENTS = [
    captured.rows()[0],
    produce.rows()[0],
    *[row for row in produce.rows() if "zstd" in row.name],
    consume.rows()[0],
    *[row for row in consume.rows() if row.client != "java"],
    latency.rows()[0],
    tls.rows()[0],
    tls.rows()[2],
]


@pytest.fixture(scope="module")
def ottla() -> Iterator[Ottla]:
    with Ottla().start() as broker:
        yield broker


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Client() as client:
        yield client


def moment(client: Client | None) -> Setting:
    return Setting(client, seconds=0.2, warm_s=0.0, fill_mb=2, topics=3, idle_s=0.0)


def sane(row: Row, broker: Ottla, setting: Setting) -> None:
    sides = run.measure(row, [broker], setting, 1)
    numbers = sides["ottla"]
    assert {goal.measure for goal in row.goals} <= numbers.keys()
    assert all(math.isfinite(value) and value >= 0 for values in numbers.values() for value in values)
    assert row.name in table.line(row, sides)


@pytest.mark.parametrize("row", RAW, ids=lambda row: row.name)
def test_a_raw_row_gives_numbers(row: Row, ottla: Ottla) -> None:
    sane(row, ottla, moment(None))


@pytest.mark.parametrize("row", CLIENTS, ids=lambda row: row.name)
def test_a_row_of_a_real_client_gives_numbers(row: Row, ottla: Ottla, client: Client) -> None:
    sane(row, ottla, moment(client))


def test_a_writing_row_has_a_new_topic_in_each_turn(ottla: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    row, ids = replay.replay(100, 16), []
    touched: list[int] = []
    monkeypatch.setattr("bench.pages.touch", lambda _, size: touched.append(size))
    monkeypatch.setattr(row, "run", lambda broker, _: ids.append(topic_id(broker, row.topic)) or {"mb_s": 1.0})
    run.measure(row, [ottla], moment(None), 3)
    assert len(ids) == len(set(ids)) == 4, "three turns, and one that does not count"
    assert len(touched) == 3
    assert min(touched) > 16_000, "what the first request of each turn wrote"
    ottla.wait_deleted()
    assert not list((ottla.folder / "data").glob("*-delete"))


def topic_id(broker: Ottla, topic: str) -> str:
    return (broker.folder / "data" / f"{topic}-0" / "partition.metadata").read_text()


def test_rows_have_names_of_their_own() -> None:
    names = [row.name for row in run.every_row()]
    assert len(names) == len(set(names))


def test_the_worst_row_comes_first_and_says_what_it_missed() -> None:
    good, bad = Row("good", (Goal("mb_s", 1.0), Goal("cpu_s_gb", 0.5))), Row("bad", (Goal("mb_s", 1.5),))
    numbers = {
        "kafka": {"mb_s": [100.0, 102.0], "cpu_s_gb": [4.0]},
        "ottla": {"mb_s": [120.0, 122.0], "cpu_s_gb": [1.0]},
    }
    text = table.markdown([good, bad], {"good": numbers, "bad": numbers})
    first, second = text.splitlines()[2:]
    assert first.startswith("| bad |")
    assert "no: speed" in first
    assert first.endswith("speed 1.20 (1.20 to 1.20) |")
    assert "| yes | speed 1.20 (1.20 to 1.20), CPU 0.25 |" in second
    verdict = table.verdict([good, bad], {"good": numbers, "bad": numbers})
    assert verdict == "1 of 2 rows meet their goals, 0 are undecided."


def test_a_row_without_a_number_meets_no_goal() -> None:
    row = Row("silent", (Goal("mb_s", 1.0),))
    assert table.outcome(row, {"kafka": {"mb_s": [1.0]}}) == "no: no number"
    assert "no number" in table.markdown([row], {"silent": {"kafka": {"mb_s": [1.0]}}})


@pytest.mark.parametrize(
    ("goal", "ottla", "kafka", "met"),
    [
        (Goal("mb_s", 1.5), 150.0, 100.0, True),
        (Goal("mb_s", 1.5), 130.0, 100.0, False),
        (Goal("cpu_s_gb", 0.5), 1.0, 2.0, True),
        (Goal("p99_ms", 1.0), 1.0, 1.0, True),
        (Goal("p99_ms", 1.0), 1.2, 1.0, False),
        (Goal("seconds", 0.3, absolute=True), 0.31, 5.0, False),
        (Goal("seconds", 0.3, absolute=True), 0.29, None, True),
    ],
)
def test_goals_are_multiples_of_kafka_or_plain_numbers(
    goal: Goal, ottla: float, kafka: float | None, met: bool
) -> None:
    numbers = {"ottla": {goal.measure: [ottla]}, "kafka": {goal.measure: [kafka]} if kafka else {}}
    assert table.outcome(Row("any", (goal,)), numbers).startswith("yes" if met else "no")
