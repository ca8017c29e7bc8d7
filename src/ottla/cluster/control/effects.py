"""What a step of the controller may ask for. The step yields one of these and is sent the result.

Read      the nodes at some paths, None for each that is missing
List      the names below a path, None when there is no such path
Write     transactions, each on its own: None for each that was done, or the StoreError of the op that failed
Send      a request to a broker, behind those sent before; its answer comes as an event, if anybody wants it
Pause     let others have the loop for a moment
Watch     have an event for every later change of these topics' nodes; Unwatch ends it
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


class Watch(NamedTuple):
    topics: Sequence[str]


class Unwatch(NamedTuple):
    topics: Sequence[str]


Effect: TypeAlias = Read | List | Write | Send | Pause | Watch | Unwatch
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
