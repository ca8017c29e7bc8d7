"""Effects of the controller's steps. A step yields one of these and receives the result.

Read      the nodes at some paths, None for each that is missing
List      the names below a path, None if the path does not exist
Write     independent transactions: None for each that was done, or the StoreError of the op that failed
Send      a request to a broker, after those sent before; its response arrives as an event if it is needed
Pause     yield to the event loop
Watch     get an event for every later change of these topics' nodes; Unwatch ends it
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.cluster.metadata_store import Op, Znode


class Read(NamedTuple):
    paths: Sequence[str]


class List(NamedTuple):
    path: str


class Write(NamedTuple):
    transactions: Sequence[Sequence[Op]]


class Send(NamedTuple):
    broker: int
    request: Any
    version: int


class Pause(NamedTuple):
    """Between two slices of long work."""


class WatchTopics(NamedTuple):
    topics: Sequence[str]


class UnwatchTopics(NamedTuple):
    topics: Sequence[str]


Effect: TypeAlias = Read | List | Write | Send | Pause | WatchTopics | UnwatchTopics
T = TypeVar("T")
Task: TypeAlias = Generator[Effect, Any, T]


def read(paths: Sequence[str]) -> Task[list[Znode | None]]:
    if not paths:
        return []
    nodes: list[Znode | None] = yield Read(paths)
    return nodes


def read_one(path: str) -> Task[Znode | None]:
    nodes: list[Znode | None] = yield Read((path,))
    return nodes[0]


def names_below(path: str) -> Task[list[str]]:
    names: list[str] | None = yield List(path)
    return names or []
