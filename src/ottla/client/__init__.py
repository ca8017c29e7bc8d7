"""A blocking Kafka client over `ottla.wire`, for programs that move whole record batches: the tools, console and Spark.

No threads and no background work; records are not decoded. For consumer groups and producers of single records use
confluent-kafka. This client reads ranges of offsets, writes prepared batches, and does transactions in single steps,
which may be in different processes. The broker does not use it.
"""
