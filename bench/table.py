"""Makes the table of README.md from samples: medians with their spread, goals, paired ratios, worst rows first."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from bench import turns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from bench.rows import Goal, Row, Sample
    from bench.turns import Spread

Numbers = dict[str, list[float]]  # measure → one value for each turn; the same index means neighbouring turns
Results = dict[str, dict[str, Numbers]]  # row → side → numbers

SPEED = {"mb_s": "MB/s", "req_s": "req/s", "seconds": "s", "idle_mb": "MB idle", "loaded_mb": "MB loaded"}
COST = {"cpu_s_gb": "s/GB", "us_req": "µs/req", "start_cpu_s": "s", "total_cpu_s": "s"}
TAIL = ("p50_ms", "p99_ms", "p999_ms")
SHORT = {"mb_s": "speed", "req_s": "speed", "cpu_s_gb": "CPU", "us_req": "CPU", "p99_ms": "p99", "p50_ms": "p50",
         "seconds": "time", "idle_mb": "idle", "loaded_mb": "loaded"}  # fmt: skip
HEAD = ("row", "Kafka", "Ottla", "Kafka CPU", "Ottla CPU", "Kafka p50 / p99 ms", "Ottla p50 / p99 ms", "goal", "met",
        "Ottla / Kafka")  # fmt: skip


def collect(numbers: Numbers, sample: Sample) -> None:
    for measure, value in sample.items():
        numbers.setdefault(measure, []).append(value)


def median(numbers: Numbers | None, measure: str) -> float | None:
    return statistics.median(numbers[measure]) if numbers and measure in numbers else None


def spread(values: Sequence[float]) -> float:
    """Half the range, relative to the median."""
    middle = statistics.median(values)
    return (max(values) - min(values)) / 2 / middle if middle else 0.0


def figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cell(numbers: Numbers | None, units: dict[str, str]) -> str:
    parts = []
    for measure, unit in units.items():
        if numbers and measure in numbers:
            values = numbers[measure]
            wide = f" ±{spread(values):.0%}".replace("%", " %") if len(values) > 1 else ""
            parts.append(f"{figure(statistics.median(values))} {unit}{wide}")
    return ", ".join(parts)


def tail(numbers: Numbers | None, deep: bool) -> str:
    wanted = TAIL if deep else TAIL[:2]
    return " / ".join(figure(value) for measure in wanted if (value := median(numbers, measure)) is not None)


def margins(goals: Iterable[Goal], sides: dict[str, Numbers]) -> list[tuple[Goal, Spread]]:
    """Each goal that has numbers, with its margin."""
    found = []
    for goal in goals:
        ottla, kafka = (sides.get(side, {}).get(goal.measure, []) for side in ("ottla", "kafka"))
        if values := ottla if goal.absolute else turns.ratios(ottla, kafka):
            found.append((goal, goal.margins(turns.spread(values))))
    return found


def ratios(goals: Iterable[Goal], sides: dict[str, Numbers]) -> str:
    """Ottla's number over Apache Kafka's, for each measure that has a goal: median and quartiles of the pairs."""
    parts = []
    for goal in goals:
        ottla, kafka = (sides.get(side, {}).get(goal.measure, []) for side in ("ottla", "kafka"))
        if found := turns.ratios(ottla, kafka):
            parts.append(f"{SHORT[goal.measure]} {turns.spread(found) if len(found) > 1 else f'{found[0]:.2f}'}")
    return ", ".join(parts)


def goal_text(goal: Goal) -> str:
    return str(goal).replace(goal.measure, SHORT[goal.measure], 1)


def line(row: Row, sides: dict[str, Numbers]) -> tuple[str, ...]:
    kafka, ottla, deep = sides.get("kafka"), sides.get("ottla"), "end to end" in row.name
    goals = ", ".join(goal_text(goal) for goal in row.goals)
    speed, cost = (cell(kafka, SPEED), cell(ottla, SPEED)), (cell(kafka, COST), cell(ottla, COST))
    reached = outcome(row, sides)
    return (row.name, *speed, *cost, tail(kafka, deep), tail(ottla, deep), goals, reached, ratios(row.goals, sides))


def outcome(row: Row, sides: dict[str, Numbers]) -> str:
    """yes, no or undecided, and for which measures."""
    found = margins(row.goals, sides)
    verdicts = {goal: turns.verdict(margin) for goal, margin in found}
    for verdict in ("no", "undecided"):
        if named := [SHORT[goal.measure] for goal, each in verdicts.items() if each == verdict]:
            return f"{verdict}: {', '.join(named)}"
    return "yes" if len(found) == len(row.goals) else "no: no number"


def worst(row: Row, sides: dict[str, Numbers]) -> float:
    """The margin of the goal we are furthest from; a row without numbers is worse than any."""
    return min((margin.median for _, margin in margins(row.goals, sides)), default=0.0)


def markdown(rows: Sequence[Row], results: Results) -> str:
    done = sorted((row for row in rows if row.name in results), key=lambda row: worst(row, results[row.name]))
    lines = [HEAD, ("---",) * len(HEAD), *(line(row, results[row.name]) for row in done)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def verdict(rows: Sequence[Row], results: Results) -> str:
    words = [outcome(row, results[row.name]).partition(":")[0] for row in rows if row.name in results]
    return f"{words.count('yes')} of {len(rows)} rows meet their goals, {words.count('undecided')} are undecided."


def insert(page: Path, name: str, text: str) -> None:
    """Replace the text between the markers of this name in a page."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    head, _, rest = page.read_text().partition(begin)
    _, _, foot = rest.partition(end)
    assert foot, f"{page.name} has no place for the table {name}"
    page.write_text(head + begin + text + end + foot)
