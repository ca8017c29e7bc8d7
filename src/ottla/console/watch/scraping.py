"""Bytes in and out, from the brokers' metrics pages (see docs/metrics.md), if their addresses are given.

Only totals without labels are read, so that a page of a megabyte costs little. A broker that does not answer is skipped
and delays nothing else.
"""

from __future__ import annotations

import http.client
import threading
import time
import urllib.error
import urllib.request
from typing import Final, NamedTuple

EVERY_S: Final = 5.0
TIMEOUT_S: Final = 3.0
SIZE_MAX: Final = 32 << 20
IN, OUT = b"ottla_bytes_in_total ", b"ottla_bytes_out_total "


class ByteRates(NamedTuple):
    """Bytes per second."""

    into: float
    out: float


class Scraping:
    """Scrapes in its own thread until closed; `traffic` is the rate between the last two scrapes."""

    def __init__(self, urls: tuple[str, ...]) -> None:
        self._urls = urls
        self.traffic: ByteRates | None = None
        self._before: dict[str, tuple[float, float, float]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live, name="console-metrics", daemon=True)

    def start(self) -> None:
        if self._urls:
            self._thread.start()

    def _live(self) -> None:
        while not self._stop.is_set():
            rates = [rate for url in self._urls if (rate := self._rate(url)) is not None]
            self.traffic = ByteRates(sum(one.into for one in rates), sum(one.out for one in rates)) if rates else None
            self._stop.wait(EVERY_S)

    def _rate(self, url: str) -> ByteRates | None:
        now, before = read(url), self._before.pop(url, None)
        if now is None:
            return None
        self._before[url] = now
        if before is None or now[0] <= before[0] or now[1] < before[1]:  # restarted: nothing to compare with
            return None
        seconds = now[0] - before[0]
        return ByteRates((now[1] - before[1]) / seconds, max(0.0, now[2] - before[2]) / seconds)

    def close(self) -> None:
        self._stop.set()


def read(url: str) -> tuple[float, float, float] | None:
    """The time, and the two totals."""
    if not url.startswith(("http://", "https://")):  # urllib would also open files
        return None
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:  # nosec B310 # the scheme is checked above
            text: bytes = answer.read(SIZE_MAX)
    except (OSError, ValueError, http.client.HTTPException):
        return None
    return time.monotonic(), total(text, IN), total(text, OUT)


def total(text: bytes, name: bytes) -> float:
    at = 0 if text.startswith(name) else text.find(b"\n" + name) + 1
    if not at and not text.startswith(name):
        return 0.0
    try:
        return float(text[at + len(name) :].partition(b"\n")[0])
    except ValueError:
        return 0.0
