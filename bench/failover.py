"""How long clients wait when brokers die, and what thousands of partitions cost: three brokers on a real ZooKeeper.

    python -m bench.failover [--partitions 2000] [--only kill,stop,size] [--kafka]

kill    how long an idempotent producer (acks=all) waits when the leader is killed, for each session time-out
stop    the same when the leader is shut down cleanly
size    partitions with three replicas each: creating them, restarting all brokers, creating one more topic with 100
        partitions, killing the controller (until every partition that it led has another leader), memory

`--kafka` runs the same on Apache Kafka 3.9 with ZooKeeper. Neither side waits for fsync. Leaders are read
from ZooKeeper, so the client's own delay counts for the producers only.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from bench.brokers import RELEASE_JVM
from ottla.cluster import znodes
from ottla.testing import Cluster, ZooKeeperServer
from tests import judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Self

WAIT_S = 180.0
NOBODY = -1
# By default librdkafka finds a new leader up to two seconds after its election.
CLIENTS: Mapping[str, Mapping[str, Any]] = {
    "as it is": {},
    "that looks for leaders every 0.2 s": {"topic.metadata.refresh.interval.ms": 200},
}
CHUNK = 200  # partitions read together
SESSIONS_MS = (6000, 18_000)
NUMBERS = (1, 2, 3)
PAGE = os.sysconf("SC_PAGE_SIZE")
QUIET = {"log_level": 0, "socket.timeout.ms": int(WAIT_S * 1000), "reconnect.backoff.max.ms": 200}


class Side(Protocol):
    bootstrap: str
    numbers: tuple[int, ...]
    address: str  # of ZooKeeper

    def pid(self, number: int) -> int: ...
    def kill(self, number: int) -> None: ...
    def stop(self, number: int) -> None: ...
    def start(self, number: int) -> None: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, *error: object) -> None: ...


class Ottla:
    numbers = NUMBERS

    def __init__(self, session_ms: int) -> None:
        self._cluster = Cluster(3, options={"zookeeper.session.timeout.ms": session_ms})

    def __enter__(self) -> Self:
        self._cluster.start()
        self.bootstrap, self.address = self._cluster.bootstrap, self._cluster.zookeeper.address
        return self

    def __exit__(self, *error: object) -> None:
        self._cluster.__exit__(*error)

    def pid(self, number: int) -> int:
        return self._cluster.brokers[number].pid

    def kill(self, number: int) -> None:
        self._cluster.kill(number)

    def stop(self, number: int) -> None:
        self._cluster.stop(number)

    def start(self, number: int) -> None:
        self._cluster.start(number)


class Kafka:
    """Three nodes of Apache Kafka, with the JVM options of its own release."""

    numbers = NUMBERS

    def __init__(self, session_ms: int) -> None:
        self._session_ms = session_ms
        self._folder = Path(tempfile.mkdtemp(prefix="bench-failover-"))
        self._ports = dict(zip(NUMBERS, judge.free_ports(3), strict=True))
        self._zookeeper = ZooKeeperServer(self._folder / "zookeeper", heap="256m")
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self._ports.values())
        self.address = self._zookeeper.address

    def __enter__(self) -> Self:
        self._zookeeper.start()
        at_once(self.start)
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes.values():
            judge.stop_process(process, kill=True)
        self._zookeeper.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self, number: int) -> None:
        folder = self._folder / f"broker-{number}"
        folder.mkdir(exist_ok=True)
        settings = {
            "broker.id": number,
            "listeners": f"PLAINTEXT://127.0.0.1:{self._ports[number]}",
            "zookeeper.connect": self.address,
            "zookeeper.session.timeout.ms": self._session_ms,
            "log.dirs": folder / "data",
        }
        properties = folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        path = judge.classpath(judge.ZOOKEEPER)
        command = ["java", *RELEASE_JVM, *judge.logging_options(judge.ZOOKEEPER), "-cp", path, "kafka.Kafka"]
        log = folder / "server.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*command, str(properties)], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self._processes[number] = process
        judge.until(lambda: judge.answers(self._ports[number]), process, log, WAIT_S)

    def pid(self, number: int) -> int:
        return self._processes[number].pid

    def kill(self, number: int) -> None:
        judge.stop_process(self._processes[number], kill=True)

    def stop(self, number: int) -> None:
        judge.stop_process(self._processes[number], timeout_s=WAIT_S)


class Store:
    """The state of the partitions in ZooKeeper."""

    def __init__(self, address: str) -> None:
        self.client = KazooClient(address)
        self.client.start()

    def close(self) -> None:
        self.client.stop()
        self.client.close()

    def controller(self) -> int:
        number = znodes.decode_controller(self.client.get(znodes.CONTROLLER)[0])
        assert number is not None
        return number

    def states(self, topic: str, indexes: Sequence[int]) -> Iterator[tuple[int, dict[str, Any]]]:
        """The states of those partitions that have one."""
        asked = [(index, self.client.get_async(znodes.state_path(topic, index))) for index in indexes]
        for index, one in asked:
            with suppress(NoNodeError):
                yield index, json.loads(one.get(timeout=WAIT_S)[0])

    def wait_led(self, topic: str, count: int, *, by_others_than: int = NOBODY, in_sync: int = 1) -> None:
        """Return when every partition has a leader other than `by_others_than`, and `in_sync` replicas in sync."""
        left = list(range(count))

        def look() -> bool:
            good = {
                index
                for index, state in self.states(topic, left[:CHUNK])
                if state["leader"] not in (NOBODY, by_others_than) and len(state["isr"]) >= in_sync
            }
            left[:] = [index for index in left if index not in good]
            return not left

        until(look)

    def leaders(self, topic: str, count: int) -> Counter[int]:
        """How many partitions each broker is the leader of."""
        return Counter(state["leader"] for _, state in self.states(topic, range(count)))


def at_once(work: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(len(NUMBERS)) as pool:
        list(pool.map(work, NUMBERS))


def until(ready: Callable[[], bool]) -> float:
    """Seconds until `ready()` is true."""
    started = time.monotonic()
    while not ready():
        if time.monotonic() - started > WAIT_S:
            raise TimeoutError(f"not within {WAIT_S} s")
        time.sleep(0.01)
    return time.monotonic() - started


def create(side: Side, store: Store, topic: str, partitions: int) -> float:
    """Seconds until every partition has its leader and all of its replicas are in sync."""
    admin = AdminClient({"bootstrap.servers": side.bootstrap, **QUIET})
    started = time.monotonic()
    made = admin.create_topics([NewTopic(topic, partitions, 3)], operation_timeout=WAIT_S, request_timeout=WAIT_S)
    made[topic].result(WAIT_S)
    store.wait_led(topic, partitions, in_sync=3)
    return time.monotonic() - started


def elect(side: Side, store: Store, count: int) -> float:
    """Seconds until each broker leads its preferred partitions, after all of them were stopped."""
    admin = AdminClient({"bootstrap.servers": side.bootstrap, **QUIET})
    partitions = [TopicPartition("many", index) for index in range(count)]
    started = time.monotonic()
    admin.elect_leaders(ElectionType.PREFERRED, partitions).result(WAIT_S)
    until(lambda: min(store.leaders("many", count)[number] for number in NUMBERS) >= count // 4)
    return time.monotonic() - started


def gaps(side: Side, end: Callable[[int], None], seconds: float) -> dict[str, float]:
    """Delays when a leader ends: in ZooKeeper, and for producers until the next acknowledgement.

    A producer sends one record after the other, acks=all; its longest wait counts.
    """
    store = Store(side.address)
    create(side, store, topic := f"gap-{time.monotonic_ns()}", 1)
    (leader,) = store.leaders(topic, 1)
    producers = {name: Writer(side.bootstrap, topic, settings) for name, settings in CLIENTS.items()}
    with ThreadPoolExecutor(2 + len(producers)) as pool:
        waits = pool.submit(watch, store, topic, leader)
        ending = pool.submit(end, leader)
        longest = {name: pool.submit(one.longest_wait, ending, seconds) for name, one in producers.items()}
        found = waits.result() | {f"wait of a producer {name}": one.result() for name, one in longest.items()}
    store.close()
    return found


def watch(store: Store, topic: str, leader: int) -> dict[str, float]:
    """When the leader's registration is gone from ZooKeeper, and when the next leader is in it."""
    waits = {"until its registration is gone": until(lambda: store.client.exists(znodes.broker_path(leader)) is None)}
    waits["from then until another leads"] = until(lambda: leader not in store.leaders(topic, 1))
    return waits


