"""The thread that polls the cluster."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from ottla.console.watch.gathering import EVERY_S, WAIT_S, Gathering

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.client.security import Security
    from ottla.console.watch.snapshot import Snapshot

log = logging.getLogger("ottla.console")


class Watch:
    """Runs rounds in its own thread until closed, and passes each snapshot to a callback."""

    def __init__(
        self,
        bootstrap: str,
        security: Security,
        *,
        every_s: float = EVERY_S,
        on_snapshot: Callable[[Snapshot], None] | None = None,
    ) -> None:
        self._gathering = Gathering(bootstrap, security, every_s)
        self._on_snapshot = on_snapshot
        self._stop = threading.Event()
        self._soon = threading.Event()
        self._thread = threading.Thread(target=self._live, name="console-watch", daemon=True)
        self._failures = 0

    def start(self) -> None:
        self._thread.start()

    @property
    def snapshot(self) -> Snapshot:
        return self._gathering.snapshot

    def hurry(self) -> None:
        """Start the next round at once, after a change from the page."""
        self._soon.set()

    def _live(self) -> None:
        while not self._stop.is_set():
            try:
                snapshot = self._gathering.round()
                if self._on_snapshot is not None:
                    self._on_snapshot(snapshot)
                self._failures = 0
            except Exception:
                self._failures += 1
                if self._failures == 1:
                    log.exception("a round of the console failed; trying again")
            self._soon.wait(self._gathering.pause_s)
            self._soon.clear()

    def close(self) -> None:
        self._stop.set()
        self._soon.set()
        if self._thread.is_alive():
            self._thread.join(WAIT_S + 1)
        self._gathering.close()
