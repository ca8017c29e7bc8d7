"""An event loop with virtual time and processes: everything in it is determined by a seed.

The loop runs callbacks one after the other. Time stands still while callbacks are ready, and jumps to the next timer
when there are none. Nothing waits for the real world: no sockets, no threads (executor jobs run on the loop, a little
later).

A `Process` models one operating-system process. Every callback belongs to the process in whose context it was
scheduled, so a process can be killed (none of its callbacks runs again) or paused (its callbacks wait). Callbacks of
one process run in asyncio's order; the next process is chosen at random.
"""

from __future__ import annotations

import asyncio
import heapq
import weakref
import zlib
from asyncio import events
from collections import deque
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from random import Random

CALLBACKS_PER_MOMENT_MAX = 100_000  # more without time passing means an endless loop


class Socket(Protocol):
    @property
    def readable(self) -> bool: ...


class Deadlock(Exception):
    """No callback or timer is left, or callbacks run forever."""


class Process:
    """One process: its name, its ready callbacks, and whether it may run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.paused = False
        self.dead = False
        self.ready: deque[asyncio.Handle] = deque()
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self.graveyard: list[asyncio.Task[Any]] = []

    def __repr__(self) -> str:
        return f"<{self.name}>"


PROCESS: ContextVar[Process] = ContextVar("process")


class SimLoop(asyncio.AbstractEventLoop):
    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.outside = Process("outside")  # the network, the store, and the failure injection
        self.outside_context = Context()
        self.outside_context.run(PROCESS.set, self.outside)
        self.faults: list[str] = []  # callbacks that failed, each with its error
        self.neglected: list[str] = []  # errors of futures that were never retrieved
        self.after: Callable[[Process], None] | None = None  # called after every callback
        self.trace: Callable[[str], None] | None = None
        self.dial: Callable[[Callable[[], Any], str, int], Awaitable[tuple[Any, Any]]] | None = None  # the network's
        self.callbacks_max = 1 << 62
        self.until = 1000.0 + 3600.0  # end of the longest run
        self.detail: Callable[[str], None] | None = None  # called for every callback, to find nondeterminism
        self.callbacks = 0
        self._now = 1000.0
        self._hash = 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0
        self._runnable: list[Process] = []
        self._processes: list[Process] = [self.outside]
        self.sockets: dict[int, Socket] = {}  # by descriptor; filled by the network
        self._readers: dict[int, Reader] = {}
        self._running = False
        self._stopping = False
        self._closed = False
        self._moment = 0

    # Processes.

    def process(self, name: str) -> tuple[Process, Context]:
        """A new process, and the context in which all its callbacks run."""
        process = Process(name)
        self._processes.append(process)
        context = Context()
        context.run(PROCESS.set, process)
        return process, context

    def kill(self, process: Process) -> None:
        """Stop all callbacks of a process. Its tasks are kept, so that no `finally` block runs at a random moment."""
        process.dead = True
        process.graveyard.extend(process.tasks)  # first: a ready callback may hold the last reference to a task
        process.ready.clear()
        if process in self._runnable:
            self._runnable.remove(process)

    def pause(self, process: Process) -> None:
        process.paused = True
        if process in self._runnable:
            self._runnable.remove(process)

    def resume(self, process: Process) -> None:
        process.paused = False
        if process.ready and not process.dead:
            self._runnable.append(process)

    def note(self, what: str) -> None:
        """Add an event of the simulated world to the trace and to its hash."""
        self._hash = zlib.crc32(f"{self._now:.6f} {what}".encode(), self._hash)
        if self.trace is not None:
            self.trace(f"{self._now - 1000:10.4f} {what}")

    @property
    def digest(self) -> int:
        """A hash of all events so far: the same for the same seed."""
        return self._hash

    # The interface of an asyncio loop.

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        handle = asyncio.Handle(callback, args, self, copy_context() if context is None else context)
        self._line_up(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, copy_context() if context is None else context)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass  # a cancelled timer is skipped when it is due

    def _line_up(self, handle: asyncio.Handle) -> None:
        process = handle._context.get(PROCESS, self.outside)  # type: ignore[attr-defined]
        if process.dead:
            return
        process.ready.append(handle)
        if len(process.ready) == 1 and not process.paused:
            self._runnable.append(process)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any],  # type: ignore[override]
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name or f"task {self._count}", context=context)
        process = (copy_context() if context is None else context).get(PROCESS, self.outside)
        if process.dead:
            process.graveyard.append(task)  # it never starts, and is kept like the others
        else:
            process.tasks.add(task)
        return task

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run it on the loop, a little later: a thread takes time, and its process may be killed before it runs."""
        future = self.create_future()
        self.call_later(self.chance.expovariate(2000), self._carry_out, future, func, args)
        return future

    def _carry_out(self, future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        try:
            result = func(*args)
        except Exception as error:
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)

    def set_default_executor(self, executor: object) -> None:
        pass

    async def create_connection(  # type: ignore[override]
        self,
        factory: Callable[[], asyncio.BufferedProtocol],
        host: str,
        port: int,
        *,
        ssl: None = None,
        server_hostname: None = None,
    ) -> tuple[Any, Any]:
        """Connect over the simulated network, from the host of the calling process."""
        assert self.dial is not None, "there is no network"
        assert ssl is None, "nobody listens with TLS"
        return await self.dial(factory, host, port)

    # Readiness of simulated sockets.

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        self._readers[fd] = Reader(callback, args, copy_context())
        self.look(fd)

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    def add_writer(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        raise NotImplementedError("a simulated socket takes everything at once")

    def remove_writer(self, fd: Any) -> bool:
        return False

    def look(self, fd: int) -> None:
        """Wake the reader of a socket that may have become readable."""
        reader = self._readers.get(fd)
        if reader is not None and not reader.woken and self._is_readable(fd):
            reader.woken = True
            self.call_soon(self._read, fd, reader, context=reader.context)

    def _read(self, fd: int, reader: Reader) -> None:
        reader.woken = False
        if self._readers.get(fd) is reader and self._is_readable(fd):
            reader.callback(*reader.args)
            self.look(fd)

    def _is_readable(self, fd: int) -> bool:
        found = self.sockets.get(fd)
        return found is not None and found.readable

    # Running.

    def run_until_complete(self, future: Any) -> Any:
        task = asyncio.ensure_future(future, loop=self)
        task.add_done_callback(lambda _: self.stop())
        self.run_forever()
        if not task.done():
            raise Deadlock("the loop was stopped before its work was done")
        return task.result()

    def run_forever(self) -> None:
        assert not self._running, "a loop runs once at a time"
        before = events._get_running_loop()
        self._running, self._stopping = True, False
        events._set_running_loop(self)
        try:
            while not self._stopping:
                self._step()
        finally:
            self._running = False
            events._set_running_loop(before)

    def _step(self) -> None:
        runnable = self._runnable
        if not runnable:
            self._advance()
            return
        at = self.chance.randrange(len(runnable)) if len(runnable) > 1 else 0
        process = runnable[at]
        handle = process.ready.popleft()
        if not process.ready:
            runnable[at] = runnable[-1]
            runnable.pop()
        if handle._cancelled:
            return
        self.callbacks += 1
        self._moment += 1
        if self._moment > CALLBACKS_PER_MOMENT_MAX or self.callbacks > self.callbacks_max:
            raise Deadlock(f"{process.name} goes round in circles: {handle!r}")
        if self.detail is not None:
            self.detail(f"{self._now:.6f} {process.name} {handle!r}")
        handle._run()
        if self.after is not None:
            self.after(process)

    def _advance(self) -> None:
        """Advance the time to the next timer."""
        timers = self._timers
        while timers and (timers[0][2]._cancelled or self._is_dead(timers[0][2])):
            heapq.heappop(timers)
        if not timers:
            raise Deadlock("everybody waits and nothing will happen")
        now = self._now = max(self._now, timers[0][0])
        if now > self.until:
            raise Deadlock("it takes too long")
        self._moment = 0
        self._hash = zlib.crc32(f"{now:.6f} {self.callbacks}".encode(), self._hash)
        while timers and timers[0][0] <= now:
            handle = heapq.heappop(timers)[2]
            if not handle._cancelled:
                self._line_up(handle)

    def _is_dead(self, handle: asyncio.TimerHandle) -> bool:
        process: Process = handle._context.get(PROCESS, self.outside)  # type: ignore[attr-defined]
        return process.dead

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """End every task where it stands. What their `finally` blocks do no longer matters."""
        self._closed = True
        self.after = self.trace = None
        for process in self._processes:
            for task in (*process.graveyard, *process.tasks):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coroutine = task.get_coro()
                with suppress(BaseException):
                    coroutine.close()
            process.graveyard.clear()
        self._timers.clear()
        self._readers.clear()

    async def shutdown_asyncgens(self) -> None:
        pass

    async def shutdown_default_executor(self) -> None:
        pass

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        pass

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._closed:
            return
        error, message = context.get("exception"), str(context.get("message"))
        if "task" in context:
            message = f"{message} {context['task']!r}"
        # Unretrieved results are found by the garbage collector, at a moment that the seed does not determine.
        (self.neglected if "never retrieved" in message else self.faults).append(f"{message}: {error!r}")


def make_loop(chance: Random) -> SimLoop:
    """Make a loop. It implements only the parts of asyncio's interface that need no real I/O."""
    return SimLoop(chance)  # type: ignore[abstract]


class Reader:
    """A callback for when a socket can be read."""

    __slots__ = ("args", "callback", "context", "woken")

    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.woken = False
