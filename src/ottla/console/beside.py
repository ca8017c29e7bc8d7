"""The console as a child process of whoever starts it, such as `ottla serve --console`; it ends with its parent."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Beside:
    """Started at once, announced when it is ready; `stop` ends it. Its lines go where the parent's go."""

    def __init__(self, bootstrap: str, arguments: Sequence[str] = (), *, quiet: bool = False) -> None:
        command = [sys.executable, "-m", "ottla", "console", "--bootstrap", bootstrap, "--until-eof", *arguments]
        # It ends when the pipe does: however the parent ends, nobody has to tell it.
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
