"""Linux enlarges a process's table of descriptors when it is full, and the loop stands still meanwhile. So a broker
makes it large before it starts, and connections do not enlarge it."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from pathlib import Path

from process import Ottla
from waiting import wait_until

from ottla.descriptors import ROOM, limit

CONNECTIONS = 600  # more than fit into the table that a process begins with


def table_size(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("FDSize:"))


def test_connections_do_not_enlarge_the_table() -> None:
    with Ottla() as broker, ExitStack() as stack:
        before = table_size(broker.pid)
        assert before >= min(limit(), ROOM), "this is the limit of a process that the broker inherits"
        for _ in range(CONNECTIONS):
            stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), timeout=60))
        wait_until(lambda: len(os.listdir(f"/proc/{broker.pid}/fd")) > CONNECTIONS, "connections accepted")
        assert table_size(broker.pid) == before
