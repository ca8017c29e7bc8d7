"""Large answers to several slow clients while topics are deleted, files closed and connections reset: the numbers of
their descriptors are used again at once. Every client gets whole batches of the topic that it asked for."""

from __future__ import annotations

import os
import random
import socket
import struct
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from compat.raw import FETCH, Raw, array, batch, batches, create_topic, fetch, produce, string
from waiting import wait_until

from ottla.embed import BrokerThread
from ottla.records.native import sender_class

if TYPE_CHECKING:
    from collections.abc import Iterator

DELETE_TOPICS = 20
UNKNOWN_TOPIC, OUT_OF_RANGE = 3, 1
TOPICS = ("one", "two", "three")
ROUNDS = 10
BATCH_SIZE = 800_000
BATCHES = 4
WINDOW = 64 * 1024
OPTIONS = {"log.segment.bytes": 1 << 20, "log.segment.delete.delay.ms": 0}

pytestmark = pytest.mark.skipif(sys.platform != "linux" or sender_class() is None, reason="needs the native part")


def content(topic: str) -> bytes:
    return f"<{topic}>".encode() * (BATCH_SIZE // (len(topic) + 2))


def delete(raw: Raw, topic: str) -> None:
    raw.call(DELETE_TOPICS, 1, array([string(topic)]) + struct.pack(">i", 10_000))


def refill(raw: Raw, topic: str) -> None:
    delete(raw, topic)
    wait_until(lambda: create_topic(raw, topic) == 0)
    for _ in range(BATCHES):
        wait_until(lambda: produce(raw, topic, batch([content(topic)])).error == 0)


class Reader(threading.Thread):
    """A client with a small window. It breaks off every third answer."""

    def __init__(self, port: int, number: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._random = random.Random(number)
        self.whole = 0  # batches
        self.over = False
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.over:
                with Raw(self._port) as raw:
                    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW)
                    for _ in range(2):
                        self._read(raw, self._random.choice(TOPICS))
                    self._break_off(raw)
        except BaseException as error:
            self.problem = error

    def _read(self, raw: Raw, topic: str) -> None:
        answer = fetch(raw, topic, 0, size_max=BATCHES * BATCH_SIZE)
        assert answer.error in (0, UNKNOWN_TOPIC, OUT_OF_RANGE)
        for one in batches(answer.data):
            assert one.values() == [content(topic)]
            self.whole += 1

    def _break_off(self, raw: Raw) -> None:
        place = struct.pack(">iqi", 0, 0, BATCHES * BATCH_SIZE)
        body = struct.pack(">iiii", -1, 0, 1, 1 << 30) + b"\0" + array([string("one") + array([place])])
        raw.send(FETCH, 4, body)
        raw.socket.recv(self._random.choice([1, 10_000, 1_000_000]))
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close with a reset


def open_files() -> Iterator[str]:
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the list itself
            yield os.readlink(f"/proc/self/fd/{number}")


def threads() -> set[str]:
    return {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}


def has_read(readers: list[Reader], before: int) -> bool:
    return sum(reader.whole for reader in readers) > before or any(reader.problem for reader in readers)


def test_clients_get_only_their_own_bytes(tmp_path: Path) -> None:
    with BrokerThread(data=tmp_path, options=OPTIONS) as broker:
        port = int(broker.bootstrap.rpartition(":")[2])
        with Raw(port) as raw:
            for topic in TOPICS:
                refill(raw, topic)
            readers = [Reader(port, number) for number in range(6)]
            for reader in readers:
                reader.start()
            wait_until(lambda: "ottla-sender" in threads(), "several wait for large answers")
            for _ in range(ROUNDS):
                for topic in TOPICS:
                    before = sum(reader.whole for reader in readers)
                    refill(raw, topic)
                    wait_until(partial(has_read, readers, before))
            for reader in readers:
                reader.over = True
            for reader in readers:
                reader.join()
            assert [reader.problem for reader in readers] == [None] * len(readers)
            for topic in TOPICS:
                delete(raw, topic)
            wait_until(lambda: not [path for path in open_files() if path.startswith(f"{tmp_path}/t")])
