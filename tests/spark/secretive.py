"""A driver that reads and writes with secrets, for a test that looks for them in all that Spark leaves behind.

    python secretive.py BOOTSTRAP TOPIC TARGET FOLDER < {NAME: {"source": {...}, "sink": {...}}, ...}

A batch and a stream are copied for each name, with these options. What is printed (plans, progress) goes to
FOLDER/said, the command lines of all processes below this one to FOLDER/processes-NAME, event logs and checkpoints to
folders beside them.
"""

import contextlib
import io
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pyspark.sql import SparkSession
from spark import sessions

Login = dict[str, dict[str, str]]  # options of source and sink


def main(bootstrap: str, topic: str, target: str, folder: Path, logins: dict[str, Login]) -> None:
    (folder / "events").mkdir(parents=True)
    settings = {
        "spark.jars": "",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    said = io.StringIO()
    with sessions.session(folder / "spark", settings=settings) as spark, contextlib.redirect_stdout(said):
        for name, login in logins.items():
            source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **login["source"]}
            sink = {"kafka.bootstrap.servers": bootstrap, "topic": target, **login["sink"]}
            copy(spark, source, sink, folder, name)
    (folder / "said").write_text(said.getvalue())


def copy(spark: SparkSession, source: dict[str, str], sink: dict[str, str], folder: Path, name: str) -> None:
    frame = spark.read.format("ottla").options(**source).load().selectExpr("key", "value")
    frame.explain("extended")
    frame.explain("formatted")
    frame.write.format("ottla").options(**sink).mode("append").save()
    frame.createOrReplaceTempView("rows")
    spark.sql("EXPLAIN EXTENDED SELECT * FROM rows").show(truncate=False)
    stream = spark.readStream.format("ottla").options(**source, startingOffsets="earliest").load()
    written = stream.selectExpr("key", "value").writeStream.format("ottla").options(**sink)
    written = written.option("exactly.once", "true").option("checkpointLocation", str(folder / f"checkpoint-{name}"))
    query = written.trigger(processingTime="100 milliseconds").queryName(name).start()
    query.processAllAvailable()
    query.explain(extended=True)
    print(query.recentProgress)
    (folder / f"processes-{name}").write_text("\n".join(command_lines()))
    query.stop()


def command_lines() -> list[str]:
    """Of this process and all that come from it."""
    parents, lines = {}, {}
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            parents[process] = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1]
            lines[process] = Path(f"/proc/{process}/cmdline").read_text().replace("\0", " ")
    own = {str(os.getpid())}
    while more := {process for process, parent in parents.items() if parent in own} - own:
        own |= more
    return [lines[process] for process in own if process in lines]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), json.loads(sys.stdin.read()))
