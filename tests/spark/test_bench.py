"""Each row of the Spark benchmark runs on a small topic and gives plausible numbers; `make bench` measures speed."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))

from bench import spark as spark_bench
from bench.spark_rows import BEST, CEILING, DEFAULT, OURS, Load, SparkRow, World, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

ROWS = [row for row in rows(0.0005) if row.size == 100]


@pytest.fixture(scope="module")
def world(spark: SparkSession) -> Iterator[World]:
    with spark_bench.world(spark) as world:
        yield world


@pytest.fixture(scope="module")
def load(world: World) -> Load:
    return spark_bench.filled(world, "smoke", 5000, 100)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_gives_numbers(row: SparkRow, world: World, load: Load) -> None:
    """The connector at its best is the connector with other settings: once is enough."""
    for name, side in row.sides.items():
        if name == BEST and row is not ROWS[-1]:
            continue
        numbers = spark_bench.timed(world, side, load)
        assert all(math.isfinite(value) and value >= 0 for value in numbers.values()), name
        assert numbers["rows_s"] > 0, name


def test_the_table_says_how_far_each_goal_is() -> None:
    row = ROWS[0]
    numbers = {
        OURS: {"rows_s": [2e6, 4e6, 3e6], "cpu_s_m": [1.0]},
        DEFAULT: {"rows_s": [0.5e6, 1e6, 1e6], "cpu_s_m": [2.0]},
        BEST: {"rows_s": [2e6, 2e6, 2e6], "cpu_s_m": [1.5]},
        CEILING: {"rows_s": [4e6, 4e6, 4e6], "cpu_s_m": [0.5]},
    }
    text = spark_bench.markdown(ROWS, {"cores": 2, "spark": "4", "repeat": 3, "rows": {row.name: numbers}})
    assert "| 3.00 ±33 % | 1.00 ±25 % | 2.00 ±0 % | yes (4.0 of 2.5), no (1.5 of 1.6) | 1.00 / 2.00 / 1.50 |" in text
    assert "4.00 ±0 %, ours is 75 % of it" in text
