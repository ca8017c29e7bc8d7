"""The metadata store of a cluster: a client of ZooKeeper, on kazoo.

kazoo runs one thread that talks to the server (`kazoo_thread.py`); everything else runs on the event loop. Calls are
sent in order, with a limited number in flight. When the connection is lost they fail: `Unavailable` if a call was not
sent, `Unknown` if it was sent but not answered.

kazoo's watches fire only once. Here they are set again before the callbacks run, on the same connection and in order,
so that a callback that reads misses no change. kazoo drops all watches with the connection: then they are set again,
and every callback gets the event `missed`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from kazoo import exceptions, security
from kazoo.client import KazooClient
from kazoo.protocol.states import EventType, KazooState, KeeperState

from ottla.cluster import metadata_store, znodes
from ottla.cluster.kazoo_thread import Handler, Mailbox, call_guarded, stop_client
from ottla.cluster.metadata_store import (
    ANY,
    Create,
    Delete,
    Event,
    Op,
    SessionEvent,
    Set,
    Stat,
    Znode,
    add_subscriber,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kazoo.protocol.states import WatchedEvent, ZnodeStat

    from ottla.config import BrokerConfig

logger = logging.getLogger("ottla.zookeeper")

REQUEST_SIZE_MAX = 1_000_000  # a little below ZooKeeper's own limit, jute.maxbuffer
OP_SIZE = 64  # bytes of an operation besides its path and data
REVIVE_S = 1.0
PATIENCE_S_MIN = 3.0
ENDED = (KeeperState.CLOSED, KeeperState.AUTH_FAILED)  # final states: kazoo does not reconnect from them
RETRY = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}  # of connecting; seconds
ERRORS: dict[type[Exception], type[metadata_store.StoreError]] = {
    exceptions.NoNodeError: metadata_store.NoNode,
    exceptions.NodeExistsError: metadata_store.NodeExists,
    exceptions.BadVersionError: metadata_store.BadVersion,
    exceptions.NotEmptyError: metadata_store.NotEmpty,
    exceptions.ConnectionLoss: metadata_store.UnknownOutcome,
    exceptions.SessionExpiredError: metadata_store.UnknownOutcome,
    exceptions.OperationTimeoutError: metadata_store.UnknownOutcome,
    exceptions.ConnectionClosedError: metadata_store.UnknownOutcome,
}
STATES = {
    KazooState.CONNECTED: SessionEvent.CONNECTED,
    KazooState.SUSPENDED: SessionEvent.SUSPENDED,
    KazooState.LOST: SessionEvent.LOST,
}
KINDS = {
    EventType.CREATED: "created",
    EventType.CHANGED: "changed",
    EventType.DELETED: "deleted",
    EventType.CHILD: "children",
}


class Tls(NamedTuple):
    """PEM files: the trusted certificates, and our own certificate with its key."""

    trusted: str | None
    certificate: str | None
    password: str | None
    check_name: bool


class ZooKeeperSettings(NamedTuple):
    servers: str  # host:port[,host:port...][/path]
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    in_flight_max: int = 10
    credentials: str | None = None  # user:password of ZooKeeper's digest scheme
    protect: bool = False  # set ACLs: only the creator may write nodes, and read sensitive ones
    tls: Tls | None = None


class ZooKeeper:
    def __init__(self, settings: ZooKeeperSettings) -> None:
        self._hosts, _, root = settings.servers.partition("/")
        self._root = f"/{root.strip('/')}" if root.strip("/") else ""
        self._settings = settings
        self._client: Any = None
        self._mailbox: Mailbox | None = None
        self._state = SessionEvent.LOST
        self._session = 0
        self._waiting: deque[PendingCall] = deque()
        self._sent: set[PendingCall] = set()
        self._cut = False  # a call has failed with the connection, but the state change has not arrived yet
        self._watches: dict[str, Watch] = {}
        self._subscribers: list[Callable[[SessionEvent], None]] = []
        self._connecting: asyncio.Future[None] | None = None
        self._reviving: asyncio.Future[object] | None = None

    async def open(self) -> None:
        """Connect, and create the chroot path if it is missing. Unavailable when no server answers in time."""
        loop = asyncio.get_running_loop()
        self._mailbox = Mailbox(loop)
        self._connecting = loop.create_future()
        self._client = KazooClient(
            self._hosts,
            timeout=self._settings.session_timeout_ms / 1000,
            handler=Handler(self._mailbox, patience_s(self._settings.session_timeout_ms / 1000)),
            auth_data=[("digest", self._settings.credentials)] if self._settings.credentials else None,
            connection_retry=dict(RETRY),
            logger=client_logger(),
            **tls_options(self._settings.tls),
        )
        self._client.add_listener(self._listen)
        self._client.start_async()
        try:
            await asyncio.wait_for(self._connecting, self._settings.connection_timeout_ms / 1000)
            await self._make_root()
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                reason = f"no ZooKeeper answers at {self._hosts}"
                raise metadata_store.Unavailable(reason) from error
            raise

    async def _make_root(self) -> None:
        names = self._root.split("/")
        for depth in range(2, len(names) + 1):
            path = "/".join(names[:depth])
            request = self._client.transaction()
            request.create(path, acl=self._acl(path))
            (result,) = await self._call(path, request.commit_async)
            if isinstance(result, Exception) and not isinstance(result, exceptions.NodeExistsError):
                raise translate_error(result, path)

    @property
    def connected(self) -> bool:
        return self._state is SessionEvent.CONNECTED

    @property
    def session(self) -> int:
        return self._session

    async def get(self, path: str) -> Znode:
        return node(*await self._read(path))

    async def set(self, path: str, data: bytes, version: int = ANY) -> Stat:
        results = await self._transact([Set(path, data, version)])
        return stat(results[0])

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        return (await self.multi([Create(path, data, ephemeral, sequential)]))[0]

    async def delete(self, path: str, version: int = ANY) -> None:
        await self.multi([Delete(path, version)])

    async def children(self, path: str) -> list[str]:
        return sorted(await self._list(path))

    async def tree(self, path: str) -> dict[str, Znode]:
        """Read level by level, each level concurrently."""
        found: dict[str, Znode] = {}
        level = [path]
        while level:
            nodes = await self._gather(self._read, level)
            found |= {one: node(*read) for one, read in nodes.items()}
            below = await self._gather(self._list, [one for one, (_, its) in nodes.items() if its.children_count])
            level = [f"{one.rstrip('/')}/{name}" for one, names in below.items() for name in sorted(names)]
        return found

    async def _gather(self, call: Callable[[str], asyncio.Future[Any]], paths: Iterable[str]) -> dict[str, Any]:
        """The results of the calls, without nodes that were deleted meanwhile."""
        calls = {path: call(path) for path in paths}
        results = await asyncio.gather(*calls.values(), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, metadata_store.NoNode):
                raise result
        return {
            path: result for path, result in zip(calls, results, strict=True) if not isinstance(result, BaseException)
        }

    async def multi(self, ops: Sequence[Op]) -> list[str]:
        results = await self._transact(ops)
        return [
            result.removeprefix(self._root) if isinstance(op, Create) else op.path
            for op, result in zip(ops, results, strict=True)
        ]

    async def _transact(self, ops: Sequence[Op]) -> list[Any]:
        if not ops:
            return []
        if not self.connected:
            raise metadata_store.Unavailable(f"{ops[0].path}: not connected to ZooKeeper")
        size = sum(OP_SIZE + len(op.path) + len(getattr(op, "data", b"")) for op in ops)
        if size > REQUEST_SIZE_MAX:  # the server would close the connection instead of answering
            raise metadata_store.Unavailable(f"{ops[0].path}: {size} bytes are more than ZooKeeper takes at once")
        request = self._client.transaction()
        for op in ops:
            path = self._full(op.path)
            if isinstance(op, Create):
                request.create(path, op.data, self._acl(op.path), op.ephemeral, op.sequential)
            elif isinstance(op, Set):
                request.set_data(path, op.data, op.version)
            elif isinstance(op, Delete):
                request.delete(path, op.version)
            else:
                request.check(path, op.version)
        results: list[Any] = await self._call(ops[0].path, request.commit_async)
        for op, result in zip(ops, results, strict=True):
            # Ops before the failed one report a rollback, those after it that they were not tried.
            if isinstance(result, Exception) and not isinstance(result, exceptions.RolledBackError):
                raise translate_error(result, op.path)
        return results

    def _read(self, path: str) -> asyncio.Future[tuple[bytes, ZnodeStat]]:
        return self._call(path, lambda: self._client.get_async(self._full(path)))

    def _list(self, path: str) -> asyncio.Future[list[str]]:
        return self._call(path, lambda: self._client.get_children_async(self._full(path)))

    def watch(self, path: str, callback: Callable[[Event], None]) -> Callable[[], None]:
        watch = self._watches.get(path)
        if watch is None:
            watch = self._watches[path] = Watch(self, path)
            self._arm(watch)
        watch.callbacks.append(callback)

        def cancel() -> None:
            if callback in watch.callbacks:
                watch.callbacks.remove(callback)
            if not watch.callbacks and self._watches.get(path) is watch:
                del self._watches[path]

        return cancel

    def _arm(self, watch: Watch, *, node: bool = True, children: bool = True) -> None:
        """Set the watch on the server. Without a connection this is done on reconnect."""
        if not self.connected:
            return
        full = self._full(watch.path)
        if node:
            self._call(watch.path, lambda: self._client.exists_async(full, watch.on_node_change)).add_done_callback(
                watch.on_armed
            )
        if children:
            self._call(
                watch.path, lambda: self._client.get_children_async(full, watch.on_children_change)
            ).add_done_callback(watch.on_armed)

    def on_watch(self, watch: Watch, kind: str) -> None:
        """A watch has fired: the server has dropped it, so set it again."""
        if self._watches.get(watch.path) is not watch:
            return
        # The children of a new node are not watched yet, those of a deleted one cannot be.
        self._arm(watch, node=kind != "children", children=kind in ("created", "children"))
        watch.tell(kind)

    def subscribe(self, callback: Callable[[SessionEvent], None]) -> Callable[[], None]:
        return add_subscriber(self._subscribers, callback)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        client.remove_listener(self._listen)
        self._fail_calls("the store is closed")
        self._state, self._session = SessionEvent.LOST, 0
        self._watches.clear()
        if self._reviving is not None:
            await asyncio.gather(self._reviving, return_exceptions=True)
        await stop_client(client)
        assert self._mailbox is not None
        self._mailbox.close()

    def _listen(self, state: str) -> None:
        """Called by kazoo's thread."""
        assert self._mailbox is not None
        client = self._client
        if client is not None:
            session = client.client_id
            self._mailbox.post(self._turn, STATES[state], session[0] if session else 0, client.client_state)

    def _turn(self, state: SessionEvent, session: int, cause: str) -> None:
        if self._client is None:
            return
        if cause in ENDED:
            asyncio.get_running_loop().call_later(REVIVE_S, self._revive)
        if state is self._state and session == self._session:
            return
        self._state, self._cut = state, False
        if state is not SessionEvent.SUSPENDED:
            self._session = session
        logger.info("the session is %s", state.value, extra={"session": f"{self._session:x}"})
        connecting = self._connecting
        if connecting is not None and not connecting.done():
            if cause == KeeperState.AUTH_FAILED:
                connecting.set_exception(
                    metadata_store.Unavailable(f"ZooKeeper at {self._hosts} refuses the credentials")
                )
            elif state is SessionEvent.CONNECTED:
                connecting.set_result(None)
        if state is SessionEvent.CONNECTED:
            for watch in tuple(self._watches.values()):
                self._arm(watch)
        else:
            self._fail_calls("the connection to ZooKeeper is lost")
        for callback in tuple(self._subscribers):
            call_guarded(callback, state)
        if state is SessionEvent.CONNECTED:
            for watch in tuple(self._watches.values()):
                watch.tell("missed")

    def _revive(self) -> None:
        """kazoo's thread has ended, because of a bug or rejected credentials: restart it."""
        under_way = self._reviving is not None and not self._reviving.done()
        if self._client is not None and not self._client.connected and not under_way:
            logger.error("the ZooKeeper client has stopped: restarting it")
            self._reviving = asyncio.ensure_future(asyncio.to_thread(self._client.start_async))

    def _call(self, path: str, send: Callable[[], Any]) -> asyncio.Future[Any]:
        """Queue a call. The future gets its result or error."""
        call = PendingCall(self, path, send)
        if not self.connected:
            call.future.set_exception(metadata_store.Unavailable(f"{path}: not connected to ZooKeeper"))
        else:
            self._waiting.append(call)
            self._send()
        return call.future

    def _send(self) -> None:
        while self._waiting and not self._cut and len(self._sent) < self._settings.in_flight_max:
            call = self._waiting.popleft()
            if not call.future.cancelled():
                self._sent.add(call)
                call.begin()

    def on_answer(self, call: PendingCall, value: object, error: Exception | None) -> None:
        """kazoo has a result. After a lost connection it is ignored: the call has failed already."""
        if call not in self._sent:
            return
        self._sent.discard(call)
        failure = translate_error(error, call.path) if error is not None else None
        self._cut |= isinstance(failure, metadata_store.UnknownOutcome)
        if not call.future.done():
            if failure is None:
                call.future.set_result(value)
            else:
                call.future.set_exception(failure)
        self._send()

    def _fail_calls(self, reason: str) -> None:
        waiting, self._waiting = self._waiting, deque()
        sent, self._sent = self._sent, set()
        for call in sent:
            if not call.future.done():
                call.future.set_exception(metadata_store.UnknownOutcome(f"{call.path}: {reason}"))
        for call in waiting:
            if not call.future.done():
                call.future.set_exception(metadata_store.Unavailable(f"{call.path}: {reason}"))

    def _full(self, path: str) -> str:
        return (self._root or "/") if path == "/" else self._root + path

    def _acl(self, path: str) -> list[Any] | None:
        """Kafka's rule: the creator may do everything, others may read, except nodes that may hold passwords.

        /consumers is open to all: old consumers create their nodes below it.
        """
        if not self._settings.protect or path == znodes.CONSUMERS:
            return None
        own: list[Any] = list(security.CREATOR_ALL_ACL)
        return own if znodes.is_sensitive(path) else own + list(security.READ_ACL_UNSAFE)


