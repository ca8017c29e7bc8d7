"""An Ottla broker in a separate process, started as users do (`python -m ottla serve`); tests kill and restart it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from judge import KEEPING, Closing, answers, free_ports, stop_process, until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

START_S = 60.0  # far above what a start needs, so that only a broken one is reported
# OTTLA_TEST_START_DELAY_S=2 delays every restart, to imitate a slow machine.
RESTART_DELAY_S = float(os.environ.get("OTTLA_TEST_START_DELAY_S", "0"))


class Ottla(Closing):
    """One broker on loopback; its port and its folder stay the same from start to start."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        wrapper: Sequence[str] = ("-m", "ottla"),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._own_folder = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="ottla-"))
        self.log_dir = self.folder / "data"
        (self.port,) = free_ports(1)
        self._settings = {**KEEPING, **(settings or {})}
        self._wrapper = tuple(wrapper)
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self.log = self.folder / "broker.log"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start and wait for the first successful response; `start_s` says how long that took."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._process is not None:
            time.sleep(RESTART_DELAY_S)
        sets = [word for name, value in self._settings.items() for word in ("--set", f"{name}={value}")]
        place = ["--host", "127.0.0.1", "--port", str(self.port)]
        if "log.dirs" not in self._settings:
            place += ["--data", str(self.log_dir)]
        started = time.monotonic()
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, *self._wrapper, "serve", *place, *sets],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment,
            )
        until(lambda: answers(self.port), self._process, self.log, START_S)
        self.start_s = time.monotonic() - started
        return self

    def kill(self) -> None:
        """kill -9: no flush, no controlled shutdown."""
        assert self._process is not None
        stop_process(self._process, kill=True)

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        assert self._process is not None
        return stop_process(self._process)

    def rss_mb(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def close(self) -> None:
        if self._process is not None:
            stop_process(self._process)
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)
