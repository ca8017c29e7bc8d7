"""One thread and one connection per broker, so that a hanging broker blocks only its own thread."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.client.connection import Connection
from ottla.client.failure import Failed, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.client.connection import Address
    from ottla.client.security import Security

TIMEOUT_S: Final = 4.0

T = TypeVar("T")
Answer = TypeVar("Answer")


class Link:
    """Calls to one broker, one at a time. `failed` is the reason why the last one got no answer."""

    def __init__(self, address: Address, security: Security, timeout_s: float = TIMEOUT_S) -> None:
        self.address = address
        self.failed: str | None = None
        self._security = security
        self.timeout_s = timeout_s  # for new connections
        self._connection: Connection | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"console-{address[0]}:{address[1]}")
        self._work: Future[object] | None = None
        self._since = 0.0

    @property
    def busy(self) -> bool:
        return self._work is not None and not self._work.done()

    @property
    def silent_s(self) -> float:
        """Seconds since its last answer while a call runs. Every answer within a call counts."""
        return time.monotonic() - self._since if self.busy else 0.0

    def run(self, work: Callable[[Link], T]) -> Future[T]:
        """Run the work in the link's thread. The link must not be busy: no calls may queue behind a silent broker."""
        assert not self.busy, "the broker has not answered the last call"
        self._since = time.monotonic()
        future = self._pool.submit(self._attempt, work)
        self._work = future  # type: ignore[assignment]
        return future

    def _attempt(self, work: Callable[[Link], T]) -> T:
        try:
            result = work(self)
        except Unreachable as error:
            self.failed = str(error)
            raise
        self.failed = None
        return result

    def ask(self, request: object, answer: type[Answer], *, newest: int | None = None) -> Answer:
        """Call in the link's thread only. Reconnects once if the connection was closed since the last call."""
        fresh = self._connection is None or not self._connection.alive
        try:
            found = self.connection.ask(request, answer, newest=newest)
        except Unreachable as error:
            if fresh or "does not answer" in str(error):
                raise
            found = self.connection.ask(request, answer, newest=newest)
        self._since = time.monotonic()
        return found

    @property
    def connection(self) -> Connection:
        if self._connection is None or not self._connection.alive:
            self._connection = Connection(
                self.address, self.timeout_s, security=self._security, client_id="ottla-console"
            )
        return self._connection

    @property
    def name(self) -> str:
        return self.connection.name

    def version(self, key: int, newest: int | None = None) -> int:
        return self.connection.version(key, newest)

    def speaks(self, key: int, least: int = 0) -> bool:
        try:
            return self.connection.version(key) >= least
        except Unreachable:
            raise
        except Failed:
            return False

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()
