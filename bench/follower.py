"""What replication costs a follower: python bench/follower.py

CPU seconds per gigabyte for batches of three sizes, from a response's bytes to the log: walking the batches, checking
their checksums, one write, indexes, epochs. Receiving the response is not included. The best of several rounds; the
folder is in memory if the system has a memory file system.
"""

from __future__ import annotations

import shutil
import struct
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)
sys.path.insert(1, str(ROOT / "src"))

from ottla.clock import SystemClock  # noqa: E402
from ottla.config import load, topic_config  # noqa: E402
from ottla.disk import RealDisk  # noqa: E402
from ottla.log.replicate import replicate  # noqa: E402
from ottla.log.store import LogStore  # noqa: E402
from ottla.records import batch  # noqa: E402

MEMORY = Path("/dev/shm")
ROUNDS = 40
ANSWER_SIZE = 1 << 20
RECORD_SIZE = 1000


def answer(first: int, records: int) -> bytes:
    """About a mebibyte of batches, starting at an offset."""
    made = [batch.Record(at, 0, None, b"x" * RECORD_SIZE, ()) for at in range(records)]
    one = bytearray(batch.build(made))
    parts = []
    for number in range(max(1, ANSWER_SIZE // len(one))):
        struct.pack_into(">q", one, 0, first + number * records)
        parts.append(bytes(one))
    return b"".join(parts)


def main() -> None:
    folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
    config = load({"log.dirs": str(folder)})
    store = LogStore([folder], RealDisk(), SystemClock(), config)
    store.open(lambda _: topic_config(config, {}), replicated=True)
    try:
        for records in (1, 16, 128):
            log = store.create(f"of-{records}", 0, bytes([records]) * 16, topic_config(config, {}), -1)
            best = float("inf")
            for _ in range(ROUNDS):
                data = memoryview(answer(log.end, records))
                began = time.process_time()
                replicate(log, data, now_ms=0)
                best = min(best, (time.process_time() - began) / len(data))
            print(f"batches of {records:4} records of 1 kB   {best * 1e9:6.2f} CPU-s/GB")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
