"""How long a job tolerates trouble that may pass by itself: brokers restart, workers are killed."""

from __future__ import annotations

import logging
import time

from ottla.client.failure import Failed

log = logging.getLogger("ottla.spark")


class WorkerLost(Failed):
    """The process that did the work was killed. It is unknown how far it came, and the work may be repeated."""


class Trouble:
    """Trouble is logged once, and becomes an error when it has lasted too long."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._since: float | None = None
        self._said = ""

    def bear(self, text: str, *, progress: bool = False) -> None:
        """Raise it if it has lasted too long. `progress`: something else has worked meanwhile."""
        now = time.monotonic()
        if self._since is None or progress:
            self._since = now
        if now - self._since > self._patience_s:
            raise Failed(text)
        if text != self._said:
            log.warning("%s; trying again", text)
        self._said = text

    def over(self) -> None:
        self._since, self._said = None, ""
