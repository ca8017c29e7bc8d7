"""Listening sockets and their connections: admission, idle connections and draining.

A connection over `max.connections` or `max.connections.per.ip` is closed at once, as in Kafka, and logged. A periodic
sweep closes connections that are idle for `connections.max.idle.ms`: no bytes read or written, no answer pending.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter, deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ottla.net.connection import Connection, ConnectionLimits, plain
from ottla.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.net.answer import Answer
    from ottla.net.entrance import Entrance
    from ottla.net.receiver import Receiver

log = logging.getLogger("ottla.net")

# After a failed accept, mostly for lack of file descriptors, the listener pauses this long instead of spinning.
ACCEPT_REST_S = 0.5
# Idle connections are closed so many at once, with a pause after them: thousands together would hold the loop for long.
SWEPT_MAX = 10
SWEEP_PAUSE_S = 0.005
# The most connections that are held for exceeding a rate. More are closed at once.
HELD_MAX = 1000


class ConnectionRates(Protocol):
    """The rate limits for new connections."""

    def hold(self, address: str) -> float:
        """How many seconds to hold a connection from this address before closing it; 0: accept it."""
        ...

    def rest(self, listener: str) -> float:
        """Count an accepted connection. Returns for how many seconds to accept no other."""
        ...


class Admission:
    """The limits on open connections, in total and per address; shared by all listeners of a broker."""

    rates: ConnectionRates | None = None  # None: no rate limit

    def __init__(self) -> None:
        self._by_address: Counter[str] = Counter()
        self._total = 0
        self.limit(0, 0, {})

    def limit(self, total_max: int, per_address_max: int, overrides: Mapping[str, int]) -> None:
        """Set the limits; open connections are not closed."""
        self._total_max = total_max
        self._per_address_max = per_address_max
        self._overrides = overrides

    def admit(self, address: str) -> str | None:
        """Count the connection, or return why it is refused."""
        if self._total >= self._total_max:
            return f"{self._total_max} connections are open (max.connections)"
        limit = self._overrides.get(address, self._per_address_max)
        if self._by_address[address] >= limit:
            return f"{limit} connections from this address are open (max.connections.per.ip)"
        self._total += 1
        self._by_address[address] += 1
        return None

    def release(self, address: str) -> None:
        self._total -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


class Listener:
    """One named address that clients connect to."""

    def __init__(
        self,
        name: str,
        bound: socket.socket,
        *,
        handle: Callable[[Connection, memoryview], Answer],
        admission: Admission,
        receiver: Receiver,
        limits: ConnectionLimits,
        connections_max: int | None,
        idle_s_max: float,
        send_buffer_size: int,
        receive_buffer_size: int,
        entrance: Entrance | None = None,
    ) -> None:
        self.name = name
        self._entrance = entrance  # None: no TLS and no login
        self._entering = 0  # connections in the TLS handshake
        self.connections: dict[Connection, None] = {}  # in the order of arrival
        self.accepted = self.refused = 0
        # Connections over the rate of their address, to be closed later.
        self._held: dict[socket.socket, asyncio.TimerHandle] = {}
        self._empty = asyncio.Event()
        self._handle = handle
        self._admission = admission
        self._receiver = receiver
        self._limits = limits
        self._connections_max = connections_max
        self._idle_s_max = idle_s_max
        self._send_buffer_size = send_buffer_size
        self._receive_buffer_size = receive_buffer_size
        self._socket: socket.socket | None = bound
        self._accept_waits = False  # behind work for other new clients
        self._loop = asyncio.get_running_loop()
        self._sweeper: asyncio.TimerHandle | None = None
        self._steps = Steps("ottla.net")

    def open(self) -> None:
        """Start accepting, beginning with connections that arrived since the address was bound."""
        assert self._socket is not None, "a closed listener cannot be opened again"
        self._loop.add_reader(self._socket.fileno(), self._accept)
        self._schedule_sweep()

    def _accept(self) -> None:
        """Accept one connection. If more are waiting the loop calls again; open connections get a turn in between."""
        assert self._socket is not None
        if not self._receiver.newcomers.serve(self._accept_now):
            self._loop.remove_reader(self._socket.fileno())  # until it is served
            self._accept_waits = True

    def _accept_now(self) -> None:
        listening = self._socket
        if listening is None:  # closed while it waited
            return
        if self._accept_waits:
            self._accept_waits = False
            self._accept_again()
        with self._steps.attempt(f"accepting connections on {self.name}") as attempt:
            self._accept_one(listening)
        if attempt.failed:
            self._rest(listening, ACCEPT_REST_S)

    def _rest(self, listening: socket.socket, seconds: float) -> None:
        self._loop.remove_reader(listening.fileno())
        self._loop.call_later(seconds, self._accept_again)

    def _accept_one(self, listening: socket.socket) -> None:
        try:
            sock, peer = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        rates, address = self._admission.rates, plain(peer[0])
        if rates is None:
            self._admit(sock, address)
            return
        held_s = rates.hold(address)
        if held_s > 0:
            self._hold(sock, held_s)
            return
        rest_s = rates.rest(self.name)
        self._admit(sock, address)
        if rest_s > 0:
            self._rest(listening, rest_s)

    def _hold(self, sock: socket.socket, seconds: float) -> None:
        """This address connects too often: close the connection after a delay, as Kafka does, to delay its next
        attempt."""
        self.refused += 1
        if len(self._held) >= HELD_MAX:
            sock.close()
        else:
            self._held[sock] = self._loop.call_later(seconds, self._let_go, sock)

    def _let_go(self, sock: socket.socket) -> None:
        self._held.pop(sock).cancel()
        sock.close()

    def _accept_again(self) -> None:
        if self._socket is not None:
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _admit(self, sock: socket.socket, address: str) -> None:
        if self._connections_max is not None and len(self.connections) + self._entering >= self._connections_max:
            refusal: str | None = f"{self._connections_max} connections to {self.name} are open"
        else:
            refusal = self._admission.admit(address)
        if refusal:
            log.warning("refusing the connection from %s: %s", address, refusal)
            self.refused += 1
            sock.close()
            return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._send_buffer_size > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_size)
            if self._receive_buffer_size > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_size)
        except BaseException as error:
            self._give_up(sock, address)
            if isinstance(error, OSError):  # the peer has disconnected already
                return
            raise
        if self._entrance is None:
            self._join(sock, address, partial(Connection, sock))
            return
        self._entering += 1
        self._entrance.begin(
            sock,
            self._receiver.newcomers,
            lambda make: self._let_in(sock, address, make),
            lambda reason: self._turn_away(sock, address, reason),
        )

    def _let_in(self, sock: socket.socket, address: str, make: Callable[..., Connection]) -> None:
        assert self._entrance is not None
        self._entering -= 1
        connection = self._join(sock, address, make)
        if connection is None:
            return
        if self._entrance.gate is not None:
            self._entrance.gate.receive(connection)
        if self._socket is None:  # the broker began to stop meanwhile
            connection.close()

    def _turn_away(self, sock: socket.socket, address: str, reason: str) -> None:
        assert self._entrance is not None
        self._entering -= 1
        log.info("closing the connection of %s to %s: %s", address, self.name, reason)
        self._loop.call_later(self._entrance.delay_s, self._give_up, sock, address)

    def _join(self, sock: socket.socket, address: str, make: Callable[..., Connection]) -> Connection | None:
        try:
            connection = make(
                listener=self.name,
                handle=self._handle,
                on_close=self._on_close,
                loop=self._loop,
                receiver=self._receiver,
                limits=self._limits,
            )
        except BaseException as error:
            self._give_up(sock, address)
            if isinstance(error, OSError):  # the peer has disconnected already
                return None
            raise
        self.accepted += 1
        self.connections[connection] = None
        self._empty.clear()
        return connection

    def _give_up(self, sock: socket.socket, address: str) -> None:
        sock.close()
        self._admission.release(address)

    def _on_close(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        if self._entrance is not None and self._entrance.gate is not None:
            self._entrance.gate.forget(connection)
        if not self.connections:
            self._empty.set()
        self._admission.release(connection.host)

    def _schedule_sweep(self) -> None:
        if self._idle_s_max > 0:
            self._sweeper = self._loop.call_later(max(self._idle_s_max / 10, 0.05), self._sweep)

    def _sweep(self) -> None:
        self._schedule_sweep()  # first, so that the next sweep is scheduled even if this one fails
        for connection in self.connections:
            connection.note_progress()
        self._close_idle(deque(connection for connection in self.connections if self._is_idle(connection)))

    def _is_idle(self, connection: Connection) -> bool:
        # A client that reads nothing keeps its answer unsent. That counts as idle, too.
        return connection.active_at < self._loop.time() - self._idle_s_max and not connection.waiting

    def _close_idle(self, connections: deque[Connection]) -> None:
        """Close them, a few at a time."""
        for _ in range(min(SWEPT_MAX, len(connections))):
            connection = connections.popleft()
            if connection.closed or not self._is_idle(connection):  # no longer: the others took a while
                continue
            log.info("closing the idle connection of %s:%d", connection.host, connection.port)
            with self._steps.attempt("closing an idle connection", connection):
                connection.close()
        if connections:
            self._loop.call_later(SWEEP_PAUSE_S, self._close_idle, connections)

    def stop_accepting(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        for sock in list(self._held):
            self._let_go(sock)

    async def drain(self, timeout_s: float) -> None:
        """Let every connection finish its pending requests; close the rest after the timeout."""
        for connection in list(self.connections):
            connection.drain()
        if self.connections:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), timeout_s)
        for connection in list(self.connections):
            connection.close()


def bind(host: str, port: int, backlog: int) -> socket.socket:
    """A listening socket on host. An empty host means all addresses, IPv6 and IPv4 where the machine has both."""
    family = socket.AF_INET6 if host == "" and socket.has_dualstack_ipv6() else socket.AF_INET
    address = host
    if host:
        family, _, _, _, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        address = str(found[0])
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1 if host else 0)
        listening.bind((address, port))
        listening.listen(backlog)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening
