"""`pytest --quick`: the tests that need only Python. A test that needs more is skipped when it tries to use it.

No test is marked by hand, so no mark can become outdated. During the run, programs of other toolchains (those that
`scripts/setup.py` installs, Rust's, and what the suite has compiled with them) do not start:

- in this process an audit hook stops the call, and the test is skipped at once;
- a process that a test starts finds stand-ins of the same names that fail. A test that fails after it started a
  stand-in is skipped, too;
- no browser is started.

It is for frequent use while developing, so it ends within two minutes: a seeded test runs only a few seeds, the hostile
suite only a few attacks, tests that start many processes come last, and tests that have not begun when time is up are
skipped. The summary says how many were skipped, and why.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import judge
import playwright.sync_api
import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Generator

PROGRAMS = {"java", "javac", "mvn", "spark-submit", "chromium", "kcat", "node", "npm", "go", "cargo", "rustc"}
STUB = """#!/bin/sh
echo "$0" >> {}
echo "$0: not in a quick run" >&2
exit 127
"""
REASON = "not in a quick run: "
BUDGET_S = 85.0  # from the first test that begins to the last; collecting takes ten seconds, in a new clone thirty
WORLDS = 3  # seeds of each seeded test, and attacks of the hostile suite
MANY = {"seed", "attack"}  # parameters with more values than a quick run has time for
# Folders and files whose tests start a process each or many, or take a second or more each.
LATE = {
    *("bench", "cluster_faults", "compat", "console", "durability", "era", "exactly_once", "fuzz", "groups", "laws"),
    *("mixed", "pages", "scenarios", "spark", "testing", "tools", "test_examples.py", "test_first_hour.py"),
    *("test_packaging.py", "test_pytest_plugin.py", "test_serve.py", "test_shortcut.py", "test_wheels.py"),
    "test_world.py",
}


class Quick:
    """The plugin of a quick run. Its folder is removed with the process."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="ottla-quick-")
        self._met = Path(self._folder.name) / "met"  # a line for each stand-in that was started
        self._met_before = 0
        self._causes: list[BaseException] = []  # a failed fixture raises the same exception for every test
        self._met.touch()
        programs = Path(self._folder.name) / "bin"
        programs.mkdir()
        for name in PROGRAMS:
            (programs / name).write_text(STUB.format(self._met))
            (programs / name).chmod(0o755)
        os.environ["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
        os.environ.pop("JAVA_HOME", None)
        playwright.sync_api.sync_playwright = refuse_browser  # type: ignore[assignment]
        sys.addaudithook(refuse_program)
        settings.register_profile("quick", parent=settings.get_profile("plain"), max_examples=WORLDS)
        settings.load_profile("quick")

    @pytest.hookimpl(trylast=True)  # after the tests that share a server or a JVM have been grouped
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        worlds: Counter[str] = Counter()
        kept, left = [], []
        for item in items:
            test = item.nodeid.partition("[")[0]
            worlds[test] += not MANY.isdisjoint(getattr(getattr(item, "callspec", None), "params", ()))
            (left if worlds[test] > WORLDS else kept).append(item)
        items[:] = sorted(kept, key=comes_late)
        config.hook.pytest_deselected(items=left)

    def pytest_runtest_logstart(self) -> None:
        self._met_before = self._met.stat().st_size

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        now = time.monotonic()
        self._began = self._began or now
        if now - self._began > BUDGET_S:
            pytest.skip(f"{REASON}the time is over")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed and call.excinfo and self._met_one(call.excinfo.value):
            path, line, _ = item.location
            report.outcome, report.longrepr = (
                "skipped",
                (path, line or 0, f"{REASON}a process of its own starts another"),
            )
        return report

    def _met_one(self, error: BaseException) -> bool:
        if self._met.stat().st_size > self._met_before:
            self._causes.append(error)
        return any(error is cause for cause in self._causes)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        reasons = Counter(
            str(report.longrepr[2]).partition(REASON)[2]
            for report in terminalreporter.getreports("skipped")
            if isinstance(report.longrepr, tuple)
        )
        said = ", ".join(f"{count} ({reason})" for reason, count in reasons.most_common())
        terminalreporter.line(f"left to `make test`: {said or 'nothing'}")


def comes_late(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("xdist_group")
    shares_more_than_its_file = marker is not None and not str(marker.args[0]).endswith(".py")
    return shares_more_than_its_file or not LATE.isdisjoint(item.path.parts)


def refuse_program(event: str, arguments: tuple[Any, ...]) -> None:
    """Skip the running test when it starts a program of another toolchain."""
    if event != "subprocess.Popen":
        return
    program = Path(os.fsdecode(arguments[0]))
    if program.name in PROGRAMS or judge.cache_folder() in program.parents:
        pytest.skip(f"{REASON}starts {program.name}")


def refuse_browser() -> None:
    """Replaces Playwright's driver, which would otherwise be left half started."""
    pytest.skip(f"{REASON}starts a browser")
