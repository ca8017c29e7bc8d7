"""What coordinators cost: idle group members, commits, transactions, a rebalance. Raw calls, old inflexible versions.

A member is a connection of its own, as with real clients. One thread and a selector drive all members; transactions
have a thread each, because every step waits for the step before.
"""

from __future__ import annotations

import selectors
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crc32c import crc32c

from bench.rows import Goal, Row, Sample, Setting, TopicRow, per_request
from bench.wire import PRODUCE, BenchError, Connection, frame, string, text, varint

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.brokers import Broker

FIND, JOIN, HEARTBEAT, SYNC, COMMIT, INIT, ADD, END = 10, 11, 12, 14, 8, 22, 24, 26
SESSION_MS = 30_000
HEARTBEAT_S = 3.0  # how often clients send one by default
LATER = frozenset(
    (14, 15, 16, 51)
)  # the coordinator is loading, not available, or moved; or another change is in progress
UNKNOWN_MEMBER = 25
AGAIN = frozenset((22, UNKNOWN_MEMBER, 27))  # a new generation has begun: join again
SETTLE_S = 60.0


class Member:
    """One member of a group, through JoinGroup v0, SyncGroup v0 and Heartbeat v0."""

    def __init__(self, connection: Connection, group: str, session_ms: int = SESSION_MS) -> None:
        self.connection, self.session_ms = connection, session_ms
        self.group, self.id, self.generation, self.leads = group, "", -1, False
        self.others: list[str] = []

    def join(self) -> bytes:
        protocol = string("range") + struct.pack(">i", 4) + b"meta"
        body = string(self.group) + struct.pack(">i", self.session_ms) + string(self.id) + string("consumer")
        return frame(JOIN, 0, body + struct.pack(">i", 1) + protocol, flexible=False)

    def joined(self, answer: bytes) -> int:
        (error, self.generation), position = struct.unpack_from(">hi", answer), 6
        if error:
            return int(error)
        _, position = take(answer, position)
        leader, position = take(answer, position)
        self.id, position = take(answer, position)
        self.leads = leader == self.id
        (count,), position = struct.unpack_from(">i", answer, position), position + 4
        self.others = []
        for _ in range(count):
            name, position = take(answer, position)
            position += 4 + int(struct.unpack_from(">i", answer, position)[0])
            self.others.append(name)
        return 0

    def sync(self) -> bytes:
        parts = b"".join(string(name) + struct.pack(">i", 4) + b"part" for name in self.others)
        body = string(self.group) + struct.pack(">i", self.generation) + string(self.id)
        return frame(SYNC, 0, body + struct.pack(">i", len(self.others)) + parts, flexible=False)

    def heartbeat(self) -> bytes:
        body = string(self.group) + struct.pack(">i", self.generation) + string(self.id)
        return frame(HEARTBEAT, 0, body, flexible=False)


