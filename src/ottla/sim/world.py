"""One run: a cluster of real brokers in a simulated world, its clients and its failures, all from one seed.

    begin     brokers start, a topic is created, clients start
    trouble   for a while: brokers die, lose power, are paused, cut off; the store too; leaders and controllers move
    calm      everything heals; within `CALM_S` every record must be acknowledged, every replica in sync, every
              reader at the end (V17)
    end       the logs are compared with the responses that clients got

Invariants are checked all the time (`checks.py`, `history.py`, `members.py`). The first violation ends the run with
`BrokenInvariant`, which says what and when.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

from ottla.cluster.metadata_store import StoreError
from ottla.cluster.peers import PeerError
from ottla.errors import BrokerError, ErrorCode
from ottla.sim.cast import Cast
from ottla.sim.checks import Checks, batches, list_hosted
from ottla.sim.clients import Client, records
from ottla.sim.history import History
from ottla.sim.link import LinkError
from ottla.sim.loop import make_loop
from ottla.sim.net import Network
from ottla.sim.node import PORT, SimNode, make_deterministic
from ottla.sim.trouble import Trouble
from ottla.sim.zookeeper import SimZooKeeper
from ottla.wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

    from ottla.sim.history import Partition
    from ottla.sim.loop import Process

FORESEEN = (PeerError, StoreError, OSError, BrokerError)  # errors that brokers must expect
TOPIC = "orders"
CALM_S = 90.0
STORY_S = 600.0
CALLBACKS_MAX = 300_000  # several times what the longest run needs: busy loops are wrong, too
OPTIONS = {
    "zookeeper.connect": "zk:2181",
    "zookeeper.session.timeout.ms": "6000",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "1",
    "replica.lag.time.max.ms": "4000",
    "replica.fetch.wait.max.ms": "500",
    "group.initial.rebalance.delay.ms": "100",
    "log.segment.bytes": "16384",
    "offsets.topic.segment.bytes": "2048",  # small, so that they are compacted during a run
    "transaction.state.log.segment.bytes": "2048",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.min.cleanable.ratio": "0.1",
    "leader.imbalance.check.interval.seconds": "20",
    "auto.create.topics.enable": "false",
    "controlled.shutdown.enable": "true",
    "log.message.timestamp.after.max.ms": str(10**12),  # clocks jump, and brokers would rightly refuse future records
}


class BrokenInvariant(Exception):
    """An invariant is violated."""


class World:
    def __init__(
        self,
        seed: int,
        folder: Path,
        *,
        brokers: int = 3,
        directories: int = 1,
        partitions: int = 2,
        rounds: int = 6,
        kinds: Sequence[str] = (),
        cast: Sequence[str] | None = None,
        options: Mapping[str, str] | None = None,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        """`kinds`: use only these kinds of failures; `cast`: use these clients instead of random ones."""
        self.seed = seed
        self.chance = Random(seed)
        self.loop = make_loop(Random(f"{seed} loop"))
        self.loop.trace = trace
        self.loop.until = self.loop.time() + STORY_S
        self.loop.callbacks_max = CALLBACKS_MAX
        self.network = Network(self.loop, Random(f"{seed} net"))
        self.network.ghosts = 0.05
        self.store = SimZooKeeper(self.loop, self.network)
        self.nodes = [
            SimNode(
                number,
                folder / str(number),
                self.network,
                self.store,
                Random(f"{seed} disk {number}"),
                {**OPTIONS, **(options or {})},
                directories=directories,
            )
            for number in range(brokers)
        ]
        self.wrong: list[str] = []
        self.history = History(lambda violation: self.fail(str(violation)))
        self.checks = Checks(self.store, self.fail)
        self.loop.after = self._after
        self.partitions = [(TOPIC, index) for index in range(partitions)]
        self.trouble = Trouble(self, rounds, kinds)
        self._parts = cast
        self._contents: dict[Partition, bytes] = {}  # final contents of the logs
        self._alarm = Alarm(self)

    def _after(self, process: Process) -> None:
        """Check a process after each of its callbacks. Limits of files and broken folders do not apply to the check."""
        starved = [device for device in self.trouble.starved if device.starved]
        for device in starved:
            device.starved = False
        broken = [(node.device, node.device.broken) for node in self.nodes if node.device.broken is not None]
        for device, _ in broken:
            device.broken = None
        self.checks.after(process)
        for device, folder in broken:
            device.broken = folder
        for device in starved:
            device.starved = True

    def fail(self, what: str) -> None:
        """Record a violation, and end the run at the next opportunity."""
        self.loop.note(f"WRONG {what}")
        self.wrong.append(what)
        self.loop.stop()

    def run(self, story: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Run the story of this seed, or the given one."""
        loggers = logging.getLogger("ottla")
        loggers.addHandler(self._alarm)
        try:
            with make_deterministic(self.loop, Random(f"{self.seed} broker")):
                telling = self.loop.create_task((story or self._story)())
                telling.add_done_callback(lambda _: self.loop.stop())
                try:
                    self.loop.run_forever()
                finally:
                    self.loop.close()
                    for node in self.nodes:
                        node.close()
        finally:
            loggers.removeHandler(self._alarm)
        for wrong in (*self.wrong, *self.loop.faults):
            raise BrokenInvariant(wrong)
        telling.result()

    # The story.

    async def _story(self) -> None:
        for node in self.nodes:
            self.start(node)
        cast = Cast(self, Random(f"{self.seed} cast"), self._parts)
        topics = [make_topic(TOPIC, len(self.partitions), {"min.insync.replicas": "2"})]
        topics += [make_topic(name, 1, configs) for name, configs in cast.topics.items()]
        for topic in topics:
            await self.in_process("admin", self._create(self.client("admin"), topic))
        cast.begin()
        await self.trouble.run()
        await self.trouble.heal()
        self.loop.note("calm")
        if "insync" in self.trouble.kinds:
            await self.trouble.operations.insync(2)
        await asyncio.sleep(2)
        cast.stop()
        wishes: dict[str, Callable[[], bool]] = {
            "every partition has a leader, and every replica is in sync": self.checks.is_whole,
            "every replica has everything": self._is_level,
        }
        if len(self.nodes) > 3:
            wishes["no replicas are left over"] = self.trouble.operations.is_settled
        if await self._calm({**cast.wishes(), **wishes}):
            await cast.end(self._compare(), self._contents)

    async def _calm(self, wishes: dict[str, Callable[[], bool]]) -> bool:
        """After everything has healed, wait for all of these to become true (V17)."""
        until = self.loop.time() + CALM_S
        while wishes:
            wishes = {wish: is_true for wish, is_true in wishes.items() if not is_true()}
            if wishes and self.loop.time() > until:
                self.fail(f"V17 not within {CALM_S:g} s: {', '.join(wishes)}")
                return False
            await asyncio.sleep(0.5)
        return True

    def _is_level(self) -> bool:
        for key in self.partitions:
            high = self.checks.truths[key].high
            found = [one for node in self.nodes for one in list_hosted(node) if (one.topic, one.index) == key]
            if len(found) < 3 or any(one.high != high or one.log.end != high for one in found):
                return False
        return True

    def _compare(self) -> dict[Partition, dict[int, bytes]]:
        """Compare the replicas. Returns the contents of the logs, by offset."""
        logs: dict[Partition, dict[int, bytes]] = {}
        for key in self.partitions:
            contents = {}
            for node in self.nodes:
                for one in list_hosted(node):
                    if (one.topic, one.index) == key:
                        pieces = [data for _, data in batches(one.log, one.log.start, one.high)]
                        contents[node.name] = b"".join(pieces)
                        self._contents[key] = contents[node.name]
                        logs[key] = {record.offset: record.value or b"" for data in pieces for record in records(data)}
            self.history.compare_replicas(key, contents)
            self.history.check_found(key, logs[key])
        return logs

    async def _create(self, client: Client, topic: CreatableTopic) -> None:
        while True:
            await client.refresh()
            controller = client.address(client.controller)
            with suppress(LinkError):
                if controller is not None and len(client.known) == len(self.nodes):
                    answer = await client.ask(controller, CreateTopicsRequest(topics=[topic]), 5)
                    if answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                        return
            await client.rest()

    # For `trouble.py` and the cast.

    def start(self, node: SimNode) -> None:
        node.device.full = node.device.starved = (
            False  # make room before a restart: else its logs could not be recovered
        )
        node.start()
        self.checks.begin(node)

    def client(self, name: str) -> Client:
        return Client(self.network, name, [(node.name, PORT) for node in self.nodes], Random(f"{self.seed} {name}"))

    def in_process(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as a process on a host of that name."""
        _, context = self.loop.process(name)
        return self.loop.create_task(work, context=context)


def make_topic(name: str, partitions: int, configs: Mapping[str, str]) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=3,
        assignments=[],
        configs=[CreatableTopicConfig(name=option, value=value) for option, value in configs.items()],
    )


class Alarm(logging.Handler):
    """Fails the run on every unforeseen error in a broker. Brokers log such errors with a traceback."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, FORESEEN) and not self._world.loop.is_closed():
            if self._world.loop.trace is not None:
                self._world.loop.trace("".join(traceback.format_exception(error)))
            self._world.fail(f"{record.name}: {record.getMessage()}: {error!r}")
        elif self._world.loop.trace is not None:
            self._world.loop.trace(f"           log {record.name}: {record.getMessage()}")
