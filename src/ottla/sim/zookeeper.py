"""A model of ZooKeeper: one tree, a session for each client, and connections between them that can fail.

    SimZooKeeper       the ensemble: applies writes one after the other, and expires silent sessions
    SimMetadataStore   a client: the `MetadataStore` port of one broker

Each call travels to the store, and its response travels back. If the connection is cut, either the call is lost, or it
was carried out and the response is lost: the caller gets `UnknownOutcome` in both cases. Responses and events of a
session arrive in the order in which the store sent them, so a read after an event sees everything up to that event.

The client notices that the store is silent after two thirds of the session timeout (SUSPENDED) and tries to reconnect.
Then its session is still alive (CONNECTED), or the store says that it has expired (LOST) and the client starts a new
one. A paused process sends no heartbeats; when it resumes, it first believes that nothing has changed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.cluster.metadata_store import (
    ANY,
    BadVersion,
    Create,
    Delete,
    Event,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionEvent,
    Set,
    Stat,
    StoreError,
    Unavailable,
    UnknownOutcome,
    Znode,
)
from ottla.sim.loop import PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.cluster.metadata_store import Op
    from ottla.sim.loop import SimLoop
    from ottla.sim.net import Network

T = TypeVar("T")

HOST = "zk"  # its name in the network
RETRY_S = 0.2
SIGNS = 6  # heartbeats per session timeout
STALL_S = 0.05  # how often a cut connection retries


class SimZnode:
    __slots__ = ("czxid", "data", "names", "owner", "sequence", "version")

    def __init__(self, data: bytes, czxid: int, owner: int) -> None:
        self.data = data
        self.version = 0
        self.czxid = czxid
        self.owner = owner
        self.sequence = 0
        self.names: dict[str, None] = {}

    def node(self) -> Znode:
        return Znode(self.data, Stat(self.version, self.czxid, bool(self.owner), self.owner))


class Session:
    """The store's state of a client."""

    def __init__(self, number: int, timeout_s: float, client: SimMetadataStore, now: float) -> None:
        self.number = number
        self.timeout_s = timeout_s
        self.client = client
        self.heard = now


