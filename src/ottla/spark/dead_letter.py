"""Dead letters: records that could not be written or decoded, stored in a separate topic with the reason.

The option `ottla.dead.letter` names that topic. A dead letter has the key, value and headers of the original record,
followed by Ottla's headers. A value that is too large for the topic is cut, and its size is given.

    ottla.dead.reason        why, in a sentence
    ottla.dead.stage         write (a row that could not become a record) or decode (a value that could not be read)
    ottla.dead.topic         the topic that the row was for, or that the record came from; left out if unknown
    ottla.dead.partition     the same for the partition; left out if it was not given
    ottla.dead.offset        decode: the offset of the record
    ottla.dead.size          bytes of the value before it was cut; left out if it is whole
"""

from __future__ import annotations

from typing import Final

OPTION: Final = "ottla.dead.letter"

REASON: Final = "ottla.dead.reason"
STAGE: Final = "ottla.dead.stage"
TOPIC: Final = "ottla.dead.topic"
PARTITION: Final = "ottla.dead.partition"
OFFSET: Final = "ottla.dead.offset"
SIZE: Final = "ottla.dead.size"

WRITE: Final = "write"
DECODE: Final = "decode"


def headers(
    reason: str,
    *,
    stage: str,
    topic: str | None = None,
    partition: int | None = None,
    offset: int | None = None,
    size: int | None = None,
) -> list[tuple[str, bytes]]:
    """Ottla's headers of one dead letter, in the order of the table above; unknown ones are left out."""
    told = (
        (REASON, reason),
        (STAGE, stage),
        (TOPIC, topic),
        (PARTITION, partition),
        (OFFSET, offset),
        (SIZE, size),
    )
    return [(name, str(value).encode()) for name, value in told if value is not None]