class Writer:
    def __init__(self, bootstrap: str, topic: str, settings: Mapping[str, Any]) -> None:
        common = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        self._producer = Producer({**common, **settings})
        self._topic = topic
        for _ in range(20):
            self._write()

    def _write(self) -> None:
        told: list[Any] = []
        self._producer.produce(self._topic, b"x" * 100, on_delivery=lambda error, _: told.append(error))
        if self._producer.flush(WAIT_S) or told != [None]:
            raise TimeoutError(f"a record was not acknowledged: {told}")

    def longest_wait(self, ending: Future[None], seconds: float) -> float:
        longest = 0.0
        started = last = time.monotonic()
        while last - started < seconds or not ending.done():
            self._write()
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        return longest


def memory_mb(side: Side) -> list[int]:
    return [int(Path(f"/proc/{side.pid(one)}/statm").read_text().split()[1]) * PAGE // 10**6 for one in side.numbers]


def cpu_s(side: Side, number: int) -> float:
    fields = Path(f"/proc/{side.pid(number)}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def show(what: str, value: object, unit: str = "s") -> None:
    print(f"{what:88} {f'{value:.2f}' if isinstance(value, float) else value} {unit}", flush=True)


def measure_kill(make: Callable[[int], Side], _: int) -> None:
    for session_ms in SESSIONS_MS:
        with make(session_ms) as side:
            for name, found in gaps(side, side.kill, session_ms / 1000 + 3).items():
                show(f"leader killed, session time-out {session_ms // 1000} s: {name}", found)


def measure_stop(make: Callable[[int], Side], _: int) -> None:
    with make(SESSIONS_MS[0]) as side:
        for name, found in gaps(side, side.stop, 3.0).items():
            show(f"leader stopped in good order: {name}", found)


def measure_size(make: Callable[[int], Side], count: int) -> None:
    started = time.monotonic()
    with make(SESSIONS_MS[0]) as side:
        show("start of ZooKeeper and three brokers", time.monotonic() - started)
        store = Store(side.address)
        show(f"create a topic with {count} partitions, three replicas each", create(side, store, "many", count))
        show("CPU of the brokers since their start", [round(cpu_s(side, one), 1) for one in side.numbers], "s")
        show("one more topic with 100 partitions", create(side, store, "more", 100))
        show("memory of the brokers (RSS)", memory_mb(side), "MB")
        started = time.monotonic()
        at_once(side.stop)
        show("stop of three brokers", time.monotonic() - started)
        started = time.monotonic()
        at_once(side.start)
        show("start of three brokers: they answer", time.monotonic() - started)
        store.wait_led("many", count, in_sync=3)
        show("start of three brokers: every partition is led and in sync", time.monotonic() - started)
        show("CPU of the brokers since their start", [round(cpu_s(side, one), 1) for one in side.numbers], "s")
        show("preferred leaders elected by request", elect(side, store, count))
        controller = store.controller()
        led = store.leaders("many", count)[controller]
        started = time.monotonic()
        side.kill(controller)
        until(lambda: store.client.exists(f"{znodes.BROKERS}/{controller}") is None)
        noticed = time.monotonic()
        store.wait_led("many", count, by_others_than=controller)
        show("controller killed: ZooKeeper ends its session after", noticed - started)
        show(f"and all {led} partitions that it led have leaders after another", time.monotonic() - noticed)
        started = time.monotonic()
        side.start(controller)
        store.wait_led("many", count, in_sync=3)
        show("the killed broker started again, and in sync everywhere", time.monotonic() - started)
        show("memory of the brokers (RSS)", memory_mb(side), "MB")
        store.close()


MEASURES = {"kill": measure_kill, "stop": measure_stop, "size": measure_size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=2000)
    parser.add_argument("--only", default=",".join(MEASURES))
    parser.add_argument("--kafka", action="store_true", help="measure Apache Kafka instead of Ottla")
    options = parser.parse_args()
    make: Callable[[int], Any] = Kafka if options.kafka else Ottla
    print("Apache Kafka 3.9" if options.kafka else "Ottla", flush=True)
    for name in options.only.split(","):
        MEASURES[name](make, options.partitions)


if __name__ == "__main__":
    main()
