"""Kafka topics as Spark tables and streams, from the wheel alone: `spark.read.format("ottla")`, no JAR.

    source      the data source class that PySpark calls; pyspark_ottla hands it over, so nothing needs registering
    options     every option of source and sink, one row each
    positions   which partitions, from where to where: options and a cluster become offsets
    planning    offsets become splits of about equal bytes (pure); `sampling` finds out where the bytes lie
    reading     one split becomes Arrow record batches, in a Python worker of an executor
    batch       spark.read on top of these

Nothing here is imported by the broker.
"""
