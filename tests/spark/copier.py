"""A driver that copies a topic to another exactly once, for tests that kill it, its workers and its broker.

    python copier.py BOOTSTRAP SOURCE TARGET FOLDER

A query that fails is started again, as an operator would; a file `stop` in the folder lets it copy the rest and end.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from spark import sessions

ROWS = "40"  # of a micro-batch: many small ones, since what can go wrong goes wrong between them


def start(spark: SparkSession, bootstrap: str, source: str, target: str, folder: Path) -> StreamingQuery:
    options = {"kafka.bootstrap.servers": bootstrap, "startingOffsets": "earliest", "maxOffsetsPerTrigger": ROWS}
    rows = spark.readStream.format("ottla").options(**options).option("subscribe", source).load()
    sink = {"kafka.bootstrap.servers": bootstrap, "topic": target, "exactly.once": "true"}
    stream = rows.select("key", "value").writeStream.format("ottla").options(**sink).queryName("copier")
    return stream.option("checkpointLocation", str(folder / "checkpoint")).start()


def main(bootstrap: str, source: str, target: str, folder: Path) -> None:
    settings = {"spark.jars": "", "spark.master": "local[2,8]"}  # a task may fail eight times, in a cluster it may too
    with sessions.session(folder / f"spark-{time.time_ns()}", settings=settings) as spark:
        query = None
        while True:
            try:
                query = query or start(spark, bootstrap, source, target, folder)
                if (folder / "stop").exists():
                    query.processAllAvailable()
                    query.stop()
                    return
                query.awaitTermination(1)
            except (PySparkException, Py4JJavaError) as error:
                print("FAILED", cause(error), flush=True)
                query = None


def cause(error: PySparkException | Py4JJavaError) -> str:
    """One line. Spark's own text may need a JVM call, which can fail too."""
    try:
        lines = str(error).splitlines()
    except PySparkException:
        return type(error).__name__
    return " ".join(line for line in lines if "ailed:" in line or "xception:" in line)[-600:]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
