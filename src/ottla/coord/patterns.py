"""Regular expressions from clients, matched against topic names and transactional ids.

Any client can send one, so a pattern must not be able to harm the broker. RE2 needs time linear in the name's length
and bounded memory. Apache Kafka uses RE2/J, its Java port, with the same semantics. A pattern must match the whole
name. RE2 differs from RE2/J in two ways: it rejects nested repetitions that multiply to more than a thousand, and it
lets a literal brace be repeated.

Matching a pattern takes some microseconds per name, so thousands of names would block the event loop for too long.
`lookup` is therefore a generator that yields after each name. Its result is cached: the next lookup matches only new
names.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

SIZE_MAX: Final = 1 << 20  # bytes of a compiled pattern, including the memory it uses while matching
KEPT_MAX: Final = 1024  # patterns in the cache
NAMES_MAX: Final = 1 << 20  # names in the whole cache, at about fifty bytes each
LONG_SIZE: Final = 1024  # longer names may be slow: RE2's time is proportional to name length times pattern size


class PatternError(ValueError):
    """A pattern that is malformed, too large, or uses syntax that RE2 does not have."""


class Pattern:
    """A compiled pattern."""

    def __init__(self, text: str) -> None:
        import re2  # imported late: it takes twenty milliseconds, and few clients send patterns

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
    """Compile a pattern. Raises PatternError if it is invalid."""
    return Pattern(text)


_found: OrderedDict[str, tuple[frozenset[str], frozenset[str]]] = OrderedDict()  # pattern → names searched, names found


def _count_names() -> int:
    """How many names the cache holds. Many patterns share one set of all topics, which counts once."""
    everywhere = {id(present): len(present) for present, _ in _found.values()}
    return sum(everywhere.values()) + sum(len(found) for _, found in _found.values())


def lookup(text: str, names: Iterable[str]) -> Generator[None, None, frozenset[str]]:
    """Find the names that the pattern matches, in steps. Raises PatternError if the pattern is invalid."""
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
