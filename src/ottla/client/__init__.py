"""A blocking Kafka client over `ottla.wire`, for programs that move whole record batches: the tools and Spark.

No threads, no background work, nothing decoded that need not be. What a consumer group or a producer of single records
needs is better done by confluent-kafka; this is for those who read ranges of offsets, write prepared batches, and take
transactions apart into steps that different processes do.
"""
