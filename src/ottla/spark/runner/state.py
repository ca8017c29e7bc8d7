"""What a run writes into its folder, so that other processes can see it, stop it, and take over after a kill -9.

    lock           held (flock) by the run and by its Java process: while one of them lives, nobody else runs here
    run.json       who, since when, how it ended, the last progress of each query; always replaced as a whole
    stop           a file that asks the run to stop after its current batches
    spark.log      warnings of Spark, and whatever Java and the Python workers print
    checkpoints/   a folder for each query
    tables/        what a pipeline writes as files

If run.json says that the run is running, but nobody holds the lock, the run was killed.
"""

import fcntl
import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from ottla.client.failure import Failed
from ottla.spark.lock import try_lock

LOCK: Final = "lock"
RUN: Final = "run.json"
STOP: Final = "stop"
RUNNING, DONE, STOPPED, FAILED, KILLED = "running", "done", "stopped", "failed", "killed"
ENDING_S = 30.0  # a Java process notices that its driver was killed within seconds
PAUSE_S = 0.1


class FolderInUse(Failed):
    """Another run uses this folder."""


@dataclass(frozen=True)
class QueryProgress:
    """How far one query is."""

    query: str
    batch: int | None = None
    rows: int = 0  # since this run began
    rows_per_second: float = 0.0
    lag: int | None = None  # unread records when the last batch ended
    aside: int = 0  # records that a pipeline could not use, since this run began
    doing: str = ""  # before the first batch has ended: Spark's description of what it does


@dataclass(frozen=True)
class RunState:
    """run.json. Times are seconds since 1970."""

    name: str
    state: str
    pid: int = 0
    host: str = ""
    since: float = 0.0  # when this state began
    bootstrap: str = ""
    options: dict[str, str] = field(default_factory=dict)
    reason: str = ""  # of a failure, one sentence
    progress: tuple[QueryProgress, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        fields = json.loads(text)
        return cls(**{**fields, "progress": tuple(QueryProgress(**one) for one in fields["progress"])})

    def document(self) -> dict[str, Any]:
        return asdict(self)


def default_folder(environment: Mapping[str, str]) -> Path:
    """Where pipelines have their folders by default."""
    if chosen := environment.get("OTTLA_PIPELINES"):
        return Path(chosen).expanduser()
    share = environment.get("XDG_STATE_HOME")
    return (Path(share) if share else Path.home() / ".local" / "state") / "ottla" / "pipelines"


class Tenure:
    """The right to run in a folder, from `take` to `release`."""

    def __init__(self, folder: Path, descriptor: int) -> None:
        self.folder = folder
        self.descriptor = descriptor

    @classmethod
    def take(cls, folder: Path) -> Self:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise Failed(
                f"the folder {folder} cannot be used ({error.strerror}): choose another with --folder"
            ) from None
        end = time.monotonic() + ENDING_S
        while not try_lock(descriptor, fcntl.LOCK_EX):
            last = read(folder)
            if last is None or may_live(last) or time.monotonic() > end:
                os.close(descriptor)
                who = f"process {last.pid} on {last.host}" if last else "another process"
                raise FolderInUse(
                    f"{last.name if last else 'a pipeline'} is already running in {folder} ({who}): stop it with "
                    "`ottla pipeline stop`, or choose another --folder"
                )
            time.sleep(PAUSE_S)
        (folder / STOP).unlink(missing_ok=True)
        return cls(folder, descriptor)

    def write(self, state: RunState) -> None:
        draft = self.folder / f"{RUN}.new"
        draft.write_text(json.dumps(state.document(), indent=1))
        draft.replace(self.folder / RUN)

    def release(self) -> None:
        os.close(self.descriptor)


def may_live(state: RunState) -> bool:
    """Is the run of this state still running, as far as this process can tell?"""
    if state.state != RUNNING:
        return False
    if state.host != socket.gethostname():
        return True
    try:
        os.kill(state.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def read(folder: Path) -> RunState | None:
    """The content of run.json; None if there was no run."""
    try:
        return RunState.parse((folder / RUN).read_text())
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        raise Failed(f"{folder / RUN} is damaged: remove it; the checkpoints beside it stay valid") from None


def status(folder: Path) -> RunState | None:
    """The true state: a run that is marked as running, but whose lock is free, was killed."""
    state = read(folder)
    if state is None or state.state != RUNNING or is_held(folder):
        return state
    again = read(folder)  # it may have ended in between
    if again is None or again.state != RUNNING:
        return again
    killed_at = (folder / RUN).stat().st_mtime
    return RunState(
        **{**vars(again), "state": KILLED, "since": killed_at, "reason": "killed, or crashed without a message"}
    )


def is_held(folder: Path) -> bool:
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def ask_to_stop(folder: Path) -> None:
    (folder / STOP).touch()


def wait_for_end(folder: Path, timeout_s: float) -> bool:
    end = time.monotonic() + timeout_s
    while is_held(folder):
        if time.monotonic() > end:
            return False
        time.sleep(PAUSE_S)
    return True
