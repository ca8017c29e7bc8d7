"""What is a fault in the log of a broker, and what belongs to a life among brokers that come and go.

Which connections fail, and who hears late of a new leader, is a matter of timing: slow machines have other warnings
than fast ones. So the lines that no timing explains are named, not the others: a request or an answer that cannot be
read, records that are not accepted, a file that fails. Ottla calls those errors, and nothing else.
"""

from __future__ import annotations

import re
from typing import Final

OF_KAFKA: Final = re.compile(
    r"SchemaException|UnsupportedVersion|InvalidRequest|IllegalArgument|NullPointer|ClassCast|BufferUnderflow"
    r"|OutOfBounds|CorruptRecord|InvalidRecord|OffsetsOutOfOrder|UnexpectedAppendOffset|KafkaStorage|InconsistentTopicId"
    r"|UNSUPPORTED_VERSION|INVALID_REQUEST|CORRUPT_MESSAGE|INVALID_RECORD|INCONSISTENT_TOPIC_ID|UNKNOWN_SERVER_ERROR"
    r"|\] FATAL "
)
OF_OTTLA: Final = re.compile(r" (ERROR|CRITICAL) |^Traceback ")


def faults_of_kafka(log: str) -> list[str]:
    return [line for line in log.splitlines() if OF_KAFKA.search(line)]


def faults_of_ottla(log: str) -> list[str]:
    return [line for line in log.splitlines() if OF_OTTLA.search(line)]
