"""Turns: who runs when, and what the pairs say."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))

from bench import run, table, turns
from bench.brokers import Broker
from bench.rows import Goal, Row, Sample, Setting
from bench.turns import Spread
from bench.wire import BenchError


class Side(Broker):
    """A broker that is only a name."""

    def __init__(self, name: str) -> None:
        self.name = name


class Watched(Row):
    """Notes whose turn it is; the machine it runs on gets slower with each turn."""

    def __init__(self, breaking: int = -1) -> None:
        super().__init__("watched", (Goal("mb_s", 1.0),))
        self.seen: list[str] = []
        self.cleaned: list[str] = []
        self.breaking = breaking

    def run(self, broker: Broker, setting: Setting) -> Sample:
        if broker.name == "kafka" and len(self.seen) >= self.breaking >= 0:
            raise BenchError("gone")
        self.seen.append(broker.name)
        return {"mb_s": (2.0 if broker.name == "ottla" else 1.0) / len(self.seen)}

    def clean(self, broker: Broker, setting: Setting) -> None:
        self.cleaned.append(broker.name)


def test_the_order_changes_from_pair_to_pair() -> None:
    assert "".join(turns.order("AB", 4)) == "ABBAABBA"
    assert list(turns.order(["A"], 2)) == ["A", "A"]


def test_a_row_runs_in_turns_after_one_that_does_not_count() -> None:
    row, sides = Watched(), [Side("kafka"), Side("ottla")]
    numbers = run.measure(row, sides, Setting(None), 4)
    assert [name[0] for name in row.seen] == list("ko" + "kookkook")
    assert [len(numbers[name]["mb_s"]) for name in ("kafka", "ottla")] == [4, 4]
    assert numbers["kafka"]["mb_s"] == [1 / turn for turn in (3, 6, 7, 10)]


def test_a_broker_that_fails_drops_out_and_the_other_goes_on() -> None:
    row = Watched(breaking=4)
    numbers = run.measure(row, [Side("kafka"), Side("ottla")], Setting(None), 4)
    assert [len(numbers[name]["mb_s"]) for name in ("kafka", "ottla")] == [1, 4]
    assert row.cleaned == ["kafka", "ottla"], "what the row started for it is stopped"


def test_ratios_are_of_neighbours() -> None:
    """The machine slows down tenfold in the course of it: neighbours do not notice."""
    chance, kafka, ottla = Random(1), [], []
    for turn in range(turns.PAIRS):
        speed = 100 / (1 + turn)
        kafka.append(speed * chance.uniform(0.98, 1.02))
        ottla.append(1.2 * speed * chance.uniform(0.98, 1.02))
    low, middle, high = turns.spread(turns.ratios(ottla, kafka))
    assert 1.15 < low <= middle <= high < 1.25


OUTCOMES = pytest.mark.parametrize(
    ("ottla", "said"),
    [
        ([1.1, 1.2, 1.3, 1.2], "yes"),
        ([0.9, 0.8, 0.9, 0.7], "no: speed"),
        ([0.8, 1.2, 0.9, 1.3], "undecided: speed"),
        ([1.0, 1.0, 1.0, 1.0], "yes"),
    ],
)


@OUTCOMES
def test_a_faster_side_meets_the_goal_for_time_with_the_same_quartiles(ottla: list[float], said: str) -> None:
    row, numbers = Row("any", (Goal("seconds", 1.0),)), [1 / value for value in ottla]
    outcome = table.outcome(row, {"kafka": {"seconds": [1.0] * 4}, "ottla": {"seconds": numbers}})
    assert outcome == said.replace("speed", "time")


@OUTCOMES
def test_a_goal_between_the_quartiles_is_undecided(ottla: list[float], said: str) -> None:
    row = Row("any", (Goal("mb_s", 1.0),))
    assert table.outcome(row, {"kafka": {"mb_s": [1.0] * 4}, "ottla": {"mb_s": ottla}}) == said


def test_no_time_at_all_is_within_any_goal() -> None:
    row = Row("any", (Goal("cpu_s_gb", 0.5),))
    assert table.outcome(row, {"kafka": {"cpu_s_gb": [1.0, 1.0]}, "ottla": {"cpu_s_gb": [0.0, 0.0]}}) == "yes"


def test_quartiles_of_one_value_are_that_value() -> None:
    assert turns.spread([2.0]) == Spread(2.0, 2.0, 2.0)
    assert str(turns.spread([1.0, 2.0, 3.0])) == "2.00 (1.50 to 2.50)"
