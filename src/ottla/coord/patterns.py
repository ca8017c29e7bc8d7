"""Regular expressions that clients send: over topic names, and over transactional ids.

Any client may send one, so a pattern must not be able to hurt. RE2 takes time in proportion to the name, and bounded
memory. Apache Kafka uses its Java port RE2/J, and the two agree on what a pattern means. A pattern must match the whole
name. RE2 differs in two ways: it refuses nested repetitions of more than a thousand in all, and it takes a brace that
stands for itself as something that can be repeated.

Matching a pattern against thousands of names takes some microseconds for each name, too long for one turn of the loop.
So `lookup` is a generator that yields after each name, and its result is cached: the next time only new names are
matched.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

SIZE_MAX: Final = 1 << 20  # bytes of a compiled pattern with all it makes up while matching
KEPT_MAX: Final = 1024  # patterns whose names are remembered
NAMES_MAX: Final = 1 << 20  # names in all that is remembered, at some fifty bytes each
LONG_SIZE: Final = 1024  # a longer name may take long to match: RE2's time is that of the name times the pattern


class PatternError(ValueError):
    """A pattern that is malformed, too large, or not of this language."""


class Pattern:
    """A compiled pattern."""

    def __init__(self, text: str) -> None:
        import re2  # few clients ask for it, and it takes twenty milliseconds

        options = re2.Options()
        options.max_mem = SIZE_MAX
        options.never_capture = True
        options.log_errors = False
        try:
            self._fullmatch = re2.compile(text, options).fullmatch
        except re2.error as error:
            reason = error.args[0]
            raise PatternError(reason.decode() if isinstance(reason, bytes) else str(reason)) from None

    def matches(self, name: str) -> bool:
        """Whether the pattern matches the whole name."""
        return self._fullmatch(name) is not None


@lru_cache(32)
def compile_pattern(text: str) -> Pattern:
    """Compile a pattern. PatternError when it is not one."""
    return Pattern(text)


_found: OrderedDict[str, tuple[frozenset[str], frozenset[str]]] = OrderedDict()  # among which names, and which


def _count_names() -> int:
    """How many names the cache holds. The set of all topics is mostly one object, shared by many patterns."""
    everywhere = {id(present): len(present) for present, _ in _found.values()}
    return sum(everywhere.values()) + sum(len(found) for _, found in _found.values())


def lookup(text: str, names: Iterable[str]) -> Generator[None, None, frozenset[str]]:
    """The names that the pattern matches, in steps. PatternError when it is not a pattern."""
    present = frozenset(names)
    before, found = _found.get(text) or (frozenset[str](), frozenset[str]())
    if text in _found and before == present:
        _found.move_to_end(text)
        return found
    latest = next(reversed(_found.values()), (present, found))[0]
    if latest == present:
        present = latest
    pattern = compile_pattern(text)
    fresh = set()
    for name in present - before:
        if pattern.matches(name):
            fresh.add(name)
        yield
    found = (found & present) | fresh
    _found[text] = present, found
    _found.move_to_end(text)
    while len(_found) > 1 and (len(_found) > KEPT_MAX or _count_names() > NAMES_MAX):
        _found.popitem(last=False)
    return found


def matching(text: str, names: Iterable[str]) -> frozenset[str]:
    """`lookup` without pauses."""
    steps = lookup(text, names)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: frozenset[str] = end.value
            return found
