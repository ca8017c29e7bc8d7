"""`pytest --quick`: the tests that need nothing but Python. A test that needs more leaves the run when it asks for it.

No test is marked by hand, so no mark can go stale. While the run lasts, the programs of other toolchains (those that
`scripts/setup.py` fetches, Rust's, and what the suite has compiled with them) do not start:

- in this process an audit hook stops the call, and the test is left out there and then;
- a process that a test starts finds programs of the same names that fail. A test that fails after it has met one is
  left out, too.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import judge
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

PROGRAMS = {"java", "javac", "mvn", "spark-submit", "chromium", "kcat", "node", "npm", "go", "cargo", "rustc"}
STUB = """#!/bin/sh
echo "$0" >> {}
echo "$0: not in a quick run" >&2
exit 127
"""


class Quick:
    """The plugin of a quick run. Its folder goes with the process."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ottla-quick-")
        self._met = Path(self._folder.name) / "met"  # a line for each stand-in that was started
        self._met_before = 0
        self._causes: list[BaseException] = []  # a fixture that failed raises the same one for every test
        self._met.touch()
        programs = Path(self._folder.name) / "bin"
        programs.mkdir()
        for name in PROGRAMS:
            (programs / name).write_text(STUB.format(self._met))
            (programs / name).chmod(0o755)
        os.environ["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
        os.environ.pop("JAVA_HOME", None)
        sys.addaudithook(refuse)

    def pytest_runtest_logstart(self) -> None:
        self._met_before = self._met.stat().st_size

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed and call.excinfo and self._met_one(call.excinfo.value):
            path, line, _ = item.location
            report.outcome, report.longrepr = "skipped", (path, line or 0, "not in a quick run: starts another program")
        return report

    def _met_one(self, error: BaseException) -> bool:
        if self._met.stat().st_size > self._met_before:
            self._causes.append(error)
        return any(error is cause for cause in self._causes)


def refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Leave the running test out when it starts a program of another toolchain."""
    if event != "subprocess.Popen":
        return
    program = Path(os.fsdecode(arguments[0]))
    if program.name in PROGRAMS or judge.cache_folder() in program.parents:
        pytest.skip(f"not in a quick run: starts {program.name}")
