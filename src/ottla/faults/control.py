"""Commands to a broker in another process: lines of JSON over a socket pair that the parent creates and the child
inherits (`ottla serve --control-fd`). It has no name and no address, so no other process can reach it.

    {"fault": {"key": 0, "times": 2, "code": 6, ...}}   or   {"do": "clear"}
    {"pending": {"Produce": 2}}                         or   {"refused": "AddRaftVoter: this broker does not serve it"}
"""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.broker import Broker
    from ottla.faults.fault import Fault
    from ottla.faults.injector import Injector

ANSWER_S_MAX = 60.0
LINE_SIZE_MAX = 64 * 1024


class ControlClient:
    """The parent's end."""

    def __init__(self) -> None:
        self._own, self._childs = socket.socketpair()
        self._own.settimeout(ANSWER_S_MAX)

    @property
    def child_fd(self) -> int:
        return self._childs.fileno()

    def started(self) -> None:
        """The child has inherited its end: close our copy of it, so that we notice when the child exits."""
        self._childs.close()

    def order(self, order: Fault | str) -> dict[str, int]:
        facts = {"do": order} if isinstance(order, str) else {"fault": order.to_json()}
        self._own.sendall(json.dumps(facts).encode() + b"\n")
        line = b""
        while not line.endswith(b"\n"):
            received = self._own.recv(LINE_SIZE_MAX)
            if not received:
                raise ConnectionError("the broker has exited")
            line += received
        answer: dict[str, Any] = json.loads(line)
        if "refused" in answer:
            raise ValueError(answer["refused"])
        pending: dict[str, int] = answer["pending"]
        return pending

    def close(self) -> None:
        self._own.close()
        self._childs.close()


class ControlServer:
    """The child's end: reads commands on the broker's event loop until the parent is gone."""

    def __init__(self, descriptor: int, broker: Broker) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._broker = broker
        self._injector: Injector | None = None  # created by the first command
        self._line = b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.fileno(), self._readable)

    def _readable(self) -> None:
        received = b""
        with suppress(OSError):
            received = self._socket.recv(LINE_SIZE_MAX)
        if not received:
            self.close()
            return
        *lines, self._line = (self._line + received).split(b"\n")
        for line in lines:
            with suppress(OSError):  # the parent is gone: the next read reports it
                self._socket.send(json.dumps(self._answer(json.loads(line))).encode() + b"\n")

    def _answer(self, facts: dict[str, Any]) -> dict[str, Any]:
        from ottla.faults.fault import Fault  # imported late: most brokers get no commands
        from ottla.faults.injector import Injector

        if self._injector is None:
            self._injector = Injector(self._broker)
        try:
            order = Fault.from_json(facts["fault"]) if "fault" in facts else str(facts["do"])
            return {"pending": self._injector.obey(order)}
        except ValueError as error:
            return {"refused": str(error)}

    def close(self) -> None:
        if self._injector is not None:
            self._injector.clear()
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
