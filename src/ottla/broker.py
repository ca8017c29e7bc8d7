"""The composition root: builds, starts and stops the parts of a broker. The only file that knows all of them.

sockets      Listener       bound first, so that a port in use is found before anything else is touched; opened last
files        Store          all logs are open, and recovered if necessary, before the first client is answered
metadata     Metadata       the state of the cluster and the controller: see `founding/`
partitions   Replicas       follow the metadata image, or the controller
groups       Groups         follow the partitions of their topic; so do Transactions
requests     Dispatch       passes frames to the handlers
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
from ottla.coord.groups.coordinator import Groups
from ottla.coord.transactions.coordinator import Transactions
from ottla.coord.transactions.markers import MarkerWriter
from ottla.disk import RealDisk
from ottla.errors import BrokerError
from ottla.founding.alone import Alone
from ottla.handlers.call import Parts
from ottla.log.store import LogStore
from ottla.net.connection import ConnectionLimits
from ottla.net.dispatch import Dispatch
from ottla.net.enforcement import Enforcement
from ottla.net.listener import Admission, Listener, bind
from ottla.net.receiver import Receiver
from ottla.net.region_sender import RegionSender
from ottla.net.room import Room
from ottla.records.native import sender_class, warn_if_missing
from ottla.replica.sessions import Sessions
from ottla.replica.waits import Waits
from ottla.telemetry.receiver import Telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from socket import socket
    from typing import Any

    from ottla.clock import Clock
    from ottla.cluster.acl_store import AclStore
    from ottla.cluster.image import Image
    from ottla.cluster.metadata import Metadata
    from ottla.cluster.metadata_store import MetadataStore
    from ottla.cluster.token_store import TokenStore
    from ottla.config import BrokerConfig
    from ottla.disk import Disk
    from ottla.founding import Founding
    from ottla.metrics.endpoint import Endpoint
    from ottla.metrics.sources import Sources
    from ottla.net.answer import Answer
    from ottla.net.connection import Connection
    from ottla.net.doors import Doors
    from ottla.security.authorizer import Authorizer
    from ottla.security.first_users import FirstUser
    from ottla.security.scram import TokenLogin

log = logging.getLogger("ottla.broker")

# The most unanswered requests on one connection. Clients keep 5 to 100 in flight; more only costs memory.
REQUESTS_MAX = 256
UNSENT_SIZE_MAX = 1 << 20
DRAIN_S = 5.0  # how long a stopping broker waits for slow clients to read their answers
SESSION_EVICTION_MS = 120_000  # Kafka's min.incremental.fetch.session.eviction.ms


class Broker:
    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        metadata_store: MetadataStore | None = None,
        first_users: Sequence[FirstUser] = (),
    ) -> None:
        self.config = config
        self._first_users = first_users
        self.clock: Clock = clock or SystemClock()
        self.disk: Disk = disk or RealDisk()
        self.node_id = config.node_id
        self.cluster_id = ""
        self.addresses: list[tuple[str, str, int]] = []
        self._store = LogStore([Path(path) for path in config.log_dirs], self.disk, self.clock, config)
        self._founding: Founding
        if config.zookeeper_connect:
            from ottla.founding.member import Joined  # not needed by a standalone broker

            self._founding = Joined(config, self.clock, self._store, metadata_store)
        else:
            self._founding = Alone(config, self.clock, self._store, metadata_store)
        self._authorizer: Authorizer | None = None
        self._acl_store: AclStore | None = None
        self._tokens: TokenStore | None = None
        self._sources: Sources | None = None
        self._metrics: Endpoint | None = None
        self._started = False
        self._admission = Admission()
        self._doors: Doors | None = None
        self._listeners: list[Listener] = []
        self._sender: RegionSender | None = None
        self._enforcement = Enforcement(config, self.clock, self._admission, self._listeners)
        self._tasks: list[asyncio.Task[None]] = []
        self.parts: Parts | None = None  # what handlers work on; set by `start`
        self._dispatch: Dispatch | None = None
        self._waits: Waits | None = None
        self._groups: Groups | None = None
        self._transactions: Transactions | None = None

    async def start(self) -> None:
        for notice in self.config.notices:
            log.warning(notice)
        warn_if_missing(log)
        descriptors.raise_limit()
        # Other log directories may fail and go offline. The first holds the metadata, so it must work.
        self.disk.make_folder(self.config.log_dirs[0], parents=True)
        self._doors = self._make_doors()
        sockets = self._bind()
        await self._open_metrics()
        self._waits = Waits(asyncio.get_running_loop())
        founding = self._founding
        await founding.open(self._endpoints(), self._waits)
        metadata, controller, replicas = founding.metadata, founding.controller, founding.replicas
        self.node_id, self.cluster_id = metadata.node_id, metadata.image.cluster_id
        self._groups = Groups(self.config, metadata, controller, replicas, self.clock, lambda: str(uuid.uuid4()))
        markers = MarkerWriter(replicas, self.clock)
        markers.subscribe(self._groups.end_transaction)
        self._transactions = Transactions(
            self.config, metadata, controller, replicas, markers, self.clock, founding.peers
        )
        self._groups.start()
        self._transactions.start()
        metadata.subscribe(self._groups.apply)
        await self._open_rules()
        await self._open_tokens()
        await self._add_first_users()
        self._dispatch = dispatch = self._serve(markers)
        self._own(self._store.run())
        self._own(self._store.cleaner.run())
        self._listen(sockets, dispatch)
        self._reconfigure(metadata.config)
        metadata.subscribe(lambda old, new: self._follow(old, new, metadata))
        await founding.begin()
        self._started = True

    async def _open_rules(self) -> None:
        """Load the ACLs, before the first client is answered."""
        if not self.config.authorizer_class_name:
            return
        from ottla.cluster.acl_store import AclStore
        from ottla.handlers import gates
        from ottla.security.authorizer import Authorizer

        gates.load()
        config, founding = self.config, self._founding
        users = (user.strip() for user in (config.super_users or "").split(";"))
        self._authorizer = Authorizer(filter(None, users), open_by_default=config.allow_everyone_if_no_acl_found)
        shared = founding.membership is not None
        self._acl_store = AclStore(founding.metadata_store, self._authorizer, self.clock, shared=shared)
        await self._acl_store.start()

    async def _open_tokens(self) -> None:
        if self.config.delegation_token_secret_key is None:
            return
        from ottla.cluster.token_store import TokenStore

        founding = self._founding
        shared = founding.membership is not None
        self._tokens = TokenStore(
            founding.metadata_store,
            self.config,
            self.clock,
            secrets.token_bytes,
            shared=shared,
            in_charge=self._is_controller,
        )
        await self._tokens.start()

    def _is_controller(self) -> bool:
        try:
            self._founding.controller.check_controller()
        except BrokerError:
            return False
        return True

    def _token(self, name: str, mechanism: str) -> TokenLogin | None:
        return None if self._tokens is None else self._tokens.login(name, mechanism)

    async def _add_first_users(self) -> None:
        """Add the users that do not exist yet. An existing user keeps a password that was changed since."""
        for user in self._first_users:
            if user.mechanism not in self._user(user.name):
                await self._founding.controller.alter_user(user.name, {user.mechanism: user.kept})
                log.info("%s can log in by %s", user.name, user.mechanism)

    async def _open_metrics(self) -> None:
        """Open the metrics endpoint first: health checks arrive while the broker still recovers its logs."""
        if self.config.ottla_metrics_listener.strip().lower() == "off":
            return
        from ottla.metrics.endpoint import Endpoint
        from ottla.metrics.loop_lag import LoopLag
        from ottla.metrics.session import StoreSession
        from ottla.metrics.sources import Sources

        self._sources = Sources(
            config=self.config,
            store=self._store,
            lag=LoopLag(),
            missing=self._missing,
            listeners=self._listeners,
            session=StoreSession(self._founding.metadata_store) if self.config.zookeeper_connect else None,
        )
        self._metrics = Endpoint(self._sources, gethostname())
        await self._metrics.open()

    @property
    def metrics_url(self) -> str:
        """The URL of the metrics endpoint; empty if it is off."""
        return "" if self._metrics is None else self._metrics.url

    def _missing(self) -> list[str]:
        """The parts that are not ready to serve clients yet."""
        if self._dispatch is None:
            return ["logs"]
        session = None if self._sources is None else self._sources.session
        missing = self._founding.missing()
        if session is not None and not session.connected:
            missing = ["ZooKeeper", *missing]
        return missing if self._started else ["start", *missing]

    def _follow(self, old: Image | None, new: Image, metadata: Metadata) -> None:
        if old is not None and old.broker_configs is not new.broker_configs:
            self._reconfigure(metadata.config)
        if self._dispatch is not None:
            self._enforcement.follow(self._dispatch, *new.entities_changed_since(old))

    def _reconfigure(self, config: BrokerConfig) -> None:
        """Apply options that changed at runtime. Topic options reach the logs through Replicas."""
        if config.producer_id_expiration_ms != self._store.config.producer_id_expiration_ms:
            for one in self._store.logs.values():
                one.producers.expiration_ms = config.producer_id_expiration_ms
        self._store.config = config
        if self._doors is not None:
            self._doors.look()
        self._admission.limit(
            config.max_connections, config.max_connections_per_ip, overrides(config.max_connections_per_ip_overrides)
        )
        self._enforcement.limit_connections(config.max_connection_creation_rate)

    def _make_doors(self) -> Doors | None:
        """TLS and SASL of the listeners that need it. Unreadable certificates stop the broker here."""
        if all(listener.protocol == "PLAINTEXT" for listener in self.config.opened):
            return None
        from ottla.net.doors import Doors

        return Doors(self.config, self.clock, secrets.token_bytes)

    def _bind(self) -> list[socket]:
        """Bind the addresses. Clients that connect now wait in the kernel's queue until the broker is up."""
        sockets = []
        for wanted in self.config.opened:
            bound = bind(wanted.host, wanted.port, self.config.socket_listen_backlog_size)
            sockets.append(bound)
            self.addresses.append((wanted.name, wanted.host, bound.getsockname()[1]))
        return sockets

    def _endpoints(self) -> dict[str, tuple[str, int]]:
        """The addresses to register. Without advertised listeners, clients get the address that they connected to."""
        return {
            name: self.config.advertised.get(name, (host or gethostname(), port)) for name, host, port in self.addresses
        }

    def _serve(self, markers: MarkerWriter) -> Dispatch:
        assert self._groups is not None
        assert self._transactions is not None
        handlers.load()
        config, founding = self.config, self._founding
        sessions = Sessions(
            config.max_incremental_fetch_session_cache_slots,
            SESSION_EVICTION_MS,
            lambda: secrets.randbelow(0x7FFFFFFF) + 1,
        )
        if self._authorizer is not None:
            self._authorizer.subscribe(sessions.close_all)
        parts = Parts(
            node_id=self.node_id,
            clock=self.clock,
            metadata=founding.metadata,
            controller=founding.controller,
            store=self._store,
            replicas=founding.replicas,
            sessions=sessions,
            producer_ids=founding.producer_ids,
            groups=self._groups,
            transactions=self._transactions,
            markers=markers,
            old_offsets=ConsumerOffsets(founding.metadata_store),
            clustered=founding.membership is not None,
            membership=founding.membership,
            throttle=founding.throttle,
            telemetry=self._telemetry(),
            authorizer=self._authorizer,
            acl_store=self._acl_store,
            quotas=self._enforcement.quotas,
            tokens=self._tokens,
        )
        self.parts = parts
        dispatch = Dispatch(parts, self._authorizer)
        if self._sources is not None:
            self._sources.parts, self._sources.dispatch = parts, dispatch
            self._sources.proposals = getattr(founding, "proposals", None)
        return dispatch

    def _telemetry(self) -> Telemetry | None:
        """The receiver of client metrics; None if they are off, or the metrics endpoint is: nobody could read them."""
        config, metadata = self.config, self._founding.metadata
        if config.ottla_client_metrics == "off" or self._metrics is None:
            return None
        return Telemetry(
            self.clock,
            lambda: metadata.image.client_metrics,
            lambda: uuid.uuid4().bytes,
            size_max=config.telemetry_max_bytes,
            series_max=config.ottla_metrics_clients_max,
            always=config.ottla_client_metrics == "always",
        )

    def _listen(self, sockets: list[socket], dispatch: Dispatch) -> None:
        config = self.config
        room = Room(config.queued_max_request_bytes) if config.queued_max_request_bytes > 0 else None
        self._sender = RegionSender(asyncio.get_running_loop(), sender_class())
        receiver = Receiver(room, self._sender)
        fits_buffers = "socket.send.buffer.bytes" not in config.given
        limits = ConnectionLimits(
            config.socket_request_max_bytes, REQUESTS_MAX, UNSENT_SIZE_MAX, fits_buffers=fits_buffers
        )
        for wanted, bound in zip(config.opened, sockets, strict=True):
            entrance, first_limits = None, limits
            handle: Callable[[Connection, memoryview], Answer] = dispatch
            if self._doors is not None and wanted.protocol != "PLAINTEXT":
                entrance = self._doors.entrance(
                    wanted, dispatch, limits, self._user, self._token, lambda: self._founding.metadata.image.users
                )
                handle, first_limits = entrance.gate or dispatch, self._doors.limits(wanted, limits)
            listener = Listener(
                wanted.name,
                bound,
                handle=handle,
                admission=self._admission,
                receiver=receiver,
                limits=first_limits,
                entrance=entrance,
                connections_max=wanted.connections_max,
                idle_s_max=config.connections_max_idle_ms / 1000,
                send_buffer_size=config.socket_send_buffer_bytes,
                receive_buffer_size=config.socket_receive_buffer_bytes,
            )
            self._listeners.append(listener)
            listener.open()

        if self._doors is not None:
            self._own(self._doors.watch(lambda: self._founding.metadata.config))

    def _user(self, name: str) -> Mapping[str, str]:
        """The stored credentials of a user, by mechanism."""
        return self._founding.metadata.image.users.get(name, {})

    def _own(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(report)
        self._tasks.append(task)

    def intercept(self, key: int, around: Callable[[Callable[..., Any]], Callable[..., Any]] | None) -> None:
        """Inject faults: see `Dispatch.intercept`."""
        if self._dispatch is not None:
            self._dispatch.intercept(key, around)

    async def kill(self) -> None:
        """Stop like a killed process: no answers, no flush. The loop and all its tasks must end next.

        Releases only what the operating system would release: addresses, files and the lock on the metadata.
        """
        self._started = False
        for listener in self._listeners:
            listener.stop_accepting()
            for connection in list(listener.connections):
                connection.close()
        if self._sender is not None:
            self._sender.close()
        if self._metrics is not None:
            await self._metrics.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await self._founding.close()
        for one in self._store.logs.values():
            for segment in one.segments:
                segment.close()

    async def stop(self) -> None:
        """Accept no more requests, answer the pending ones, and close the log directories cleanly."""
        self._started = False
        if self._dispatch is not None:
            await self._founding.leave()
        for listener in self._listeners:
            listener.stop_accepting()
        if self._waits is not None:
            self._waits.release()
        if self._groups is not None:
            await self._groups.stop()
        if self._transactions is not None:
            await self._transactions.stop()
        if self._doors is not None:
            await self._doors.close()
        self._enforcement.close()
        await asyncio.gather(*(listener.drain(DRAIN_S) for listener in self._listeners))
        if self._sender is not None:
            self._sender.close()
        if self._dispatch is not None:
            await self._dispatch.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._acl_store is not None:
            await self._acl_store.close()
        if self._tokens is not None:
            await self._tokens.close()
        if self._metrics is not None:
            await self._metrics.close()
        await self._store.close()
        await self._founding.close()


def report(task: asyncio.Task[None]) -> None:
    """Log the end of a task of the broker. It should run until cancelled, so any other end is a bug."""
    if not task.cancelled() and (error := task.exception()):
        log.error("%s failed", task.get_coro(), exc_info=error)


def overrides(text: str) -> dict[str, int]:
    """`host:count` pairs, as in max.connections.per.ip.overrides."""
    pairs = (pair.strip().rpartition(":") for pair in text.split(",") if pair.strip())
    return {host: int(count) for host, _, count in pairs}
