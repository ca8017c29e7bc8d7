"""The metadata store of a cluster, as a port: a tree of small nodes, after ZooKeeper's.

    path        /brokers/topics/orders, each with data, a version and perhaps children
    version     0 at creation, one more with each set; a write may demand the version it has read
    ephemeral   gone when the session that created it ends
    sequential  the name gets a ten-digit number that only grows
    multi       several writes that happen together or not at all
    session     of a client with the store: it survives a lost connection for a while, then it expires

`znodes.py` says what lies at which path. `sqlite_store.py` keeps the tree in a local file, for one node. `zookeeper.py`
is a client of a real ZooKeeper, shared by all brokers of a cluster.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.errors import OutsideError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

ANY = -1  # a write of any version
FAREWELL_S = 2.0  # how long a stopping broker waits for the store: what it could not delete ends with the session


class StoreError(OutsideError):
    """The store refused a call on the node at `path`."""

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


class Unknown(Unavailable):
    """The call was sent and no answer came: a write may have happened or not. Read again before going on."""


class SessionEvent(Enum):
    """What became of the session.

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


class Check(NamedTuple):
    path: str
    version: int


Op = Create | Set | Delete | Check


class Event(NamedTuple):
    """What happened to a watched node: `created`, `changed`, `deleted`, or `children` came or went.

    `missed`: the connection was away, so any of these may have happened.
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
    """Returns what takes it back."""
    subscribers.append(callback)

    def cancel() -> None:
        if callback in subscribers:
            subscribers.remove(callback)

    return cancel


async def stop_watching(cancels: Iterable[Callable[[], None]], task: asyncio.Task[None] | None) -> None:
    """Take back watches and subscriptions, and end the task that follows them."""
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
        """Everything at and below a path; empty when there is nothing. For start-up, and no snapshot: others write."""
        ...

    async def multi(self, ops: Sequence[Op]) -> list[str]:
        """All or nothing. Returns the path of each op. The error is that of the first op that fails."""
        ...

    def watch(self, path: str, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Call back on the event loop after each change of the node or its children, until the result is called.

        Changes in quick succession may give one event, but whoever reads after an event has missed none. After the
        connection was lost, each watch gets one event `missed` when it is back.
        """
        ...

    def subscribe(self, callback: Callable[[SessionEvent], None]) -> Callable[[], None]:
        """Call back on the event loop after each change of the session, until the result is called."""
        ...

    @property
    def connected(self) -> bool:
        """Whether the session lives and the store answers; without it nothing may be acknowledged in its name."""
        ...

    @property
    def session(self) -> int:
        """The number of the session, 0 while there is none."""
        ...

    async def close(self) -> None: ...
