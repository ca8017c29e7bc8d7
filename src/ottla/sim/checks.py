"""Invariants of a cluster, checked all the time from outside the code under test.

After every callback of a broker its partitions are compared with their previous state, and every change in the store is
checked as it happens. The committed bytes are kept here as the truth, taken from the first replica whose high watermark
passed them.

    V2, V5   below its high watermark every replica has the same bytes
    V3       a high watermark does not decrease during the life of a process
    V4       a leader commits only what every in-sync replica of its epoch has
    V6       an epoch has one leader, a broker's epoch never decreases, and a new leader has all committed records
    V7       a replica that joins the ISR has all committed records
    V11      in a compacted topic a replica has, instead of the same bytes, the same records at their offsets, and
             every missing record was replaced by a later one (`compacted.py`)
    V15      the state in the store: epochs rise; one leader for each; the ISR is a subset of the assigned replicas; a
             new leader comes from the last ISR; no former controller writes it; topics are created and deleted only on
             request; a partition's log has the topic's id

A topic that is deleted and created again gets another id, and a broker may learn of both late: partitions whose id
differs from the one in the store are not compared with other replicas. Brokers that use the protocol of Kafka 2.3 have
no ids.

What clients were told is checked by `history.py` (V1, V2, V3, V8, V9, V13).
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.records import batch
from ottla.sim import keyed
from ottla.sim.compacted import CompactedTruth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.sim.history import Partition as Key
    from ottla.sim.loop import Process
    from ottla.sim.node import SimNode
    from ottla.sim.zookeeper import SimZnode, SimZooKeeper

READ_SIZE = 1 << 20
COMPACTED = frozenset((keyed.NAME, "__consumer_offsets", "__transaction_state"))


class SeenReplica(NamedTuple):
    """State of a replica after the last callback of its broker."""

    high: int
    end: int
    epoch: int
    led: bool


class StoredState(NamedTuple):
    """State of a partition in the store."""

    leader: int
    epoch: int
    isr: tuple[int, ...]
    controller_epoch: int


class Truth:
    """The committed records of one partition: the bytes of its batches, and the position of the batch at an offset."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.positions: dict[int, int] = {0: 0}
        self.high = 0


