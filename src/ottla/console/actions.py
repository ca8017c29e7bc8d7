"""Everything that changes the cluster. Fails unless changes are allowed; every attempt is in the audit log.

The calls block, so pages run them in threads. The first argument, `who`, is the user.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.client.acls import AclRule, add_rules, list_rules, remove_rules
from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.election import Election, elect
from ottla.client.failure import Failed, check
from ottla.client.fencing import fence
from ottla.client.groups import Committed, commit, delete_group
from ottla.client.layout import read_layout
from ottla.client.offsets import at_time, earliest, latest
from ottla.client.options import BROKER, TOPIC, alter_options
from ottla.client.placement import changes
from ottla.client.producing import Sender
from ottla.client.quotas import Quota, alter_quotas, list_quotas
from ottla.client.reassignment import cancel, lift_throttle, start
from ottla.client.reassignment import throttle as hold_back
from ottla.client.users import list_users, remove_user, set_password
from ottla.records import batch
from ottla.records.murmur2 import murmur2
from ottla.wire.access import Operation, Pattern, Permission, ResourceType
from ottla.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ottla.client.placement import Placement
    from ottla.client.security import Security
    from ottla.console.history import History
    from ottla.wire.messages.configs import DescribeConfigsResourceResult

TIMEOUT_S: Final = 10.0
TIMEOUT_MS: Final = 15_000
SETTLE_S: Final = 5.0  # a started move is visible after this time
VALUE_MAX: Final = 1 << 20
EVERY_RULE: Final = AclRule(ResourceType.ANY, None, Pattern.ANY, None, None, Operation.ANY, Permission.ANY)

T = TypeVar("T")
Headers = tuple[tuple[str, bytes], ...]


class Actions:
    def __init__(
        self, bootstrap: str, security: Security, history: History, *, allowed: bool, changed: Callable[[], None]
    ) -> None:
        self.allowed = allowed
        self._bootstrap = bootstrap
        self._security = security
        self._history = history
        self._changed = changed
        self._throttled: set[str] = set()  # topics whose moves this console throttles
        self._throttled_at = 0.0

    def cluster(self) -> Cluster:
        return Cluster(self._bootstrap, security=self._security, client_id="ottla-console", timeout_s=TIMEOUT_S)

    def _do(self, who: str, what: str, target: str, work: Callable[[Cluster], T]) -> T:
        """Fail if changes are not allowed; else do the work and log the result."""
        if not self.allowed:
            raise Failed("this console is read-only: start it with --allow-changes to allow changes")
        try:
            with self.cluster() as cluster:
                result = work(cluster)
        except Failed as error:
            self._history.record(who, what, target, str(error), ok=False)
            raise
        self._history.record(who, what, target, "done", ok=True)
        self._changed()
        return result

    # ------------------------------------------------------------------ topics

    def create_topic(self, who: str, name: str, partitions: int, copies: int, configs: Mapping[str, str]) -> None:
        told = ", ".join([f"{partitions} partitions", f"{copies} copies", *(f"{k}={v}" for k, v in configs.items())])
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=copies,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)

        def work(cluster: Cluster) -> None:
            for one in cluster.controller().ask(request, CreateTopicsResponse).topics:
                check(f"topic {name}", one.error_code, more(one.error_message))

        self._do(who, "create topic", f"{name} ({told})", work)

    def delete_topic(self, who: str, name: str) -> None:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], topic_names=[name], timeout_ms=TIMEOUT_MS
        )

        def work(cluster: Cluster) -> None:
            for one in cluster.controller().ask(request, DeleteTopicsResponse).responses:
                check(f"topic {name}", one.error_code, more(one.error_message))

        self._do(who, "delete topic", name, work)

    def grow_topic(self, who: str, name: str, partitions: int) -> None:
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=partitions, assignments=None)],
            timeout_ms=TIMEOUT_MS,
            validate_only=False,
        )

        def work(cluster: Cluster) -> None:
            for one in cluster.controller().ask(request, CreatePartitionsResponse).results:
                check(f"topic {name}", one.error_code, more(one.error_message))

        self._do(who, "add partitions", f"{name} to {partitions}", work)

    # ------------------------------------------------------------------ options

    def options(self, kind: int, name: str) -> list[DescribeConfigsResourceResult]:
        """Every option of a topic or a broker, with the source of its value. Read-only."""
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
        with self.cluster() as cluster:
            connection = cluster.broker(int(name)) if kind == BROKER and name else cluster.anyone()
            (found,) = connection.ask(request, DescribeConfigsResponse).results
        check(f"options of {name}", found.error_code, more(found.error_message))
        return found.configs

    def set_option(self, who: str, kind: int, name: str, option: str, value: str | None) -> None:
        """Set an option; None resets it to its default."""
        what = "topic" if kind == TOPIC else "broker"
        told = f"{what} {name}: {option}" + ("" if value is None else f"={value}")
        self._do(
            who,
            "reset option" if value is None else "set option",
            told,
            lambda cluster: alter_options(cluster, {(kind, name): {option: value}}),
        )

    # ------------------------------------------------------------------ leaders and copies

    def elect(self, who: str, wheres: Iterable[TopicPartition] | None, *, unclean: bool = False) -> int:
        """Elect leaders for these partitions, or for all; returns how many were elected."""
        kind = Election.UNCLEAN if unclean else Election.PREFERRED
        places = None if wheres is None else list(wheres)
        told = "all partitions" if places is None else ", ".join(f"{name}-{index}" for name, index in places)

        def work(cluster: Cluster) -> int:
            elected, failed = elect(cluster, kind, places)
            for refusal in failed.values():
                raise refusal
            return len(elected)

        return self._do(who, f"elect {kind.name.lower()} leaders", shorten(told), work)

    def reassign(
        self, who: str, plan: Mapping[TopicPartition, tuple[int, ...] | None], throttle: int | None = None
    ) -> None:
        """Reassign replicas by the plan; None instead of brokers cancels. `throttle` is bytes per second."""
        cancels = all(replicas is None for replicas in plan.values())
        listed = ", ".join(
            f"{where.topic}-{where.partition}→{list(to) if to else 'as before'}" for where, to in plan.items()
        )

        def work(cluster: Cluster) -> None:
            if throttle is not None:
                current = read_layout(cluster, {where.topic for where in plan}).placement
                wanted: Placement = {where: replicas for where, replicas in plan.items() if replicas is not None}
                hold_back(cluster, changes(current, wanted), throttle)
            move(cluster, plan)
            if throttle is not None:
                self._throttled |= {where.topic for where in plan}
                self._throttled_at = time.monotonic()

        more_told = f" at {throttle:,} B/s" if throttle else ""
        self._do(who, "cancel reassignment" if cancels else "reassign", shorten(listed) + more_told, work)

    def release(self, who: str, topics: Iterable[str]) -> None:
        """Remove the throttle from all brokers and these topics."""
        names = sorted(topics)
        self._do(who, "remove throttle", ", ".join(names), lambda cluster: lift_throttle(cluster, names))

    def note_moves(self, count: int, sure: bool) -> None:
        """Called after each round: removes the throttle when no move is left."""
        settled = time.monotonic() - self._throttled_at > SETTLE_S
        if not self._throttled or count or not sure or not settled:
            return
        topics, self._throttled_at = set(self._throttled), time.monotonic()
        with contextlib.suppress(Failed):  # it is in the audit log; retried later
            self.release("console", topics)
            self._throttled -= topics

    # ------------------------------------------------------------------ groups

    def targets(
        self, group: str, places: Mapping[TopicPartition, int | None], way: str, amount: int
    ) -> dict[TopicPartition, int]:
        """Preview of a reset: the new offsets. Ways: earliest, latest, time (ms), offset, shift. Read-only."""
        with self.cluster() as cluster:
            starts, ends = earliest(cluster, places), latest(cluster, places)
            if way == "time":
                times = at_time(cluster, dict.fromkeys(places, amount))
                wanted = {where: ends[where] if (found := times[where]) is None else found[0] for where in places}
            elif way == "shift":
                wanted = {
                    where: (starts[where] if offset is None else offset) + amount for where, offset in places.items()
                }
            else:
                wanted = {"earliest": starts, "latest": ends, "offset": dict.fromkeys(places, amount)}[way]
        return {where: min(max(wanted[where], starts[where]), ends[where]) for where in places}

    def reset(self, who: str, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        told = ", ".join(f"{topic}-{index}→{offset}" for (topic, index), offset in offsets.items())
        chosen = {where: Committed(offset) for where, offset in offsets.items()}
        self._do(who, "reset offsets", f"{group}: {shorten(told)}", lambda cluster: commit(cluster, group, chosen))

    def delete_group(self, who: str, group: str) -> None:
        self._do(who, "delete group", group, lambda cluster: delete_group(cluster, group))

    # ------------------------------------------------------------------ users, rules and quotas

    def users(self) -> list[tuple[str, dict[str, int]]]:
        """SCRAM users: their mechanisms, with iterations. Read-only."""
        with self.cluster() as cluster:
            return list(list_users(cluster).items())

    def set_password(self, who: str, name: str, password: str, mechanisms: Iterable[str]) -> None:
        """Create a user or change a password. The password is not logged."""
        chosen = list(mechanisms)
        if not name or not password or not chosen:
            raise Failed("a user needs a name, a password and a mechanism")
        self._do(
            who,
            "set password",
            f"{name} ({', '.join(chosen)})",
            lambda cluster: set_password(cluster, name, password, mechanisms=chosen),
        )

    def remove_user(self, who: str, name: str, mechanisms: Iterable[str]) -> None:
        self._do(who, "remove user", name, lambda cluster: remove_user(cluster, name, mechanisms))

    def rules(self) -> list[AclRule]:
        """All access control rules. Read-only."""
        with self.cluster() as cluster:
            return list_rules(cluster, EVERY_RULE)

    def add_rule(self, who: str, rule: AclRule) -> None:
        self._do(who, "add rule", describe_rule(rule), lambda cluster: add_rules(cluster, [rule]))

    def remove_rule(self, who: str, rule: AclRule) -> None:
        self._do(who, "remove rule", describe_rule(rule), lambda cluster: remove_rules(cluster, [rule]))

    def quotas(self) -> list[Quota]:
        """All quotas of users, client ids and addresses. Read-only."""
        with self.cluster() as cluster:
            return list_quotas(cluster)

    def set_quota(self, who: str, entity: Mapping[str, str | None], key: str, value: float | None) -> None:
        """Set a quota; None removes it."""
        holder = ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity.items())
        told = f"{holder}: {key}" + ("" if value is None else f"={value:.15g}")
        self._do(
            who,
            "remove quota" if value is None else "set quota",
            told,
            lambda cluster: alter_quotas(cluster, entity, {key: value}),
        )

    # ------------------------------------------------------------------ records and transactions

    def produce(
        self, who: str, topic: str, partition: int | None, key: bytes | None, value: bytes | None, headers: Headers
    ) -> TopicPartition:
        """Write one record. Without a partition, choose it by the key like Kafka's clients."""
        if len(key or b"") + len(value or b"") > VALUE_MAX:
            raise Failed("the record is larger than 1 MiB: use `ottla produce` instead")

        def work(cluster: Cluster) -> TopicPartition:
            count = cluster.topic(topic).partitions
            index = partition
            if index is None:
                index = (murmur2(key) & 0x7FFFFFFF) % count if key is not None else time.time_ns() % count
            if not 0 <= index < count:
                raise Failed(f"{topic} has no partition {index}")
            record = batch.Record(0, int(time.time() * 1000), key, value, headers)
            sender = Sender(cluster)
            sender.send(TopicPartition(topic, index), [batch.build([record])])
            sender.flush()
            return TopicPartition(topic, index)

        return self._do(who, "produce a record", topic, work)

    def abort(self, who: str, name: str) -> None:
        """Abort the open transaction of a transactional id, as its next producer would: fences the current one."""
        self._do(who, "abort transaction", name, lambda cluster: fence(cluster, name))


def move(cluster: Cluster, plan: Mapping[TopicPartition, tuple[int, ...] | None]) -> None:
    refused = start(cluster, {where: replicas for where, replicas in plan.items() if replicas is not None})
    refused |= cancel(cluster, [where for where, replicas in plan.items() if replicas is None])
    for refusal in refused.values():
        raise refusal


def describe_rule(rule: AclRule) -> str:
    """In one line, such as: User:ann may read topic orders."""
    may = "may" if rule.permission is Permission.ALLOW else "may not"
    names = "names that begin with " if rule.pattern is Pattern.PREFIXED else ""
    place = "" if rule.host in ("*", None) else f" from {rule.host}"
    return (
        f"{rule.principal} {may} {spell_operation(rule.operation)} {rule.type.name.lower().replace('_', ' ')} "
        f"{names}{rule.name}{place}"
    )


def spell_operation(operation: Operation) -> str:
    return operation.name.lower().replace("_", " ")


def more(message: str | None) -> str:
    return f": {message}" if message else ""


def shorten(text: str, length: int = 2000) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
