"""What the tests on Spark share: in a worker one session and one JVM, one broker of ours, one Apache Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import judge
import pytest
from process import Ottla
from spark import sessions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
PIPELINES = {"pipelines", "runner"}
TIMEOUT_S = 180
CLEANING = {"log.cleaner.backoff.ms": "50"}  # a compacted topic is compacted while the test looks on


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One JVM for the pipelines and one for all else that uses a session.

    Two, because one worker with all of them would take longer than the other workers for everything else. All other
    tests may run in parallel. The first fixtures on a new machine fetch jars and start JVMs, which is not counted as
    test time.
    """
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        if "spark" in getattr(item, "fixturenames", ()):
            half = "spark-pipelines" if PIPELINES.intersection(item.path.parts) else "spark"
            item.add_marker(pytest.mark.xdist_group(half))
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S, func_only=True))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with sessions.session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="session")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ottla]:
    """A broker of ours in its own process, for tests that do not kill it."""
    with Ottla(tmp_path_factory.mktemp("ottla"), settings=CLEANING) as running:
        yield running


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[judge.Kafka]:
    """Apache Kafka, for tests that do not kill it."""
    with judge.Kafka(tmp_path_factory.mktemp("kafka"), settings=CLEANING) as running:
        yield running
