"""A Spark session for a pipeline: the JVM started quietly, settings that suit streams, and a clear message if it fails.

Settings of the user (spark-submit, spark-defaults.conf, --conf) override those here. Under spark-submit the JVM is
already running, so its memory and its log are fixed.
"""

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from ottla.client.failure import Failed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_LEAST: Final = 17
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # spark-submit sets it for the Python process that it starts
DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",  # the default of 200 suits large batches; each one has a state store and files
    "spark.ui.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": "1048576",  # docs/spark.md has what larger ones cost the sink
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.noDataProgressEventInterval": "2s",  # so that the lag of an idle query stays current
}
LOCAL: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
LOGGING: Final = """\
# Written by Ottla: Spark's warnings go to a file, not to the terminal.
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
# Two remarks about the machine, made at every start.
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.host.name = org.apache.spark.util.Utils
logger.host.level = error
"""


@dataclass(frozen=True)
class SessionSettings:
    log: Path  # a file; the log4j settings are put beside it
    master: str | None = None  # None: from spark-submit or spark-defaults.conf, else local[*]
    memory: str | None = None  # of the driver, such as 2g
    ui: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)
    lock: int | None = None  # a descriptor that the JVM keeps open while it lives


def start_session(name: str, settings: SessionSettings) -> "SparkSession":
    """A session. The SIGINT handler is kept, although Spark would replace it."""
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.errors import PySparkRuntimeError
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        from ottla.spark.source.data_source import OttlaDataSource
    except ModuleNotFoundError as error:
        raise missing(error) from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)  # it prints what is raised anyway
    before = signal.getsignal(signal.SIGINT)
    settings.log.parent.mkdir(parents=True, exist_ok=True)
    if SUBMITTED not in os.environ and SparkContext._gateway is None:
        java = find_java()
        with settings.log.open("ab") as log:
            try:
                gateway = launch_gateway(
                    SparkConf(loadDefaults=False).setAll([*early(settings).items()]), quiet(log, settings)
                )  # type: ignore[no-untyped-call]
            except (PySparkRuntimeError, OSError) as error:
                raise explain_failure(java, settings.log, error) from None
        SparkContext._ensure_initialized(gateway=gateway)
    SparkContext._ensure_initialized()  # the JVM knows the settings of spark-submit and spark-defaults.conf
    conf = SparkConf()
    for key, value in settings.conf.items():
        conf.set(key, value)
    if settings.master:
        conf.setMaster(settings.master)
    conf.setIfMissing("spark.master", "local[*]").setAppName(name)
    if settings.ui:
        conf.set("spark.ui.enabled", "true")
    local = (conf.get("spark.master") or "").startswith("local")
    for key, value in {**DEFAULTS, **(LOCAL if local else {})}.items():
        conf.setIfMissing(key, value)
    SparkContext.getOrCreate(conf)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)  # at once: the rest takes a second, and Spark's would end it in the middle
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    # PySpark finds the source by itself, but tries only once, and gives up for good if its worker starts slowly.
    spark.dataSource.register(OttlaDataSource)
    return spark


def activate(spark: "SparkSession") -> None:
    """Let this thread start queries: Spark looks for data sources in the thread's session, which only the first has."""
    assert spark._jvm is not None
    spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)


def early(settings: SessionSettings) -> dict[str, str]:
    """Settings that must be known before the JVM starts."""
    log4j = settings.log.with_name("log4j2.properties")
    log4j.write_text(LOGGING.format(log=settings.log.absolute()))
    options = (f"-Dlog4j2.configurationFile={log4j.absolute().as_uri()}", settings.conf.get(JAVA_OPTIONS, ""))
    # Ottla shows its own progress line. Spark's must be turned off before the JVM starts.
    chosen = {JAVA_OPTIONS: " ".join(options).strip(), "spark.ui.showConsoleProgress": "false"}
    if settings.memory:
        chosen["spark.driver.memory"] = settings.memory
    return {**settings.conf, **chosen}


def quiet(log: IO[bytes], settings: SessionSettings) -> dict[str, object]:
    """How the JVM is started. In its own session, no signal from the terminal or to the group ends it: we do."""
    kept = () if settings.lock is None else (settings.lock,)
    return {"stdout": log, "stderr": log, "pass_fds": kept, "start_new_session": True}


def find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java:
        return java
    where = f"in $JAVA_HOME ({home})" if home else "on the PATH"
    raise Failed(
        f"Spark needs Java {JAVA_LEAST}, but there is none {where}: install a JDK {JAVA_LEAST}, or set JAVA_HOME to one"
    )


def explain_failure(java: str, log: Path, error: Exception) -> Failed:
    """Why the JVM did not start: mostly because Java is too old."""
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=30).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', told)
    if version and int(version[1]) < JAVA_LEAST:
        return Failed(
            f"Spark needs Java {JAVA_LEAST}, but {java} is Java {version[1]}: set JAVA_HOME to a JDK {JAVA_LEAST}"
        )
    return Failed(f"Spark's Java process did not start ({error}): see {log}")


def missing(error: ModuleNotFoundError) -> Failed:
    return Failed(f"pipelines need {(error.name or '').partition('.')[0]}: pip install 'ottla[spark]'")
