"""Regular expressions over topic names, in time proportional to the name: what RE2 is to Apache Kafka.

Any member of a group can send one, so a pattern that would make a backtracking matcher try for ever must cost no more
than any other. A pattern becomes a graph (`regex_syntax.py`, `regex_graph.py`); a name is matched by following all
paths at once, and the sets of nodes that turn up are remembered as states of an automaton.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ottla.coord.groups.regex_graph import PatternError
from ottla.coord.groups.regex_syntax import parsed

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Pattern", "PatternError", "compiled"]

STATES_MAX: Final = 2_000  # of an automaton; then it starts anew
# Nodes that may be gone through to look a pattern up, about half a second's worth: the whole broker waits for it.
# Patterns of people need a few thousand, however many topics there are.
WORK_MAX: Final = 2_000_000


class Pattern:
    """A compiled pattern."""

    def __init__(self, text: str) -> None:
        self._graph = parsed(text)
        self._states: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def among(self, names: Iterable[str]) -> frozenset[str]:
        """Those of the names that it matches; PatternError when it takes too much to find out."""
        self._graph.work = 0
        return frozenset(name for name in names if self.matches(name))

    def matches(self, name: str) -> bool:
        """Whether the whole name is in the pattern's language."""
        if self._graph.work > WORK_MAX:
            raise PatternError("expression too large")
        state, before = frozenset((self._graph.start,)), ""
        for after in name:
            state = self._step(state, before, after)
            if not state:
                return False
            before = after
        return self._graph.accept in self._graph.closure(state, before, "")

    def _step(self, state: frozenset[int], before: str, after: str) -> frozenset[int]:
        # What came before matters to places alone; patterns with them are rare and not remembered.
        if self._graph.places:
            return self._graph.read(self._graph.closure(state, before, after), after)
        found = self._states.get((state, after))
        if found is None:
            if len(self._states) >= STATES_MAX:
                self._states.clear()
            found = self._graph.read(self._graph.closure(state, before, after), after)
            self._states[state, after] = found
        return found


@lru_cache(256)
def compiled(text: str) -> Pattern:
    """The pattern, or PatternError."""
    return Pattern(text)
