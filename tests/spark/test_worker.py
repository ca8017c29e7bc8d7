"""A worker reports missing packages, and the garbage collector skips what the first task has loaded, and only that."""

import subprocess
import sys

import pytest

from ottla.records import native
from ottla.spark import worker

STORY = """
import gc
from ottla.spark.worker import at_work

class Knot:
    def __init__(self):
        self.self = self

with at_work():
    import xml.dom.minidom
    Knot()
    assert not gc.get_freeze_count()
kept = gc.get_freeze_count()
assert kept > 5000, kept
assert len(gc.get_objects()) < 1000
with at_work():
    later = [Knot() for _ in range(10)]
assert gc.get_freeze_count() <= kept
del later
assert gc.collect() >= 10
gc.unfreeze()
assert not any(isinstance(one, Knot) for one in gc.get_objects()), "what was garbage at the time was not kept"
"""


def test_what_the_first_task_has_loaded_stays() -> None:
    done = subprocess.run([sys.executable, "-c", STORY], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_tasks_that_write_say_too_that_the_native_part_is_missing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_crate", lambda: None)
    monkeypatch.setattr(worker, "_keep_modules", lambda: None)
    native.warn_if_missing.cache_clear()
    for _ in range(2):
        with worker.at_work():
            pass
    assert [record.getMessage() for record in caplog.records] == [native.MISSING]
    native.warn_if_missing.cache_clear()
