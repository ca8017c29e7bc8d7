"""What a handler gets, and how it is registered.

    @handles(ProduceRequest)
    def produce(parts: Parts, call: Call, request: ProduceRequest) -> ProduceResponse: ...

A handler is a plain function that returns the response, or a Future of it. Its work until it returns is done in the
order of arrival; only the answer may be late. Control-plane handlers, where order does not matter, may be `async def`.
None means that the request gets no answer.

A handler of a request with a list is a generator, `Steps`: it yields after each element, so that a long list is handled
in slices, or yields a future to wait for. The connection handles nothing else until it is done.

`handles` registers the function for the request's API. ApiVersions, the dispatcher and the protocol page are all
generated from this registry. `versions` limits the versions of the schema to those that the handler serves.
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
    # Makes the shortcut of a version; see `shortcut`.
    MakeShortcut: TypeAlias = Callable[["Parts", int, "Authorizer | None", "Quotas | None"], Any]


class Peer(Protocol):
    """The connection of a request."""

    host: str
    port: int
    listener: str
    dialled: tuple[str, int]
    software: tuple[str, str]  # name and version of the client software, as sent in ApiVersions
    principal: Principal  # the authenticated principal
    login: Login | None  # of a SASL connection

    def drain(self) -> None:
        """Close the connection after every answer is sent."""

    def mute(self, seconds: float, cause: Any) -> None:
        """Read nothing for this long."""


class Call:
    """The context of one request, apart from its fields."""

    # Only set on a broker with quotas: `size` of the request in bytes, and `throttle` of its topic changes.
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
    membership: Membership | None = None  # of the controller that it follows
    throttle: ReplicaThrottle | None = None  # of the bytes that followers fetch here
    telemetry: Telemetry | None = None  # receives client metrics
    authorizer: Authorizer | None = None  # None: everything is allowed
    acl_store: AclStore | None = None  # the ACLs of the authorizer
    quotas: Quotas | None = None  # client quotas
    tokens: TokenStore | None = None  # delegation tokens; None: disabled

    @property
    def config(self) -> BrokerConfig:
        """The current options; some change at runtime. Handlers must read options only here."""
        return self.metadata.config


@dataclass(frozen=True, slots=True)
class Registration:
    key: int
    request: type
    versions: tuple[int, int]
    function: Callable[..., Any]
    for_members: bool = False  # an inter-broker API, not served by a standalone broker
    shortcut: MakeShortcut | None = None  # answers common requests without decoding messages


REGISTRY: dict[int, Registration] = {}
TELEMETRY = frozenset((71, 72))  # served only if client metrics are received


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
        assert key is not None, f"{request.__name__} is not a request"
        assert key not in REGISTRY, f"two handlers of API {key}"
        REGISTRY[key] = Registration(key, request, versions or spec.versions, function, for_members, shortcut)
        return function

    return register
