"""A real broker inside a Python program: on the running loop, in a thread, or in a process, with one small API.

    async with Broker() as broker:          loop: shares the caller's event loop; for async programs
    with BrokerThread() as broker:          thread: a loop of its own; for scripts and quick tests
    with BrokerProcess() as broker:         process: a core of its own, can be killed; for tests of failure and speed

Without arguments a broker listens on a free port of the loopback interface and keeps its data in memory. `data=` keeps
it in a folder, `port=` and `host=` set the address, `options=` takes any broker option under Kafka's name.

`restart()`, and `start()` after `kill()`, bring the same broker back: on the same port, with its data, even in memory.
After `stop()` a broker in memory is empty. `fail_next`, `delay_next` and `drop_next` inject faults into requests: see
`ottla.faults`.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, NamedTuple, Self

from ottla.data_folder import FolderInUse, FolderLocks, memory_folder, remove
from ottla.faults.methods import FaultMethods

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.broker import Broker as Root
    from ottla.faults.control import ControlClient
    from ottla.faults.fault import Fault
    from ottla.faults.injector import Injector

Options = Mapping[str, str | int | float | bool]
# Kafka lets a new group wait three seconds for more members. With the few members of an embedded broker that is
# useless.
DEFAULTS = {"group.initial.rebalance.delay.ms": "0"}
# A large log that was not closed properly is checked first; a cluster member waits until its former session expires.
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 120.0
FREEZE_S_MAX = 5.0


class BrokerFailed(Exception):
    """The broker did not start; the message is from the broker."""


class Settings(NamedTuple):
    data: Path | None
    host: str
    port: int
    options: dict[str, str]

    def pairs(self, folder: Path) -> dict[str, str]:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return {"listeners": f"PLAINTEXT://{host}:{self.port}", "log.dirs": str(folder), **self.options}


class Broker(FaultMethods):
    def __init__(
        self, *, data: str | Path | None = None, host: str = "127.0.0.1", port: int = 0, options: Options | None = None
    ) -> None:
        self._settings = settle(data, host, port, options)
        self._root: Root | None = None
        self._injector: Injector | None = None
        self._locks: FolderLocks | None = None
        self._memory: Path | None = None
        self.bootstrap = ""
        self.listeners: dict[str, str] = {}  # address of each listener, by name
        self.node_id = -1
        self.cluster_id = ""
        self.metrics = ""  # base URL of /metrics, /health and /ready

    async def start(self) -> Self:
        """Start, or start again after `stop`, on the same port."""
        from ottla.broker import Broker as Root
        from ottla.config import ConfigError, load
        from ottla.errors import BrokerError

        assert self._root is None, "the broker runs"
        data = self._settings.data or self._memory
        new = data is None
        if data is None:
            data = self._memory = memory_folder()
        try:
            config = load(self._settings.pairs(data))
            self._locks = FolderLocks([data])
            self._root = Root(config)
            await self._root.start()
        except BaseException as error:
            await (self.stop() if new else self._end())  # existing data in memory is kept for another attempt
            if isinstance(error, (BrokerError, ConfigError, FolderInUse, OSError)):
                raise BrokerFailed(str(error)) from error
            raise
        for name, host, port in self._root.addresses:
            self.listeners[name] = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._settings = self._settings._replace(port=self._root.addresses[0][2])
        self.bootstrap = next(iter(self.listeners.values()))
        self.node_id, self.cluster_id = self._root.node_id, self._root.cluster_id
        self.metrics = self._root.metrics_url
        return self

    async def stop(self) -> None:
        """Answer pending requests, close the logs properly and stop. Data in memory is lost."""
        try:
            await self._end()
        finally:
            self._remove_memory()

    def _remove_memory(self) -> None:
        if self._memory is not None:
            remove(self._memory)
            self._memory = None

    async def restart(self) -> None:
        """Stop properly, and start again with the same data."""
        await self._end()
        await self.start()

    async def _end(self, *, kill: bool = False) -> None:
        root, self._root = self._root, None
        injector, self._injector = self._injector, None
        if injector is not None:
            injector.clear()
        try:
            if root is not None:
                await (root.kill() if kill else root.stop())
        finally:
            if self._locks:
                self._locks.release()

    def _order(self, order: "Fault | str") -> dict[str, int]:
        assert self._root is not None, "the broker does not run"
        if self._injector is None:
            from ottla.faults.injector import Injector

            self._injector = Injector(self._root)
        return self._injector.obey(order)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *error: object) -> None:
        await self.stop()


class BrokerThread(FaultMethods):
    def __init__(
        self, *, data: str | Path | None = None, host: str = "127.0.0.1", port: int = 0, options: Options | None = None
    ) -> None:
        self._broker = Broker(data=data, host=host, port=port, options=options)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._last: asyncio.Future[Callable[[], Awaitable[None]]] | None = None  # how to stop

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    @property
    def listeners(self) -> dict[str, str]:
        return self._broker.listeners

    @property
    def node_id(self) -> int:
        return self._broker.node_id

    @property
    def cluster_id(self) -> str:
        return self._broker.cluster_id

    @property
    def metrics(self) -> str:
        return self._broker.metrics

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> Self:
        """Start, or start again after `stop` or `kill`, on the same port."""
        assert self._thread is None, "the broker runs"
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._live, args=(started,), name="ottla-broker", daemon=True)
        self._thread.start()
        try:
            started.result(START_TIMEOUT_S)
        except BaseException:
            self._thread = None
            raise
        return self

    def stop(self) -> None:
        """Answer pending requests, close the logs properly and stop. Data in memory is lost."""
        self._end(self._broker.stop)
        self._broker._remove_memory()  # of a broker that was killed before

    def kill(self) -> None:
        """Stop like a killed process: no answers, no flush. The data stay as they are at this moment.

        A member leaves its cluster at once; only a killed process leaves a session behind that has to expire.
        """
        self._end(lambda: self._broker._end(kill=True))

    def restart(self) -> None:
        """Stop properly, and start again with the same data."""
        self._end(self._broker._end)
        self.start()

    def _end(self, how: "Callable[[], Awaitable[None]]") -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        assert self._loop is not None
        assert self._last is not None
        with suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._last.set_result, how)
        thread.join(STOP_TIMEOUT_S)

    def _live(self, started: Future[None]) -> None:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(started))

    async def _serve(self, started: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.create_future()
        try:
            await self._broker.start()
        except BaseException as error:  # task root: `start` raises it
            started.set_exception(error)
            return
        started.set_result(None)
        how = await self._last
        await how()

    def _order(self, order: "Fault | str") -> dict[str, int]:
        assert self._thread is not None, "the broker does not run"
        assert self._loop is not None
        done: Future[dict[str, int]] = Future()

        def obey() -> None:
            try:
                done.set_result(self._broker._order(order))
            except BaseException as error:
                done.set_exception(error)

        self._loop.call_soon_threadsafe(obey)
        return done.result(STOP_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()


class BrokerProcess(FaultMethods):
    def __init__(
        self,
        *,
        data: str | Path | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        options: Options | None = None,
        log_level: str = "warning",
    ) -> None:
        self._settings = settle(data, host, port, options)
        self._memory: Path | None = None
        self._log_level = log_level
        self._process: subprocess.Popen[bytes] | None = None
        self._control: ControlClient | None = None
        self._log: IO[bytes] | None = None
        self.paused = False
        self.bootstrap = ""
        self.node_id = -1
        self.cluster_id = ""
        self.metrics = ""

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker has not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process exists; it may be paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """The broker's log since its first start."""
        return self.read_log(0)

    @property
    def log_size(self) -> int:
        """In bytes."""
        return 0 if self._log is None else os.fstat(self._log.fileno()).st_size

    def read_log(self, start: int) -> str:
        """The log after its first `start` bytes."""
        if self._log is None:
            return ""
        return os.pread(self._log.fileno(), self.log_size - start, start).decode(errors="replace")

    def start(self) -> Self:
        """Start, or start again after `stop` or `kill`, on the same port."""
        from ottla.faults.control import ControlClient

        assert self._process is None, "the broker runs"
        new = self._memory is None
        readable, writable = os.pipe()
        control = ControlClient()
        if self._log is None:
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 - one for all starts, also read after the end
        before = self.log_size
        channels = ["--ready-fd", str(writable), "--control-fd", str(control.child_fd)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ottla", "serve", *self._arguments(), *channels],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            pass_fds=[writable, control.child_fd],
        )
        os.close(writable)
        control.started()
        self._control = control
        timer = threading.Timer(START_TIMEOUT_S, self._process.kill)
        timer.start()
        with open(readable, encoding="utf-8") as ready:
            line = ready.readline()  # a line when the broker answers, or end of file when the process ends
        timer.cancel()
        if not line:
            self._close()
            if new:  # existing data in memory is kept for another attempt
                self._remove_memory()
            raise BrokerFailed(self.read_log(before).strip() or f"no answer within {START_TIMEOUT_S:.0f} seconds")
        facts = json.loads(line)
        self.bootstrap, self.node_id, self.cluster_id = facts["bootstrap"], facts["node_id"], facts["cluster_id"]
        self.metrics = facts["metrics"]
        self._settings = self._settings._replace(port=int(self.bootstrap.rpartition(":")[2]))
        return self

    def _arguments(self) -> list[str]:
        chosen = self._settings
        arguments = ["--until-eof", "--log-level", self._log_level]
        if "listeners" not in chosen.options:
            arguments += ["--host", chosen.host, "--port", str(chosen.port)]
        if chosen.data is None and self._memory is None:
            self._memory = memory_folder()  # made here, so that it survives a kill of the process
        arguments += ["--data", str(chosen.data or self._memory)]
        for name, value in chosen.options.items():
            arguments += ["--set", f"{name}={value}"]
        return arguments

    def stop(self) -> None:
        """Stop the broker and wait for it. Data in memory is lost."""
        try:
            self._terminate()
        finally:
            self._remove_memory()

    def restart(self) -> None:
        """Stop properly, and start again with the same data."""
        self._terminate()
        self.start()

    def _terminate(self) -> None:
        if self._process is None:
            return
        self.resume()
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        finally:
            self._close()

    def kill(self) -> None:
        """Kill the broker (SIGKILL): no answers, no flush."""
        if self._process is not None:
            self._process.kill()
            self._close()

    def _remove_memory(self) -> None:
        if self._memory is not None:
            remove(self._memory)
            self._memory = None

    def _order(self, order: "Fault | str") -> dict[str, int]:
        assert self._control is not None, "the broker does not run"
        return self._control.order(order)

    def pause(self) -> None:
        """Suspend the broker until `resume`; its connections stay open (SIGSTOP)."""
        self.paused = True
        freeze(self.pid)

    def resume(self) -> None:
        if self.running:
            os.kill(self.pid, signal.SIGCONT)
        self.paused = False

    def _close(self) -> None:
        process, self._process = self._process, None
        self.paused = False
        assert process is not None
        assert process.stdin is not None
        process.wait()
        process.stdin.close()
        if self._control is not None:
            self._control.close()
            self._control = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def settle(data: str | Path | None, host: str, port: int, options: Options | None) -> Settings:
    texts = DEFAULTS | {name: text(value) for name, value in (options or {}).items()}
    return Settings(Path(data) if data is not None else None, host, port, texts)


def text(value: str | float | bool) -> str:
    """The value of an option as Kafka writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def freeze(pid: int) -> None:
    """Stop a process (SIGSTOP), and return when none of its threads runs any more."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + FREEZE_S_MAX
    while time.monotonic() < deadline:
        try:
            stats = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/stat")]
        except OSError:  # a thread has just ended
            continue
        # The state of each thread; empty on systems without /proc.
        if all(one.rpartition(")")[2].split()[0] in "TtZX" for one in stats):
            return
        time.sleep(0.001)