class Checks:
    def __init__(self, store: SimZooKeeper, wrong: Callable[[str], None]) -> None:
        self.truths: dict[Key, Truth] = defaultdict(Truth)
        self.kept: dict[Key, CompactedTruth] = defaultdict(lambda: CompactedTruth(store.loop.time))
        self.compactions = 0  # checked so far
        self.states: dict[Key, StoredState] = {}
        self.ends: dict[tuple[int, Key], int] = {}  # log end of each replica; absent after a power loss
        self.deletable: set[str] = set()  # topics whose deletion was requested
        self.unclean = False  # leaders from outside the in-sync set are allowed
        self._store = store
        self._wrong = wrong
        self._of: dict[Process, SimNode] = {}
        self._seen: dict[tuple[int, Key], SeenReplica] = {}
        self._last: dict[int, tuple[Any, ...]] = {}  # cache by the id of a partition: what was compared
        self._compacted: dict[tuple[int, Key], int] = {}  # compaction progress of each replica at its last check
        self._stored = 0  # how often topics were created, deleted or changed in the store
        self._verified: dict[tuple[int, Key], int] = {}
        self._logs: dict[tuple[int, Key], Any] = {}  # the logs of replicas seen so far
        self._released: set[tuple[int, Key]] = set()  # replicas that were moved away: their logs may start again
        self._leaders: dict[tuple[Key, int], int] = {}
        self._isrs: dict[tuple[Key, int], tuple[int, ...]] = {}  # the last ISR of each epoch
        self._assigned: dict[str, dict[str, list[int]]] = {}
        self._moving: set[str] = set()  # topics with replicas that are changing
        self._ids: dict[str, bytes] = {}  # of the topics in the store
        self.kept[keyed.PARTITION].delete_retention_s = keyed.DELETE_RETENTION_MS / 1000
        store.changes.append(self._on_change)

    # Brokers.

    def begin(self, node: SimNode) -> None:
        """A new process starts: the memory state of the old one no longer counts."""
        assert node.process is not None
        self._of[node.process] = node
        for key in [key for key in self._seen if key[0] == node.number]:
            del self._seen[key]
            self._verified.pop(key, None)
            self._compacted.pop(key, None)

    def note_power_loss(self, node: SimNode) -> None:
        for key in [key for key in self.ends if key[0] == node.number]:
            del self.ends[key]

    def note_clock_jump(self) -> None:
        """After a clock jump the age of tombstones is unknown."""
        self.kept[keyed.PARTITION].delete_retention_s = 0.0

    def after(self, process: Process) -> None:
        """Called after every callback of this process."""
        node = self._of.get(process)
        if node is None or process.dead:
            return
        last = self._last
        for partition in list_hosted(node):
            log = partition.log
            compacted = log.compacted if partition.topic in COMPACTED else None
            now = (partition, partition.high, log.end, partition.epoch, partition.led, compacted, self._stored)
            if last.get(id(partition)) != now:
                last[id(partition)] = now
                self._compare(node, partition)

    def _compare(self, node: SimNode, partition: Any) -> None:
        if any(partition.topic_id) and partition.topic_id != self._ids.get(partition.topic):
            return
        seen = SeenReplica(partition.high, partition.log.end, partition.epoch, partition.led)
        key = (partition.topic, partition.index)
        before = self._seen.get((node.number, key))
        if seen != before:
            self._look(node, key, partition, seen, before)
        if partition.topic in COMPACTED:
            self._look_for_gaps((node.number, key), partition)

    def _look(self, node: SimNode, key: Key, partition: Any, seen: SeenReplica, before: SeenReplica | None) -> None:
        place = (node.number, key)
        if self._logs.get(place) is not partition.log and place in self._released:
            self._released.discard(place)
            self._verified.pop(place, None)
            before = None
        self._logs[place] = partition.log
        self._seen[place] = seen
        self.ends[place] = seen.end
        name = f"{node.name} {key[0]}-{key[1]}"
        if partition.log.topic_id != partition.topic_id:
            self._wrong(f"V15 {name}: its log is of another topic of that name")
        if before is not None:
            if seen.high < before.high:
                self._wrong(f"V3 {name}: the high watermark went from {before.high} back to {seen.high}")
            if seen.epoch < before.epoch:
                self._wrong(f"V6 {name}: the epoch went from {before.epoch} back to {seen.epoch}")
        if seen.end < self._verified.get(place, 0):
            self._wrong(f"V5 {name}: cut to {seen.end}, below what was committed at {self._verified[place]}")
        if seen.high > seen.end:
            self._wrong(f"V4 {name}: a high watermark of {seen.high} above the end at {seen.end}")
        if seen.led:
            self._lead(node, key, partition, seen, before, name)
        if seen.high > (before.high if before is not None else partition.log.start):
            self._verify(place, key, partition, seen.high, name)

    def _lead(
        self, node: SimNode, key: Key, partition: Any, seen: SeenReplica, before: SeenReplica | None, name: str
    ) -> None:
        first = self._leaders.setdefault((key, seen.epoch), node.number)
        if first != node.number:
            self._wrong(f"V6 {name}: leads in epoch {seen.epoch}, and so did b{first}")
        began = before is None or not before.led or before.epoch != seen.epoch
        truth, state = self.truths[key], self.states.get(key)
        newest = state is None or state.epoch <= seen.epoch
        if began and newest and not self.unclean:
            if seen.end < truth.high:
                self._wrong(f"V6 {name}: leads with an end of {seen.end}, and {truth.high} is committed")
            else:
                self._verify((node.number, key), key, partition, truth.high, name)
        if before is None or seen.high > before.high:
            for member in self._isrs.get((key, seen.epoch), ()):
                end = self.ends.get((member, key))
                if end is not None and end < seen.high:
                    self._wrong(f"V4 {name}: commits {seen.high}, and b{member}, in sync, ends at {end}")

    def _verify(self, place: tuple[int, Key], key: Key, partition: Any, high: int, name: str) -> None:
        """Compare this replica below `high` with the truth. Newly committed records become part of the truth."""
        truth, at = self.truths[key], self._verified.get(place, partition.log.start)
        if partition.log.start > 0 or at >= high:
            return
        if key[0] in COMPACTED:
            self._tell(self.kept[key].verify(batches(partition.log, at, high), at, high), name)
            truth.high = max(truth.high, self.kept[key].high)
            self._verified[place] = high
            return
        for entry, data in batches(partition.log, at, high):
            begin = truth.positions.get(entry.base_offset)
            if begin is None:
                self._wrong(f"V5 {name}: a batch at {entry.base_offset}, where the others have none")
                return
            if entry.last_offset < truth.high:
                if truth.data[begin : begin + len(data)] != data:
                    self._wrong(f"V5 {name}: other bytes than the others at {entry.base_offset}")
                    return
            else:
                truth.data += data
                truth.high = entry.last_offset + 1
                truth.positions[truth.high] = len(truth.data)
            at = entry.last_offset + 1
        if at < high:
            self._wrong(f"V5 {name}: readable to {at}, and its high watermark is {high}")
        self._verified[place] = at

    def _look_for_gaps(self, place: tuple[int, Key], partition: Any) -> None:
        """After each compaction, check all remaining records (V11)."""
        log, (number, key) = partition.log, place
        if log.compacted == self._compacted.get(place) or log.compacted is None:
            return
        self._compacted[place] = log.compacted
        self.compactions += 1
        high = min(partition.high, self.truths[key].high)
        if log.start == 0:
            self._tell(self.kept[key].verify(batches(log, 0, high), 0, high), f"b{number} {key[0]}-{key[1]}")

    def _tell(self, wrong: Iterable[str], name: str) -> None:
        for one in wrong:
            self._wrong(f"V11 {name}: {one}")

    # The store.

    def is_whole(self) -> bool:
        """Whether every partition has a leader and all its replicas are in sync."""
        return all(
            state.leader >= 0 and len(state.isr) == len(self._assigned.get(topic, {}).get(str(index), ()))
            for (topic, index), state in self.states.items()
        )

    def assigned(self) -> dict[Key, tuple[list[int], bool]]:
        """The replicas of each partition in the store, and whether they are changing."""
        return {
            (topic, int(index)): (brokers, topic in self._moving)
            for topic, partitions in self._assigned.items()
            for index, brokers in partitions.items()
        }

    def _on_change(self, zxid: int, path: str, node: SimZnode | None) -> None:
        parts = path.split("/")
        if parts[1:3] != ["brokers", "topics"] or len(parts) < 4:
            return
        topic = parts[3]
        if len(parts) == 4:
            self._stored += 1
            if node is None:
                if topic not in self.deletable:
                    self._wrong(f"V15 {topic}: deleted, and nobody asked for it")
                self._forget(topic)
            else:
                self._assign(topic, json.loads(node.data))
        elif len(parts) == 7 and node is not None:
            self._state((topic, int(parts[5])), node.data)

    def _assign(self, topic: str, said: dict[str, Any]) -> None:
        self._ids[topic] = base64.urlsafe_b64decode(said["topic_id"] + "==")
        before, self._assigned[topic] = self._assigned.get(topic, {}), said["partitions"]
        moving = said.get("adding_replicas") or said.get("removing_replicas")
        (self._moving.add if moving else self._moving.discard)(topic)
        leaving = {index: set(brokers) for index, brokers in said.get("removing_replicas", {}).items()}
        for index, brokers in before.items():
            gone = set(brokers) - set(said["partitions"].get(index, ())) | leaving.get(index, set())
            self._released.update((broker, (topic, int(index))) for broker in gone)

    def _forget(self, topic: str) -> None:
        self._assigned.pop(topic, None)
        self._ids.pop(topic, None)
        self._released = {place for place in self._released if place[1][0] != topic}
        for known in (self.truths, self.kept, self.states):
            for key in [key for key in known if key[0] == topic]:
                del known[key]
        for places in (self._seen, self._verified, self.ends, self._logs):
            for place in [place for place in places if place[1][0] == topic]:
                del places[place]
        for epochs in (self._leaders, self._isrs):
            for known_epoch in [one for one in epochs if one[0][0] == topic]:
                del epochs[known_epoch]

    def _state(self, key: Key, data: bytes) -> None:
        said = json.loads(data)
        new = StoredState(said["leader"], said["leader_epoch"], tuple(said["isr"]), said["controller_epoch"])
        old, name = self.states.get(key), f"{key[0]}-{key[1]}"
        self.states[key] = new
        self._isrs[key, new.epoch] = new.isr
        assigned = self._assigned.get(key[0], {}).get(str(key[1]), [])
        if not set(new.isr) <= set(assigned):
            self._wrong(f"V15 {name}: in sync are {new.isr}, assigned {assigned}")
        if new.leader >= 0 and new.leader not in new.isr:
            self._wrong(f"V15 {name}: {new.leader} leads and is not in sync")
        if not new.isr:
            self._wrong(f"V15 {name}: nobody is in sync")
        office = int(self._store.get("/controller_epoch").data)
        if new.controller_epoch != office:
            self._wrong(f"V15 {name}: written by controller {new.controller_epoch}, and {office} is in office")
        if old is None:
            return
        if new.epoch < old.epoch or new.controller_epoch < old.controller_epoch:
            self._wrong(f"V15 {name}: the state went from {old} to {new}")
        if new.epoch == old.epoch and new.leader != old.leader:
            self._wrong(f"V15 {name}: another leader in the same epoch: {old}, {new}")
        if new.leader >= 0 and new.leader not in old.isr and not self.unclean:
            self._wrong(f"V15 {name}: {new.leader} leads now and was not in sync: {old}, {new}")
        for joined in set(new.isr) - set(old.isr):
            end = self.ends.get((joined, key))
            if end is not None and end < self.truths[key].high:
                self._wrong(f"V7 {name}: b{joined} is in sync again and ends at {end} of {self.truths[key].high}")


def list_hosted(node: SimNode) -> Iterable[Any]:
    """The partition objects of a node's broker."""
    if node.broker is None or node.broker._dispatch is None:
        return ()
    return [one for one in node.broker._dispatch._parts.replicas if not one.log.fault]


def batches(log: Any, at: int, high: int) -> Iterable[tuple[batch.Entry, bytes]]:
    """The batches between two offsets."""
    while at < high:
        found = log.read(at, READ_SIZE, offset_max=high)
        if found is None:
            return
        data = found.read()
        for entry in batch.entries(data):
            if at <= entry.base_offset and entry.last_offset < high:
                yield entry, data[entry.position : entry.position + entry.size]
        last = max((entry.last_offset for entry in batch.entries(data)), default=at - 1)
        if last < at:
            return
        at = last + 1
