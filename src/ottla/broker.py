"""The composition root: builds the parts of a broker, starts and stops them. The only file that knows them all.

sockets      Listener       bound first, so that a port in use is noticed before anything is touched; opened last
metadata     Metadata       what is known of the cluster; Standalone decides, on the embedded store
files        Store          every log is open, and recovered if need be, before a client gets an answer
partitions   Replicas       follow the image
groups       Groups         follow their topic's partitions, and so do Transactions
requests     Dispatch       hands frames to the handlers
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import uuid
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING

from ottla import descriptors, handlers
from ottla.clock import SystemClock
from ottla.cluster.consumer_offsets import ConsumerOffsets
from ottla.cluster.embedded import Embedded
from ottla.cluster.image import EVERY_BROKER, NO_LEADER
from ottla.cluster.metadata import Metadata
from ottla.cluster.plans import INTERNAL_CONFIGS, FoundLog, Legacy
from ottla.cluster.producer_ids import ProducerIds
from ottla.cluster.standalone import Standalone
from ottla.config import topic_config
from ottla.coord.groups.coordinator import Groups
from ottla.coord.transactions.coordinator import Transactions
from ottla.coord.transactions.markers import MarkerWriter
from ottla.disk import RealDisk
from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Parts
from ottla.log.checkpoints import CLEAN_MARKER, Meta
from ottla.log.quorum import NOTHING, read_quorum
from ottla.log.store import Store
from ottla.net.connection import Limits, Receiver
from ottla.net.dispatch import Dispatch
from ottla.net.listener import Admission, Listener, bind
from ottla.replica.replicas import Replicas
from ottla.replica.sessions import Sessions
from ottla.replica.waits import Waits

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from socket import socket

    from ottla.clock import Clock
    from ottla.cluster.commands import Commands
    from ottla.cluster.image import Image
    from ottla.config import BrokerConfig, TopicConfig
    from ottla.disk import Disk

log = logging.getLogger("ottla.broker")

# In the first log directory; Apache Kafka looks at folders only. The journal is what the other is rebuilt from.
METADATA_FILE = "ottla-metadata.sqlite"
JOURNAL_FILE = "ottla-settings.journal"
# Answers that may be on their way on one connection. Clients keep 5 to 100 requests in flight; more only costs memory.
REQUESTS_MAX = 256
UNSENT_SIZE_MAX = 1 << 20
DRAIN_S = 5.0  # how long a stopping broker waits for slow clients to take their answers
SESSION_EVICTION_MS = 120_000  # Kafka's min.incremental.fetch.session.eviction.ms


class Broker:
    def __init__(self, config: BrokerConfig, *, clock: Clock | None = None, disk: Disk | None = None) -> None:
        self.config = config
        self.clock: Clock = clock or SystemClock()
        self.disk: Disk = disk or RealDisk()
        self.node_id = config.node_id
        self.cluster_id = ""
        self.addresses: list[tuple[str, str, int]] = []
        self._store = Store([Path(path) for path in config.log_dirs], self.disk, self.clock, config)
        first = Path(config.log_dirs[0])
        self._keeper = Embedded(str(first / METADATA_FILE), str(first / JOURNAL_FILE))
        self._admission = Admission()
        self._listeners: list[Listener] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._dispatch: Dispatch | None = None
        self._waits: Waits | None = None
        self._groups: Groups | None = None
        self._transactions: Transactions | None = None

    async def start(self) -> None:
        for notice in self.config.notices:
            log.warning(notice)
        descriptors.raise_limit()
        # Others may fail and go offline; without the first, which has the metadata, there is nothing to go by.
        self.disk.make_folder(self.config.log_dirs[0], parents=True)
        sockets = self._bind()
        await self._keeper.open()
        meta = self._identify()
        metadata = Metadata(self.config, self.clock, node_id=self.node_id)
        controller = Standalone(self._keeper, metadata, self.clock)
        known = await self._load(controller)
        live, own = known.broker_configs.get(EVERY_BROKER, {}), known.broker_configs.get(str(self.node_id), {})
        self._store.config = self.config.overlaid({**live, **own})
        clean = all(self.disk.exists(Path(path) / CLEAN_MARKER) for path in self.config.log_dirs)
        await asyncio.to_thread(self._store.open, self._configs_of(known))
        await controller.start(
            self._endpoints(),
            cluster_id=meta.cluster_id,
            legacy=self._legacy,
            epoch_of=self._epoch_of,
            clean=clean,
            rebuilt=self._keeper.rebuilt,
        )
        self.cluster_id = metadata.image.cluster_id
        self._store.write_meta(meta._replace(node_id=self.node_id, cluster_id=self.cluster_id))
        self._waits = waits = Waits(asyncio.get_running_loop())
        replicas = Replicas(metadata, self._store, waits)
        self._look_for_missing(known, replicas)
        metadata.subscribe(replicas.apply)
        controller.hosted_by(replicas)
        self._put_away(replicas)
        self._groups = Groups(self.config, metadata, controller, replicas, self.clock, lambda: str(uuid.uuid4()))
        markers = MarkerWriter(replicas, self._groups, self.clock, asyncio.get_running_loop())
        self._transactions = Transactions(self.config, metadata, controller, replicas, markers, self.clock)
        self._groups.start()
        self._transactions.start()
        metadata.subscribe(self._groups.apply)
        self._dispatch = dispatch = self._serve(metadata, controller, replicas, markers)
        self._own(self._store.run())
        self._own(self._store.cleaner.run())
        self._listen(sockets, dispatch)
        self._reconfigure(metadata.config)
        metadata.subscribe(lambda old, new: self._follow(old, new, metadata))

    async def _load(self, controller: Standalone) -> Image:
        try:
            return await controller.load()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            file, journal = Path(self.config.log_dirs[0]) / METADATA_FILE, JOURNAL_FILE
            reason = (
                f"{file} cannot be understood ({error!r}): move it away to have it rebuilt from {journal} beside it"
            )
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, reason) from error

    def _follow(self, old: Image | None, new: Image, metadata: Metadata) -> None:
        if old is not None and old.broker_configs is not new.broker_configs:
            self._reconfigure(metadata.config)

    def _put_away(self, replicas: Replicas) -> None:
        """Logs that the cluster does not want here: those that hold nothing were made for a topic that never came."""
        unwanted = [log for log in self._store.logs.values() if not replicas.hosts(log)]
        for empty in (one for one in unwanted if one.end == 0):
            log.warning("an empty log of no topic is removed", extra={"log": repr(empty)})
            self._store.delete(empty)
        self._store.set_aside(one for one in unwanted if one.end > 0)

    def _reconfigure(self, config: BrokerConfig) -> None:
        """Options that change while the broker runs; those of topics reach the logs through Replicas."""
        if config.producer_id_expiration_ms != self._store.config.producer_id_expiration_ms:
            for one in self._store.logs.values():
                one.producers.expiration_ms = config.producer_id_expiration_ms
        self._store.config = config
        self._admission.limit(
            config.max_connections, config.max_connections_per_ip, overrides(config.max_connections_per_ip_overrides)
        )

    def _look_for_missing(self, known: Image, replicas: Replicas) -> None:
        """What was led here before and has no log now: it may be in a directory that is offline, or it is gone."""
        replicas.lose(self._store.broken)
        here = self._store.logs.keys() | self._store.broken.keys()
        missing = [
            (topic.name, state.index)
            for topic in known.topics.values()
            for state in topic.partitions
            if state.leader == self.node_id and (topic.name, state.index) not in here
        ]
        if any(not directory.online for directory in self._store.directories):
            replicas.lose(missing)
            return
        for topic, index in missing:
            log.error("the log of %s-%d is gone from %s: it begins again, empty", topic, index, self.config.log_dirs)

    def _bind(self) -> list[socket]:
        """Take the addresses; who dials now waits in the kernel's queue until the broker is up."""
        sockets = []
        for wanted in self.config.opened:
            bound = bind(wanted.host, wanted.port, self.config.socket_listen_backlog_size)
            sockets.append(bound)
            self.addresses.append((wanted.name, wanted.host, bound.getsockname()[1]))
        return sockets

    def _identify(self) -> Meta:
        """Whose folders these are: new ones become ours, used ones must have been ours."""
        meta = self._store.read_meta() or Meta(0, None, None)
        if meta.node_id is not None and meta.node_id != self.node_id:
            if {"node.id", "broker.id"} & self.config.given.keys():
                raise BrokerError(
                    ErrorCode.INCONSISTENT_CLUSTER_ID,
                    f"the log folders belong to node {meta.node_id}, not {self.node_id} (see meta.properties)",
                )
            self.node_id = meta.node_id
        return meta

    def _configs_of(self, image: Image) -> Callable[[str], TopicConfig]:
        def config_of(name: str) -> TopicConfig:
            topic = image.topics.get(name)
            return topic_config(self.config, INTERNAL_CONFIGS.get(name, {}) if topic is None else topic.configs)

        return config_of

    def _endpoints(self) -> dict[str, tuple[str, int]]:
        """What the registration says; clients are told the address they dialled unless one is advertised."""
        return {
            name: self.config.advertised.get(name, (host or gethostname(), port)) for name, host, port in self.addresses
        }

    def _epoch_of(self, topic: str, index: int) -> int:
        found = self._store.logs.get((topic, index))
        return NO_LEADER if found is None else found.latest_epoch

    def _legacy(self) -> Legacy:
        """What Apache Kafka left in folders that it has used: logs, and the options that only its quorum knows."""
        logs = [
            FoundLog(
                one.topic,
                one.index,
                one.topic_id if any(one.topic_id) else None,
                one.latest_epoch,
                max((producer.producer_id for producer in one.producers.active()), default=-1),
            )
            for one in self._store.logs.values()
        ]
        found = (read_quorum(self.disk, directory.path) for directory in self._store.directories if directory.online)
        quorum = next((one for one in found if one is not NOTHING), NOTHING)
        return Legacy(logs, quorum.topics, quorum.brokers, quorum.producer_id)

    def _serve(self, metadata: Metadata, controller: Commands, replicas: Replicas, markers: MarkerWriter) -> Dispatch:
        assert self._groups is not None
        assert self._transactions is not None
        handlers.load()
        config = self.config
        return Dispatch(
            Parts(
                node_id=self.node_id,
                clock=self.clock,
                metadata=metadata,
                controller=controller,
                store=self._store,
                replicas=replicas,
                sessions=Sessions(
                    config.max_incremental_fetch_session_cache_slots,
                    SESSION_EVICTION_MS,
                    lambda: secrets.randbelow(0x7FFFFFFF) + 1,
                ),
                producer_ids=ProducerIds(self._keeper, self.node_id),
                groups=self._groups,
                transactions=self._transactions,
                markers=markers,
                old_offsets=ConsumerOffsets(self._keeper),
            )
        )

    def _listen(self, sockets: list[socket], dispatch: Dispatch) -> None:
        config, receiver = self.config, Receiver()
        limits = Limits(config.socket_request_max_bytes, REQUESTS_MAX, UNSENT_SIZE_MAX)
        for wanted, bound in zip(config.opened, sockets, strict=True):
            listener = Listener(
                wanted.name,
                bound,
                handle=dispatch,
                admission=self._admission,
                receiver=receiver,
                limits=limits,
                connections_max=wanted.connections_max,
                idle_s_max=config.connections_max_idle_ms / 1000,
                send_buffer_size=config.socket_send_buffer_bytes,
                receive_buffer_size=config.socket_receive_buffer_bytes,
            )
            self._listeners.append(listener)
            listener.open()

    def _own(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(report)
        self._tasks.append(task)

    async def stop(self) -> None:
        """Take no more requests, answer those that are here, and leave the folders in good order."""
        for listener in self._listeners:
            listener.stop_accepting()
        if self._waits is not None:
            self._waits.release()
        if self._groups is not None:
            await self._groups.runtime.stop()
        if self._transactions is not None:
            await self._transactions.runtime.stop()
        await asyncio.gather(*(listener.drain(DRAIN_S) for listener in self._listeners))
        if self._dispatch is not None:
            await self._dispatch.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._store.close()
        await self._keeper.close()


def report(task: asyncio.Task[None]) -> None:
    """A task that the broker owns runs until it is cancelled; anything else is a bug that must be seen."""
    if not task.cancelled() and (error := task.exception()):
        log.error("%s failed", task.get_coro(), exc_info=error)


def overrides(text: str) -> dict[str, int]:
    """`host:count` pairs, as in max.connections.per.ip.overrides."""
    pairs = (pair.strip().rpartition(":") for pair in text.split(",") if pair.strip())
    return {host: int(count) for host, _, count in pairs}
