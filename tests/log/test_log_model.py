"""A log behaves like a list of batches, for any sequence of operations, stops and crashes."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from log.making import NOW_MS, TOPIC_ID, StillClock, a_store, append, produced

from ottla.config import load, topic_config
from ottla.errors import BrokerError, ErrorCode
from ottla.log.retention import retain
from ottla.log.truncation import truncate
from ottla.records import batch

OPTIONS = {
    "segment.bytes": "1500",
    "index.interval.bytes": "200",
    "segment.index.bytes": "120",
    "file.delete.delay.ms": "0",
    "retention.ms": "-1",
}


class LogMachine(RuleBasedStateMachine):
    """`batches` is the model: (base, last, timestamp, bytes) of everything that was appended and not cut off."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="ottla-log-"))
        self.clock = StillClock()
        self.store = a_store(self.folder, clock=self.clock, topic=OPTIONS)
        self.log = self.store.create("orders", 0, TOPIC_ID, topic_config(load({}), OPTIONS), 0)
        self.batches: list[tuple[int, int, int, bytes]] = []
        self.start = 0
        self.end = 0
        self.epoch = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(count=st.integers(1, 4), size=st.integers(0, 300), ahead=st.integers(-50, 100))
    def append(self, count: int, size: int, ahead: int) -> None:
        data = produced(count, size=size, timestamp=NOW_MS + self.end + ahead)
        appended = append(self.log, data, epoch=self.epoch)
        assert (appended.base, appended.last) == (self.end, self.end + count - 1)
        stored = bytes(appended.base.to_bytes(8, "big") + data[8:12] + self.epoch.to_bytes(4, "big") + data[16:])
        self.batches.append((appended.base, appended.last, NOW_MS + self.end + ahead, stored))
        self.end += count

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1

    @rule(data=st.data(), size_max=st.integers(0, 3000), min_one=st.booleans())
    def read(self, data: st.DataObject, size_max: int, min_one: bool) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        limit = data.draw(st.sampled_from([self.end, *[base for base, *_ in self.batches if base >= self.start]]))
        found = self.log.read(offset, size_max, offset_max=limit, min_one=min_one)
        expected = [one for one in self.batches if one[1] >= offset and one[1] < limit] if offset < limit else []
        if found is None:
            assert not expected or size_max == 0 or (not min_one and len(expected[0][3]) > size_max)
            return
        whole = b"".join(one[3] for one in expected)
        given_bytes = found.read()
        assert len(given_bytes) == found.size > 0
        assert whole.startswith(given_bytes)
        first = len(expected[0][3])
        assert first <= found.size <= max(size_max, first if min_one else 0)

    @rule(outside=st.sampled_from([-1, 1]))
    def read_outside(self, outside: int) -> None:
        offset = self.start - 1 if outside < 0 else self.end + 1
        with pytest.raises(BrokerError) as failure:
            self.log.read(offset, 100, offset_max=self.end)
        assert failure.value.code == ErrorCode.OFFSET_OUT_OF_RANGE

    @rule(ahead=st.integers(-60, 200), data=st.data())
    def seek_by_time(self, ahead: int, data: st.DataObject) -> None:
        target = NOW_MS + data.draw(st.integers(0, max(self.end, 1))) + ahead
        held = [(max(base, self.start), time) for base, last, time, _ in self.batches if last >= self.start]
        expected = next(((offset, time) for offset, time in held if time >= target), None)
        found = self.log.offset_for_time(target)
        assert (found and (found.offset, found.timestamp)) == expected

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        truncate(self.log, offset, now_ms=NOW_MS)
        cut = [base for base, last, *_ in self.batches if last >= offset]
        self.batches = [one for one in self.batches if one[1] < offset]
        self.end = min([self.end, *cut])
        self.start = min(self.start, self.end)

    @rule(data=st.data())
    def delete_before(self, data: st.DataObject) -> None:
        self.start = max(self.start, data.draw(st.integers(self.start, self.end)))
        assert self.log.delete_before(self.start) == self.start
        retain(self.log, NOW_MS)
        assert not any(segment.end <= self.start for segment in self.log.segments[:-1])

    @rule(keep=st.integers(0, 5000))
    def retain_by_size(self, keep: int) -> None:
        # Segments that lie before the start of the log go in any case.
        before = sum(one.size for one in self.log.segments if one.end > self.start or one is self.log.active)
        config = self.log.config
        self.log.reconfigure(topic_config(load({}), {**OPTIONS, "retention.bytes": str(keep)}))
        retain(self.log, NOW_MS)
        assert self.log.size >= min(keep, before)
        assert self.log.size - self.log.segments[0].size < max(keep, 1)
        self.log.reconfigure(config)
        self.start = max(self.start, self.log.segments[0].base)

    @rule()
    def restart(self) -> None:
        asyncio.run(self.store.close())
        self._reopen()

    @rule(flushed=st.booleans())
    def crash(self, flushed: bool) -> None:
        if flushed:
            self.log.durability.flush(NOW_MS)
        asyncio.run(self.store.housekeeping.checkpoint())
        self.clock.ms += 60_000  # every checkpoint is due
        asyncio.run(self.store.housekeeping.checkpoint())
        self._reopen()

    def _reopen(self) -> None:
        self.store = a_store(self.folder, clock=self.clock, topic=OPTIONS)
        self.log = self.store.logs["orders", 0]
        assert self.log.topic_id == TOPIC_ID

    @invariant()
    def same_ends(self) -> None:
        assert (self.log.start, self.log.end) == (self.start, self.end)

    @invariant()
    def indexes_are_as_rebuilt(self) -> None:
        """Closed segments only: the active one has not written its last time entry yet."""
        for segment in self.log.segments[:-1]:
            segment.largest()
            offsets, times = segment.offsets.entries(), segment.times.entries()
            for offset, position in offsets:
                last = next(segment.spans(position)).span.last
                assert last == offset
            assert times == sorted(times)
            assert len({mark.timestamp for mark in times}) == len(times)

    @invariant()
    def epochs_are_those_of_the_batches(self) -> None:
        for base, _, _, data in self.batches:
            if base >= self.start:
                assert self.log.epochs.of(base) == batch.header(data).leader_epoch


LogMachine.TestCase.settings = settings(stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
TestLog = LogMachine.TestCase
