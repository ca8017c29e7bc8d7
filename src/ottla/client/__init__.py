"""A blocking Kafka client over `ottla.wire`, for programs that move whole record batches: the tools and Spark.

No threads, no background work, nothing decoded that need not be. What a consumer group or a producer of single records
needs is better done by confluent-kafka; this is for those who read ranges of offsets, write prepared batches, and take
transactions apart into steps that different processes do.
"""

from ottla.client.cluster import GROUP, TRANSACTION, Cluster, Topic, TopicPartition
from ottla.client.connection import Connection
from ottla.client.failure import Failed, Refused, Unreachable
from ottla.client.fetching import OutOfRange, Piece, Recreated, fetch
from ottla.client.groups import Committed
from ottla.client.producing import Sender
from ottla.client.security import PLAIN, Security, security
from ottla.client.transaction import Identity

__all__ = [
    "GROUP",
    "PLAIN",
    "TRANSACTION",
    "Cluster",
    "Committed",
    "Connection",
    "Failed",
    "Identity",
    "OutOfRange",
    "Piece",
    "Recreated",
    "Refused",
    "Security",
    "Sender",
    "Topic",
    "TopicPartition",
    "Unreachable",
    "fetch",
    "security",
]
