"""Spark on several machines, two of which die: see machines.py, which runs in namespaces of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from spark.machines import SPACE

TIMEOUT_S = 1800


def space() -> list[str]:
    """The command that creates the namespaces: as root, or as root of a user namespace."""
    return [*SPACE] if os.geteuid() == 0 else [SPACE[0], "--user", "--map-root-user", *SPACE[1:]]


@pytest.mark.timeout(TIMEOUT_S)
def test_a_worker_and_the_driver_die_and_all_is_equal(tmp_path: Path) -> None:
    tests = Path(__file__).parents[1]
    paths = (tests, tests.parent / "src")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONUNBUFFERED": "1"}
    words = [*space(), sys.executable, str(tests / "spark" / "machines.py"), str(tmp_path)]
    tried = subprocess.run(
        [*space(), "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        print(f"no namespaces for this user ({tried.stderr.strip()}): one machine plays all, with local-cluster")
        words = [*words[len(space()) :], "alone"]
    done = subprocess.run(
        words,
        capture_output=True, text=True, env=environment, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-12000:])
    said = done.stdout.splitlines()
    assert said[-4:-1] == ["a worker machine is dead", "the driver's machine is dead", "equal"]
