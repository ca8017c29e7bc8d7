"""A broker's door with a will of its own: real requests go to a real broker, unless the test decides otherwise.

For each Produce request, in the order in which they come, `fate` says what becomes of it:

    None            it passes, and so does its answer
    LOSE            it passes, and the connection ends in the place of its answer
    CUT             the connection ends before the broker sees it
    an error code   the broker does not see it; the answer says so for every partition in it
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from ottla.wire import codec, frame
from ottla.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

LOSE = "lose"
CUT = "cut"
PRODUCE = 0
TIMEOUT_S = 60.0

Fate = str | int | None


class Proxy:
    def __init__(self, fate: Callable[[int], Fate] = lambda index: None) -> None:
        self.fate = fate
        self.seen = 0  # Produce requests
        self.most = 0  # that were unanswered at one time
        self.gate = threading.Event()  # no answer to Produce passes before this is set
        self.gate.set()
        self._flying = 0
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self.port: int = self._listening.getsockname()[1]
        self.target = ("127.0.0.1", 0)

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *error: object) -> None:
        self.gate.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for one in list(self._sockets):
            end(one)
        for thread in list(self._threads):
            thread.join(TIMEOUT_S)

    def forget(self) -> None:
        """Count anew; requests whose connection has ended were never answered."""
        with self._lock:
            self._flying = self.most = 0

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self.target)
            except OSError:
                client.close()
                continue
            self._sockets += [client, broker]
            answers: queue.Queue[tuple[int, bytes | None]] = queue.Queue()
            self._start(self._requests, client, broker, answers)
            self._start(self._answers, client, broker, answers)

    def _requests(
        self, client: socket.socket, broker: socket.socket, answers: queue.Queue[tuple[int, bytes | None]]
    ) -> None:
        with suppress(OSError, struct.error):
            while True:
                data = frame_of(client)
                key = struct.unpack_from(">h", data)[0]
                fate: Fate = None
                if key == PRODUCE:
                    with self._lock:
                        fate = self.fate(self.seen)
                        self.seen += 1
                        self._flying += 1
                        self.most = max(self.most, self._flying)
                if fate == CUT:
                    break
                if isinstance(fate, int):
                    answers.put((key, refusal(data, fate)))
                    continue
                answers.put((-1 if fate == LOSE else key, None))
                broker.sendall(struct.pack(">i", len(data)) + data)
        end(client)
        end(broker)
        answers.put((-1, b""))

    def _answers(
        self, client: socket.socket, broker: socket.socket, answers: queue.Queue[tuple[int, bytes | None]]
    ) -> None:
        with suppress(OSError, struct.error):
            while True:
                key, made = answers.get()
                if made == b"":
                    break
                data = frame_of(broker) if made is None else made
                if key == PRODUCE:
                    self.gate.wait(TIMEOUT_S)
                    with self._lock:
                        self._flying -= 1
                if key == -1:
                    break
                client.sendall(struct.pack(">i", len(data)) + data)
        end(client)
        end(broker)


def frame_of(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    return connection.recv(size, socket.MSG_WAITALL)


def end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def refusal(data: bytes, code: int) -> bytes:
    header = frame.parse_header(data)
    request, _ = codec.decoder(ProduceRequest, header.version)(data, header.body_position)
    answer = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=one.index, error_code=code, base_offset=-1)
                    for one in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
    head = frame.response_header(PRODUCE, header.version, header.correlation_id)
    return head + codec.encode(answer, header.version)
