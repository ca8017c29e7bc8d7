"""Java options with which Spark starts in half the time: the cheap compiler, and an archive of Spark's classes.

Half of what a short Spark run costs is the loading of ten thousand classes (9 s of CPU for a session and a small query,
4 s with the archive). Java keeps them in a file that other JVMs map (class data sharing). It is made once, by a session
that does a little of everything, and kept where `judge` keeps Apache Kafka. A JVM that cannot use it works without it.

Two more things make every Spark fast that is started after `options()`. Half of what a small micro-batch costs are the
processes that Hadoop starts for each file: see java/LocalFiles.java. Half of what a Python process of Spark costs is
compiling PySpark again: see startup/sitecustomize.py.

    python jvm.py ARCHIVE      makes one
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import judge
import pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK: Final = Path(pyspark.__file__).parent
SOURCE: Final = Path(__file__).parent / "java" / "LocalFiles.java"
STARTUP: Final = Path(__file__).parent / "startup"
SITE: Final = """<configuration>
<property><name>fs.file.impl</name><value>LocalFiles</value></property>
<property><name>fs.AbstractFileSystem.file.impl</name><value>LocalFiles$Context</value></property>
</configuration>
"""
MAKE_S: Final = 600.0
BATCHES: Final = 3


@cache
def options() -> tuple[str, ...]:
    """Without messages about the archive: Java prints them to standard output."""
    os.environ["SPARK_DIST_CLASSPATH"] = str(local_files())  # the end of the class path: the archive stays valid
    os.environ["PYTHONPATH"] = os.pathsep.join([str(STARTUP), *filter(None, [os.environ.get("PYTHONPATH")])])
    archive = judge.cached(f"spark-classes-{identity()}", make) / "classes.jsa"
    return (*judge.JVM, f"-XX:SharedArchiveFile={archive}", "-Xlog:disable") if archive.exists() else judge.JVM


def local_files() -> Path:
    """A jar with the classes of LocalFiles.java, and a file that tells Hadoop to use them."""
    classes = judge.compiled(SOURCE, f"{SPARK}/jars/*")

    def make(folder: Path) -> None:
        with zipfile.ZipFile(folder / "local-files.jar", "w") as jar:
            jar.writestr("core-site.xml", SITE)
            for file in classes.glob("*.class"):
                jar.write(file, file.name)

    return judge.cached(f"spark-{classes.name}", make) / "local-files.jar"


def identity() -> str:
    """An archive is valid for one Java version and one class path."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else shutil.which("java") or "java"
    version = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False).stderr
    return hashlib.sha256(f"{version} {SPARK} {pyspark.__version__}".encode()).hexdigest()[:16]


def make(folder: Path) -> None:
    """Make it in another process. That may fail: the archive only saves time, and an incomplete one is not used."""
    draft = folder / "draft.jsa"
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("SPARK_DIST_CLASSPATH", None)  # an archive is valid if more comes behind its own class path
    with (folder / "make.log").open("wb") as log, tempfile.TemporaryDirectory() as temporary:
        words = [sys.executable, __file__, str(draft)]
        try:
            subprocess.run(words, stdout=log, stderr=log, cwd=temporary, env=environment, timeout=MAKE_S, check=True)
        except subprocess.SubprocessError as error:
            log.write(str(error).encode())
            return
    draft.rename(folder / "classes.jsa")


def work(spark: SparkSession) -> None:
    """Load classes: run a stateful stream to files, a table, and a Python function."""
    from pyspark.sql import functions as F

    stream = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=10, numPartitions=2).load()
    counted = stream.withWatermark("timestamp", "1 second").groupBy(F.window("timestamp", "1 second")).count()
    writer = counted.selectExpr("window.start", "count").writeStream.format("parquet").outputMode("append")
    query = writer.option("checkpointLocation", "checkpoint").start("rows")
    while query.lastProgress is None or query.lastProgress["batchId"] < BATCHES:
        query.awaitTermination(0.2)
    query.stop()
    joined = spark.range(100).join(spark.range(50), "id").selectExpr("id", "to_json(struct(id)) as text")
    joined.withColumn("twice", F.udf(lambda number: 2 * number, "long")("id")).write.parquet("table")
    assert spark.read.parquet("table").mapInArrow(lambda batches: batches, "id long, text string, twice long").count()


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    java = (*judge.JVM, f"-XX:ArchiveClassesAtExit={sys.argv[1]}")
    builder = SparkSession.builder.master("local[2]").config("spark.driver.extraJavaOptions", " ".join(java))
    small = {"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
    session = builder.config(map=small).getOrCreate()
    work(session)
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    sys.exit(gateway.proc.wait())  # Java writes the archive when it ends
