"""A single-node broker: it is leader of all its partitions, and its metadata is in a file beside its logs."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cluster.image import EVERY_BROKER, NO_LEADER
from ottla.cluster.metadata import Metadata
from ottla.cluster.plans import FoundLog, Legacy
from ottla.cluster.producer_ids import ProducerIds
from ottla.cluster.sqlite_store import SqliteStore
from ottla.cluster.standalone import Standalone
from ottla.errors import BrokerError, ErrorCode
from ottla.founding.logs import choose_node_id, configs_of, ids_of
from ottla.log.checkpoints import CLEAN_MARKER, Meta
from ottla.log.quorum import NOTHING, read_quorum
from ottla.replica.replicas import Replicas

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.cluster.image import Image
    from ottla.cluster.metadata_store import MetadataStore
    from ottla.config import BrokerConfig
    from ottla.founding import Endpoints
    from ottla.log.store import LogStore
    from ottla.replica.waits import Waits

log = logging.getLogger("ottla.broker")

# In the first log directory; Apache Kafka only looks at folders. A lost metadata file is rebuilt from the journal.
METADATA_FILE = "ottla-metadata.sqlite"
JOURNAL_FILE = "ottla-settings.journal"


class Alone:
    peers = membership = throttle = None
    producer_ids: ProducerIds
    controller: Standalone
    metadata: Metadata
    replicas: Replicas

    def __init__(
        self, config: BrokerConfig, clock: Clock, store: LogStore, metadata_store: MetadataStore | None = None
    ) -> None:
        first = Path(config.log_dirs[0])
        self.metadata_store: Any = metadata_store or SqliteStore(str(first / METADATA_FILE), str(first / JOURNAL_FILE))
        self._config = config
        self._clock = clock
        self._store = store

    async def open(self, endpoints: Endpoints, waits: Waits) -> None:
        store, config = self._store, self._config
        await self.metadata_store.open()
        meta = store.read_meta() or Meta(0, None, None)
        node_id = choose_node_id(config, meta)
        self.metadata = metadata = Metadata(config, self._clock, node_id=node_id)
        self.producer_ids = ProducerIds(self.metadata_store, node_id)
        self.controller = controller = Standalone(self.metadata_store, metadata, self._clock)
        known = await self._load()
        live, own = known.broker_configs.get(EVERY_BROKER, {}), known.broker_configs.get(str(node_id), {})
        store.config = config.overlay({**live, **own})
        clean = all(store.disk.exists(Path(path) / CLEAN_MARKER) for path in config.log_dirs)
        await asyncio.to_thread(store.open, configs_of(config, known), id_for=ids_of(known))
        await controller.start(
            endpoints,
            cluster_id=meta.cluster_id,
            legacy=self._legacy,
            epoch_of=self._epoch_of,
            clean=clean,
            rebuilt=self.metadata_store.rebuilt,
        )
        store.write_meta(meta._replace(node_id=node_id, cluster_id=metadata.image.cluster_id))
        self.replicas = replicas = Replicas(metadata, store, waits)
        self._look_for_missing(known, node_id)
        metadata.subscribe(replicas.apply)
        controller.set_host(replicas)
        self._put_away()

    async def begin(self) -> None:
        """A single node has nothing to register with."""

    def missing(self) -> list[str]:
        return []

    async def leave(self) -> None:
        """There is no other broker to move leadership to."""

    async def close(self) -> None:
        await self.metadata_store.close()

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
        """Set aside logs of no topic; delete empty ones, which were created for a topic whose creation failed."""
        unwanted = [log for log in self._store.logs.values() if not self.replicas.hosts(log)]
        for empty in (one for one in unwanted if one.end == 0):
            log.warning("removing an empty log that belongs to no topic", extra={"log": repr(empty)})
            self._store.delete(empty)
        self._store.set_aside(one for one in unwanted if one.end > 0)

    def _look_for_missing(self, known: Image, node_id: int) -> None:
        """Find partitions of this broker without a log: it is in an offline directory, or it is gone."""
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
            log.error("the log of %s-%d is gone from %s: starting it empty", topic, index, self._config.log_dirs)

    def _epoch_of(self, topic: str, index: int) -> int:
        found = self._store.logs.get((topic, index))
        return NO_LEADER if found is None else found.latest_epoch

    def _legacy(self) -> Legacy:
        """What Apache Kafka left in its folders: logs, and the configs that only its quorum's metadata log holds."""
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