def take(data: bytes, position: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", data, position)
    return data[position + 2 : position + 2 + size].decode(), position + 2 + size


def everybody(members: list[Member], ask: Callable[[Member], bytes], heard: Callable[[Member, bytes], int]) -> None:
    """Send to every member's coordinator, take the responses as they come; retry what came too early."""
    with selectors.DefaultSelector() as ready:
        for member in members:
            ready.register(member.connection.socket, selectors.EVENT_READ, member)
            member.connection.socket.sendall(ask(member))
        left, deadline = len(members), time.monotonic() + SETTLE_S
        while left:
            for key, _ in ready.select(1.0):
                member: Member = key.data
                error = heard(member, member.connection.receive())
                if error == 0:
                    left -= 1
                elif error in LATER:
                    member.connection.socket.sendall(ask(member))
                else:
                    raise BenchError(f"{member.group}: error {error}")
            if time.monotonic() > deadline:
                raise BenchError(f"{left} members are still waiting after {SETTLE_S:g} s")


def first_error(_: Member, answer: bytes) -> int:
    return int(struct.unpack_from(">h", answer)[0])


def settle(members: list[Member], newcomer: Member | None = None) -> None:
    """Run until all members are in one generation and have an assignment; a member that must rejoin does so at once.

    The newcomer, one of the members, has sent its join already.
    """
    with selectors.DefaultSelector() as ready:
        for member in members:
            ready.register(member.connection.socket, selectors.EVENT_READ, member)
            if member is not newcomer:
                member.connection.socket.sendall(member.join())
        joining, done, deadline = set(members), dict[Member, int](), time.monotonic() + SETTLE_S
        while len(done) < len(members) or len(set(done.values())) > 1:
            for key, _ in ready.select(1.0):
                member: Member = key.data
                answer = member.connection.receive()
                error = member.joined(answer) if member in joining else first_error(member, answer)
                if error == 0 and member in joining:
                    joining.discard(member)
                    member.connection.socket.sendall(member.sync())
                elif error == 0:
                    done[member] = member.generation
                elif error in AGAIN or error in LATER:
                    member.id = "" if error == UNKNOWN_MEMBER else member.id
                    joining.add(member)
                    member.connection.socket.sendall(member.join())
                else:
                    raise BenchError(f"{member.group}: error {error}")
            behind = [member for member, generation in done.items() if generation < max(done.values(), default=0)]
            for member in behind:  # a real client would learn it from a heartbeat
                del done[member]
                joining.add(member)
                member.connection.socket.sendall(member.join())
            if time.monotonic() > deadline:
                raise BenchError(f"{len(members) - len(done)} members are not settled after {SETTLE_S:g} s")


def notice_rebalance(member: Member) -> None:
    """Send heartbeats until one says that a rebalance has begun, as clients do. An earlier join may begin another."""
    deadline = time.monotonic() + SETTLE_S
    while first_error(member, member.connection.call(member.heartbeat())) not in AGAIN:
        if time.monotonic() > deadline:
            raise BenchError(f"{member.group}: no rebalance after {SETTLE_S:g} s")


def settle_groups(members: list[Member], size: int) -> None:
    """The same for many groups in parallel, because the initial rebalance delay then passes only once."""
    threads = [threading.Thread(target=settle, args=(members[at : at + size],)) for at in range(0, len(members), size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def coordinator(connection: Connection, key: str, kind: int) -> None:
    """Wait until the coordinator of this key is available."""
    deadline = time.monotonic() + SETTLE_S
    body = string(key) + bytes([kind])
    while int(struct.unpack_from(">h", connection.call(frame(FIND, 1, body, flexible=False)), 4)[0]):
        if time.monotonic() > deadline:
            raise BenchError(f"no coordinator for {key}")
        time.sleep(0.05)


@dataclass
class Members(Row):
    """Members that only send heartbeats, at the usual interval; CPU is per heartbeat."""

    groups: int = field(kw_only=True)
    size: int = field(kw_only=True)

    def run(self, broker: Broker, setting: Setting) -> Sample:
        count = max(1, self.groups * setting.topics // 500)  # a smoke test has few topics, and few groups
        with broker.connect() as connection:
            coordinator(connection, "idle", 0)
        groups = [f"idle-{at}-{time.time_ns()}" for at in range(count)]
        members = [Member(broker.connect(), group) for group in groups for _ in range(self.size)]
        try:
            settle_groups(members, self.size)
            rounds = max(1, round(setting.seconds / HEARTBEAT_S * 2))
            before, start = broker.cpu_s(), time.perf_counter()
            for turn in range(rounds):
                everybody(members, Member.heartbeat, first_error)
                time.sleep(max(0.0, start + (turn + 1) * min(HEARTBEAT_S, setting.seconds * 2) - time.perf_counter()))
            cpu_s = broker.cpu_s() - before
            return {"us_req": cpu_s / rounds / len(members) * 1e6, "loaded_mb": broker.memory_mb()}
        finally:
            for member in members:
                member.connection.socket.close()


@dataclass
class Rebalance(Row):
    """One more member joins a stable group: time until all members have their new assignment. Clients react at once."""

    size: int = field(kw_only=True)

    def run(self, broker: Broker, setting: Setting) -> Sample:
        with broker.connect() as connection:
            coordinator(connection, "rebalance", 0)
        group = f"rebalance-{time.time_ns()}"
        members = [Member(broker.connect(), group) for _ in range(self.size)]
        try:
            settle(members)
            newcomer = Member(broker.connect(), group)
            before, start = broker.cpu_s(), time.perf_counter()
            newcomer.connection.socket.sendall(newcomer.join())
            notice_rebalance(members[0])
            members.append(newcomer)
            settle(members, newcomer)
            return {"seconds": time.perf_counter() - start, "total_cpu_s": broker.cpu_s() - before}
        finally:
            for member in members:
                member.connection.socket.close()


@dataclass
class Commits(TopicRow):
    """Offsets committed one at a time by consumers that assign their own partitions: OffsetCommit v2, no generation."""

    connections: int = field(kw_only=True)

    def run(self, broker: Broker, setting: Setting) -> Sample:
        body = struct.pack(">i", -1) + string("") + struct.pack(">q", -1) + struct.pack(">i", 1) + string(self.topic)
        body += struct.pack(">iiq", 1, 0, 42) + string("")
        connections = [broker.connect() for _ in range(self.connections)]
        requests = [frame(COMMIT, 2, string(f"commits-{at}") + body, flexible=False) for at in range(len(connections))]
        for at, connection in enumerate(connections):
            coordinator(connection, f"commits-{at}", 0)

        def work(at: int) -> None:
            answer = connections[at].call(requests[at])
            if (error := int(struct.unpack_from(">h", answer, len(answer) - 2)[0])) and error not in LATER:
                raise BenchError(f"OffsetCommit: error {error}")

        try:
            return per_request(driven(broker, setting, len(connections), work))
        finally:
            for connection in connections:
                connection.socket.close()


@dataclass
class Transactions(TopicRow):
    """Transactions of one record, one after the other for each producer: add the partition, write, commit."""

    producers: int = field(kw_only=True)

    def run(self, broker: Broker, setting: Setting) -> Sample:
        connections = [broker.connect() for _ in range(self.producers)]
        writers = [
            Writer(connection, f"{self.topic}-{at}-{time.time_ns()}", self.topic, at % self.partitions)
            for at, connection in enumerate(connections)
        ]
        try:
            return per_request(driven(broker, setting, len(writers), lambda at: writers[at].transact()))
        finally:
            for connection in connections:
                connection.socket.close()


class Writer:
    """One transactional producer, through InitProducerId v1, AddPartitionsToTxn v1, Produce v7 and EndTxn v1."""

    def __init__(self, connection: Connection, name: str, topic: str, partition: int) -> None:
        self.connection, self.name, self.topic, self.partition = connection, name, topic, partition
        self.sequence = 0
        coordinator(connection, name, 1)
        answer = self.ask(INIT, 1, string(name) + struct.pack(">i", 60_000), 4)
        self.producer_id, self.epoch = struct.unpack_from(">qh", answer, 6)

    def ask(self, key: int, version: int, body: bytes, error_at: int) -> bytes:
        while True:
            answer = self.connection.call(frame(key, version, body, flexible=False))
            error = int(struct.unpack_from(">h", answer, error_at)[0])
            if error == 0:
                return answer
            if error not in LATER:
                raise BenchError(f"API {key}: error {error}")

    def transact(self) -> None:
        who = string(self.name) + struct.pack(">qh", self.producer_id, self.epoch)
        topic = struct.pack(">i", 1) + string(self.topic) + struct.pack(">ii", 1, self.partition)
        self.ask(ADD, 1, who + topic, 4 + 4 + 2 + len(self.topic) + 4 + 4)
        data = self.batch()
        records = struct.pack(">hi", -1, 10_000) + topic + struct.pack(">i", len(data)) + data
        self.ask(PRODUCE, 7, string(self.name) + records, 4 + 2 + len(self.topic) + 4 + 4)
        self.sequence += 1
        self.ask(END, 1, who + b"\x01", 4)

    def batch(self) -> bytes:
        now, value = int(time.time() * 1000), text(100, self.sequence)
        body = b"\0\0\0" + varint(-1) + varint(len(value)) + value + b"\0"
        fixed = struct.pack(">hiqqqhii", 0x10, 0, now, now, self.producer_id, self.epoch, self.sequence, 1)
        tail = fixed + varint(len(body)) + body
        return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc32c(tail)) + tail


def driven(broker: Broker, setting: Setting, count: int, work: Callable[[int], None]) -> Sample:
    """Let `count` threads repeat their work for the setting's time."""
    times: list[list[float]] = [[] for _ in range(count)]
    failures: list[BaseException] = []
    begin, stop = threading.Event(), threading.Event()

    def loop(at: int) -> None:
        try:
            while not stop.is_set():
                start = time.perf_counter()
                work(at)
                if begin.is_set():
                    times[at].append(time.perf_counter() - start)
        except (BenchError, OSError) as error:
            failures.append(error)

    threads = [threading.Thread(target=loop, args=(at,)) for at in range(count)]
    for thread in threads:
        thread.start()
    time.sleep(setting.warm_s)
    before, start = broker.cpu_s(), time.perf_counter()
    begin.set()
    time.sleep(setting.seconds)
    begin.clear()
    cpu_s, seconds = broker.cpu_s() - before, time.perf_counter() - start
    stop.set()
    for thread in threads:
        thread.join()
    if failures:
        raise BenchError(str(failures[0]))
    took = sorted(one for own in times for one in own)
    if not took:
        raise BenchError("nothing was done in the time given")
    at = {"p50_ms": 0.5, "p99_ms": 0.99}
    tails = {name: took[min(len(took) - 1, int(len(took) * share))] * 1e3 for name, share in at.items()}
    return {"count": len(took), "seconds": seconds, "cpu_s": cpu_s, **tails}


def rows() -> list[Row]:
    level = (Goal("req_s", 1.0), Goal("us_req", 1.0), Goal("p99_ms", 1.0))
    return [
        Members("1,000 idle group members, a heartbeat", (Goal("us_req", 1.0),), groups=50, size=20, repeat_max=2),
        Rebalance("rebalance of a group of 50", (Goal("seconds", 1.0),), size=50),
        Commits("commits, 8 conn.", level, connections=8),
        *(Transactions(f"transactions, {count} producers", level, partitions=6, producers=count) for count in (1, 20)),
    ]
