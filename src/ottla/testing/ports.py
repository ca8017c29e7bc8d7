"""Ports for servers that are started, killed and started again on the same port.

The system gives outgoing connections their ports from a range of its own. A port of that range may be taken by a
connection while its server is down; a client that dials a dead server there may even connect to itself. So ports are
chosen below that range. Every process begins at a place of its own, so that two of them do not choose the same.
"""

import errno
import itertools
import random
import socket
import threading
from pathlib import Path

FIRST, LAST = 10_000, 32_767  # where Linux begins unless told otherwise
LEAST = 2000  # fewer are too few for many processes
RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Ports:
    def __init__(self, range_file: Path = RANGE_FILE) -> None:
        last = min(LAST, outgoing(range_file) - 1)
        # Without room below the outgoing ports, the system chooses.
        self._numbers = range(FIRST, last + 1) if last - FIRST >= LEAST else range(0, 1)
        self._order = itertools.count(random.SystemRandom().randrange(len(self._numbers)))
        self._lock = threading.Lock()

    def take(self, count: int) -> list[int]:
        """Ports that nobody has now, and that are not given twice."""
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
    """The first port that outgoing connections may have."""
    try:
        return int(range_file.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return LAST + 1


_ports = Ports()


def free_ports(count: int) -> list[int]:
    return _ports.take(count)
