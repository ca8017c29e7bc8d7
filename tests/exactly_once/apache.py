"""Programs of Apache Kafka beyond its brokers: Streams, Connect and MirrorMaker 2, from Maven, as processes."""

from __future__ import annotations

import subprocess
from functools import cache
from typing import TYPE_CHECKING, Final

import judge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

PARTS: Final = {
    "streams": ("kafka-streams", "kafka-clients"),
    "connect": ("connect-runtime", "connect-file", "connect-mirror", "connect-mirror-client", "connect-json",
                "kafka-clients"),
}  # fmt: skip
LOGGING: Final = ("log4j-api", "log4j-core", "log4j-slf4j-impl", "log4j-1.2-api")


@cache
def classpath(part: str) -> str:
    coordinates = [("org.apache.kafka", name, judge.NEWEST) for name in PARTS[part]]
    coordinates += [("org.apache.logging.log4j", name, "2.25.3") for name in LOGGING]
    folder = judge.cached(f"kafka-{part}-{judge.NEWEST}", lambda folder: judge.fetch_jars(folder, coordinates))
    return f"{folder / 'libs'}/*"


class Process:
    """A program with its output in a file, that may be killed and started again."""

    def __init__(self, words: Sequence[str | Path], log: Path) -> None:
        self.words, self.log = words, log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        return self

    def until(self, ready: Callable[[], bool], seconds: float = judge.TIMEOUT_S) -> float:
        assert self.process is not None
        return judge.until(ready, self.process, self.log, seconds)

    def stop(self, *, kill: bool = False) -> int:
        assert self.process is not None
        return judge.stop_process(self.process, kill=kill)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None:
            self.stop(kill=True)


def program(part: str, name: Path | str, arguments: Sequence[str], log: Path) -> Process:
    """A class of Streams or Connect, or a source file that uses them, in a JVM of its own."""
    path = classpath(part)
    options = [f"-Dlog4j2.configurationFile={path.removesuffix('libs/*')}log4j2.xml"]
    words = judge.command(name, *arguments, path=path, options=options)
    words[words.index("-Xmx256M")] = "-Xmx512M"
    return Process(words, log)
