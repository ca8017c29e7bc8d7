"""Shared by the whole suite: how many seeds the seeded and property tests run, and the broker under test.

SEEDS=1000 (as `make sim` and `make fuzz` set it) raises the number of examples of every Hypothesis test; a failing
example is printed as code that reproduces it. The profile "plain" is the default, for two cores and a few minutes.

`--judge` runs the tests against Apache Kafka instead of Ottla: the same scenarios must pass on both, or the scenario is
wrong. Clients that Kafka 4 no longer serves use `old_broker`, which is then Apache Kafka 3.9; Ottla serves all clients.
"""

from __future__ import annotations

import gc
import itertools
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import judge
import pytest
import temporary
from hypothesis import HealthCheck, settings
from process import Ottla

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
LONG_RUN_S = 300
SLOWEST = 40
CPU = "cpu_s"
MEMORY = pytest.StashKey[Path | None]()  # where this run's temporary files are
OPEN_MAX = 200  # descriptors; Spark's driver cannot call Python back with more than 1,024, and waits for ever
cpu_s = 0.0  # of this process and of its children that have ended, after the last test

settings.register_profile("plain", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("many", parent=settings.get_profile("plain"), max_examples=int(os.environ.get("SEEDS", "50")))
settings.load_profile("many" if "SEEDS" in os.environ else "plain")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--judge", action="store_true", help="run the compatibility scenarios against Apache Kafka")
    parser.addoption("--quick", action="store_true", help="leave out what needs a JVM, a browser or another toolchain")


@pytest.hookimpl(tryfirst=True)  # before a temporary file is made
def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.stash[MEMORY] = temporary.use_memory()
    if config.getoption("quick"):
        from quick import Quick

        config.pluginmanager.register(Quick())


@pytest.hookimpl(trylast=True)  # when the workers have ended
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Give the memory back. What failed tests have left stays until the next run."""
    folder = session.config.stash.get(MEMORY, None)
    if folder is not None and not session.testsfailed:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("xdist_group") is None and has_module_fixture(item):
            # One worker for the file, or each would start a broker, a cluster or an Apache Kafka of its own.
            item.add_marker(pytest.mark.xdist_group(str(item.path.relative_to(HERE))))
        if isinstance(item, pytest.Function) and ("seed" in item.fixturenames or item.get_closest_marker("hypothesis")):
            item.add_marker(pytest.mark.seeded)
        if "compat" in item.path.parts and item.get_closest_marker("timeout") is None:
            # The first fixtures on a new machine download Apache Kafka and build clients: that is not test time.
            item.add_marker(pytest.mark.timeout(600, func_only=True))


def pytest_collection_finish() -> None:
    """Ten thousand collected tests are 800,000 objects. Tests that collect garbage need not walk over them."""
    gc.collect()
    gc.freeze()


def has_module_fixture(item: pytest.Item) -> bool:
    found = getattr(item, "_fixtureinfo", None)
    return found is not None and any(made[-1].scope == "module" for made in found.name2fixturedefs.values())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what each attack of the hostile suite cost, if it was run; and which tests a long run spent its time on."""
    told = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    lines = [value for report in told for name, value in getattr(report, "user_properties", ()) if name == "hostile"]
    if lines:
        from fuzz.hostile.stage import HEADING

        terminalreporter.section("hostile clients")
        for line in (HEADING, *lines):
            terminalreporter.line(str(line))
    seconds, processor = Counter[str](), Counter[str]()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                file = report.nodeid.partition("::")[0]
                seconds[file] += report.duration
                if report.when == "teardown":
                    processor[file] += sum(float(str(value)) for name, value in report.user_properties if name == CPU)
    if seconds.total() > LONG_RUN_S:
        terminalreporter.section("the slowest files: seconds, and CPU seconds, which include processes that ended")
        for file, spent in seconds.most_common(SLOWEST):
            terminalreporter.line(f"{spent:7.1f} {processor[file]:7.1f}  {file}")
        terminalreporter.line(f"{seconds.total():7.1f} {processor.total():7.1f}  all")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Note the CPU time since the last test, for the table above, and close files that garbage keeps open."""
    global cpu_s
    try:
        return (yield)
    finally:
        if len(os.listdir("/dev/fd")) > OPEN_MAX:
            gc.collect()
        before, cpu_s = cpu_s, sum(os.times()[:4])
        item.user_properties.append((CPU, cpu_s - before))


@pytest.fixture(scope="session")
def broker(pytestconfig: pytest.Config) -> Iterator[Ottla | judge.Kafka]:
    """The broker under test, for the whole run of a worker; a separate process, empty at the start."""
    with judge.Kafka() if pytestconfig.getoption("judge") else Ottla() as running:
        yield running


@pytest.fixture(scope="session")
def old_broker(pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> Iterator[Ottla | judge.Kafka]:
    """The same, for client versions that Apache Kafka 4 no longer supports."""
    if not pytestconfig.getoption("judge"):
        yield request.getfixturevalue("broker")
        return
    with judge.Kafka(version=judge.ZOOKEEPER) as running:
        yield running


@pytest.fixture(scope="session")
def fresh() -> Callable[[str], str]:
    """Names that no other topic of this run has."""
    counter = itertools.count()
    return lambda name: f"{name}-{next(counter)}"
