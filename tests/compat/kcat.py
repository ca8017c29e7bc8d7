"""kcat as people use it on a command line: one process for every call."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from compat.clients import EARLIEST, TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Sequence


class Kcat:
    def __init__(self, bootstrap: str, *settings: str) -> None:
        words = [word for setting in ("log_level=2", *settings) for word in ("-X", setting)]
        self._command = ["kcat", "-b", bootstrap, *words]

    def run(self, *arguments: str | int, stdin: bytes = b"") -> bytes:
        """Run to the end. A failure raises an error with kcat's output."""
        words = [*self._command, *map(str, arguments)]
        done = subprocess.run(words, input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr.decode(errors='replace')}"
        return done.stdout

    def produce(
        self, topic: str, lines: Sequence[bytes], *options: str | int, partition: int = 0, codec: str = "none"
    ) -> None:
        # Lines that come slowly through the pipe are to be one batch still, or compression would not pay.
        self.run(
            "-P",
            "-X",
            "linger.ms=200",
            "-t",
            topic,
            "-p",
            partition,
            "-z",
            codec,
            *options,
            stdin=b"\n".join(lines) + b"\n",
        )

    def consume(self, topic: str, offset: int, count: int, *, partition: int = 0) -> list[dict[str, Any]]:
        """Records as kcat's own JSON; values that are not text come out mangled, so ask for text only."""
        start = "beginning" if offset == EARLIEST else offset
        out = self.run("-C", "-J", "-t", topic, "-p", partition, "-o", start, "-c", count, "-e")
        return [json.loads(line) for line in out.splitlines()]

    def offset(self, topic: str, timestamp: int, *, partition: int = 0) -> int:
        """kcat prints `topic [partition] offset N`."""
        return int(self.run("-Q", "-t", f"{topic}:{partition}:{timestamp}").split()[-1])

    def metadata(self, topic: str) -> dict[str, Any]:
        found = json.loads(self.run("-L", "-J", "-t", topic))
        assert isinstance(found, dict)
        return found
