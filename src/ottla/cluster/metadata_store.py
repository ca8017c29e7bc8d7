"""The metadata store of a cluster, as an interface: a tree of small nodes, modelled on ZooKeeper.

    path        /brokers/topics/orders, each with data, a version and perhaps children
    version     0 at creation, incremented by each set; a write may require the version it has read
    ephemeral   deleted when the session that created it ends
    sequential  the name gets a ten-digit increasing number
    multi       several writes in one transaction
    session     of a client with the store: it survives a lost connection for a while, then it expires

`znodes.py` defines the paths and their content. `sqlite_store.py` keeps the tree in a local file, for one node.
`zookeeper.py` is a client of a real ZooKeeper, shared by all brokers of a cluster.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.errors import OutsideError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

ANY = -1  # do not check the version
FAREWELL_S = 2.0  # how long a stopping broker waits for the store; ephemeral nodes end with the session anyway


class StoreError(OutsideError):
    """A call on the node at `path` failed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class NoNode(StoreError):
    """The node does not exist, or its parent does not."""


class NodeExists(StoreError):
    """The node exists already."""


class BadVersion(StoreError):
    """The node has changed since it was read."""


class NotEmpty(StoreError):
    """The node has children, so it cannot be deleted."""


class Unavailable(StoreError):
    """The store cannot be read or written: closed, locked by another process, not connected, or its disk fails."""


class UnknownOutcome(Unavailable):
    """The call was sent but not answered: a write may or may not have happened. Read again before continuing."""


class SessionEvent(Enum):
    """A change of the session.

    SUSPENDED: the connection is lost, but the session and its ephemeral nodes may still be alive. LOST: the session has
    expired, its ephemeral nodes are gone. CONNECTED: the store answers again; after LOST in a new session, otherwise in
    the same one.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class Stat(NamedTuple):
    version: int
    czxid: int  # number of the transaction that created it; grows through the whole tree
    ephemeral: bool
    owner: int = 0  # the session of an ephemeral node: `MetadataStore.session` when it is ours


class Znode(NamedTuple):
    data: bytes
    stat: Stat


class Create(NamedTuple):
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class Set(NamedTuple):
    path: str
    data: bytes
    version: int = ANY


class Delete(NamedTuple):
    path: str
    version: int = ANY


class VersionCheck(NamedTuple):
    path: str
    version: int


Op = Create | Set | Delete | VersionCheck


class Event(NamedTuple):
    """What happened to a watched node: `created`, `changed`, `deleted`, or `children` were added or removed.

    `missed`: the connection was lost, so any of these may have happened.
    """

    kind: str
    path: str


async def make_nodes(store: MetadataStore, paths: Sequence[str]) -> None:
    """Create empty nodes, parents first: all in one transaction if none exists, otherwise those that are missing."""
    try:
        await store.multi([Create(path) for path in paths])
    except NodeExists:
        for result in await asyncio.gather(*map(store.create, paths), return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(result, NodeExists):
                raise result from None


def add_subscriber(
    subscribers: list[Callable[[SessionEvent], None]], callback: Callable[[SessionEvent], None]
) -> Callable[[], None]:
    """Returns a function that removes the subscriber again."""
    subscribers.append(callback)

    def cancel() -> None:
        if callback in subscribers:
            subscribers.remove(callback)

    return cancel


async def stop_watching(cancels: Iterable[Callable[[], None]], task: asyncio.Task[None] | None) -> None:
    """Cancel watches and subscriptions, and the task that follows them."""
    for cancel in cancels:
        cancel()
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class MetadataStore(Protocol):
    async def get(self, path: str) -> Znode: ...

    async def set(self, path: str, data: bytes, version: int = ANY) -> Stat: ...

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        """Create a node and return its path, which for a sequential node ends with its number."""
        ...

    async def delete(self, path: str, version: int = ANY) -> None: ...

    async def children(self, path: str) -> list[str]:
        """Names, not paths, in order."""
        ...

    async def tree(self, path: str) -> Mapping[str, Znode]:
        """Everything at and below a path; empty if it does not exist. Not a snapshot: others may write meanwhile."""
        ...

    async def multi(self, ops: Sequence[Op]) -> list[str]:
        """All or nothing. Returns the path of each op. Raises the error of the first op that fails."""
        ...

    def watch(self, path: str, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Call back on the event loop after each change of the node or its children, until the result is called.

        Changes in quick succession may give one event, but a read after an event sees all of them. After a lost
        connection, each watch gets one event `missed` on reconnect.
        """
        ...

    def subscribe(self, callback: Callable[[SessionEvent], None]) -> Callable[[], None]:
        """Call back on the event loop after each change of the session, until the result is called."""
        ...

    @property
    def connected(self) -> bool:
        """Whether the session is alive and the store answers. If not, nothing may be acknowledged in its name."""
        ...

    @property
    def session(self) -> int:
        """The number of the session, 0 while there is none."""
        ...

    async def close(self) -> None: ...
