"""Whether a batch holds as many records as it says, back to back and nothing else.

Consumers stop at a batch whose records do not add up, so one careless or hostile producer could make a partition
unreadable for everybody. The broker keeps records closed otherwise; this looks at nothing but their lengths:

    length: zigzag varint | that many bytes | length | bytes | ... until the end of the batch

A compressed batch is inflated for this and the result thrown away. One that inflates to more than `INFLATED_SIZE_MAX`
is taken at its word: the work would hold up everybody else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.records.batch import HEADER_SIZE
from ottla.records.compress import CorruptError, InflatedError, decompress

if TYPE_CHECKING:
    from ottla.records.compress import Buffer

INFLATED_SIZE_MAX: Final = 16 << 20
RUN_MIN: Final = 4  # a shorter run is not worth the two slices
RUN_PAUSE: Final = 64  # records of many sizes: how many to walk before looking for a run again


def packed(data: memoryview, codec: int, count: int) -> bool:
    """Whether the batch in data, of this codec, is exactly `count` records."""
    payload: Buffer = data[HEADER_SIZE:]
    if codec:
        try:
            payload = decompress(codec, payload, INFLATED_SIZE_MAX)
        except InflatedError:
            return True
        except CorruptError:
            return False
    return count_records(bytes(payload), count) == count


def keyless(data: memoryview, codec: int, size_max: int) -> tuple[int, list[int]]:
    """How many records the batch in data has, and which of them have no key. CorruptError when they do not add up."""
    payload: Buffer = data[HEADER_SIZE:]
    content = decompress(codec, payload, size_max) if codec else bytes(payload)
    position, end, count = 0, len(content), 0
    found: list[int] = []
    try:
        while position < end:
            size, position = varint(content, position)
            if size & 1:
                raise CorruptError(f"record {count} has a negative size")
            stop = position + (size >> 1)
            position += 1  # attributes
            while content[position] > 127:  # the timestamp, and then the offset: of interest to others
                position += 1
            position += 1
            while content[position] > 127:
                position += 1
            position += 1
            if varint(content, position)[0] & 1:
                found.append(count)
            if position >= stop:
                raise CorruptError(f"record {count} ends before its key")
            position = stop
            count += 1
    except IndexError:
        raise CorruptError(f"record {count} is cut off") from None
    if position != end:
        raise CorruptError(f"record {count - 1} reaches past the batch")
    return count, found


def varint(content: bytes, position: int) -> tuple[int, int]:
    low = content[position]
    return (low, position + 1) if low < 128 else long_varint(content, position)


def count_records(payload: bytes, most: int) -> int:
    """How many records fill the payload from end to end; -1 when they do not, or are more than `most`."""
    position, end, count, look_at = 0, len(payload), 0, 1
    try:
        while position < end:
            start = position
            low = payload[position]
            if low < 128:
                size, position = low, position + 1
            else:
                high = payload[position + 1]
                if high < 128:
                    size, position = low & 127 | high << 7, position + 2
                else:
                    size, position = long_varint(payload, position)
            if size & 1:  # a negative length
                return -1
            position += size >> 1
            count += 1
            if count == look_at:
                stride = position - start
                alike = run_length(payload, start, stride)
                position += alike * stride
                count += alike
                look_at = count + (1 if alike else RUN_PAUSE)
    except IndexError:
        return -1
    return count if position == end and count <= most else -1


def run_length(payload: bytes, start: int, stride: int) -> int:
    """How many records after the one at start, which takes `stride` bytes, are as long as it.

    Neighbours often are, and then this sees them all at once: the bytes where their lengths would stand are picked out
    by a slice with a step. Those that equal the record's own, from the first on, are lengths: each because the one
    before it is.
    """
    low, high = payload[start : start + 1], payload[start + 1 : start + 2]
    most = (len(payload) - start) // stride - 1
    if most < RUN_MIN or (low[0] > 127 and high[0] > 127):  # a length of three bytes or more: too rare to care
        return 0
    first = start + stride
    heads = payload[first : first + most * stride : stride]
    alike = len(heads) - len(heads.lstrip(low))
    if alike >= RUN_MIN and low[0] > 127:
        heads = payload[first + 1 : first + 1 + alike * stride : stride]
        alike = len(heads) - len(heads.lstrip(high))
    return alike if alike >= RUN_MIN else 0


def long_varint(payload: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 35:
        byte = payload[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    return 1, position  # longer than a length can be: as good as a negative one