class Watch:
    """The subscribers of one node. kazoo calls each of the two callbacks once each time it is set."""

    def __init__(self, owner: ZooKeeper, path: str) -> None:
        self.path = path
        self.callbacks: list[Callable[[Event], None]] = []
        self._owner = owner

    def on_node_change(self, event: WatchedEvent) -> None:
        if event.type in KINDS:  # others are about the connection
            self._owner.on_watch(self, KINDS[event.type])

    def on_children_change(self, event: WatchedEvent) -> None:
        if event.type == EventType.CHILD:  # deletion of the node is reported by the other callback
            self._owner.on_watch(self, KINDS[event.type])

    def tell(self, kind: str) -> None:
        for callback in tuple(self.callbacks):
            call_guarded(callback, Event(kind, self.path))

    def on_armed(self, answer: asyncio.Future[Any]) -> None:
        """Ignores NoNode (a missing node has no children) and lost connections (reconnecting sets all watches)."""
        error = None if answer.cancelled() else answer.exception()
        if error is not None and not isinstance(error, metadata_store.NoNode | metadata_store.Unavailable):
            logger.error("a node cannot be watched", extra={"path": self.path, "reason": str(error)})


class PendingCall:
    """A call that is waiting for its result."""

    def __init__(self, owner: ZooKeeper, path: str, send: Callable[[], Any]) -> None:
        self.path = path
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._owner = owner
        self._send = send

    def begin(self) -> None:
        self._send().call = self

    def end(self, value: object, error: Exception | None) -> None:
        self._owner.on_answer(self, value, error)


