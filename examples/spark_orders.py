"""Topics as tables and streams in Spark, without a JAR.

    pip install 'ottla[spark]'                 # and Java 17 or newer
    python spark_orders.py localhost:9092

Prints:

    alice: 2 APPLES
    alice: 1 MELON
    bob: 1 PEAR
"""

import sys
import tempfile

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
ORDERS = [("alice", "2 apples"), ("bob", "1 pear"), ("alice", "1 melon")]


def main(spark: SparkSession) -> None:
    write_table(spark.createDataFrame(ORDERS, "key STRING, value STRING"), "example-spark-orders")
    shout(spark, "example-spark-orders", "example-loud-orders")
    for row in read_table(spark, "example-loud-orders").orderBy("key", "offset").collect():
        print(f"{row.key}: {row.value}")


def write_table(rows: DataFrame, topic: str) -> None:
    writer = rows.coalesce(1).write.format("ottla").option("kafka.bootstrap.servers", BOOTSTRAP)
    writer.option("topic", topic).mode("append").save()


def read_table(spark: SparkSession, topic: str) -> DataFrame:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", BOOTSTRAP).option("subscribe", topic)
    return reader.load().select(F.col("key").cast("string"), F.col("value").cast("string"), "offset")


def shout(spark: SparkSession, source: str, sink: str) -> None:
    """A streaming query that reads what exists and then ends. Without `availableNow` it would keep running."""
    with tempfile.TemporaryDirectory() as checkpoints:
        orders = (
            spark.readStream.format("ottla")
            .option("kafka.bootstrap.servers", BOOTSTRAP)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .load()
        )
        query = (
            orders.select("key", F.upper(F.col("value").cast("string")).alias("value"))
            .writeStream.format("ottla")
            .option("kafka.bootstrap.servers", BOOTSTRAP)
            .option("topic", sink)
            .option("exactly.once", "true")
            .option("checkpointLocation", checkpoints)
            .queryName("example-loud")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


if __name__ == "__main__":
    with SparkSession.builder.master("local[1]").config("spark.log.level", "ERROR").getOrCreate() as session:
        main(session)
