"""A quick run skips tests that start a program of another toolchain, in whatever way, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CONFTEST = """
import hypothesis
from quick import Quick
hypothesis.settings.register_profile("plain")

def pytest_configure(config):
    config.pluginmanager.register(Quick())
"""
TESTS = """
import subprocess, sys, pytest

@pytest.fixture(scope="session")
def server():
    subprocess.run([sys.executable, "-c", "import subprocess; subprocess.run(['java'], check=True)"], check=True)

def test_passes(): subprocess.run([sys.executable, "-V"], check=True)
def test_fails(): assert False
def test_starts_a_program(): subprocess.run(["java", "-version"])
def test_starts_one_by_its_path(): subprocess.Popen("/opt/some/bin/node")
def test_a_child_starts_one(): subprocess.run([sys.executable, "-c", "import os; os.execvp('kcat', ['k'])"], check=True)
def test_a_fixture_needs_one(server): pass
def test_another_uses_that_fixture(server): pass
def test_fails_after_them(): assert False
@pytest.mark.parametrize("seed", range(50))
def test_visits_few_worlds(seed): assert seed < 3
def test_finds_one_and_does_without(): subprocess.run([sys.executable, "-c", "import os; os.system('go')"], check=True)
"""


def test_what_starts_another_program_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    words = [line.split() for line in done.stdout.splitlines() if "test_it.py::" in line and "%]" in line]
    assert "left to `make test`: " in done.stdout
    assert {word[0].partition("::")[2].partition("[")[0]: word[1] for word in words} == {
        "test_passes": "PASSED",
        "test_fails": "FAILED",
        "test_starts_a_program": "SKIPPED",
        "test_starts_one_by_its_path": "SKIPPED",
        "test_a_child_starts_one": "SKIPPED",
        "test_a_fixture_needs_one": "SKIPPED",
        "test_another_uses_that_fixture": "SKIPPED",
        "test_fails_after_them": "FAILED",
        "test_visits_few_worlds": "PASSED",
        "test_finds_one_and_does_without": "PASSED",
    }, done.stdout + done.stderr
