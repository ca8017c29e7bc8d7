"""The network between hosts: connections that carry bytes in order, late, or not at all.

A connection is two `Pipe`s, one for each direction. Bytes arrive after a delay, in order within their pipe. Pipes are
independent, so bytes on two connections may overtake each other. Like TCP, the network loses no byte in the middle of a
stream:

    cut       a direction between two hosts carries nothing; bytes wait until it heals (or the connection ends)
    reset     both ends find the connection broken; if it is cut, only after it has healed
    kill      when a process dies, the system of its host closes its connections
    outage    a host without power sends nothing; bytes sent to it after its restart are answered with a reset

`SimSocket` has the methods of a socket that the broker uses, so real listeners and connections run on it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, cast

from ottla.sim.loop import PROCESS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable
    from random import Random

    from ottla.sim.loop import Process, SimLoop

FIRST_FD = 1_000_000  # no real descriptor is as large
DELAY_S = 0.0005  # the usual mean delay
REFUSED = ConnectionRefusedError("nobody listens there")


class Network:
    def __init__(self, loop: SimLoop, chance: Random) -> None:
        self.loop = loop
        self.chance = chance
        self.slow: dict[tuple[str, str], float] = {}  # unusual mean delays
        self.dark: set[str] = set()  # hosts without power
        self.ghosts = 0.0  # probability that a connection is attempted twice
        self._cuts: set[tuple[str, str]] = set()
        self._listening: dict[tuple[str, int], Listening] = {}
        self._pipes: dict[Pipe, None] = {}
        self._stalled: list[ConnectAttempt] = []
        self._fd = FIRST_FD
        loop.dial = self._dial

    async def _dial(self, factory: Callable[[], Any], host: str, port: int) -> tuple[Transport, Any]:
        socket = await self.connect(PROCESS.get().name, host, port)
        protocol = factory()
        return Transport(self.loop, socket, protocol), protocol

    # Failures.

    def cut(self, source: str, target: str) -> None:
        """Block traffic from one host to the other; the other direction still works."""
        self._cuts.add((source, target))

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """Unblock all traffic, or one direction."""
        healed = sorted(self._cuts) if source is None or target is None else [(source, target)]
        self._cuts.difference_update(healed)
        for pipe in list(self._pipes):
            pipe.flow()
        attempts, self._stalled = self._stalled, []
        for attempt in attempts:
            self._try(attempt)

    def reaches(self, source: str, target: str) -> bool:
        return (source, target) not in self._cuts and source not in self.dark and target not in self.dark

    def reset(self, source: str, target: str) -> None:
        """Break every connection between two hosts."""
        for pipe in list(self._pipes):
            if (pipe.source, pipe.target) == (source, target):
                pipe.receiver.break_off()
                pipe.receiver.peer.break_off()

    def kill(self, process: Process) -> None:
        """A process has died: its system closes its connections."""
        for key, listening in list(self._listening.items()):
            if listening.process is process:
                del self._listening[key]
        for socket in self._sockets_of(process):
            socket.close()

    def outage(self, host: str, process: Process) -> None:
        """A host loses power: the other ends of its connections are not told."""
        self.dark.add(host)
        for key, listening in list(self._listening.items()):
            if listening.process is process:
                del self._listening[key]
        for socket in self._sockets_of(process):
            socket.closed = True
            self.loop.sockets.pop(socket.fd, None)
            self._pipes.pop(socket.out, None)

    def _sockets_of(self, process: Process) -> list[SimSocket]:
        return [pipe.receiver for pipe in self._pipes if pipe.receiver.process is process]

    def delay_s(self, source: str, target: str) -> float:
        return self.chance.expovariate(1 / self.slow.get((source, target), DELAY_S))

    # Connections.

    def listen(self, host: str, port: int, process: Process) -> Listening:
        self._fd += 1
        listening = self._listening[host, port] = Listening(self, self._fd, (host, port), process)
        self.loop.sockets[listening.fd] = listening
        return listening

    async def connect(self, source: str, host: str, port: int) -> SimSocket:
        """Connect from a host to an address. There is no timeout."""
        attempt = ConnectAttempt(source, (host, port), self.loop.create_future(), PROCESS.get())
        self._later(self.delay_s(source, host), attempt)
        if self.ghosts and self.chance.random() < self.ghosts:
            self._later(self.delay_s(source, host), ConnectAttempt(source, (host, port), None, PROCESS.get()))
        assert attempt.future is not None
        found: SimSocket = await attempt.future
        return found

    def _later(self, delay_s: float, attempt: ConnectAttempt) -> None:
        outside = self.loop.outside_context
        self.loop.call_later(delay_s, self._try, attempt, context=outside)

    def _try(self, attempt: ConnectAttempt) -> None:
        source, (host, port) = attempt.source, attempt.address
        if attempt.process.dead or (attempt.future is not None and attempt.future.done()):
            return
        if not (self.reaches(source, host) and self.reaches(host, source)):
            self._stalled.append(attempt)
            return
        listening = self._listening.get((host, port))
        if listening is None:
            if attempt.future is not None:
                attempt.future.set_exception(REFUSED)
            return
        near = self._socket(source, host, (source, 50_000 + self._fd % 10_000), (host, port), attempt.process)
        far = self._socket(host, source, (host, port), near.address, listening.process)
        near.peer, far.peer = far, near
        near.out, far.out = Pipe(self, near, far), Pipe(self, far, near)
        self._pipes[near.out] = self._pipes[far.out] = None
        listening.backlog.append(far)
        self.loop.look(listening.fd)
        if attempt.future is None:
            self.loop.call_later(self.chance.random(), near.close, context=self.loop.outside_context)
        else:
            attempt.future.set_result(near)

    def _socket(
        self, here: str, there: str, address: tuple[str, int], peer: tuple[str, int], process: Process
    ) -> SimSocket:
        self._fd += 1
        socket = SimSocket(self, self._fd, here, there, address, peer, process)
        self.loop.sockets[socket.fd] = socket
        return socket

    def forget(self, socket: SimSocket) -> None:
        self.loop.sockets.pop(socket.fd, None)


class ConnectAttempt:
    """A connection attempt. Without a future it is a duplicate of the same packet."""

    __slots__ = ("address", "future", "process", "source")

    def __init__(
        self, source: str, address: tuple[str, int], future: asyncio.Future[SimSocket] | None, process: Process
    ) -> None:
        self.source = source
        self.address = address
        self.future = future
        self.process = process


class Listening:
    """A socket that accepts connections."""

    def __init__(self, network: Network, fd: int, address: tuple[str, int], process: Process) -> None:
        self.fd = fd
        self.process = process
        self.backlog: deque[SimSocket] = deque()
        self._network = network
        self._address = address

    @property
    def readable(self) -> bool:
        return bool(self.backlog)

    def fileno(self) -> int:
        return self.fd

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def accept(self) -> tuple[SimSocket, tuple[str, int]]:
        if not self.backlog:
            raise BlockingIOError
        socket = self.backlog.popleft()
        return socket, socket.peer_address

    def close(self) -> None:
        self._network.loop.sockets.pop(self.fd, None)
        if self._network._listening.get(self._address) is self:
            del self._network._listening[self._address]


class Pipe:
    """One direction of a connection."""

    def __init__(self, network: Network, sender: SimSocket, receiver: SimSocket) -> None:
        self.source = sender.host
        self.target = receiver.host
        self.receiver = receiver
        self._network = network
        self._waiting: deque[bytes] = deque()  # empty bytes are the end of the stream
        self._due = 0.0

    def send(self, data: bytes) -> None:
        network = self._network
        loop = network.loop
        self._due = max(self._due, loop.time() + network.delay_s(self.source, self.target))
        self._waiting.append(data)
        loop.call_at(self._due, self._arrive, context=loop.outside_context)

    def _arrive(self) -> None:
        """Deliver the next piece, unless the direction is cut."""
        if self._waiting and self._network.reaches(self.source, self.target):
            self._deliver(self._waiting.popleft())

    def flow(self) -> None:
        """Deliver all that waits, if the direction is no longer cut."""
        while self._waiting and self._network.reaches(self.source, self.target):
            self._deliver(self._waiting.popleft())

    def _deliver(self, data: bytes) -> None:
        socket = self.receiver
        if socket.closed:
            self._waiting.clear()
            self._network._pipes.pop(self, None)
            socket.peer.break_off()
            return
        if data:
            socket.inbox += data
        else:
            socket.ended = True
            self._network._pipes.pop(self, None)
        self._network.loop.look(socket.fd)


class SimSocket:
    """One end of a connection."""

    peer: SimSocket
    out: Pipe

    def __init__(
        self,
        network: Network,
        fd: int,
        host: str,
        peer_host: str,
        address: tuple[str, int],
        peer_address: tuple[str, int],
        process: Process,
    ) -> None:
        self.fd = fd
        self.host = host
        self.peer_host = peer_host
        self.address = address
        self.peer_address = peer_address
        self.process = process
        self.inbox = bytearray()
        self.ended = False
        self.broken = False
        self.closed = False
        self._network = network

    @property
    def readable(self) -> bool:
        return bool(self.inbox) or self.ended or self.broken

    def break_off(self) -> None:
        """Break the connection; received bytes that were not read are lost."""
        if not self.closed:
            self.broken = True
            self.inbox.clear()
            self._network.loop.look(self.fd)

    # Socket methods.

    def fileno(self) -> int:
        return -1 if self.closed else self.fd

    def getpeername(self) -> tuple[str, int]:
        return self.peer_address

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def setblocking(self, flag: bool) -> None:
        pass

    def setsockopt(self, *option: Any) -> None:
        pass

    def recv_into(self, buffer: memoryview) -> int:
        data = self._take(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def recv(self, size: int) -> bytes:
        return self._take(size)

    def _take(self, size: int) -> bytes:
        if self.closed:
            raise OSError("closed")
        if self.broken:
            raise ConnectionResetError("the connection is no more")
        if not self.inbox and not self.ended:
            raise BlockingIOError
        data = bytes(self.inbox[:size])
        del self.inbox[:size]
        return data

    def send(self, data: bytes | memoryview, *_: Any) -> int:
        if self.closed or self.broken:
            raise BrokenPipeError("the connection is no more")
        if len(data):
            self.out.send(bytes(data))
        return len(data)

    def sendmsg(self, buffers: Iterable[bytes | memoryview], *_: Any) -> int:
        return self.send(b"".join(buffers))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._network.forget(self)
            self._network.loop.remove_reader(self.fd)
            self._network._pipes.pop(self.peer.out, None)
            if not self.broken:
                self.out.send(b"")


class Transport:
    """A connection as asyncio hands it to a `BufferedProtocol`."""

    def __init__(self, loop: SimLoop, socket: SimSocket, protocol: asyncio.BufferedProtocol) -> None:
        self._loop = loop
        self._socket = socket
        self._protocol = protocol
        self._closed = False
        protocol.connection_made(cast("asyncio.Transport", self))
        loop.add_reader(socket.fd, self._on_readable)

    def _on_readable(self) -> None:
        buffer = memoryview(self._protocol.get_buffer(-1))
        try:
            size = self._socket.recv_into(buffer)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(error)
            return
        if size:
            self._protocol.buffer_updated(size)
        elif not self._protocol.eof_received():
            self._end(None)

    def writelines(self, parts: Iterable[bytes | memoryview]) -> None:
        self.write(b"".join(parts))

    def write(self, data: bytes) -> None:
        if self._closed:
            return
        try:
            self._socket.send(data)
        except OSError as error:
            self._end(error)

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> Any:
        return self._socket if name == "socket" else None

    def is_closing(self) -> bool:
        return self._closed

    def abort(self) -> None:
        self._end(None)

    close = abort

    def _end(self, error: OSError | None) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._socket.fd)
            self._socket.close()
            self._loop.call_soon(self._protocol.connection_lost, error)
