"""Kafka topics as Spark tables and streams, from the wheel alone: `spark.read.format("ottla")`, no JAR.

    source      the reading half: positions, splits, Arrow batches; streams with their checkpoint and their group
    sink        the writing half: at least once, or exactly once by one decision of the driver
    values      columns of JSON, Avro and Protobuf, with or without a schema registry
    pipeline    what a pipeline is and what runs it; `pipelines` are those that come with Ottla
    mirror      topics to another cluster as whole batches; `export` to Parquet or Delta: records that never become rows

PySpark finds the source through `pyspark_ottla`. Nothing here is imported by the broker.
"""
