"""How a broker finds its place: alone on an embedded store, or as a member of a cluster. Each has the parts that differ.

    open      who this broker is, what the cluster is like, which logs there are; nobody is served yet
    begin     clients are answered from now on: make this broker known
    leave     it is about to stop: have others take over, while clients are still answered
    close     it has stopped

`broker.py` builds what is the same in both.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ottla.cluster.embedded import Embedded
from ottla.cluster.image import EVERY_BROKER, NO_LEADER
from ottla.cluster.metadata import Metadata
from ottla.cluster.plans import INTERNAL_CONFIGS, FoundLog, Legacy
from ottla.cluster.standalone import Standalone
from ottla.config import topic_config
from ottla.errors import BrokerError, ErrorCode
from ottla.log.checkpoints import CLEAN_MARKER, Meta
from ottla.log.quorum import NOTHING, read_quorum
from ottla.replica.replicas import Replicas

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.clock import Clock
    from ottla.cluster.commands import Commands
    from ottla.cluster.image import Image
    from ottla.cluster.keeper import Keeper
    from ottla.cluster.peers import Peers
    from ottla.config import BrokerConfig, TopicConfig
    from ottla.log.store import Store
    from ottla.replica.waits import Waits

    Endpoints = Mapping[str, tuple[str, int]]  # by listener name

log = logging.getLogger("ottla.broker")

# In the first log directory; Apache Kafka looks at folders only. The journal is what the other is rebuilt from.
METADATA_FILE = "ottla-metadata.sqlite"
JOURNAL_FILE = "ottla-settings.journal"


class Founding(Protocol):
    @property
    def keeper(self) -> Keeper: ...

    @property
    def metadata(self) -> Metadata: ...

    @property
    def controller(self) -> Commands: ...

    @property
    def replicas(self) -> Replicas: ...

    @property
    def peers(self) -> Peers | None: ...

    async def open(self, endpoints: Endpoints, waits: Waits) -> None: ...

    async def begin(self) -> None: ...

    async def leave(self) -> None: ...

    async def close(self) -> None: ...


class Alone:
    """One node: it leads whatever it holds."""

    peers = None
    controller: Standalone
    metadata: Metadata
    replicas: Replicas

    def __init__(self, config: BrokerConfig, clock: Clock, store: Store, keeper: Keeper | None = None) -> None:
        first = Path(config.log_dirs[0])
        self.keeper: Any = keeper or Embedded(str(first / METADATA_FILE), str(first / JOURNAL_FILE))
        self._config = config
        self._clock = clock
        self._store = store

    async def open(self, endpoints: Endpoints, waits: Waits) -> None:
        store, config = self._store, self._config
        await self.keeper.open()
        meta = store.read_meta() or Meta(0, None, None)
        node_id = identified(config, meta)
        self.metadata = metadata = Metadata(config, self._clock, node_id=node_id)
        self.controller = controller = Standalone(self.keeper, metadata, self._clock)
        known = await self._load()
        live, own = known.broker_configs.get(EVERY_BROKER, {}), known.broker_configs.get(str(node_id), {})
        store.config = config.overlaid({**live, **own})
        clean = all(store.disk.exists(Path(path) / CLEAN_MARKER) for path in config.log_dirs)
        await asyncio.to_thread(store.open, configs_of(config, known))
        await controller.start(
            endpoints,
            cluster_id=meta.cluster_id,
            legacy=self._legacy,
            epoch_of=self._epoch_of,
            clean=clean,
            rebuilt=self.keeper.rebuilt,
        )
        store.write_meta(meta._replace(node_id=node_id, cluster_id=metadata.image.cluster_id))
        self.replicas = replicas = Replicas(metadata, store, waits)
        self._look_for_missing(known, node_id)
        metadata.subscribe(replicas.apply)
        controller.hosted_by(replicas)
        self._put_away()

    async def begin(self) -> None:
        """Nobody needs to know."""

    async def leave(self) -> None:
        """Nobody could take over."""

    async def close(self) -> None:
        await self.keeper.close()

    async def _load(self) -> Image:
        try:
            return await self.controller.load()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            file, journal = Path(self._config.log_dirs[0]) / METADATA_FILE, JOURNAL_FILE
            reason = (
                f"{file} cannot be understood ({error!r}): move it away to have it rebuilt from {journal} beside it"
            )
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, reason) from error

    def _put_away(self) -> None:
        """Logs that the cluster does not want here: those that hold nothing were made for a topic that never came."""
        unwanted = [log for log in self._store.logs.values() if not self.replicas.hosts(log)]
        for empty in (one for one in unwanted if one.end == 0):
            log.warning("an empty log of no topic is removed", extra={"log": repr(empty)})
            self._store.delete(empty)
        self._store.set_aside(one for one in unwanted if one.end > 0)

    def _look_for_missing(self, known: Image, node_id: int) -> None:
        """What was led here before and has no log now: it may be in a directory that is offline, or it is gone."""
        store = self._store
        self.replicas.lose(store.broken)
        here = store.logs.keys() | store.broken.keys()
        missing = [
            (topic.name, state.index)
            for topic in known.topics.values()
            for state in topic.partitions
            if state.leader == node_id and (topic.name, state.index) not in here
        ]
        if any(not directory.online for directory in store.directories):
            self.replicas.lose(missing)
            return
        for topic, index in missing:
            log.error("the log of %s-%d is gone from %s: it begins again, empty", topic, index, self._config.log_dirs)

    def _epoch_of(self, topic: str, index: int) -> int:
        found = self._store.logs.get((topic, index))
        return NO_LEADER if found is None else found.latest_epoch

    def _legacy(self) -> Legacy:
        """What Apache Kafka left in folders that it has used: logs, and the options that only its quorum knows."""
        store = self._store
        logs = [
            FoundLog(
                one.topic,
                one.index,
                one.topic_id if any(one.topic_id) else None,
                one.latest_epoch,
                max((producer.producer_id for producer in one.producers.active()), default=-1),
            )
            for one in store.logs.values()
        ]
        found = (read_quorum(store.disk, directory.path) for directory in store.directories if directory.online)
        quorum = next((one for one in found if one is not NOTHING), NOTHING)
        return Legacy(logs, quorum.topics, quorum.brokers, quorum.producer_id)


def identified(config: BrokerConfig, meta: Meta) -> int:
    """Whose folders these are: new ones become ours, used ones must have been ours."""
    if meta.node_id is None or meta.node_id == config.node_id:
        return config.node_id
    if {"node.id", "broker.id"} & config.given.keys():
        reason = f"the log folders belong to node {meta.node_id}, not {config.node_id} (see meta.properties)"
        raise BrokerError(ErrorCode.INCONSISTENT_CLUSTER_ID, reason)
    return meta.node_id


def configs_of(config: BrokerConfig, image: Image) -> Callable[[str], TopicConfig]:
    """How logs are to be opened: with the options of their topics, as far as they are known."""

    def config_of(name: str) -> TopicConfig:
        topic = image.topics.get(name)
        return topic_config(config, INTERNAL_CONFIGS.get(name, {}) if topic is None else topic.configs)

    return config_of
