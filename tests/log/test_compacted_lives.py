"""Random sequences on a compacted log: transactions, tombstones, rolls, compaction, DeleteRecords, stops and crashes.

After every step a read_committed reader must find the last committed value of each key, no aborted value, no value that
a tombstone deleted, and every record at the offset where it was written.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest
from log.making import TOPIC_ID, StillClock, a_store, append, settings
from log.test_compaction import HastyDisk

from ottla.log import compaction
from ottla.log.retention import retain
from ottla.records import batch
from ottla.records.markers import read_marker

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.log.log import Log
    from ottla.log.store import LogStore

LIVES = 20
PRODUCERS = (11, 12, 13)  # with transactions; 1 and 2 are without
KEEP_MS = 1_000  # tombstones and markers, before they go

Written = dict[int, tuple[bytes | None, bytes | None]]  # offset → key and value


def options_of(random: Random) -> dict[str, str]:
    return {
        "cleanup.policy": random.choice(["compact", "compact,delete"]),
        "min.cleanable.dirty.ratio": "0",
        "min.compaction.lag.ms": random.choice(["0", "0", "100"]),
        "delete.retention.ms": str(KEEP_MS),
        "retention.ms": "-1",
        "file.delete.delay.ms": "0",
        "index.interval.bytes": random.choice(["0", "100"]),
        "compression.type": random.choice(["producer", "gzip"]),
    }


class Life:
    def __init__(self, folder: Path, seed: int) -> None:
        self.random = Random(seed)
        self.folder = folder
        self.clock = StillClock()
        self.options = options_of(self.random)
        self.committed: Written = {}
        self.open: dict[int, Written] = {}  # by producer
        self.sequences: dict[int, int] = {}
        self.epochs = dict.fromkeys((1, 2, *PRODUCERS), 0)
        self.store: LogStore
        self.log: Log
        self.begin()

    def begin(self) -> None:
        """Start. If the store was not closed, this is a start after a crash."""
        self.store = a_store(self.folder, disk=HastyDisk(), clock=self.clock, topic=self.options)
        known = self.store.logs.get(("t", 0))
        self.log = known or self.store.create(
            "t", 0, TOPIC_ID, settings(**{name.replace(".", "_"): value for name, value in self.options.items()}), 0
        )

    def step(self) -> None:
        self.clock.ms += self.random.randint(0, 50)
        usual = [self.write] * 8 + [self.write_in_transaction] * 8 + [self.end] * 4 + [self.roll] * 4
        self.random.choice([*usual, self.compact, self.wait, self.delete_records, self.restart, self.crash])()

    # What may happen.

    def write(self) -> None:
        producer = self.random.choice([-1, 1, 2])
        self.committed |= self.append(producer)

    def write_in_transaction(self) -> None:
        producer = self.random.choice(PRODUCERS)
        self.open.setdefault(producer, {}).update(self.append(producer))

    def append(self, producer: int) -> Written:
        pairs = [
            (b"k%d" % self.random.randint(0, 6), self.random.choice([None, *(b"%d" % self.random.randint(0, 99),) * 3]))
            for _ in range(self.random.randint(1, 3))
        ]
        records = [batch.Record(at, self.clock.ms, key, value, ()) for at, (key, value) in enumerate(pairs)]
        state = self.log.producers._producers.get(producer)
        if state is not None and not state.batches:
            self.sequences[producer] = 0  # its batches went with DeleteRecords and a crash: it begins anew
        sequence = self.sequences.get(producer, 0)
        data = batch.build(
            records,
            producer_id=producer,
            producer_epoch=self.epochs.get(producer, -1),
            base_sequence=sequence if producer >= 0 else -1,
            transactional=producer in PRODUCERS,
        )
        appended = append(self.log, memoryview(data), now_ms=self.clock.ms)
        assert not appended.duplicate
        self.sequences[producer] = sequence + len(records)
        return {appended.base + at: pair for at, pair in enumerate(pairs)}

    def end(self) -> None:
        if not self.open:
            return
        producer, commit = self.random.choice(sorted(self.open)), self.random.random() < 0.5
        if self.random.random() < 0.5:  # the newer protocol
            self.epochs[producer] += 1
            self.sequences[producer] = 0
        marker = batch.Record(0, self.clock.ms, b"\0\0\0" + bytes([commit]), bytes(6), ())
        data = batch.build(
            [marker], producer_id=producer, producer_epoch=self.epochs[producer], transactional=True, control=True
        )
        append(self.log, memoryview(data), now_ms=self.clock.ms, produce_version=11, client=False)
        written = self.open.pop(producer)
        if commit:
            self.committed |= written

    def roll(self) -> None:
        self.log.roll(self.clock.ms)

    def compact(self) -> None:
        async def all_of_it() -> None:
            for _ in range(100):
                if not await self.store.cleaner.clean_filthiest():
                    return
            raise AssertionError("it comes to no end")

        asyncio.run(all_of_it())

    def wait(self) -> None:
        self.clock.ms += KEEP_MS + 500

    def delete_records(self) -> None:
        if self.log.config.deletes:
            self.log.delete_before(self.random.randint(self.log.start, (self.log.start + self.log.end) // 2))
            retain(self.log, self.clock.ms)

    def restart(self) -> None:
        asyncio.run(self.store.close())
        self.begin()

    def crash(self) -> None:
        start = self.log.start
        self.begin()
        self.log.delete_before(start)  # that it was moved may be forgotten

    # What must be true.

    def check(self) -> None:
        log, stable = self.log, self.log.last_stable(self.log.end)
        found = read_committed(log, stable)
        assert all(self.committed.get(offset) == pair for offset, pair in found.items())
        assert list(found) == sorted(found)
        last = {self.committed[at][0]: at for at in sorted(self.committed) if log.start <= at < stable}
        seen = {key: at for at, (key, _) in found.items()}
        for key, at in last.items():
            if self.committed[at][1] is not None:
                assert seen.get(key) == at, "the last value of a key is lost"
            else:
                assert key not in seen or found[seen[key]][1] is None, "a deleted key is back"


def read_committed(log: Log, stable: int) -> Written:
    """What a consumer returns: it drops aborted records by the list in the answer."""
    found: Written = {}
    offset = log.start
    while offset < stable and (piece := log.read(offset, 1 << 20, offset_max=stable)) is not None:
        data = piece.read()
        coming = sorted((first, producer) for producer, first in log.list_aborted(offset, stable))
        aborted: set[int] = set()
        for entry in batch.entries(data):
            head = batch.header(data, entry.position)
            while coming and coming[0][0] <= head.last_offset:
                aborted.add(coming.pop(0)[1])
            for record in batch.iterate(data, entry.position):
                if head.control:
                    marker = read_marker(record.key, record.value)
                    if marker is not None and not marker.commit:
                        aborted.discard(head.producer_id)
                elif record.offset >= offset and not (head.transactional and head.producer_id in aborted):
                    found[record.offset] = (record.key, record.value)
            offset = max(offset, entry.last_offset + 1)
    return found


@pytest.mark.parametrize("keys_max", [1, 3, 1000])
def test_readers_find_what_they_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys_max: int) -> None:
    genuine = compaction.plan
    monkeypatch.setattr(compaction, "plan", lambda *given: genuine(*given)._replace(keys_max=keys_max))
    monkeypatch.setattr(compaction, "SLICE_PAUSE_S", 0)
    for seed in range(keys_max, keys_max + LIVES):
        life = Life(tmp_path / str(seed), seed)
        for step in range(life.random.randint(20, 60)):
            life.step()
            try:
                life.check()
            except AssertionError as error:
                raise AssertionError(f"life {seed}, step {step}: {error}") from error
