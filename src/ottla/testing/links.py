"""Connections that can be cut: every link between processes goes through a small proxy in this process.

A link goes from one name to another: brokers by number, and the store. While it is cut, bytes in that direction are
held back, and so is the end of a connection: as on a network that loses packets, neither side is told. When the link
heals, they are delivered. One direction can be cut alone.

A proxy in front of a broker accepts connections from all other processes, and finds their owners in the system's table
of sockets (`/proc`, hence Linux only).
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar

CHUNK_SIZE = 1 << 18
OPEN_S_MAX = 30.0

Answer = TypeVar("Answer")


class Links:
    """`processes` returns the current process id of each name."""

    def __init__(self, processes: Callable[[], Mapping[str, int]]) -> None:
        self._processes = processes
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._cuts: frozenset[tuple[str, str]] = frozenset()
        self._healed: dict[tuple[str, str], asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def open(self, target: str, port: int, source: str | None = None) -> int:
        """Open a proxy to `target`, which listens on `port`, for one source or for any. Returns the proxy's port."""
        return self._run(self._open(target, port, source))

    def cut(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Block traffic from the first to the second of each pair."""
        self._run(self._set(self._cuts | set(pairs)))

    def heal(self) -> None:
        self._run(self._set(frozenset()))

    def _run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(OPEN_S_MAX)

    async def _set(self, cuts: frozenset[tuple[str, str]]) -> None:
        self._cuts = cuts
        for pair in [pair for pair in self._healed if pair not in cuts]:
            self._healed.pop(pair).set()

    async def _open(self, target: str, port: int, source: str | None) -> int:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            with suppress(OSError, asyncio.CancelledError):  # cancelled at the end
                await self._join(reader, writer, target, port, source)
            writer.close()

        server = await asyncio.start_server(accepted, "127.0.0.1", 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _join(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        target: str,
        port: int,
        source: str | None,
    ) -> None:
        dialled_from = writer.get_extra_info("peername")[1]
        name = source or owner(dialled_from, self._processes()) or "?"
        await self._passable(name, target)
        there, back = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.gather(self._pump(reader, back, name, target), self._pump(there, writer, target, name))
        finally:
            back.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: str, target: str) -> None:
        while True:
            try:
                data = await reader.read(CHUNK_SIZE)
            except OSError:  # a killed process may reset the connection
                data = b""
            await self._passable(source, target)
            if not data:
                writer.close()
                return
            writer.write(data)
            await writer.drain()

    async def _passable(self, source: str, target: str) -> None:
        while (source, target) in self._cuts:
            await self._healed.setdefault((source, target), asyncio.Event()).wait()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def owner(port: int, processes: Mapping[str, int]) -> str | None:
    """The name of the process that has a loopback socket with this port."""
    wanted = f"0100007F:{port:04X}"
    lines = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    sockets = {f"socket:[{fields[9]}]" for fields in lines if fields[1] == wanted}
    for name, process in processes.items():
        with suppress(OSError):  # the process has exited
            for entry in os.scandir(f"/proc/{process}/fd"):
                with suppress(OSError):
                    if os.readlink(entry.path) in sockets:
                        return name
    return None
