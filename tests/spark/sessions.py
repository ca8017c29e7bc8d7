"""Spark for tests and benchmarks: one JVM on two cores, with Spark's own Kafka connector beside our source.

    with session(folder) as spark: ...

The fixture `spark` (conftest.py) is such a session for all tests of one pytest process. Spark writes only to
`folder`. The JVM ends with the block, so that a pytest worker can end. Times are UTC inside Spark; rows that are
collected have times of this process's zone, so compare in Spark or as numbers.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import judge
from pyspark import SparkContext
from pyspark.sql import SparkSession
from spark import connector, jvm

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CORES: Final = 2
MEMORY: Final = "1g"
STOP_S: Final = 30.0
LOG4J: Final = """status = error
rootLogger.level = {level}
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{{HH:mm:ss.SSS}} %p %c{{1}}: %m%n
"""


@contextmanager
def session(
    folder: Path,
    *,
    cores: int = CORES,
    memory: str = MEMORY,
    level: str = "error",
    java: tuple[str, ...] | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """A session in a JVM of its own; there may be one at a time in a process."""
    assert SparkContext._active_spark_context is None, "one JVM at a time: stop the other session first"
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Functions of tests and benchmarks run in Spark's Python workers, which import the files that they are in; and this
    # clone's package, whichever one is installed.
    tests, root = Path(__file__).parents[1:3]
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (jvm.STARTUP, tests, root, root / "src")))
    builder = SparkSession.builder.appName("ottla-tests").master(f"local[{cores}]")
    for name, value in {
        **configuration(folder, memory, level, jvm.options() if java is None else java),
        **(settings or {}),
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        stop(spark)


def configuration(folder: Path, memory: str, level: str, java: tuple[str, ...]) -> dict[str, str]:
    log4j = folder / "log4j2.properties"
    log4j.write_text(LOG4J.format(level=level))
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    options = (*java, "-Duser.timezone=UTC", f"-Djava.io.tmpdir={temporary}", f"-Dderby.system.home={temporary}")
    return {
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join((*options, f"-Dlog4j2.configurationFile=file:{log4j}")),
        "spark.jars": connector.jars(),
        "spark.local.dir": str(temporary),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def stop(spark: SparkSession) -> None:
    """Stop the streams, Spark, and then the JVM, which waits for the end of its standard input."""
    gateway = SparkContext._gateway
    for query in spark.streams.active:
        query.stop()
    spark.stop()
    if gateway is None:
        return
    gateway.shutdown()
    process = gateway.proc
    process.stdin.close()
    judge.stop_process(process, timeout_s=STOP_S)
    SparkContext._gateway = SparkContext._jvm = None
