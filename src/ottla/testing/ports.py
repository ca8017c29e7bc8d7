"""Ports for servers that are killed and restarted on the same port.

The system takes the ports of outgoing connections from the ephemeral range. A port in that range may be taken by a
connection while its server is down; a client that connects to a dead server there may even connect to itself. So ports
are chosen below that range. Every process starts at a different place, so that two of them do not choose the same.
"""

import errno
import itertools
import random
import socket
import threading
from pathlib import Path

FIRST, LAST = 10_000, 32_767  # Linux's ephemeral range starts after LAST by default
LEAST = 2000  # fewer ports are not enough for many processes
RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Ports:
    def __init__(self, range_file: Path = RANGE_FILE) -> None:
        last = min(LAST, outgoing(range_file) - 1)
        # If there is no room below the ephemeral range, the system chooses.
        self._numbers = range(FIRST, last + 1) if last - FIRST >= LEAST else range(0, 1)
        self._order = itertools.count(random.SystemRandom().randrange(len(self._numbers)))
        self._lock = threading.Lock()

    def take(self, count: int) -> list[int]:
        """Ports that are free now. No port is returned twice."""
        with self._lock:
            sockets: list[socket.socket] = []
            try:
                while len(sockets) < count:
                    sockets += self._bound(self._numbers[next(self._order) % len(self._numbers)])
                return [int(one.getsockname()[1]) for one in sockets]
            finally:
                for one in sockets:
                    one.close()

    def _bound(self, port: int) -> list[socket.socket]:
        one = socket.socket()
        try:
            one.bind(("127.0.0.1", port))
        except OSError as error:
            one.close()
            if error.errno != errno.EADDRINUSE:
                raise
            return []
        return [one]


def outgoing(range_file: Path) -> int:
    """The first port of the ephemeral range."""
    try:
        return int(range_file.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return LAST + 1


_ports = Ports()


def free_ports(count: int) -> list[int]:
    return _ports.take(count)
