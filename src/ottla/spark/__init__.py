"""Kafka topics as Spark tables and streams, from the wheel alone: `spark.read.format("ottla")`, no JAR.

    source      the reading half: positions, splits, Arrow batches; streams with their checkpoint and their group
    sink        the writing half: at least once, or exactly once by one decision of the driver
    values      columns of JSON, Avro and Protobuf, with or without a schema registry
    pipelines   the built-in pipelines, a package each
    runner      what a pipeline is, and what runs it; users import it from `pipeline`
    storage     tables on any storage

PySpark finds the source through `pyspark_ottla`. The broker imports nothing from here.
"""
