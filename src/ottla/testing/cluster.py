"""A whole cluster on this machine: a real ZooKeeper and brokers as processes, for tests of failures.

with Cluster(brokers=3) as cluster:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, ...})
    cluster.kill(cluster.leader("orders", 0))

kill, stop, start, restart      one broker, by its number: 1, 2, 3; its port and its folder stay the same
add, remove                     add or remove a broker
pause, resume                   SIGSTOP and SIGCONT: the broker is alive but does not respond
isolate, cut, heal              with `cuts=True`: connections between brokers, and to ZooKeeper (see links.py)
zookeeper                       the same for ZooKeeper: kill, restart, pause, resume
"""

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from ottla.embed import BrokerProcess, Options, text
from ottla.testing.links import Links
from ottla.testing.ports import free_ports
from ottla.testing.zookeeper import ZooKeeperServer

ZOOKEEPER = "zookeeper"
LOG_SIZE = 10_000
STORE_S_MAX = 60.0
PATIENTLY: dict[str, Any] = {"max_tries": -1, "delay": 0.05, "max_delay": 0.5}
SESSION_MS = 6000  # shorter than Kafka's 18 s, because tests wait for it
# Every broker has a second listener for the other brokers, so that cutting it does not cut off clients.
AMONG_BROKERS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}


def internal_topics(brokers: int) -> dict[str, int]:
    """Options for internal topics with fewer than three brokers: groups and transactions would wait for a third."""
    copies = min(3, brokers)
    return {"offsets.topic.replication.factor": copies, "transaction.state.log.replication.factor": copies}


