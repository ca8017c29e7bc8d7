"""The rounds: ask all brokers in parallel, wait for the answers, and assemble a snapshot.

A round takes as long as the slowest broker that answers within `WAIT_S`. For a broker that does not answer, the last
known values are kept, and the snapshot says so. What changes slowly (sizes, start offsets, options) is requested every
few rounds. A large cluster is asked less often: rounds take at most a quarter of the time.
"""

from __future__ import annotations

import time
from concurrent.futures import wait
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ottla.client.cluster import TopicPartition, places
from ottla.client.failure import Failed
from ottla.console.watch import asking
from ottla.console.watch.arrivals import Arrivals
from ottla.console.watch.lag import lags
from ottla.console.watch.links import TIMEOUT_S, Link
from ottla.console.watch.question import BrokerAnswers, ask_broker
from ottla.console.watch.rates import Rates
from ottla.console.watch.snapshot import Broker, Group, Partition, Snapshot, Topic

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ottla.client.connection import Address
    from ottla.client.security import Security
    from ottla.console.watch.snapshot import Disk, Move, Transaction
    from ottla.wire.messages.metadata import MetadataResponse

EVERY_S: Final = 2.0
SHARE: Final = 4  # rounds take at most 1/SHARE of the time
SLOW_ROUNDS: Final = 5  # between requests for sizes and start offsets
OPTIONS_ROUNDS: Final = 15
LONG_S: Final = 8.0  # timeout of slow requests: the broker may be busy
WAIT_S: Final = 5.0  # maximum wait for the answers of one round
TOPICS_A_SECOND: Final = 500  # that a very busy broker can describe
PEEKS_MAX: Final = 2000  # cached record times


