"""What a handler gets, and how it is registered.

    @handles(ProduceRequest)
    def produce(parts: Parts, call: Call, request: ProduceRequest) -> ProduceResponse: ...

A handler is a plain function that returns the response, or a Future of it. What it does before it returns happens in
the order of arrival; only the answer may be late. Control-plane handlers, where that order does not matter, may be
`async def`. None means that the request gets no answer.

A handler of a request with a list is a generator, `Steps`: it yields after each element, so that a long list is handled
in slices, or yields a future to wait for. The connection handles nothing else until it is done.

`handles` registers the function for the request's API; ApiVersions, the dispatcher and the protocol page are all read
from this one registry. `versions` narrows what the schema knows to what the handler serves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ottla.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import TypeAlias

    from ottla.clock import Clock
    from ottla.cluster.acl_store import AclStore
    from ottla.cluster.commands import Commands
    from ottla.cluster.consumer_offsets import ConsumerOffsets
    from ottla.cluster.metadata import Metadata
    from ottla.cluster.producer_ids import ProducerIds
    from ottla.cluster.token_store import TokenStore
    from ottla.config import BrokerConfig
    from ottla.coord.groups.coordinator import Groups
    from ottla.coord.transactions.coordinator import Transactions
    from ottla.coord.transactions.markers import MarkerWriter
    from ottla.log.store import LogStore
    from ottla.quota.quotas import Quotas, Throttle
    from ottla.replica.membership import Membership
    from ottla.replica.replicas import Replicas
    from ottla.replica.sessions import Sessions
    from ottla.replica.throttle import Throttle as ReplicaThrottle
    from ottla.security.authorizer import Authorizer
    from ottla.security.login import Login
    from ottla.security.principal import Principal
    from ottla.telemetry.receiver import Telemetry
    from ottla.wire.schema import Spec

Handler = TypeVar("Handler", bound="Callable[..., Any]")
T = TypeVar("T")
if TYPE_CHECKING:
    Steps: TypeAlias = Generator[Any, None, T]  # yields None, or a future
    # Of a version, behind an authorizer and quotas, if there are any; see `shortcut`.
    MakeShortcut: TypeAlias = Callable[["Parts", int, "Authorizer | None", "Quotas | None"], Any]


class Peer(Protocol):
    """The connection of a request."""

    host: str
    port: int
    listener: str
    dialled: tuple[str, int]
    software: tuple[str, str]  # of the client: name and version, as it says
    principal: Principal  # as which it is authenticated
    login: Login | None  # of a connection with SASL

    def drain(self) -> None:
        """End the connection when every answer has left."""

    def mute(self, seconds: float, cause: Any) -> None:
        """Read nothing for so long."""


class Call:
    """What a handler knows of one request beside its fields."""

    # `size`, of its bytes, and `throttle`, of what it changes, are only there on a broker with quotas.
    __slots__ = ("client_id", "dialled", "host", "key", "listener", "peer", "size", "throttle", "version")

    size: int
    throttle: Throttle | None

    def __init__(
        self,
        key: int,
        version: int,
        client_id: str,
        host: str,
        listener: str,
        dialled: tuple[str, int],
        peer: Peer | None = None,
    ) -> None:
        self.key = key
        self.version = version
        self.client_id = client_id
        self.host = host
        self.listener = listener
        self.dialled = dialled
        self.peer = peer

    @property
    def principal(self) -> Principal:
        """Who asks."""
        return ANONYMOUS if self.peer is None else self.peer.principal


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a running broker that handlers work on."""

    node_id: int
    clock: Clock
    metadata: Metadata
    controller: Commands
    store: LogStore
    replicas: Replicas
    sessions: Sessions
    producer_ids: ProducerIds
    groups: Groups
    transactions: Transactions
    markers: MarkerWriter
    old_offsets: ConsumerOffsets
    clustered: bool = False  # whether the broker is a member of a cluster
    membership: Membership | None = None  # the controller it obeys there
    throttle: ReplicaThrottle | None = None  # of the bytes that followers fetch here
    telemetry: Telemetry | None = None  # where clients' metrics go
    authorizer: Authorizer | None = None  # who judges what clients may do; None: everything
    acl_store: AclStore | None = None  # and where its rules are kept
    quotas: Quotas | None = None  # how much clients may use
    tokens: TokenStore | None = None  # delegation tokens; None: there are none on this broker

    @property
    def config(self) -> BrokerConfig:
        """The options as they are now; some may change at runtime. The only way for a handler to read one."""
        return self.metadata.config


@dataclass(frozen=True, slots=True)
class Registration:
    key: int
    request: type
    versions: tuple[int, int]
    function: Callable[..., Any]
    for_members: bool = False  # between brokers of a cluster: a broker that runs alone does not have it
    shortcut: MakeShortcut | None = None  # what answers the usual request of a version without messages, if anything


REGISTRY: dict[int, Registration] = {}
TELEMETRY = frozenset((71, 72))  # served where somebody takes the metrics of clients


def select_apis(parts: Parts | None) -> dict[int, Registration]:
    """The APIs that this broker serves, by key."""
    clustered = parts is not None and parts.clustered
    deaf = TELEMETRY if parts is None or parts.telemetry is None else frozenset()
    return {key: one for key, one in REGISTRY.items() if (clustered or not one.for_members) and key not in deaf}


def handles(
    request: type,
    *,
    versions: tuple[int, int] | None = None,
    for_members: bool = False,
    shortcut: MakeShortcut | None = None,
) -> Callable[[Handler], Handler]:
    """Register the decorated function as the handler of this request."""

    def register(function: Handler) -> Handler:
        spec: Spec = request.__wire__  # type: ignore[attr-defined]
        key = spec.key
        assert key is not None, f"{request.__name__} is no request"
        assert key not in REGISTRY, f"two handlers of API {key}"
        REGISTRY[key] = Registration(key, request, versions or spec.versions, function, for_members, shortcut)
        return function

    return register