class Cluster:
    def __init__(
        self,
        brokers: int = 3,
        *,
        folder: Path | None = None,
        options: Options | None = None,
        own_options: Mapping[int, Options] | None = None,
        cuts: bool = False,
        ports: Iterable[int] = (),
        durable: bool = False,
    ) -> None:
        self.numbers = tuple(range(1, brokers + 1))
        self._own_folder = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="ottla-cluster-"))
        self.zookeeper = ZooKeeperServer(self.folder / "zookeeper", durable=durable)
        self._cuts = cuts
        self._options = {"zookeeper.session.timeout.ms": SESSION_MS, **internal_topics(brokers), **(options or {})}
        self._own_options = own_options or {}
        self._ports = dict(zip(self.numbers, ports or free_ports(brokers), strict=True))
        self.brokers: dict[int, BrokerProcess] = {}
        self._links: Links | None = None
        self._stack = ExitStack()
        self._store: Any = None
        self._lock = threading.Lock()

    @property
    def bootstrap(self) -> str:
        return self.addresses(*self.numbers)

    def addresses(self, *numbers: int) -> str:
        """Bootstrap addresses of these brokers."""
        return ",".join(f"127.0.0.1:{self._ports[number]}" for number in numbers)

    def start(self, number: int | None = None) -> Self:
        """Start ZooKeeper and every broker, or restart one broker."""
        if number is not None:
            self.brokers[number].start()
            return self
        try:
            self._stack.callback(self._remove)
            self._stack.enter_context(self.zookeeper)
            if self._cuts:
                self._links = self._stack.enter_context(Links(self._processes))
            inner = dict(zip(self.numbers, free_ports(len(self.numbers)), strict=True)) if self._cuts else {}
            self.brokers = {one: self._broker(one, inner.get(one)) for one in self.numbers}
            self._stack.callback(self._kill_all)
            self._at_once(lambda one: self.brokers[one].start())
        except BaseException:
            self._stack.close()
            raise
        return self

    def _broker(self, number: int, inner: int | None) -> BrokerProcess:
        port = self._ports[number]
        wanted = {**self._options, **self._own_options.get(number, {})}
        options: dict[str, str] = {name: text(value) for name, value in wanted.items()}
        options |= {"node.id": str(number), "zookeeper.connect": self.zookeeper.address}
        if self._links is not None:
            assert inner is not None
            reached = self._links.open(str(number), inner)
            store = self._links.open(ZOOKEEPER, self.zookeeper.port, source=str(number))
            options |= AMONG_BROKERS
            options["zookeeper.connect"] = f"127.0.0.1:{store}"
            options["listeners"] = f"PLAINTEXT://127.0.0.1:{port},BROKERS://127.0.0.1:{inner}"
            options["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{port},BROKERS://127.0.0.1:{reached}"
        return BrokerProcess(data=self.folder / f"broker-{number}", port=port, options=options, log_level="info")

    def _processes(self) -> dict[str, int]:
        return {str(number): broker.pid for number, broker in self.brokers.items() if broker.running}

    def add(self) -> int:
        """Start one more, empty broker. Returns its number."""
        number = max(self.numbers) + 1
        self.numbers = (*self.numbers, number)
        (self._ports[number],) = free_ports(1)
        inner = free_ports(1)[0] if self._cuts else None
        self.brokers[number] = self._broker(number, inner).start()
        return number

    def remove(self, number: int) -> None:
        """Stop a broker with a controlled shutdown and remove it."""
        self.stop(number)
        self.numbers = tuple(one for one in self.numbers if one != number)
        del self.brokers[number], self._ports[number]

    def port(self, number: int) -> int:
        return self._ports[number]

    def kill(self, number: int, *, expire: bool = False) -> None:
        """Kill a broker. With `expire` its ZooKeeper session ends at once, so the test need not wait for that."""
        self.brokers[number].kill()
        if expire:
            self._expire(number)

    def _expire(self, number: int) -> None:
        from kazoo.exceptions import NoNodeError

        from ottla.cluster import znodes

        with self.store() as store, suppress(NoNodeError):
            session = store.exists(znodes.broker_path(number))
            for path in (znodes.broker_path(number), znodes.CONTROLLER):
                node = store.exists(path)
                if session and node and node.ephemeralOwner == session.ephemeralOwner:
                    store.delete(path)

    def restart(self, number: int) -> None:
        """Stop a broker with a controlled shutdown and start it again."""
        self.stop(number)
        self.start(number)

    def pause(self, number: int) -> None:
        self.brokers[number].pause()

    def resume(self, number: int) -> None:
        self.brokers[number].resume()

    def isolate(self, number: int, *, zookeeper: bool = True, brokers: bool = True) -> None:
        """Cut a broker off, in both directions, from ZooKeeper, the other brokers, or both. Clients still reach it."""
        others = [str(one) for one in self.numbers if one != number] if brokers else []
        others += [ZOOKEEPER] if zookeeper else []
        self.cut(*((str(number), one) for one in others), *((one, str(number)) for one in others))

    def cut(self, *pairs: tuple[int | str, int | str]) -> None:
        """Block traffic from the first to the second of each pair: broker numbers, or `zookeeper`."""
        assert self._links is not None, "only with cuts=True"
        self._links.cut((str(source), str(target)) for source, target in pairs)

    def heal(self) -> None:
        if self._links is not None:
            self._links.heal()

    def controller(self) -> int | None:
        """The number of the current controller."""
        from ottla.cluster import znodes

        data = self._read(znodes.CONTROLLER)
        return None if data is None else znodes.decode_controller(data)

    def leader(self, topic: str, partition: int) -> int | None:
        state = self.state(topic, partition)
        return None if state is None or state["leader"] < 0 else state["leader"]

    def state(self, topic: str, partition: int) -> dict[str, Any] | None:
        """The partition's state in ZooKeeper: `leader`, `leader_epoch`, `isr`, `controller_epoch`."""
        import json

        from ottla.cluster import znodes

        data = self._read(znodes.state_path(topic, partition))
        return None if data is None else json.loads(data)

    def report(self) -> str:
        """The last log output of the brokers, for a failed test."""
        return "\n".join(f"broker {number}:\n{broker.log[-LOG_SIZE:]}" for number, broker in self.brokers.items())

    def _read(self, path: str) -> bytes | None:
        from kazoo.exceptions import NoNodeError

        with self.store() as client:
            try:
                return bytes(client.retry(client.get, path)[0])
            except NoNodeError:
                return None

    @contextmanager
    def store(self) -> Iterator[Any]:
        """A connected kazoo client of the cluster's ZooKeeper, not affected by cuts. Always the same one."""
        from kazoo.client import KazooClient

        with self._lock:
            if self._store is None:
                self._store = KazooClient(
                    self.zookeeper.address,
                    connection_retry=PATIENTLY,
                    command_retry={**PATIENTLY, "deadline": STORE_S_MAX},
                )
                self._store.start(STORE_S_MAX)
                self._stack.callback(self._forget)
        self._store.retry(self._store.exists, "/")  # reconnecting after a ZooKeeper outage may take a moment
        yield self._store

    def _forget(self) -> None:
        store, self._store = self._store, None
        store.stop()
        store.close()

    def stop(self, number: int | None = None) -> None:
        """Stop one broker with a controlled shutdown; or all of them, and then ZooKeeper."""
        if number is not None:
            self.brokers[number].stop()
            return
        self.heal()
        try:
            self._at_once(lambda one: self.brokers[one].stop())
        finally:
            self._stack.close()

    def _kill_all(self) -> None:
        for broker in self.brokers.values():
            broker.kill()

    def _at_once(self, work: Callable[[int], object]) -> None:
        with ThreadPoolExecutor(len(self.numbers)) as pool:
            list(pool.map(work, self.brokers))

    def _remove(self) -> None:
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        """Kill everything: a test does not wait for a controlled shutdown."""
        self._stack.close()
