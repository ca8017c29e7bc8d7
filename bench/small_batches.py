"""What many small micro-batches leave behind: python bench/small_batches.py [--batches 1000]

One JVM writes the same stream with our sink and with Spark's own connector, each to a broker of its own. It counts
producer ids in the topic, which brokers remember for a day, and what is open at the end: connections to the broker,
and descriptors of the JVM and of Spark's Python workers together.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)
sys.path.append(str(ROOT / "tests"))

from process import Ottla  # noqa: E402
from spark import sessions  # noqa: E402

from ottla.client.cluster import Cluster, TopicPartition  # noqa: E402
from ottla.client.fetching import fetch  # noqa: E402
from ottla.client.offsets import earliest, latest  # noqa: E402
from ottla.records import batch  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS: Final = 4
ROWS: Final = 20  # per micro-batch
TASKS: Final = 4
TOPIC: Final = "small"
SINKS: Final = ("ottla", "kafka")  # formats: ours, and the connector's
ESTABLISHED: Final = "01"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--sinks", nargs="+", choices=SINKS, default=list(SINKS))
    given = parser.parse_args()
    print(f"{'sink':10} {'batches':>8} {'rows':>8} {'ids':>5} {'connections':>12} {'descriptors':>12} {'seconds':>8}")
    with tempfile.TemporaryDirectory() as place, sessions.session(Path(place) / "spark") as spark:
        for kind in given.sinks:
            with Ottla(Path(place) / f"broker-{kind}") as broker:
                measure(spark, broker, kind, given.batches, Path(place) / f"checkpoint-{kind}")


def measure(spark: SparkSession, broker: Ottla, kind: str, batches: int, checkpoint: Path) -> None:
    with Cluster(broker.bootstrap) as cluster:
        cluster.create(TOPIC, PARTITIONS)
    before, started = descriptors(), time.monotonic()
    stream = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=ROWS, numPartitions=TASKS).load()
    writer = stream.selectExpr("cast(value AS string) AS value").writeStream.format(kind).option("topic", TOPIC)
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap).option("checkpointLocation", str(checkpoint))
    query = writer.start()
    while (last := query.lastProgress) is None or last["batchId"] < batches - 1:
        query.awaitTermination(0.1)
    took = time.monotonic() - started
    found, held = connections(broker.port), descriptors() - before
    query.stop()
    rows, ids = stored(broker)
    print(f"{kind:10} {batches:8} {rows:8} {ids:5} {found:12} {held:+12} {took:8.0f}", flush=True)


def stored(broker: Ottla) -> tuple[int, int]:
    """Rows and producer ids in the topic."""
    rows, ids = 0, set()
    with Cluster(broker.bootstrap) as cluster:
        for index in range(PARTITIONS):
            where = TopicPartition(TOPIC, index)
            start, stop = earliest(cluster, [where])[where], latest(cluster, [where])[where]
            for piece in fetch(cluster, where, start=start, stop=stop):
                for entry in batch.entries(piece.data):
                    head = batch.header(piece.data, entry.position)
                    rows += head.count
                    ids.add(head.producer_id)
    return rows, len(ids)


def connections(port: int) -> int:
    """Established connections from this machine to that port."""
    found = 0
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            remote, state = line.split()[2:4]
            found += state == ESTABLISHED and int(remote.rpartition(":")[2], 16) == port
    return found


def descriptors() -> int:
    """Open descriptors of the JVM and its child processes."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            children.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parts[2]))
        except OSError:
            continue
    left, total = list(children.get(os.getpid(), [])), 0
    while left:
        process = left.pop()
        left += children.get(process, [])
        try:
            if b"serve" not in Path(f"/proc/{process}/cmdline").read_bytes():  # the broker is not measured
                total += len(os.listdir(f"/proc/{process}/fd"))
        except OSError:
            continue
    return total


if __name__ == "__main__":
    main()
