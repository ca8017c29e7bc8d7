"""A broker of the simulation: the real one, on a simulated disk, clock, network and store.

start    a new process starts with the content of the folder
kill     it ends at once (kill -9); its writes are in the page cache and survive
outage   a power cut: unsynced writes may be lost, and the other ends of connections are not told
pause    it does not run (SIGSTOP), until `resume`
stop     a controlled shutdown, which takes time
"""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

from ottla.broker import Broker
from ottla.cluster.registration import Registration
from ottla.cluster.standalone import Standalone
from ottla.config import load
from ottla.errors import BrokerError, OutsideError
from ottla.sim.clock import SimClock
from ottla.sim.disk import Device, SimDisk
from ottla.sim.loop import PROCESS
from ottla.sim.zookeeper import SimMetadataStore

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from random import Random
    from socket import socket

    from ottla.sim.loop import Process, SimLoop
    from ottla.sim.net import Network
    from ottla.sim.zookeeper import SimZooKeeper

PORT = 9092


class SimBroker(Broker):
    """The real broker; only its listening sockets are simulated."""

    network: Network

    def _bind(self) -> list[socket]:
        sockets = []
        for wanted in self.config.opened:
            self.addresses.append((wanted.name, wanted.host, wanted.port))
            sockets.append(cast("socket", self.network.listen(wanted.host, wanted.port, PROCESS.get())))
        return sockets


class SimNode:
    """One host with a disk, and its broker, which may run or not."""

    def __init__(
        self,
        number: int,
        folder: Path,
        network: Network,
        store: SimZooKeeper,
        chance: Random,
        options: Mapping[str, str],
        *,
        standalone: bool = False,
        directories: int = 1,
    ) -> None:
        self.number = number
        self.name = f"b{number}"
        self.network = network
        self.store = store
        self.device = Device(chance)
        self.clock = SimClock(network.loop)
        self.broker: SimBroker | None = None
        self.process: Process | None = None
        self.lives = 0
        self.folder = folder
        self.folders = [str(folder)] if directories == 1 else [str(folder / f"d{at}") for at in range(directories)]
        self._options = options
        self._standalone = standalone
        self._disk: SimDisk | None = None
        self._metadata_store: SimMetadataStore | None = None
        self._loop: SimLoop = network.loop

    @property
    def running(self) -> bool:
        return self.process is not None and not self.process.dead

    @property
    def paused(self) -> bool:
        return self.process is not None and self.process.paused

    def start(self) -> None:
        assert not self.running, "one process at a time"
        self.lives += 1
        self.network.dark.discard(self.name)
        self._loop.note(f"{self.name} starts")
        self.process, context = self._loop.process(self.name)
        context.run(self._begin)

    def _begin(self) -> None:
        self._disk = SimDisk(self.device)
        pairs = {
            "node.id": str(self.number),
            "listeners": f"PLAINTEXT://{self.name}:{PORT}",
            "log.dirs": ",".join(self.folders),
            "num.recovery.threads.per.data.dir": "1",
            "ottla.metrics.listener": "off",  # it would listen on a real socket
            **self._options,
        }
        self._metadata_store = SimMetadataStore(self.store, self.name, timeout_s=6.0)
        self.broker = self._make(pairs)
        self.broker.network = self.network
        self._loop.create_task(self._live(self.broker), name=f"{self.name} lives")

    def _make(self, pairs: Mapping[str, str]) -> SimBroker:
        return SimBroker(load(pairs), clock=self.clock, disk=self._disk, metadata_store=self._metadata_store)

    async def _live(self, broker: SimBroker) -> None:
        try:
            await broker.start()
            self._loop.note(f"{self.name} is up")
        except (OSError, BrokerError, OutsideError) as error:
            # For example a full disk, or a store that is away: the process ends and is started again.
            self._loop.note(f"{self.name} does not start: {error!r}")
            self._loop.call_soon(self.kill, context=self._loop.outside_context)

    def kill(self) -> None:
        if not self.running:
            return
        self._loop.note(f"{self.name} is killed")
        self._end()
        assert self.process is not None
        self.network.kill(self.process)

    def outage(self) -> int:
        """Cut the power. Returns how many unsynced bytes there were."""
        self._end()
        assert self.process is not None
        self.network.outage(self.name, self.process)
        stake = self.device.cut_power()
        self._loop.note(f"{self.name} loses its power, and {stake} bytes are at stake")
        return stake

    def wipe(self) -> None:
        """Replace the disk by an empty one."""
        self._loop.note(f"{self.name} loses its disk")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.device.synced.clear()

    def replace_by(self, copy: str) -> None:
        """Replace the disk by this copy, made earlier."""
        self.wipe()
        shutil.move(copy, self.folder)

    def _end(self) -> None:
        assert self.process is not None
        assert self._disk is not None
        assert self._metadata_store is not None
        self._loop.kill(self.process)
        self._disk.kill()
        if self._standalone:  # its store is a file of its own: nothing outlives the process
            self.store.expire(self._metadata_store.session)

    def close(self) -> None:
        """The run has ended: close the files."""
        if self._disk is not None:
            self._disk.kill()

    def pause(self) -> None:
        assert self.process is not None
        self._loop.note(f"{self.name} is paused")
        self._loop.pause(self.process)

    def resume(self) -> None:
        assert self.process is not None
        self._loop.note(f"{self.name} goes on")
        self._loop.resume(self.process)

    async def stop(self) -> None:
        """Controlled shutdown."""
        assert self.process is not None
        assert self.broker is not None
        self._loop.note(f"{self.name} stops")
        done = self._loop.create_future()
        process, broker = self.process, self.broker

        async def stop() -> None:
            await broker.stop()
            if not done.done():
                done.set_result(None)

        self._in_process(stop())
        await done
        if not process.dead:
            self._loop.note(f"{self.name} has stopped")
            self._end()
            self.network.kill(process)

    def _in_process(self, work: Any) -> asyncio.Task[Any]:
        from contextvars import Context

        context = Context()
        context.run(PROCESS.set, self.process)  # type: ignore[arg-type]
        return self._loop.create_task(work, context=context)


@contextlib.contextmanager
def make_deterministic(loop: SimLoop, chance: Random) -> Iterator[None]:
    """Patch everything that the broker takes from the real world without a parameter, to come from the seed.

    Time slices on the event loop are measured in real time, which stands still here: no request is ever deferred.
    """
    numbers = mock.Mock(
        randbelow=lambda limit: chance.randrange(limit), token_bytes=chance.randbytes, token_hex=_hex(chance)
    )
    identities = mock.Mock(uuid4=lambda: "-".join(f"{chance.getrandbits(32):08x}" for _ in range(4)))
    places = ("ottla.net.turns", "ottla.net.newcomers", "ottla.net.dispatch", "ottla.net.connection")
    with contextlib.ExitStack() as stack:
        for place in places:
            stack.enter_context(mock.patch(f"{place}.monotonic", loop.time))
        stack.enter_context(mock.patch("ottla.broker.secrets", numbers))
        stack.enter_context(mock.patch("ottla.broker.uuid", identities))
        for maker in (Standalone, Registration):
            defaults = maker.__init__.__kwdefaults__
            stack.enter_context(mock.patch.dict(defaults, random_bytes=chance.randbytes))
        stack.enter_context(mock.patch("os.urandom", chance.randbytes))
        stack.enter_context(mock.patch("ottla.net.outbox.COPY_SIZE_MAX", 1 << 40))  # no sendfile to a simulated socket
        yield


def _hex(chance: Random) -> Any:
    return lambda size=32: chance.randbytes(size).hex()
