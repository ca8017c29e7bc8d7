"""A cluster as a client sees it: which brokers, topics, leaders and coordinators there are, and connections to them.

    with Cluster("localhost:9092") as cluster:
        answer = cluster.retrying(lambda: cluster.leader(where).ask(request, Answer), what="reading")

Metadata is kept until `forget`, and connections are opened when they are needed. Brokers restart, leaders move and
coordinators load: `retrying` is the one place that decides how long to try again, and `Patience` waits in between.

A cluster belongs to one thread. A shared connection has one request on its way at a time; a caller that pipelines
requests takes its own connection with `lease` and returns it with `release`.
"""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar

from ottla.client.connection import TIMEOUT_S, Connection
from ottla.client.failure import Failed, Refused, Unreachable, check, detail, passes
from ottla.client.security import PLAIN
from ottla.errors import ErrorCode
from ottla.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse
from ottla.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from ottla.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ottla.client.connection import Address
    from ottla.client.security import Security

log = logging.getLogger("ottla.client")

GROUP: Final = 0  # key types of FindCoordinator
TRANSACTION: Final = 1

METADATA: Final = 3
FIND_COORDINATOR: Final = 10
NO_CREATION_SINCE: Final = 4  # before this version of Metadata, a request for a topic creates it
BATCHED_COORDINATORS: Final = 4  # FindCoordinator answers a list from here on
TOPIC_RESOURCE: Final = 2
COORDINATORS_MAX: Final = 1_000  # in one request
PARTITIONS_MAX: Final = 10_000  # in one request: brokers limit it, Ottla to 65,536 topics and partitions
NOBODY: Final = -1  # instead of a broker id
PAUSE_S: Final = 0.05
PAUSE_S_MAX: Final = 1.0
MISSING_S: Final = 3.0  # by then a new topic is known everywhere, so that a missing one can be reported
MISSING: Final = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}

T = TypeVar("T")


class TopicPartition(NamedTuple):
    topic: str
    partition: int


@dataclass(frozen=True)
class Topic:
    name: str
    id: uuid.UUID | None  # None: the cluster is too old for ids
    partitions: int
    internal: bool


class Known(NamedTuple):
    """A topic with the leaders of its partitions; -1 where there is none."""

    topic: Topic
    leaders: dict[int, int]


