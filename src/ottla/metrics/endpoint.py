"""The broker's metrics endpoint: its port, its three paths, and the file that holds its address.

Port `auto` is 9404, where scrapers look for Kafka's metrics. If that is in use, or the broker's own port is 0, any free
port is used, so that several brokers can start on one machine. A port given as a number must be free.
"""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING, Final

from ottla.config.listeners import metrics_address
from ottla.metrics.exposition import OPEN, PLAIN
from ottla.metrics.http import Answer, HttpServer
from ottla.metrics.scrape import Scrape
from ottla.net.listener import bind

if TYPE_CHECKING:
    from socket import socket

    from ottla.metrics.http import Request
    from ottla.metrics.sources import Sources

log = logging.getLogger("ottla.metrics")

PORT: Final = 9404
BACKLOG: Final = 16
ADDRESS_FILE: Final = "ottla-metrics.address"  # in the first log folder, while the broker runs
JSON: Final = "application/json"


class Endpoint:
    def __init__(self, sources: Sources, machine: str) -> None:
        self.address: tuple[str, int] | None = None
        self._sources = sources
        self._scrape = Scrape(sources)
        self._server = HttpServer(self._respond, (machine, *sources.config.ottla_metrics_hosts))
        self._file = os.path.join(sources.config.log_dirs[0], ADDRESS_FILE)

    async def open(self) -> None:
        """Open the port. OSError if a port was given and cannot be opened."""
        wanted = metrics_address(self._sources.config.ottla_metrics_listener)
        if wanted is None:
            return
        bound = bind_metrics(*wanted, any_free=self._sources.config.opened[0].port == 0)
        await self._server.open(bound)
        self.address = wanted[0] or "127.0.0.1", bound.getsockname()[1]
        self._sources.config.settle("ottla.metrics.listener", self.url.removeprefix("http://"))
        self._sources.lag.start()
        try:
            self._sources.store.disk.write(self._file, f"{self.url}\n".encode())
        except OSError as error:  # not fatal: only tools use this file
            log.warning("cannot write the address of the metrics", extra={"file": self._file, "reason": str(error)})

    @property
    def url(self) -> str:
        """The address as a URL; empty while metrics are off."""
        if self.address is None:
            return ""
        host, port = self.address
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # nosec B104 # addresses to connect to
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def close(self) -> None:
        if self.address is None:
            return
        self._sources.lag.stop()
        await self._server.close()
        try:
            self._sources.store.disk.remove(self._file, missing_ok=True)
        except OSError as error:
            log.warning("cannot remove %s: %s", self._file, error)

    async def _respond(self, request: Request) -> Answer:
        if request.path == "/metrics":
            openly = "application/openmetrics-text" in request.headers.get("accept", "")
            return Answer(200, await self._scrape.text(openly=openly), OPEN if openly else PLAIN)
        if request.path == "/health":
            return Answer(200, b'{"alive": true}\n', JSON)
        if request.path == "/ready":
            import json  # imported late, for a fast start

            missing = self._sources.missing()
            body = json.dumps({"ready": not missing, "missing": missing})
            return Answer(503 if missing else 200, f"{body}\n".encode(), JSON)
        return Answer(404, b"there are /metrics, /health and /ready\n")


def bind_metrics(host: str, port: int | None, *, any_free: bool) -> socket:
    if port is not None:
        try:
            return bind(host, port, BACKLOG)
        except OSError as error:
            reason = f"ottla.metrics.listener {host}:{port}: {error.strerror or error}"
            raise OSError(error.errno, reason) from error
    if not any_free:
        try:
            return bind(host, PORT, BACKLOG)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            log.info("port %d is in use, perhaps by another broker: metrics use another port", PORT)
    return bind(host, 0, BACKLOG)
