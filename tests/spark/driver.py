"""A streaming query in a driver of its own, for tests that kill it: `python driver.py BOOTSTRAP TOPIC FOLDER`.

Reads a topic in small batches into Parquet files, with the query's name `killed`, until somebody ends it.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from spark import sessions

if __name__ == "__main__":
    bootstrap, topic, folder = sys.argv[1:]
    with sessions.session(Path(folder) / "spark", settings={"spark.jars": ""}) as spark:
        stream = spark.readStream.format("ottla").options(
            **{
                "kafka.bootstrap.servers": bootstrap,
                "subscribe": topic,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": "50",
            }
        )
        writer = stream.load().writeStream.format("parquet").queryName("killed")
        query = writer.option("checkpointLocation", f"{folder}/checkpoint").start(f"{folder}/rows")
        query.awaitTermination()
