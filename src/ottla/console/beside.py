"""Run the console as a child process, for example for `ottla serve --console`; it ends with its parent."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Beside:
    """Starts the console at once; it prints its address when ready. It shares the parent's output."""

    def __init__(self, bootstrap: str, arguments: Sequence[str] = (), *, quiet: bool = False) -> None:
        command = [sys.executable, "-m", "ottla", "console", "--bootstrap", bootstrap, "--until-eof", *arguments]
        # The child exits when this pipe closes, however the parent ends.
        reading, self._writing = os.pipe()
        out = subprocess.DEVNULL if quiet else None
        self._process = subprocess.Popen(command, stdin=reading, stdout=out)
        os.close(reading)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def stop(self, timeout_s: float = 10.0) -> None:
        os.close(self._writing)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
