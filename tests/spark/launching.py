"""A pipeline in a process of its own, as users start it: watched by its run.json, stopped, killed, started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import commands
from spark import jvm
from waiting import wait_until

from ottla.spark.runner import state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

OTTLA = (sys.executable, "-m", "ottla")
START_S = 400.0  # Spark on a very busy machine; a quiet one needs ten seconds


def small_flags(master: str, *more: str) -> list[str]:
    """Flags for a short run: it starts fast and takes little memory."""
    java = f"spark.driver.extraJavaOptions={' '.join(jvm.options())}"
    settings = (java, "spark.sql.shuffle.partitions=2", *more)
    return ["--master", master, "--driver-memory", "512m", *(word for one in settings for word in ("--conf", one))]


class Launched:
    """`with Launched(command, folder=..., bootstrap=...) as running`: what is left at the end is killed."""

    def __init__(
        self, command: Sequence[str], *, folder: Path, bootstrap: str, small: Sequence[str] | None = None
    ) -> None:
        self.folder = folder
        self.log = folder.with_name(f"{folder.name}.log")
        flags = small_flags("local[2]") if small is None else small
        whole = [*command, "--folder", str(folder), "--bootstrap", bootstrap, *flags]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                whole, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def until(self, reached: Callable[[state.RunState], bool], what: str) -> state.RunState:
        """Wait until run.json of this process meets the condition."""

        def look() -> state.RunState | None:
            now = state.read(self.folder)
            if now is not None and now.pid == self.process.pid and reached(now):
                return now
            assert self.process.poll() is None, f"ended before {what}: {self.told()}"
            return None

        return wait_until(look, lambda: f"{what}: {state.read(self.folder)}\n{self.told()}", START_S)

    def until_rows(self, query: str, count: int) -> state.RunState:
        def reached(now: state.RunState) -> bool:
            return any(one.query == query and one.rows >= count for one in now.progress)

        return self.until(reached, f"{count} rows of {query}")

    def signal(self, number: signal.Signals = signal.SIGTERM) -> int:
        """To the whole process group, as a terminal and most supervisors do; the exit code."""
        os.killpg(self.process.pid, number)
        return self.wait()

    def kill(self) -> None:
        """kill -9, the driver alone: its Java process must notice by itself."""
        self.process.kill()
        self.process.wait(START_S)

    def wait(self) -> int:
        return self.process.wait(START_S)

    def told(self) -> str:
        return self.log.read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(START_S)


def finished(
    command: Sequence[str], *, folder: Path, bootstrap: str, code: int = 0, small: Sequence[str] | None = None
) -> str:
    """Run to the end. The exit code must be this one. Returns the output."""
    with Launched(command, folder=folder, bootstrap=bootstrap, small=small) as running:
        found = running.wait()
        assert found == code, running.told()
        return running.told()


def command(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Any other `ottla` command, to its end."""
    done = commands.run(arguments, timeout_s=START_S)
    out, error = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == code, (out, error)
    return subprocess.CompletedProcess(arguments, done.returncode, out, error)
