"""What a regular expression becomes: a graph in which all paths are followed at once.

A node reads one of some characters and goes on, or goes on to each of several nodes without reading; a place is a node
that may be passed only between certain characters.
"""

from __future__ import annotations

import string
from typing import Final

NODES_MAX: Final = 10_000
WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
START, END, LINE_START, LINE_END, EDGE, NO_EDGE = range(6)  # places


class PatternError(ValueError):
    """A pattern that is malformed, too large, or not of this language."""


class Graph:
    """Nodes by number: a node reads one of some characters and goes on, or goes on to each of several nodes."""

    def __init__(self) -> None:
        self.reads: list[tuple[frozenset[str], bool] | None] = []  # characters, and whether all others are meant
        self.place: list[int | None] = []
        self.ways: list[list[int]] = []
        self.start = self.accept = 0
        self.places = False
        self.work = 0  # nodes gone through so far

    def node(self, reads: tuple[frozenset[str], bool] | None = None, place: int | None = None) -> int:
        if len(self.ways) >= NODES_MAX:
            raise PatternError("expression too large")
        self.reads.append(reads)
        self.place.append(place)
        self.ways.append([])
        self.places = self.places or place is not None
        return len(self.ways) - 1

    def closure(self, state: frozenset[int], before: str, after: str) -> set[int]:
        """All nodes that can be reached without reading, between these two characters ("" at an end)."""
        found, waiting = set(state), list(state)
        while waiting:
            node = waiting.pop()
            if self.reads[node] is not None:
                continue
            place = self.place[node]
            if place is not None and not _holds(place, before, after):
                continue
            for way in self.ways[node]:
                if way not in found:
                    found.add(way)
                    waiting.append(way)
        self.work += len(found)
        return found

    def read(self, nodes: set[int], character: str) -> frozenset[int]:
        reached: set[int] = set()
        for node in nodes:
            reads = self.reads[node]
            if reads is not None and (character in reads[0]) is not reads[1]:
                reached.update(self.ways[node])
        return frozenset(reached)


def _holds(place: int, before: str, after: str) -> bool:
    if place == START:
        return not before
    if place == END:
        return not after
    if place == LINE_START:
        return before in ("", "\n")
    if place == LINE_END:
        return after in ("", "\n")
    edge = (before in WORD) is not (after in WORD)
    return edge if place == EDGE else not edge
