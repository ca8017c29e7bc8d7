"""Batches of a request are decompressed by two threads (native/src/helper.rs). A forked process does it with one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ottla.records import native

SCRIPT = """
import os, random, signal
from ottla.records import batch, native
from ottla.records.batch import Record
from ottla.records.compress import Codec

noise = random.Random(1)
one = batch.build([Record(at, 1, None, noise.randbytes(900), ()) for at in range(40)], codec=Codec.GZIP)
reader, data, size = native.produce_reader(), one * 8, len(one)
entries = [("topic", at, at * size, (at + 1) * size) for at in range(8)]

def check():
    return len(reader.check_each(data, entries, (1 << 20, False, 1 << 60, 1 << 60), 1, (1 << 20, 1 << 20, True)))

def threads():
    return len(os.listdir("/proc/self/task"))

print(check(), threads(), flush=True)
child = os.fork()
if not child:
    signal.alarm(60)  # it ends, if it waits for a thread that is not there
    print(check(), check(), threads(), flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1], check(), flush=True)
"""


@pytest.mark.skipif(native.produce_reader() is None, reason="without the native part there is no such thread")
def test_a_forked_process_does_not_wait_for_the_thread_of_its_parent() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=120)
    threads = min(2, len(os.sched_getaffinity(0)))
    assert done.stdout.splitlines() == [f"8 {threads}", "8 8 1", "0 8"]