def patience_s(session_s: float) -> float:
    """How long to wait for one server, so that a session survives two servers that do not respond."""
    return max(session_s / 3, min(session_s, PATIENCE_S_MIN))


def client_logger() -> logging.Logger:
    """kazoo logs the same lines at every attempt to connect. Keep only errors, unless our logger is at DEBUG."""
    kazoo = logger.getChild("client")
    kazoo.setLevel(logging.NOTSET if logger.isEnabledFor(logging.DEBUG) else logging.ERROR)
    return kazoo


def node(data: bytes | None, its: ZnodeStat) -> Znode:
    return Znode(data or b"", stat(its))


def stat(its: ZnodeStat) -> Stat:
    owner = its.ephemeralOwner
    return Stat(its.version, its.czxid, owner != 0, owner)


def translate_error(error: Exception, path: str) -> metadata_store.StoreError:
    kind = ERRORS.get(type(error))
    if kind is not None:
        return kind(path)
    return metadata_store.Unavailable(f"{path}: {type(error).__name__} {error}".rstrip())


def settings_of(config: BrokerConfig) -> ZooKeeperSettings:
    """The ZooKeeper settings from the broker's config."""
    assert config.zookeeper_connect, "a member has a ZooKeeper"
    tls = Tls(
        config.zookeeper_ssl_truststore_location,
        config.zookeeper_ssl_keystore_location,
        config.zookeeper_ssl_keystore_password,
        bool(config.zookeeper_ssl_endpoint_identification_algorithm),
    )
    return ZooKeeperSettings(
        config.zookeeper_connect,
        config.zookeeper_session_timeout_ms,
        config.zookeeper_connection_timeout_ms,
        config.zookeeper_max_in_flight_requests,
        config.ottla_zookeeper_credentials,
        config.zookeeper_set_acl,
        tls if config.zookeeper_ssl_client_enable else None,
    )


def tls_options(tls: Tls | None) -> dict[str, Any]:
    if tls is None:
        return {}
    return {
        "use_ssl": True,
        "ca": tls.trusted,
        "certfile": tls.certificate,
        "keyfile": tls.certificate,
        "keyfile_password": tls.password,
        "check_hostname": tls.check_name,
    }
