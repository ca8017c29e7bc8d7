"""A member of a cluster: ZooKeeper holds the membership, and the controller assigns leaders and followers.

open     connect to ZooKeeper, get the broker id and topic configs, open the logs
begin    register, run for controller, wait for the cluster's metadata from the controller
leave    move leadership to other brokers (controlled shutdown)
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from ottla.cluster import znodes
from ottla.cluster.control.departure import depart
from ottla.cluster.control.driver import Control
from ottla.cluster.former_life import be_given_up
from ottla.cluster.image import EMPTY, Broker
from ottla.cluster.live_configs import LiveConfigs
from ottla.cluster.metadata import Metadata
from ottla.cluster.metadata_store import NodeExists, StoreError, Unavailable
from ottla.cluster.peers import Connections
from ottla.cluster.producer_ids import ControllerBlocks, ProducerIds
from ottla.cluster.registration import BrokerEndpoints, Registration
from ottla.errors import BrokerError, ErrorCode
from ottla.founding.logs import configs_of, ids_of
from ottla.log.checkpoints import CLEAN_MARKER, Meta
from ottla.replica.assigned import Assigned
from ottla.replica.fetcher import Fetchers
from ottla.replica.isr import Proposals
from ottla.replica.membership import Membership
from ottla.replica.offline import watch_directories
from ottla.replica.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Coroutine, Mapping
    from typing import Any

    from ottla.clock import Clock
    from ottla.cluster.image import Image
    from ottla.cluster.metadata_store import MetadataStore, Znode
    from ottla.config import BrokerConfig
    from ottla.founding import Endpoints
    from ottla.log.log import Log
    from ottla.log.store import LogStore
    from ottla.replica.waits import Waits
    from ottla.security.credentials import Credentials

log = logging.getLogger("ottla.broker")

EPOCH_MAX = 0x7FFFFFFF
RETRY_S = 1.0
GIVEN_UP_S_MAX = 20.0  # on top of the session timeout: how long a start after a crash waits for elections
TOLD_S_MAX = 10.0  # how long a start waits for the controller's first request; after that clients wait instead


class Joined:
    controller: Control
    membership: Membership
    metadata: Metadata
    peers: Connections
    producer_ids: ProducerIds
    proposals: Proposals
    replicas: Assigned
    throttle: Throttle

    def __init__(
        self, config: BrokerConfig, clock: Clock, store: LogStore, metadata_store: MetadataStore | None = None
    ) -> None:
        self.metadata_store: Any = metadata_store or zookeeper(config)
        self._config = config
        self._clock = clock
        self._store = store
        self._member = Registration(self.metadata_store, config, clock, store.disk)
        self._endpoints: Endpoints = {}
        self._registered = False
        self._clean = True  # whether the last stop was clean
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, endpoints: Endpoints, waits: Waits) -> None:
        self._endpoints = endpoints
        store, config, member, clock = self._store, self._config, self._member, self._clock
        await self.metadata_store.open()
        meta = store.read_meta() or Meta(0, None, None)
        await member.identify(node_id=meta.node_id, cluster_id=meta.cluster_id)
        self.metadata = metadata = Metadata(config, clock, node_id=member.node_id)
        self._options = LiveConfigs(self.metadata_store, metadata, clock)
        await self._options.start(EMPTY._replace(cluster_id=member.cluster_id))
        store.config = metadata.config
        nodes = await self._read_tree(znodes.TOPICS) | await self._read_tree(znodes.TOPIC_CONFIGS)
        malformed: set[str] = set()
        known = znodes.image_of(nodes, malformed=malformed)
        self._clean = all(store.disk.exists(os.path.join(path, CLEAN_MARKER)) for path in config.log_dirs)
        await asyncio.to_thread(store.open, configs_of(metadata.config, known), replicated=True, id_for=ids_of(known))
        if meta.node_id is None and not config.node_id_given and store.logs:
            # With a generated id, none of these logs would belong to this broker.
            reason = "the log folders hold partitions, and meta.properties does not say whose they are: set broker.id"
            raise BrokerError(ErrorCode.INVALID_CONFIG, reason)
        self._put_away(known, malformed)
        store.write_meta(meta._replace(node_id=member.node_id, cluster_id=member.cluster_id))
        self._assemble(waits)
        self.membership.awaited = {topic.name: topic.id for topic in known.topics.values()}
        registered = znodes.image_of(await self._read_tree(znodes.BROKERS), malformed=set()).brokers
        this = Broker(member.node_id, endpoints, config.broker_rack, -1)
        self.membership.brokers = {**registered, this.id: this}

    async def _read_tree(self, path: str) -> dict[str, Znode]:
        """Read a tree at start. Retries for a while if the connection to the store is lost: nobody else would."""
        until = self._clock.monotonic() + self._config.zookeeper_connection_timeout_ms / 1000
        while True:
            try:
                return cast("dict[str, Znode]", await self.metadata_store.tree(path))
            except Unavailable:
                if self._clock.monotonic() >= until:
                    raise
                await asyncio.sleep(RETRY_S)

    def _assemble(self, waits: Waits) -> None:
        store, config, clock, metadata = self._store, self._config, self._clock, self.metadata
        self.peers = peers = Connections(config.inter_broker.name, self._credentials())
        self.membership = Membership(
            self._broker_epoch, self._options.read_topic_configs, self._read_controller_epoch, self._read_topics
        )
        self.throttle = self._throttle(lambda: metadata.config.leader_replication_throttled_rate)
        incoming = self._throttle(lambda: metadata.config.follower_replication_throttled_rate)
        self._fetchers = Fetchers(peers, metadata, store, broker_epoch=self._broker_epoch, throttle=incoming)
        self.proposals = Proposals(peers, metadata, clock, broker_epoch=self._broker_epoch)
        self.replicas = Assigned(metadata, store, waits, self._fetchers, self.proposals)
        self.replicas.lose(store.broken)
        metadata.subscribe(self.replicas.apply)
        metadata.subscribe(self._settle)
        self.controller = Control(self.metadata_store, peers, metadata, clock, random_bytes=os.urandom)
        self.producer_ids = ProducerIds(
            self.metadata_store, metadata.node_id, ControllerBlocks(metadata, peers, self._broker_epoch)
        )

    def _credentials(self) -> Credentials | None:
        """The credentials for the inter-broker listener; None for PLAINTEXT."""
        listener = self._config.inter_broker
        if listener.protocol == "PLAINTEXT":
            return None
        from ottla.security.credentials import Credentials

        return Credentials(listener)

    async def begin(self) -> None:
        config = self._config
        self._own(self.proposals.run())
        self._own(self.proposals.watch(lambda: self.replicas))
        protocols = {listener.name: listener.protocol for listener in config.opened}
        if not self._clean:
            patience_s = config.zookeeper_session_timeout_ms / 1000 + GIVEN_UP_S_MAX
            session = self._member.former_session()
            await be_given_up(self.metadata_store, self._member.node_id, session, self._clock, patience_s=patience_s)
        await self._member.register(BrokerEndpoints(self._endpoints, protocols, config.broker_rack))
        self._member.subscribe(lambda epoch: self._own(self._catch_up()))
        self._registered = True
        self._own(watch_directories(self._store, self.replicas, self._tell_of_directory))
        await self.controller.start()
        await self._wait_for_controller()

    async def _read_controller_epoch(self) -> int:
        data = (await self.metadata_store.get(znodes.CONTROLLER_EPOCH)).data
        return int(data) if data.isdigit() else EPOCH_MAX  # an unreadable epoch must not reject any controller

    async def _tell_of_directory(self) -> None:
        said = znodes.encode_log_dir_event(self.metadata.node_id)
        await self.metadata_store.create(znodes.LOG_DIR_EVENT_PREFIX, said, sequential=True)

    def _settle(self, old: Image | None, new: Image) -> None:
        """Apply new broker defaults to the logs, a few at a time."""
        if old is not None and old.broker_configs is not new.broker_configs:
            self._own(self.replicas.settle())

    def _own(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("%s failed", task.get_coro(), exc_info=error)

    async def _wait_for_controller(self) -> None:
        """Wait until the controller has sent metadata that includes this broker."""
        node_id, told = self.metadata.node_id, asyncio.Event()

        def look(_: Image | None, new: Image) -> None:
            if node_id in new.brokers and not told.is_set():
                told.set()
                # Topics that the controller has not sent by then were deleted while this broker started.
                asyncio.get_running_loop().call_later(TOLD_S_MAX, self.membership.awaited.clear)

        self.metadata.subscribe(look)
        try:
            async with asyncio.timeout(TOLD_S_MAX):
                await told.wait()
        except TimeoutError:
            log.warning("no metadata from the controller yet: clients are served when it arrives")

    def missing(self) -> list[str]:
        if not self._registered:
            return ["registration"]
        image = self.metadata.image
        known = self.metadata.node_id in image.brokers and image.controller_id in image.brokers
        return [] if known else ["controller"]

    async def leave(self) -> None:
        if not self._registered:
            return
        await depart(
            self.metadata.config, self.metadata_store, self.peers, self.metadata.node_id, self._member.broker_epoch
        )

    async def close(self) -> None:
        if hasattr(self, "controller"):
            await self.controller.stop()
            await self._fetchers.stop()
            await self._options.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._registered:
            await self._member.close()
        if hasattr(self, "peers"):
            await self.peers.close()
        await self.metadata_store.close()

    def _put_away(self, known: Image, malformed: set[str]) -> None:
        """Set aside logs of partitions that were deleted or reassigned while this broker was down.

        The log of a topic with another id stays: the controller is informed, and somebody has to check it. So do logs
        of a topic whose node is malformed.
        """
        for path in sorted(malformed):
            log.error("a node in ZooKeeper cannot be understood", extra={"path": path})
        self._store.set_aside([one for one in self._store.logs.values() if not self._is_wanted(one, known, malformed)])

    def _is_wanted(self, one: Log, known: Image, malformed: set[str]) -> bool:
        topic = known.topics.get(one.topic)
        return znodes.topic_path(one.topic) in malformed or (
            topic is not None
            and one.index < len(topic.partitions)
            and self.metadata.node_id in topic.partitions[one.index].replicas
        )

    async def _catch_up(self) -> None:
        """After a lost session: set aside partitions that were reassigned or deleted meanwhile.

        The controller could not inform this broker then. It may do so again, but a new controller will not.
        """
        hosted, before = dict(self._store.logs), self.metadata.image
        nodes = await self._read_topic_nodes()
        malformed: set[str] = set()
        known = await asyncio.to_thread(znodes.image_of, nodes, malformed=malformed)
        async with self.membership.lock:
            for key, one in hosted.items():
                await self.metadata.turns.pause()
                if self._store.logs.get(key) is one and not self._is_wanted(one, known, malformed):
                    self.replicas.set_aside(one)
            present = self.metadata.image
            gone = [
                name
                for name, topic in before.topics.items()
                if name not in known.topics
                and znodes.topic_path(name) not in malformed
                and present.topics.get(name) is topic
            ]
            if gone:
                self.metadata.publish(present.without_topics(*gone))

    async def _read_topics(self) -> Container[str]:
        """The names of the current topics."""
        return frozenset(await self._read_now(self.metadata_store.children))

    async def _read_topic_nodes(self) -> Mapping[str, Znode]:
        return cast("Mapping[str, Znode]", await self._read_now(self.metadata_store.tree))

    async def _read_now(self, read: Callable[[str], Awaitable[Any]]) -> Any:
        """Read what is below the node of all topics now.

        A ZooKeeper server may lag; it answers a write only when it has caught up.
        """
        while True:
            try:
                with suppress(NodeExists):
                    await self.metadata_store.create(znodes.TOPICS)
                return await read(znodes.TOPICS)
            except StoreError:
                await asyncio.sleep(RETRY_S)

    def _broker_epoch(self) -> int:
        return self._member.broker_epoch

    def _throttle(self, rate_max: Callable[[], int]) -> Throttle:
        config = self._config
        return Throttle(
            self._clock,
            rate_max,
            samples=config.replication_quota_window_num,
            sample_s=config.replication_quota_window_size_seconds,
        )


def zookeeper(config: BrokerConfig) -> MetadataStore:
    from ottla.cluster.zookeeper import ZooKeeper, settings_of  # imported late: simulations use another store

    return ZooKeeper(settings_of(config))
