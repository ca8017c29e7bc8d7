"""A selection of the attacks on exactly once; `python tests/spark/attacks.py` runs them all, on Apache Kafka too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

PROGRAM: Final = Path(__file__).resolve().parents[1] / "attacks.py"
pytestmark = pytest.mark.timeout(900)


def test_equal_or_refused_with_a_reason() -> None:
    run = subprocess.run(
        [sys.executable, str(PROGRAM), "--quick", "--brokers", "ottla"],
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    results = [line.split()[3].rstrip(":") for line in run.stdout.splitlines() if not line.startswith("TOTAL")]
    assert {"equal", "refused"} == set(results), run.stdout
