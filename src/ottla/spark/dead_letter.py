"""Dead letters: records that could not be written or decoded, put into a topic of their own with the reason.

The option `ottla.dead.letter` names that topic. A dead letter has the key, value and headers of the record that it
stands for, and headers of ours behind them. A value that is too large for the topic is cut, and its size is told.

    ottla.dead.reason        a sentence: why
    ottla.dead.stage         write (a row that could not become a record) or decode (a value that could not be read)
    ottla.dead.topic         where the row was to go, or where the record came from; left out if nothing said so
    ottla.dead.partition     the same for its partition; left out if the key or chance decides
    ottla.dead.offset        decode: where the record lies
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
    """Our headers of one dead letter, in the order of the table above; what is not known is left out."""
    told = (
        (REASON, reason),
        (STAGE, stage),
        (TOPIC, topic),
        (PARTITION, partition),
        (OFFSET, offset),
        (SIZE, size),
    )
    return [(name, str(value).encode()) for name, value in told if value is not None]
