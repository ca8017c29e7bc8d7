"""Valid values, damaged as by a hostile or broken producer; the same for each seed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

# Numbers that lengths, counts, indexes and moments are not: the largest varints of 32 and 64 bits, and endless ones.
WILD: Final = (
    b"\xff" * 9 + b"\x01",
    b"\xff\xff\xff\xff\x0f",
    b"\x80" * 12,
    b"\xff" * 12,
    b"\x01",
    b"\x00",
    b"\xed\xa0\x80",
)


def mutated(values: Sequence[bytes], count: int, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    return [mutation(chance, values) for _ in range(count)]


def mutation(chance: random.Random, values: Sequence[bytes]) -> bytes:
    value = bytearray(chance.choice(values))
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(value))
        match chance.randrange(6):
            case 0 if at < len(value):
                value[at] ^= 1 << chance.randrange(8)
            case 1:
                del value[at:]
            case 2:
                del value[at : at + chance.randint(1, 8)]
            case 3:
                value[at:at] = chance.choice(WILD)
            case 4:
                value[at : at + 1] = chance.choice(WILD)
            case _:
                other = chance.choice(values)
                start = chance.randint(0, len(other))
                value[at:at] = other[start : start + chance.randint(1, 16)]
    return bytes(value)
