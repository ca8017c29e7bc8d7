"""This broker's registration in a cluster: its id, its node in the metadata store, and how it is kept.

    identify    creates the nodes that every cluster has; finds the cluster id and this broker's id
    register    /brokers/ids/N, an ephemeral node: while it exists, the controller considers this broker alive

The czxid of the registration is the broker epoch: each new registration has a higher one. When the session is lost, the
node is gone and the controller elects other leaders. Then the broker registers again, in a new session with a new
epoch, and notifies its subscribers. It does the same when somebody has deleted the node.

A killed broker stays registered until its session expires. After a restart it need not wait for that: the file
`ottla-session` beside the logs holds the former session id. The broker holds the lock of the folder, so its former
process is dead, and it removes that registration. The file also holds the inode number of its folder: in a copy of the
folder it is ignored, since the broker of the original may be alive.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, NamedTuple

from ottla.cluster import znodes
from ottla.cluster.image import Broker
from ottla.cluster.metadata_store import FAREWELL_S, NodeExists, NoNode, SessionEvent, StoreError, make_nodes
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.clock import Clock
    from ottla.cluster.metadata_store import MetadataStore
    from ottla.config import BrokerConfig
    from ottla.disk import Disk

logger = logging.getLogger("ottla.member")

SESSION_FILE = "ottla-session"
MARGIN_S = 5.0  # a session may outlive its timeout by this: the server checks at intervals
RETRY_S = 1.0


class BrokerEndpoints(NamedTuple):
    """Addresses and security protocols by listener name, and the rack of a broker."""

    endpoints: Mapping[str, tuple[str, int]]
    protocols: Mapping[str, str]
    rack: str | None


class Registration:
    """`node_id` and `cluster_id` are set by `identify`, `broker_epoch` by `register`."""

    def __init__(
        self,
        store: MetadataStore,
        config: BrokerConfig,
        clock: Clock,
        disk: Disk,
        *,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.node_id = config.node_id
        self.cluster_id = ""
        self.broker_epoch = -1
        self._store = store
        self._config = config
        self._clock = clock
        self._disk = disk
        self._random_bytes = random_bytes
        self._session_path = os.path.join(config.log_dirs[0], SESSION_FILE)
        self._session = 0  # session of the last registration by this process
        self._place: BrokerEndpoints | None = None
        self._subscribers: list[Callable[[int], None]] = []
        self._registering: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()  # set when the registration should be checked
        self._stop_listening: Callable[[], None] | None = None
        self._stop_watching: Callable[[], None] | None = None

    async def identify(self, *, node_id: int | None, cluster_id: str | None) -> None:
        """Determine the broker id and cluster id. The arguments are from `meta.properties`, None in new folders."""
        await make_nodes(self._store, znodes.PARENTS)
        self.cluster_id = await self._agree(cluster_id)
        given = self._config.node_id if self._config.node_id_given else None
        if given is not None and node_id is not None and given != node_id:
            reason = f"the log folders belong to node {node_id}, not {given} (see meta.properties)"
            raise BrokerError(ErrorCode.INCONSISTENT_CLUSTER_ID, reason)
        known = given if given is not None else node_id
        self.node_id = known if known is not None else await self._take_id()

    async def _agree(self, cluster_id: str | None) -> str:
        """The cluster id; the first broker generates it. Log folders of another cluster are rejected.

        Used folders are also rejected where there is no cluster yet: then the path in `zookeeper.connect` is probably
        wrong, and none of the logs would belong to a topic.
        """
        try:
            found = znodes.decode_cluster_id((await self._store.get(znodes.CLUSTER_ID)).data)
        except NoNode:
            if cluster_id:
                where = self._config.zookeeper_connect
                reason = f"the log folders belong to cluster {cluster_id}, and ZooKeeper keeps no cluster at {where}"
                raise BrokerError(ErrorCode.INCONSISTENT_CLUSTER_ID, reason) from None
            found = znodes.encode_uuid(znodes.new_uuid(self._random_bytes))
            try:
                await self._store.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(found))
            except NodeExists:  # another broker was faster
                found = znodes.decode_cluster_id((await self._store.get(znodes.CLUSTER_ID)).data)
        if cluster_id and cluster_id != found:
            reason = f"the log folders belong to cluster {cluster_id}, ZooKeeper to cluster {found}"
            raise BrokerError(ErrorCode.INCONSISTENT_CLUSTER_ID, reason)
        return found

    async def _take_id(self) -> int:
        """A broker id that was never used: above the reserved ones, counted by the version of a node."""
        if not self._config.broker_id_generation_enable:
            reason = "this broker has no number: set broker.id, or broker.id.generation.enable=true"
            raise BrokerError(ErrorCode.INVALID_CONFIG, reason)
        taken = await self._store.set(znodes.BROKER_SEQUENCE, b"")
        return self._config.reserved_broker_max_id + taken.version

    async def register(self, place: BrokerEndpoints) -> int:
        """Register this broker and return its epoch. BrokerError when another broker has its id."""
        self._place = place
        epoch = await self._register_at_last()
        self._stop_listening = self._store.subscribe(self._listen)
        self._stop_watching = self._store.watch(znodes.broker_path(self.node_id), lambda event: self._wanted.set())
        self._wanted.set()  # check once now, in case the node was removed before the watch was set
        self._registering = asyncio.get_running_loop().create_task(self._stay())
        return epoch

    async def _register(self) -> int:
        assert self._place is not None
        path = znodes.broker_path(self.node_id)
        broker = Broker(self.node_id, self._place.endpoints, self._place.rack, 0, self._place.protocols)
        changed = asyncio.Event()
        cancel = self._store.watch(path, lambda event: changed.set())
        deadline = self._clock.monotonic() + self._config.zookeeper_session_timeout_ms / 1000 + MARGIN_S
        try:
            while True:
                try:
                    await self._store.create(path, znodes.encode_broker(broker, self._clock.now_ms()), ephemeral=True)
                except NodeExists:
                    if not await self._is_ours(path):
                        await self._wait_for_other(changed, deadline)
                        continue
                stat = (await self._store.get(path)).stat
                if stat.owner == self._store.session:
                    break
        finally:
            cancel()
        if stat.czxid != self.broker_epoch:
            self._remember(self._store.session)
            self.broker_epoch = stat.czxid
            logger.info("registered", extra={"node": self.node_id, "epoch": self.broker_epoch})
        return self.broker_epoch

    async def _is_ours(self, path: str) -> bool:
        """Whether this session owns the node: the response to `create` may be lost. Removes a former session's node."""
        try:
            node = await self._store.get(path)
            if node.stat.owner != self._store.session and node.stat.owner == self.former_session():
                logger.info("removing the registration of a former session", extra={"node": self.node_id})
                await self._store.delete(path, node.stat.version)
        except NoNode:
            return False
        return node.stat.owner == self._store.session

    async def _wait_for_other(self, changed: asyncio.Event, deadline: float) -> None:
        """Another session holds the id: that of a killed broker, or of one that is alive."""
        try:
            node = await self._store.get(znodes.broker_path(self.node_id))
        except NoNode:
            return
        left = deadline - self._clock.monotonic()
        if left <= 0:
            try:
                other = znodes.decode_broker(self.node_id, node.data, node.stat.czxid)
                where = ", ".join(f"{name}://{host}:{port}" for name, (host, port) in other.endpoints.items())
            except znodes.MALFORMED:
                where = f"an unknown address ({znodes.broker_path(self.node_id)} cannot be understood)"
            reason = f"another broker with the number {self.node_id} runs at {where}: give this one another broker.id"
            raise BrokerError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, reason)
        try:
            async with asyncio.timeout(min(left, RETRY_S)):
                await changed.wait()
        except TimeoutError:
            return
        changed.clear()

    def subscribe(self, callback: Callable[[int], None]) -> None:
        """Register a callback that gets the new broker epoch after this broker had to register again."""
        self._subscribers.append(callback)

    def _listen(self, event: SessionEvent) -> None:
        if event is SessionEvent.CONNECTED:
            self._wanted.set()

    async def _stay(self) -> None:
        """After each reconnect and each change, check that the registration exists, and register again if not."""
        said = ""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            before = self.broker_epoch
            try:
                epoch = await self._register_at_last()
            except BrokerError as error:
                if error.message != said:
                    logger.error("this broker is not part of the cluster: %s", error.message)
                said = error.message
                self._wanted.set()
                continue
            except Exception:
                logger.exception("this broker is not part of the cluster")
                await asyncio.sleep(RETRY_S)
                self._wanted.set()
                continue
            said = ""
            if epoch != before:
                self._tell(epoch)

    def _tell(self, epoch: int) -> None:
        for callback in tuple(self._subscribers):
            try:
                callback(epoch)
            except Exception:
                logger.exception("a subscriber of the registration failed")

    async def _register_at_last(self) -> int:
        """Register, retrying over lost connections. Retries are idempotent."""
        said = ""
        while True:
            try:
                return await self._register()
            except StoreError as error:
                reason = f"{type(error).__name__} {error}"
                if reason != said:
                    logger.warning("the registration waits for ZooKeeper", extra={"reason": reason})
                said = reason
                await asyncio.sleep(RETRY_S)

    def former_session(self) -> int:
        """The session of this broker's last registration, 0 if unknown."""
        if self._session:
            return self._session
        try:
            session, folder = map(int, self._disk.read(self._session_path).split())
            return session if folder == self._folder() else 0
        except (OSError, ValueError):  # missing or damaged: then the former session has to expire
            return 0

    def _folder(self) -> int:
        """The inode number of the session file's folder."""
        return self._disk.stat(os.path.dirname(self._session_path)).st_ino

    def _remember(self, session: int) -> None:
        self._session = session
        try:
            self._disk.write(self._session_path, f"{session} {self._folder()}".encode())
        except OSError as error:
            logger.warning(
                "session file not written: after a crash the next start waits for the session to expire",
                extra={"reason": str(error)},
            )

    async def close(self) -> None:
        """Delete the registration, so that nobody has to wait for the session to expire."""
        if self._stop_listening is not None:
            self._stop_listening()
        if self._stop_watching is not None:
            self._stop_watching()
        if self._registering is not None:
            self._registering.cancel()
            await asyncio.gather(self._registering, return_exceptions=True)
            try:
                path = znodes.broker_path(self.node_id)
                async with asyncio.timeout(FAREWELL_S):
                    if (await self._store.get(path)).stat.owner == self._store.session:
                        await self._store.delete(path)
            except (StoreError, TimeoutError) as error:
                logger.info("registration not deleted: it ends with the session", extra={"reason": str(error)})