class Gathering:
    """The state of a cluster. One thread calls `round`; any thread may read `snapshot`."""

    def __init__(self, bootstrap: str, security: Security, every_s: float = EVERY_S) -> None:
        self.snapshot = Snapshot(every_s=every_s)
        self._every_s = every_s
        self._bootstrap = places(bootstrap)
        self._security = security
        self._links: dict[Address, Link] = {}  # for quick requests
        self._long: dict[Address, Link] = {}  # for requests that are slow in a large cluster
        self._pending: dict[int, Future[BrokerAnswers]] = {}
        self._addresses: dict[int, tuple[Address, str | None]] = {}
        self._rounds = 0
        self._metadata: MetadataResponse | None = None
        self._ends: dict[TopicPartition, int] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._disks: dict[int, tuple[Disk, ...]] = {}
        self._sizes: dict[int, dict[TopicPartition, int]] = {}
        self._groups: dict[int, list[asking.GroupFacts]] = {}
        self._transactions: dict[int, list[Transaction]] = {}
        self._moves: tuple[Move, ...] = ()
        self._options: dict[str, dict[str, str]] = {}
        self._arrivals: dict[TopicPartition, Arrivals] = {}
        self._peeked: dict[tuple[TopicPartition, int], int] = {}
        self._wanted: dict[TopicPartition, int] = {}  # offsets whose record times the next round reads
        self._ids: dict[str, bytes] = {}
        self._listed: set[int] = set()
        self._patience_s = TIMEOUT_S  # per answer; longer in a large cluster
        self._topic_rates = Rates()
        self._group_rates = Rates()
        self._lag_trends = Rates(falls=True)

    # ------------------------------------------------------------------ a round

    def round(self) -> Snapshot:
        began = time.monotonic()
        said = self._ask_metadata()
        if isinstance(said, str):
            self.snapshot = replace(
                self.snapshot, version=self.snapshot.version + 1, problem=said, brokers=self._mark_silence(said)
            )
            return self.snapshot
        self._learn(said)
        slow = self._rounds % SLOW_ROUNDS == 0 or bool(self._moves)  # sizes show the progress of moves
        answers = self._ask_all(said, slow)
        missing: dict[str, str] = {}
        for node, found in answers.items():
            missing |= self._take(node, found)
        if self._rounds % OPTIONS_ROUNDS == 0:
            missing |= self._ask_options(said)
        self._rounds += 1
        took = time.monotonic() - began
        self.snapshot = self._assemble(said, took, missing)
        return self.snapshot

    @property
    def pause_s(self) -> float:
        took = self.snapshot.took_s
        return max(self._every_s - took, took * (SHARE - 1), 0.1)

    def _ask_metadata(self) -> MetadataResponse | str:
        """From the first broker that answers, trying known ones first; the reason if none does."""
        known = [address for address, _ in self._addresses.values()]
        order = sorted(dict.fromkeys([*known, *self._bootstrap]), key=lambda address: bool(self._link(address).failed))
        reason = f"nothing answers at {', '.join(f'{host}:{port}' for host, port in self._bootstrap)}"
        for address in order:
            link = self._link(address)
            if link.busy:
                continue
            try:
                return link.run(asking.metadata).result(self._patience_s + 1)
            except Failed as error:
                reason = str(error)
            except TimeoutError:
                reason = f"the broker at {address[0]}:{address[1]} does not answer"
        return reason

    def _learn(self, said: MetadataResponse) -> None:
        self._metadata = said
        for one in said.brokers:
            self._addresses[one.node_id] = ((one.host, one.port), one.rack)
        self._listed = {one.node_id for one in said.brokers}
        self._patience_s = TIMEOUT_S + len(said.topics) / TOPICS_A_SECOND
        for link in self._links.values():
            link.timeout_s = self._patience_s
        for link in self._long.values():
            link.timeout_s = max(LONG_S, self._patience_s)
        for node in self._groups.keys() - self._listed:  # other brokers coordinate its groups now
            del self._groups[node]
            self._transactions.pop(node, None)
        ids = {one.name or "": bytes(one.topic_id) for one in said.topics}
        changed = {name for name, known in self._ids.items() if ids.get(name) != known}
        if changed:  # a recreated topic starts empty
            for kept in (self._ends, self._starts):
                for where in [where for where in kept if where.topic in changed]:
                    del kept[where]
            for where in [where for where in self._arrivals if where.topic in changed]:
                del self._arrivals[where]
            for name in changed:
                self._options.pop(name, None)
            self._peeked = {key: value for key, value in self._peeked.items() if key[0].topic not in changed}
        self._ids = ids
        self._topic_rates.keep(ids.keys() - changed)

    def _ask_all(self, said: MetadataResponse, slow: bool) -> dict[int, BrokerAnswers]:
        led: dict[int, list[TopicPartition]] = {}
        for topic in said.topics:
            for part in topic.partitions:
                led.setdefault(part.leader_id, []).append(TopicPartition(topic.name or "", part.partition_index))
        for one in said.brokers:
            link = self._long_link((one.host, one.port))
            if not link.busy:
                mine = led.get(one.node_id, [])
                times = {where: self._wanted[where] for where in mine if where in self._wanted}
                controls = one.node_id == said.controller_id
                ask = ask_broker(one.node_id, mine, times, slow=slow, controls=controls)
                self._pending[one.node_id] = link.run(ask)
        for node, (address, _) in self._addresses.items():  # unlisted brokers may come back
            link = self._link(address)
            if node not in {one.node_id for one in said.brokers} and not link.busy:
                link.run(asking.metadata)
        answers = {}
        wait(self._pending.values(), WAIT_S)
        for node in [
            node for node, future in self._pending.items() if future.done()
        ]:  # take the others in a later round
            future = self._pending.pop(node)
            error = future.exception()
            if error is None:
                answers[node] = future.result()
            elif not isinstance(error, Failed):
                raise error
        return answers

    def _take(self, node: int, found: BrokerAnswers) -> dict[str, str]:
        self._ends.update(found.ends)
        for where, end in found.ends.items():
            if where in self._arrivals:
                self._arrivals[where].note(found.moment, end)
        if found.starts is not None:
            self._starts.update(found.starts)
        if found.disks is not None:
            self._disks[node] = found.disks
            self._sizes[node] = found.sizes
        if found.groups is not None:
            self._groups[node] = found.groups
            self._transactions[node] = found.transactions
        if found.moves is not None:
            self._moves = found.moves
        for where, moment in found.times.items():
            self._peeked[where, found.asked[where]] = moment
        while len(self._peeked) > PEEKS_MAX:
            del self._peeked[next(iter(self._peeked))]
        return found.missing

    def _ask_options(self, said: MetadataResponse) -> dict[str, str]:
        names = [topic.name or "" for topic in said.topics]
        for address in [address for address, _ in self._addresses.values()]:
            link = self._link(address)
            if link.busy or link.failed:
                continue
            try:
                self._options |= link.run(lambda link: asking.options(link, names)).result(WAIT_S)
            except Failed as error:
                return {"options of topics": str(error)}
            except TimeoutError:
                continue
            return {}
        return {}

    # ------------------------------------------------------------------ putting together

    def _assemble(self, said: MetadataResponse, took: float, missing: dict[str, str]) -> Snapshot:
        now = time.monotonic()
        topics = {topic.name: topic for topic in sorted(self._topics(said, now), key=lambda topic: topic.name)}
        groups = {group.name: group for group in sorted(self._read_groups(topics, now), key=lambda group: group.name)}
        self._group_rates.keep(set(groups))
        self._lag_trends.keep(set(groups))
        return Snapshot(
            version=self.snapshot.version + 1,
            at_ms=int(time.time() * 1000),
            taken=now,
            took_s=took,
            every_s=max(self._every_s, took * SHARE),
            cluster=said.cluster_id or "",
            controller=said.controller_id,
            brokers=self._brokers(said, topics),
            topics=topics,
            groups=groups,
            transactions=tuple(one for some in self._transactions.values() for one in some),
            moves=self._moves,
            sizes=dict(self._sizes),
            missing=missing,
        )

    def _topics(self, said: MetadataResponse, now: float) -> list[Topic]:
        found = []
        for topic in said.topics:
            name = topic.name or ""
            parts, total = [], 0
            for one in sorted(topic.partitions, key=lambda one: one.partition_index):
                where = TopicPartition(name, one.partition_index)
                end = self._ends.get(where, -1)
                total += max(end, 0)
                parts.append(
                    Partition(
                        one.partition_index,
                        one.leader_id,
                        one.leader_epoch,
                        tuple(one.replica_nodes),
                        tuple(one.isr_nodes),
                        self._starts.get(where, -1),
                        end,
                        self._sizes.get(one.leader_id, {}).get(where, -1),
                    )
                )
            options = self._options.get(name, {})
            rate = self._topic_rates.note(name, now, total)
            found.append(
                Topic(
                    name,
                    bytes(topic.topic_id).hex(),
                    topic.is_internal,
                    tuple(parts),
                    rate,
                    number(options.get("min.insync.replicas"), 1) or 1,
                    options.get("cleanup.policy", ""),
                    number(options.get("retention.ms"), None),
                    topic.error_code,
                )
            )
        return found

    def _read_groups(self, topics: dict[str, Topic], now: float) -> list[Group]:
        self._wanted = {}
        wall_ms = time.time() * 1000
        read: set[TopicPartition] = set()

        def age(where: TopicPartition, offset: int) -> float | None:
            arrivals = self._arrivals.get(where)
            estimate = arrivals.estimate(offset) if arrivals else None
            if estimate is not None and estimate.fine:
                return max(0.0, now - estimate.moment)
            peeked = self._peeked.get((where, offset))
            if peeked is not None:
                return max(0.0, (wall_ms - peeked) / 1000)
            self._wanted[where] = offset
            return None if estimate is None else max(0.0, now - estimate.moment)

        found = []
        for node, facts in self._group_facts():
            behind = lags(facts, topics, age)
            read.update(lag.where for lag in behind)
            consumed = sum(lag.committed or 0 for lag in behind)
            lag = sum(one.records or 0 for one in behind)
            found.append(
                Group(
                    facts.name,
                    facts.kind,
                    facts.state,
                    facts.protocol,
                    node,
                    facts.members,
                    behind,
                    self._group_rates.note(facts.name, now, consumed),
                    self._lag_trends.note(facts.name, now, lag),
                )
            )
        for where in self._arrivals.keys() - read:
            del self._arrivals[where]
        for where in read - self._arrivals.keys():
            self._arrivals[where] = Arrivals()
        return found

    def _group_facts(self) -> list[tuple[int, asking.GroupFacts]]:
        """Each group once. A silent broker's last answer counts unless another broker has the group now."""
        nodes = sorted(self._groups, key=lambda node: self._silence(node, node in self._listed) is None)
        facts = {one.name: (node, one) for node in nodes for one in self._groups[node]}
        return list(facts.values())

    def _brokers(self, said: MetadataResponse, topics: dict[str, Topic]) -> dict[int, Broker]:
        counts: dict[int, list[float]] = {}  # leads, replicas, behind, rate
        for topic in topics.values():
            share = topic.rate / max(1, len(topic.partitions))
            for part in topic.partitions:
                for node in part.replicas:
                    count = counts.setdefault(node, [0, 0, 0, 0.0])
                    count[1] += 1
                    count[2] += node not in part.isr
                if part.leader >= 0:
                    count = counts.setdefault(part.leader, [0, 0, 0, 0.0])
                    count[0] += 1
                    count[3] += share
        listed = {one.node_id for one in said.brokers}
        found = {}
        for node in sorted(listed | self._addresses.keys() | counts.keys()):
            (host, port), rack = self._addresses.get(node, (("", 0), None))
            leads, replicas, behind, rate = counts.get(node, [0, 0, 0, 0.0])
            if node not in listed and not replicas:
                self._addresses.pop(node, None)  # removed for good: it has no replicas
                continue
            found[node] = Broker(
                node,
                host,
                port,
                rack,
                self._silence(node, node in listed),
                node in listed,
                int(leads),
                int(replicas),
                int(behind),
                self._disks.get(node, ()),
                rate,
            )
        return found

    def _silence(self, node: int, listed: bool) -> str | None:
        address = self._addresses.get(node)
        if address is None:
            return "the cluster has no broker with this id now"
        link = self._long_link(address[0]) if listed else self._link(address[0])  # the link that each round uses
        if link.failed:
            return link.failed
        if link.silent_s > max(LONG_S, self._patience_s):
            return f"the broker at {address[0][0]}:{address[0][1]} does not answer"
        return None if listed else "the cluster does not list it: it is starting, or is cut off"

    def _mark_silence(self, said: str) -> dict[int, Broker]:
        """None of them has answered, also where the link that is used for longer answers does not know it yet."""
        return {
            node: one._replace(silence=self._silence(node, one.listed) or said)
            for node, one in self.snapshot.brokers.items()
        }

    def _link(self, address: Address) -> Link:
        if address not in self._links:
            self._links[address] = Link(address, self._security, self._patience_s)
        return self._links[address]

    def _long_link(self, address: Address) -> Link:
        if address not in self._long:
            self._long[address] = Link(address, self._security, max(LONG_S, self._patience_s))
        return self._long[address]

    def close(self) -> None:
        for link in [*self._links.values(), *self._long.values()]:
            link.close()


def number(text: str | None, otherwise: int | None) -> int | None:
    try:
        return otherwise if text is None else int(text)
    except ValueError:
        return otherwise