class Cluster:
    """Connections to the brokers of a cluster, made when they are needed.

    A bad address or bad security options fail at once. A broker must answer within `timeout_s`. If the cluster does not
    answer, the constructor waits for `patience_s`, and later calls for the longer of the two.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        security: Security = PLAIN,
        client_id: str = "ottla",
        timeout_s: float = TIMEOUT_S,
        patience_s: float = 0.0,
    ) -> None:
        self.bootstrap = bootstrap
        self.timeout_s = timeout_s
        self.patience_s = max(timeout_s, patience_s)
        self._security = security
        self._client_id = client_id
        self._open: dict[Address, Connection] = {}
        self._spare: dict[Address, list[Connection]] = {}
        self._brokers: dict[int, Address] = {}
        self._controller = NOBODY
        self._topics: dict[str, Known] = {}
        self._coordinators: dict[tuple[str, int], Address] = {}
        self._features: dict[str, int] | None = None
        self._id: str | None = None
        places(bootstrap)  # Failed at once if it is malformed
        try:
            self._meet(Patience(self, patience_s))
        except BaseException:
            self.close()
            raise

    def _meet(self, patience: Patience) -> None:
        told = False
        while True:
            try:
                self._refresh([])
                return
            except Failed as error:
                patience.bear(error)
                if not told:
                    log.warning("%s Waiting for it.", error)
                    told = True

    @property
    def id(self) -> str | None:
        return self._id

    def topics(self, names: Iterable[str] | None = None) -> dict[str, Topic]:
        """These topics, or all. Topics that do not exist are omitted, and not created."""
        wanted = None if names is None else sorted(set(names))
        found = self.retrying(lambda: self._refresh(wanted), what="asking for topics")
        return {name: known.topic for name, known in found.items()}

    def topic(self, name: str) -> Topic:
        """One topic, from the cache or the cluster; Refused if it does not exist."""
        return self._look_up(name).topic

    def brokers(self) -> dict[int, Connection]:
        """Shared connections to all brokers."""
        self.retrying(lambda: self._refresh([]), what="asking for the brokers")
        return {node: self._connect(address) for node, address in self._brokers.items()}

    def nodes(self) -> list[int]:
        """The ids of the brokers, whether they answer or not."""
        self.retrying(lambda: self._refresh([]), what="asking for the brokers")
        return sorted(self._brokers)

    def broker(self, node: int) -> Connection:
        """The shared connection to one broker."""
        if node not in self.nodes():
            raise Failed(f"the cluster has no broker {node} now")
        return self._connect(self._brokers[node])

    def anyone(self) -> Connection:
        """Any broker: a connected one, else a known one, else the first bootstrap address that answers."""
        for connection in self._open.values():
            if connection.alive and connection.idle:
                return connection
        reasons: list[Failed] = []
        for address in dict.fromkeys([*self._brokers.values(), *places(self.bootstrap)]):
            try:
                return self._connect(address)
            except Failed as error:
                reasons.append(error)
        lasting = [error for error in reasons if not isinstance(error, Unreachable)]
        raise lasting[0] if lasting else silence(self.bootstrap, reasons[-1])

    def controller(self) -> Connection:
        """The controller. Without ZooKeeper any broker, as all forward requests to the controller."""
        if self._controller not in self._brokers:
            self._refresh([])
        address = self._brokers.get(self._controller)
        return self.anyone() if address is None else self._connect(address)

    def leader(self, where: TopicPartition) -> Connection:
        """The shared connection to the leader of a partition, from cached metadata."""
        return self._connect(self.place(where))

    def leaders(self, topic: str) -> dict[int, Connection]:
        """The leader of each partition of a topic; Refused at once if the topic does not exist."""
        if topic not in self.topics([topic]):
            raise Refused(f"topic {topic}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.retrying(lambda: self._leaders(topic), what=f"finding the leaders of {topic}")

    def _leaders(self, topic: str) -> dict[int, Connection]:
        return {index: self.leader(TopicPartition(topic, index)) for index in sorted(self._look_up(topic).leaders)}

    def coordinator(self, name: str, kind: int) -> Connection:
        """The coordinator of this group (GROUP) or transactional id (TRANSACTION), cached."""
        address = self._coordinators.get((name, kind))
        if address is None:
            address = self.retrying(lambda: self._coordinator(name, kind), what=f"finding the coordinator of {name}")
            self._coordinators[name, kind] = address
        return self._connect(address)

    def coordinators(self, names: Iterable[str], kind: int) -> dict[str, Connection]:
        """The coordinators of many names, in one request if the broker supports that."""
        names = list(dict.fromkeys(names))
        missing = [name for name in names if (name, kind) not in self._coordinators]
        for start in range(0, len(missing), COORDINATORS_MAX):
            some = missing[start : start + COORDINATORS_MAX]
            found = self.retrying(lambda some=some: self._find(some, kind), what="finding coordinators")  # type: ignore[misc]
            self._coordinators.update(found)
        return {name: self.coordinator(name, kind) for name in names}

    def forget(self) -> None:
        """Forget leaders, coordinators and closed connections, after an error."""
        self._topics.clear()
        self._coordinators.clear()
        self._controller = NOBODY
        self._features = None
        self._open = {address: one for address, one in self._open.items() if one.alive}
        self._spare = {address: [one for one in some if one.alive] for address, some in self._spare.items()}

    def create(
        self, name: str, partitions: int, *, replicas: int = -1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic. Succeeds if it already exists."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=int(self.timeout_s * 1000))

        def attempt() -> None:
            for answer in self.controller().ask(request, CreateTopicsResponse).topics:
                if answer.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    check(f"creating topic {name}", answer.error_code, detail(answer.error_message))

        self.retrying(attempt, what=f"creating topic {name}")
        self.retrying(lambda: self._look_up(name), what=f"topic {name}")

    def configs(self, topic: str) -> dict[str, str]:
        """Every option of a topic with its effective value; secret ones are omitted."""
        resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None)

        def attempt() -> dict[str, str]:
            answer = self.anyone().ask(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
            for found in answer.results:
                check(f"topic {topic}", found.error_code)
            return {one.name: one.value for found in answer.results for one in found.configs if one.value is not None}

        return self.retrying(attempt, what=f"asking for the options of {topic}")

    def retrying(self, attempt: Callable[[], T], *, what: str) -> T:
        """Retry until it works. Temporary errors are retried for `patience_s`; then the last one is raised.

        `what` names the work in error messages that would lack it.
        """
        patience = Patience(self)
        while True:
            try:
                return attempt()
            except Unreachable as error:
                patience.bear(Unreachable(f"{what}: {error}"))
            except Failed as error:
                patience.bear(error)

    def feature(self, name: str) -> int:
        """The finalized level of a feature; 0 if there is none."""
        if self._features is None:
            self._features = self.anyone().features()
        return self._features.get(name, 0)

    def place(self, where: TopicPartition) -> Address:
        """The address of the leader of a partition, from cached metadata."""
        leader = self._look_up(where.topic).leaders.get(where.partition)
        what = f"{where.topic} partition {where.partition}"
        if leader is None:
            raise Refused(what, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if leader not in self._brokers:
            raise Refused(what, ErrorCode.LEADER_NOT_AVAILABLE)
        return self._brokers[leader]

    def lease(self, where: TopicPartition) -> Connection:
        """A connection to the leader of a partition for one caller, who must `release` it."""
        address = self.place(where)
        spare = self._spare.get(address, [])
        while spare:
            connection = spare.pop()
            if connection.alive and not connection.ready():  # data on an idle connection means that it was closed
                return connection
            connection.close()
        return self._new(address)

    def release(self, connection: Connection) -> None:
        """Return a leased connection. One that still waits for answers is closed."""
        if connection.alive and connection.idle:
            self._spare.setdefault(connection.address, []).append(connection)
        else:
            connection.close()

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        for some in self._spare.values():
            for connection in some:
                connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ------------------------------------------------------------------ metadata

    def _refresh(self, names: list[str] | None) -> dict[str, Known]:
        """Ask for these topics (None: all), and for the brokers."""
        connection = self.anyone()
        if connection.version(METADATA) < NO_CREATION_SINCE:
            raise Failed(f"the broker at {connection.name} is too old: Apache Kafka 0.11 and later are supported")
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer = connection.ask(request, MetadataResponse)
        check("the cluster", answer.error_code)
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        self._controller = answer.controller_id
        self._id = answer.cluster_id
        found = {}
        for topic in answer.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._topics.pop(topic.name or "", None)
                continue
            check(f"topic {topic.name}", topic.error_code)
            known = read_topic(topic)
            found[known.topic.name] = self._topics[known.topic.name] = known
        return found

    def _look_up(self, name: str) -> Known:
        if name not in self._topics and name not in self._refresh([name]):
            raise Refused(f"topic {name}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self._topics[name]

    def _coordinator(self, name: str, kind: int) -> Address:
        return self._find([name], kind)[name, kind]

    def _find(self, names: list[str], kind: int) -> dict[tuple[str, int], Address]:
        connection = self.anyone()
        if connection.version(FIND_COORDINATOR) < BATCHED_COORDINATORS:
            return {(name, kind): self._find_one(connection, name, kind) for name in names}
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=names)
        answer = connection.ask(request, FindCoordinatorResponse)
        found = {}
        for one in answer.coordinators:
            check(f"the coordinator of {one.key}", one.error_code)
            found[one.key, kind] = (one.host, one.port)
        for name in names:
            if (name, kind) not in found:
                raise Failed(f"the broker at {connection.name} did not name the coordinator of {name}")
        return found

    def _find_one(self, connection: Connection, name: str, kind: int) -> Address:
        answer = connection.ask(FindCoordinatorRequest(key=name, key_type=kind), FindCoordinatorResponse)
        check(f"the coordinator of {name}", answer.error_code)
        return answer.host, answer.port

    # ------------------------------------------------------------------ connections

    def _connect(self, address: Address) -> Connection:
        found = self._open.get(address)
        if found is None or not found.alive:
            found = self._open[address] = self._new(address)
        return found

    def _new(self, address: Address) -> Connection:
        try:
            return Connection(address, self.timeout_s, security=self._security, client_id=self._client_id)
        except Unreachable as error:
            if address in places(self.bootstrap):
                raise
            advice = "the cluster gave that address, see its advertised.listeners"
            raise Unreachable(f"{error}: {advice}") from None


class Patience:
    """How long to retry, and what to do before each attempt: forget the metadata, and wait longer each time."""

    def __init__(self, cluster: Cluster, timeout_s: float | None = None) -> None:
        self._cluster = cluster
        self._timeout_s = cluster.patience_s if timeout_s is None else timeout_s
        self.progress()
        self._worked = False  # a topic that existed may be missing only for a moment

    def progress(self) -> None:
        """After a success, the next error gets the full time again."""
        self._since: float | None = None
        self._pause_s = PAUSE_S
        self._worked = True

    def bear(self, error: Failed, *, pause: bool = True) -> None:
        """Wait before the next attempt. Raises the error if it is permanent, or if the time is over."""
        self._cluster.forget()
        if not passes(error):
            raise error
        now = time.monotonic()
        if self._since is None:
            self._since = now
        missing = isinstance(error, Refused) and error.code in MISSING and not self._worked
        if now + self._pause_s > self._since + min(self._timeout_s, MISSING_S if missing else float("inf")):
            raise error
        if pause:
            time.sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)


def portions(wheres: Iterable[TopicPartition]) -> list[list[TopicPartition]]:
    """Split partitions into groups of one request each."""
    every = list(wheres)
    return [every[first : first + PARTITIONS_MAX] for first in range(0, len(every), PARTITIONS_MAX)]


def read_topic(topic: MetadataResponseTopic) -> Known:
    name = topic.name or ""
    identity = uuid.UUID(bytes=bytes(topic.topic_id)) if topic.topic_id != ZERO_UUID else None
    return Known(
        Topic(name, identity, len(topic.partitions), topic.is_internal),
        {one.partition_index: one.leader_id for one in topic.partitions},
    )


def places(bootstrap: str) -> list[Address]:
    """The addresses in `host:port,[::1]:port,PLAINTEXT://host:port,host`; 9092 where no port is given."""
    found = []
    for text in bootstrap.split(","):
        address = text.strip().rpartition("://")[2]
        host, _, port = address.rpartition(":") if ":" in address else (address, "", "9092")
        if not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise Failed(str(silence(bootstrap, f"{port} is not a port")))
        found.append((host.strip("[]"), int(port)))
    return found


def silence(bootstrap: str, reason: object) -> Unreachable:
    return Unreachable(f"nothing answers at {bootstrap} ({reason}): is a broker running there?")
