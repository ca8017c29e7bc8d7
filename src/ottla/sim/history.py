"""Checks the responses that clients of a cluster got. Pure; for simulated and real clusters.

Every value is unique. A producer reports what it sends and what was acknowledged; a reader reports what it got, in
order, and the high watermarks it saw. From these alone `History` finds:

    inconsistent   two values at one offset
    duplicate      one value at two offsets, although its producer is idempotent
    invented       a value that no producer sent
    reordered      records of one producer in another order than it sent them
    skipped        a reader that skipped an acknowledged record
    backwards      a high watermark or log end that was lower than before
    lost           an acknowledged record that is missing in the end
    diverged       two replicas that differ below the high watermark
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Partition = tuple[str, int]


class Violation(NamedTuple):
    kind: str
    partition: Partition
    detail: str

    def __str__(self) -> str:
        topic, index = self.partition
        return f"{self.kind} in {topic}-{index}: {self.detail}"


class ValueOrigin(NamedTuple):
    """Origin of a value: its producer, and its number among that producer's values in the partition."""

    producer: str
    number: int


class ReaderState:
    """What one reader has seen of one partition."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.high = -1
        self.last: dict[str, int] = {}  # producer → number of its last value


class Story:
    """One partition."""

    def __init__(self) -> None:
        self.places: dict[bytes, ValueOrigin] = {}
        self.counts: dict[str, int] = defaultdict(int)
        self.acked: dict[int, bytes] = {}
        self.unplaced: set[bytes] = set()  # acknowledged, at an unknown offset
        self.values: dict[int, bytes] = {}  # value at every offset that any client saw
        self.offsets: dict[bytes, int] = {}
        self.readers: dict[str, ReaderState] = {}
        self.ends: dict[str, int] = {}
        self.last_acked: dict[str, tuple[int, int]] = {}  # producer → number and offset


class History:
    def __init__(self, tell: Callable[[Violation], None] | None = None) -> None:
        self.violations: list[Violation] = []
        self.partitions: dict[Partition, Story] = defaultdict(Story)
        self._tell = tell

    def _wrong(self, kind: str, partition: Partition, detail: str) -> None:
        violation = Violation(kind, partition, detail)
        self.violations.append(violation)
        if self._tell is not None:
            self._tell(violation)

    # Producers.

    def note_sent(self, producer: str, partition: Partition, values: Iterable[bytes]) -> None:
        story = self.partitions[partition]
        for value in values:
            assert value not in story.places, "values are unique"
            story.places[value] = ValueOrigin(producer, story.counts[producer])
            story.counts[producer] += 1

    def note_acknowledged(self, partition: Partition, base: int | None, values: Sequence[bytes]) -> None:
        """`base` is None if the client knows that they were written, but not where.

        librdkafka reports no offset for a batch whose response it never got, once a later batch has succeeded.
        """
        story = self.partitions[partition]
        if base is None:
            story.unplaced.update(values)
            return
        for offset, value in enumerate(values, base):
            self._note(partition, offset, value)
            story.acked[offset] = value
            place = story.places[value]
            number, last = story.last_acked.get(place.producer, (-1, -1))
            if place.number > number and offset < last:
                detail = f"{value!r} of {place.producer} was acknowledged at {offset}, an earlier one at {last}"
                self._wrong("reordered", partition, detail)
            if place.number > number:
                story.last_acked[place.producer] = place.number, offset

    # Readers.

    def note_start(self, reader: str, partition: Partition, position: int) -> None:
        """A reader starts at an offset, or seeks to it."""
        before = self.partitions[partition].readers.get(reader)
        now = self.partitions[partition].readers[reader] = ReaderState(position)
        if before is not None:
            now.high = before.high

    def note_read(self, reader: str, partition: Partition, offset: int, value: bytes) -> None:
        story = self.partitions[partition]
        state = story.readers.setdefault(reader, ReaderState(offset))
        if offset < state.position:
            self._wrong("reordered", partition, f"{reader} got offset {offset} after {state.position - 1}")
        for missed in range(state.position, offset):
            if missed in story.acked:
                self._wrong("skipped", partition, f"{reader} went from {state.position} to {offset}, past {missed}")
                break
        state.position = offset + 1
        if self._note(partition, offset, value):
            place = story.places[value]
            last = state.last.get(place.producer, -1)
            if place.number <= last:
                self._wrong("reordered", partition, f"{reader} got {value!r} after number {last} of {place.producer}")
            state.last[place.producer] = place.number

    def note_high(self, reader: str, partition: Partition, high: int) -> None:
        """A reader got this high watermark."""
        state = self.partitions[partition].readers.setdefault(reader, ReaderState(0))
        if high < state.high:
            self._wrong("backwards", partition, f"{reader} was told a high watermark of {state.high}, then {high}")
        state.high = max(state.high, high)

    def _note(self, partition: Partition, offset: int, value: bytes) -> bool:
        """A client saw this value at this offset. Returns whether a producer sent it."""
        story = self.partitions[partition]
        if value not in story.places:
            self._wrong("invented", partition, f"{value!r} at {offset}")
            return False
        known = story.values.setdefault(offset, value)
        if known != value:
            self._wrong("inconsistent", partition, f"{known!r} and {value!r} at {offset}")
        place = story.offsets.setdefault(value, offset)
        if place != offset:
            self._wrong("duplicate", partition, f"{value!r} at {place} and at {offset}")
        return True

    # The end.

    def check_found(self, partition: Partition, values: Mapping[int, bytes], *, where: str = "the log") -> None:
        """Check the final content of a log, by offset."""
        story = self.partitions[partition]
        for offset, value in sorted(story.acked.items()):
            if offset not in values:
                self._wrong("lost", partition, f"{value!r} was acknowledged at {offset} and is not in {where}")
        for value in sorted(story.unplaced.difference(values.values())):
            self._wrong("lost", partition, f"{value!r} was acknowledged and is not in {where}")
        order: dict[str, int] = {}
        for offset, value in sorted(values.items()):
            if self._note(partition, offset, value):
                place = story.places[value]
                if place.number < order.get(place.producer, -1):
                    self._wrong("reordered", partition, f"{value!r} at {offset} in {where}")
                order[place.producer] = place.number

    def compare_replicas(self, partition: Partition, contents: Mapping[str, bytes]) -> None:
        """Compare the bytes of the replicas below the high watermark."""
        first, *others = sorted(contents)
        for other in others:
            if contents[first] != contents[other]:
                at = difference(contents[first], contents[other])
                self._wrong("diverged", partition, f"{first} and {other} differ from byte {at} on")


def difference(one: bytes, other: bytes) -> int:
    """The position of the first byte that differs."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
