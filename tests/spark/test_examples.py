"""The examples on Spark print what they say. They run in the suite's session: a JVM for each would cost too much."""

from __future__ import annotations

import runpy
import sys
from typing import TYPE_CHECKING

import example_files
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from process import Ottla
    from pyspark.sql import SparkSession


@pytest.mark.timeout(600, func_only=True)
@pytest.mark.parametrize("file", example_files.ON_SPARK, ids=lambda file: file.stem)
def test_an_example_prints_what_it_says(
    file: Path, ottla: Ottla, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [file.name, ottla.bootstrap])
    runpy.run_path(str(file))["main"](spark)
    assert capsys.readouterr().out.strip() == example_files.expected_output(file)