class SimZooKeeper:
    """The ensemble, modelled as one server."""

    def __init__(self, loop: SimLoop, network: Network) -> None:
        self.loop = loop
        self.network = network
        self.zxid = 0
        self.up = True
        self.lives = 1
        self.slow_s = 0.0
        self.sessions: dict[int, Session] = {}
        self.changes: list[Callable[[int, str, SimZnode | None], None]] = []  # called with zxid, path, node
        self._tree: dict[str, SimZnode] = {"/": SimZnode(b"", 0, 0)}
        self.writer = 0  # the session whose write is being reported
        self._numbers = 0
        self._touched: dict[str, str] = {}

    # Faults.

    def stop(self) -> None:
        """Make the store unreachable; it keeps its state."""
        self.up = False

    def start(self) -> None:
        """Make it reachable. Every session gets its full timeout again, as after a leader election."""
        self.up = True
        self.lives += 1
        for session in list(self.sessions.values()):
            session.heard = self.loop.time()
            self._watch_over(session)

    def expire_of(self, host: str) -> None:
        for session in [one for one in self.sessions.values() if one.client.host == host]:
            self.expire(session.number)

    def expire(self, number: int) -> None:
        """Expire a session and remove its ephemeral nodes."""
        session = self.sessions.pop(number, None)
        if session is None:
            return
        self.loop.note(f"session {number} of {session.client.host} expires")
        mine = sorted((path for path, node in self._tree.items() if node.owner == number), reverse=True)
        if mine:
            self._commit([Delete(path) for path in mine], 0)

    def remove(self, path: str) -> None:
        """Delete a node, as if by hand."""
        self._commit([Delete(path)], 0)

    # Sessions.

    def begin(self, client: SimMetadataStore) -> Session:
        self._numbers += 1
        session = Session(self._numbers, client.timeout_s, client, self.loop.time())
        self.sessions[session.number] = session
        self._watch_over(session)
        return session

    def hear(self, number: int) -> bool:
        """Handle a heartbeat. Returns False if there is no such session."""
        session = self.sessions.get(number)
        if session is not None:
            session.heard = self.loop.time()
        return session is not None

    def _watch_over(self, session: Session) -> None:
        due = session.heard + session.timeout_s
        self.loop.call_at(due, self._look_after, session, due, context=self.loop.outside_context)

    def _look_after(self, session: Session, due: float) -> None:
        if self.sessions.get(session.number) is not session or not self.up:
            return
        if session.heard + session.timeout_s <= due:
            self.expire(session.number)
        else:
            self._watch_over(session)

    # Reading.

    def owner(self, path: str) -> int:
        """The session that created an ephemeral node, 0 if there is none."""
        node = self._tree.get(path)
        return 0 if node is None else node.owner

    def get(self, path: str) -> Znode:
        if path not in self._tree:
            raise NoNode(path)
        return self._tree[path].node()

    def children(self, path: str) -> list[str]:
        if path not in self._tree:
            raise NoNode(path)
        return sorted(self._tree[path].names)

    def tree(self, path: str) -> dict[str, Znode]:
        below = path.rstrip("/") + "/"
        return {one: node.node() for one, node in sorted(self._tree.items()) if one == path or one.startswith(below)}

    # Writing.

    def multi(self, ops: Sequence[Op], session: int = 0) -> list[str]:
        self._verify(ops)
        return self._commit(ops, session)

    def _verify(self, ops: Sequence[Op]) -> None:
        """Raise the error of the first op that would fail. Changes nothing."""
        made: dict[str, int] = {}  # effects of earlier ops of the same multi: versions, -1 for deleted
        for op in ops:
            path = op.path
            known = self._tree.get(path)
            version = made.get(path, -1 if known is None else known.version)
            if isinstance(op, Create):
                parent = parent_of(path)
                if made.get(parent, 0 if parent in self._tree else -1) < 0:
                    raise NoNode(parent)
                if not op.sequential and version >= 0:
                    raise NodeExists(path)
                made[path] = 0
                continue
            if version < 0:
                raise NoNode(path)
            if op.version not in (ANY, version):
                raise BadVersion(path)
            if isinstance(op, Set):
                made[path] = version + 1
            elif isinstance(op, Delete):
                left = [] if known is None else [name for name in known.names if made.get(join(path, name), 0) >= 0]
                if left:
                    raise NotEmpty(path)
                made[path] = -1

    def _commit(self, ops: Sequence[Op], session: int) -> list[str]:
        self.zxid += 1
        self._touched = {}
        paths = [self._apply(op, session) for op in ops]
        touched, self._touched = self._touched, {}
        self.writer = session
        for path in paths:
            for tell in self.changes:
                tell(self.zxid, path, self._tree.get(path))
        for one in list(self.sessions.values()):
            one.client.touch(touched)
        return paths

    def _apply(self, op: Op, session: int) -> str:
        path = op.path
        if isinstance(op, Create):
            above = self._tree[parent_of(path)]
            if op.sequential:
                path = f"{path}{above.sequence:010d}"
                above.sequence += 1
            self._tree[path] = SimZnode(op.data, self.zxid, session if op.ephemeral else 0)
            above.names[path.rpartition("/")[2]] = None
            self._touched[path] = "created"
            self._touched.setdefault(parent_of(path), "children")
        elif isinstance(op, Set):
            node = self._tree[path]
            node.data, node.version = op.data, node.version + 1
            self._touched[path] = "changed"
        elif isinstance(op, Delete):
            del self._tree[path]
            del self._tree[parent_of(path)].names[path.rpartition("/")[2]]
            self._touched[path] = "deleted"
            self._touched.setdefault(parent_of(path), "children")
        if not path.startswith("/config"):
            self.loop.note(f"zk {self.zxid} {op.__class__.__name__} {path}")
        return path


