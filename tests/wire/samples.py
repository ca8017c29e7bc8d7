"""Messages to test with: every declared class, and instances of any of them filled with values from a seed."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING, Any

from ottla.wire import messages
from ottla.wire.schema import FRESH, LAST, Field, fields, spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

TEXTS = ["", "a", "topic-1", "Århus", "日本", "🦦", "x" * 126, "y" * 127, "z" * 300]
BITS = {"b": 8, "h": 16, "H": 16, "i": 32, "I": 32, "q": 64}


@cache
def families() -> list[Any]:
    return [
        importlib.import_module(f"{messages.__name__}.{found.name}")
        for found in pkgutil.iter_modules(messages.__path__)
    ]


# Versions that 3.9 had as early access and that 4.x then defined anew. We follow 4.x.
REDEFINED = {
    "ReadShareGroupStateSummaryResponse": {0},
    "VoteRequest": {0, 1},  # the same bytes, but candidate_id became replica_id, and so on
}


@cache
def all_messages() -> list[type[Any]]:
    """Every request, response, header and data class; not the structs inside them."""
    return [cls for cls in all_classes() if spec(cls).versions[1] < LAST]


@cache
def all_classes() -> list[type[Any]]:
    return [
        value
        for family in families()
        for value in vars(family).values()
        if isinstance(value, type) and value.__module__ == family.__name__
    ]


def versions(cls: type[Any]) -> range:
    low, high = spec(cls).versions
    return range(low, high + 1)


def every_version() -> Iterator[tuple[type[Any], int]]:
    for cls in all_messages():
        for version in versions(cls):
            yield cls, version


def instance(cls: type[Any], version: int, random: Random) -> Any:
    """A message whose fields of that version hold anything they may hold; the others are left at their defaults."""
    made = object.__new__(cls)
    for field in fields(cls):
        if field.present(version) and (field.tag is None or random.random() < 0.6):
            setattr(made, field.name, value(field, version, random))
        elif field.default is FRESH:
            setattr(made, field.name, [])
    return made


def value(field: Field, version: int, random: Random) -> Any:
    if field.may_be_null(version) and random.random() < 0.3:
        return None
    if field.array:
        return [element(field, version, random) for _ in range(random.choice([0, 1, 1, 2, 3]))]
    return element(field, version, random)


def element(field: Field, version: int, random: Random) -> Any:
    if field.struct is not None:
        return instance(field.struct, version, random)
    if field.kind == "string":
        return random.choice(TEXTS)
    if field.kind != "fixed":
        return random.randbytes(random.choice([0, 1, 126, 127, 128, 300]))
    if field.format == "?":
        return random.random() < 0.5
    if field.format == "16s":
        return random.randbytes(16)
    if field.format == "d":
        return random.uniform(-1e9, 1e9)
    bits = BITS[field.format]
    number = random.choice([0, 1, random.getrandbits(bits)])
    signed = field.format.islower() and number >= 1 << bits - 1
    return number - (1 << bits) if signed else number
