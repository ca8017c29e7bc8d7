"""Restarts a broker in the middle of a job: tasks report how far they are and wait for the test.

The functions for `mapInArrow` run in Spark's Python workers, which import this file and must not need more than it.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from process import Ottla

WAIT_S: Final = 90.0
STOPS: Final = (2, 12)  # the batches of a task before which the broker goes away
WIDTH: Final = 8000
VALUE: Final = bytes(range(250)) * 40


def offsets(batches: Iterator[pa.RecordBatch], folder: Path) -> Iterator[pa.RecordBatch]:
    """Where each row came from."""
    for batch in waiting(batches, folder):
        yield batch.select(["partition", "offset"])


def numbered(batches: Iterator[pa.RecordBatch], folder: Path) -> Iterator[pa.RecordBatch]:
    """Rows to write, from a range of numbers."""
    for batch in waiting(batches, folder):
        keys = [str(number) for number in batch.column("id").to_pylist()]
        yield pa.record_batch([pa.array(keys), pa.array([VALUE] * len(keys), pa.binary())], ["key", "value"])


def padded(batches: Iterator[pa.RecordBatch], folder: Path) -> Iterator[pa.RecordBatch]:
    """Numbered rows, so large that they do not stay in a buffer while the task waits."""
    for batch in waiting(batches, folder):
        keys = [str(number) for number in batch.column("id").to_pylist()]
        yield pa.record_batch([pa.array(keys), pa.array([key.ljust(WIDTH) for key in keys])], ["key", "value"])


def waiting(batches: Iterator[pa.RecordBatch], folder: Path) -> Iterator[pa.RecordBatch]:
    """The same batches; before some of them this task waits until the test lets it go on."""
    for number, batch in enumerate(batches):
        if number in STOPS:
            (folder / f"reached-{number}").touch()
            deadline = time.monotonic() + WAIT_S
            while not (folder / f"go-{number}").exists():
                assert time.monotonic() < deadline, "the test did not go on"
                time.sleep(0.01)
        yield batch


class Restarts:
    """While the job runs in the block, kills the broker when a task has reached a point, and later stops it."""

    def __init__(self, broker: Ottla, folder: Path) -> None:
        self.broker, self.folder = broker, folder
        self.done: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        for how, number in zip(("kill", "stop"), STOPS, strict=True):
            while not (self.folder / f"reached-{number}").exists():
                if self._over.wait(0.01):
                    return
            getattr(self.broker, how)()
            self.broker.start()
            self.done.append(how)
            (self.folder / f"go-{number}").touch()

    def __enter__(self) -> Restarts:
        self.folder.mkdir()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(WAIT_S)