class Way:
    """One direction of a connection to the store. It keeps the order; while it is cut, nothing gets through."""

    def __init__(self, store: SimZooKeeper, source: str, target: str) -> None:
        self._store = store
        self._source = source
        self._target = target
        self._waiting: deque[Callable[[], None]] = deque()
        self._due = 0.0
        self._stalled = False
        self._closed = False

    def send(self, work: Callable[[], None]) -> None:
        loop = self._store.loop
        delay_s = self._store.network.delay_s(self._source, self._target) + self._store.slow_s
        self._due = max(self._due, loop.time() + delay_s)
        self._waiting.append(work)
        loop.call_at(self._due, self._arrive, context=loop.outside_context)

    def close(self) -> None:
        """Close the connection: messages in flight still arrive, messages held up by a cut never do."""
        self._closed = True
        if self._stalled:
            self._waiting.clear()

    def _arrive(self) -> None:
        if not self._waiting:
            return
        self._stalled = not self._store.network.reaches(self._source, self._target)
        if not self._stalled:
            self._waiting.popleft()()
        elif not self._closed:
            loop = self._store.loop
            loop.call_later(STALL_S, self._arrive, context=loop.outside_context)


class SimMetadataStore:
    """The store as one process sees it."""

    def __init__(self, store: SimZooKeeper, host: str, *, timeout_s: float = 6.0) -> None:
        self.host = host
        self.timeout_s = timeout_s
        self.rebuilt = False
        self._store = store
        self._loop = store.loop
        self._process = PROCESS.get()
        self._context = copy_context()
        self._number = 0
        self._connected = False
        self._closed = False
        self._heard = 0.0
        self._life = store.lives
        self._out = Way(store, host, HOST)
        self._back = Way(store, HOST, host)
        self._pending: dict[asyncio.Future[Any], str] = {}
        self._watches: dict[int, tuple[str, Callable[[Event], None]]] = {}
        self._fired: dict[int, None] = {}
        self._subscribers: dict[int, Callable[[SessionEvent], None]] = {}
        self._count = 0

    async def open(self) -> None:
        """Wait for the first session."""
        while not self._connected and not self._closed:
            await self._greet()
            if not self._connected:
                await asyncio.sleep(RETRY_S)

    async def close(self) -> None:
        """End the session at once, as a client that closes does."""
        if self._connected:
            number = self._number
            self._send(lambda: self._store.expire(number))
        self._closed, self._connected = True, False

    @property
    def connected(self) -> bool:
        return self._connected

    @property
    def session(self) -> int:
        return self._number

    # Calls.

    async def get(self, path: str) -> Znode:
        return await self._call(path, lambda: self._store.get(path))

    async def children(self, path: str) -> list[str]:
        return await self._call(path, lambda: self._store.children(path))

    async def tree(self, path: str) -> Mapping[str, Znode]:
        return await self._call(path, lambda: self._store.tree(path))

    async def set(self, path: str, data: bytes, version: int = ANY) -> Stat:
        def change() -> Stat:
            self._store.multi([Set(path, data, version)], self._number)
            return self._store.get(path).stat

        return await self._call(path, change)

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        return (await self.multi([Create(path, data, ephemeral, sequential)]))[0]

    async def delete(self, path: str, version: int = ANY) -> None:
        await self.multi([Delete(path, version)])

    async def multi(self, ops: Sequence[Op]) -> list[str]:
        number, ops = self._number, list(ops)
        return await self._call(ops[0].path if ops else "/", lambda: self._store.multi(ops, number))

    async def _call(self, path: str, work: Callable[[], T]) -> T:
        if not self._connected:
            raise Unavailable(path)
        future: asyncio.Future[T] = self._loop.create_future()
        self._pending[future] = path
        number = self._number

        def carry_out() -> None:
            if not self._store.hear(number):
                return  # expired: the client will be told
            try:
                result = work()
            except StoreError as error:
                self._reply(self._answer, future, None, error)
            else:
                self._reply(self._answer, future, result, None)

        self._send(carry_out)
        try:
            return await future
        finally:
            self._pending.pop(future, None)

    def _answer(self, future: asyncio.Future[Any], result: Any, error: StoreError | None) -> None:
        self._heard = self._loop.time()
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    # Sending to the store and back.

    def _send(self, work: Callable[[], None]) -> None:
        """Run something in the store, if the message gets there."""

        life = self._life

        def arrive() -> None:
            if not self._store.up or self._process.dead:
                return
            if life == self._store.lives:
                work()
            else:  # the store was away in between, and does not know this connection
                self._loop.call_soon(self._suspend, life, context=self._context.copy())

        self._out.send(arrive)

    def _reply(self, callback: Callable[..., None], *args: Any) -> None:
        """Run something in the client, if the message gets there."""

        def arrive() -> None:
            if not self._closed:
                self._loop.call_soon(callback, *args, context=self._context.copy())

        self._back.send(arrive)

    def _connect_anew(self) -> None:
        """Open a new connection: messages held up on the old one never arrive."""
        self._life = self._store.lives
        self._out.close()
        self._back.close()
        self._out, self._back = Way(self._store, self.host, HOST), Way(self._store, HOST, self.host)

    # The session.

    async def _greet(self) -> None:
        """Make one attempt to connect; it may fail."""
        self._connect_anew()
        done: asyncio.Future[tuple[Session | None, bool]] = self._loop.create_future()
        number = self._number

        def arrive() -> None:
            if number and self._store.hear(number):
                self._reply(on_greeting, self._store.sessions[number], False)
            elif number:
                self._reply(on_greeting, None, True)
            else:
                self._reply(on_greeting, self._store.begin(self), False)

        def on_greeting(session: Session | None, expired: bool) -> None:
            if not done.done():
                done.set_result((session, expired))

        self._send(arrive)
        self._loop.call_later(self.timeout_s / 3, on_greeting, None, False, context=self._context.copy())
        session, expired = await done
        if expired:
            self._number = 0
            self._tell(SessionEvent.LOST)
        elif session is not None and not self._closed:
            self._number = session.number
            self._connected = True
            self._heard = self._loop.time()
            self._loop.call_later(self.timeout_s / SIGNS, self._sign, context=self._context.copy())
            self._tell(SessionEvent.CONNECTED)
            for key, (path, _) in list(self._watches.items()):
                self._fire(key, Event("missed", path))

    def _sign(self) -> None:
        """Send a heartbeat. After two thirds of the session timeout without a response the connection is lost."""
        if self._closed or not self._connected:
            return
        if self._loop.time() - self._heard >= self.timeout_s * 2 / 3:
            self._suspend()
            return
        number = self._number

        def arrive() -> None:
            if self._store.hear(number):
                self._reply(self._hear)
            else:
                self._reply(self._suspend)  # the store ends the connection of a session it does not know

        self._send(arrive)
        self._loop.call_later(self.timeout_s / SIGNS, self._sign, context=self._context.copy())

    def _hear(self) -> None:
        self._heard = self._loop.time()

    def _suspend(self, life: int | None = None) -> None:
        """The connection is lost, unless it belongs to an earlier life of the store."""
        if not self._connected or life not in (None, self._life):
            return
        self._connected = False
        self._out.close()
        self._back.close()
        for future, path in list(self._pending.items()):
            if not future.done():
                future.set_exception(UnknownOutcome(path))
        self._pending.clear()
        self._tell(SessionEvent.SUSPENDED)
        self._loop.create_task(self._come_back(), context=self._context.copy())

    async def _come_back(self) -> None:
        while not self._connected and not self._closed:
            await asyncio.sleep(RETRY_S)
            await self._greet()

    def _tell(self, event: SessionEvent) -> None:
        self._loop.note(f"{self.host} session {event.value}")
        for subscriber in list(self._subscribers.values()):
            subscriber(event)

    def subscribe(self, callback: Callable[[SessionEvent], None]) -> Callable[[], None]:
        self._count += 1
        key = self._count
        self._subscribers[key] = callback

        def leave() -> None:
            self._subscribers.pop(key, None)

        return leave

    # Watches.

    def watch(self, path: str, callback: Callable[[Event], None]) -> Callable[[], None]:
        self._count += 1
        key = self._count
        self._watches[key] = path, callback

        def leave() -> None:
            self._watches.pop(key, None)

        return leave

    def touch(self, touched: Mapping[str, str]) -> None:
        """The store has changed: notify watches. Changes in quick succession give one event."""
        for key, (path, _) in list(self._watches.items()):
            if path in touched and key not in self._fired:
                self._fired[key] = None
                self._reply(self._fire, key, Event(touched[path], path))
            elif path in touched and self._loop.chance.random() < 0.5:
                self._reply(self._fire, key, Event(touched[path], path))

    def _fire(self, key: int, event: Event) -> None:
        self._fired.pop(key, None)
        if self._connected and key in self._watches:
            self._watches[key][1](event)


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def join(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}"
