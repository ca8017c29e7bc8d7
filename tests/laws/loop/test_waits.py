"""A waiting fetch is woken only by records that it may read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from ottla.errors import BrokerError, ErrorCode
from ottla.replica.waits import Waits

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.replica.partition import Partition


class Slice:
    def __init__(self, size: int) -> None:
        self.size = size


class Log:
    """A log of records of one byte each; the test sets its last stable offset."""

    def __init__(self) -> None:
        self.end = self.stable = 0

    def last_stable(self, high: int) -> int:
        return min(high, self.stable)

    def read(self, offset: int, size_max: int, *, offset_max: int) -> Slice | None:
        size = min(size_max, offset_max - offset)
        return Slice(size) if size > 0 else None


class Part:
    def __init__(self) -> None:
        self.log = Log()
        self.waits: list[Any] = []

    @property
    def high(self) -> int:
        return self.log.end

    def expect(self, wait: Any, *, to_end: bool) -> None:
        self.waits.append(wait)

    def forget(self, wait: Any) -> None:
        self.waits.remove(wait)

    def append(self, size: int, *, stable: int | None = None) -> None:
        self.log.end += size
        self.log.stable = self.log.end if stable is None else stable
        for wait in self.waits:
            wait.grow(cast("Partition", self), size)


def woken_after(committed: bool, wanted: int, *appends: Callable[[Part], None]) -> int | None:
    """After which of the appends the wait was woken."""

    async def scene() -> int | None:
        waits, part = Waits(asyncio.get_running_loop()), Part()
        future = waits.add([cast("Partition", part)], wanted, 60_000, lambda: None, committed=committed)
        for number, append in enumerate(appends):
            append(part)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if future.done():
                return number
        future.cancel()
        return None

    return asyncio.run(scene())


def open_transaction(part: Part) -> None:
    part.append(100, stable=0)


@pytest.mark.parametrize("committed", [False, True])
def test_small_appends_add_up(committed: bool) -> None:
    small = [lambda part: part.append(10)] * 5
    assert woken_after(committed, 41, *small) == 4
    assert woken_after(committed, 1, *small) == 0
    assert woken_after(committed, 51, *small) is None


def test_records_of_an_open_transaction_wake_only_who_reads_them_uncommitted() -> None:
    assert woken_after(True, 1, *[open_transaction] * 10) is None
    assert woken_after(False, 1, open_transaction) == 0


def test_its_end_counts_all_that_was_held_back() -> None:
    marker = [lambda part: part.append(10)]
    assert woken_after(True, 210, open_transaction, open_transaction, *marker) == 2
    assert woken_after(True, 211, open_transaction, open_transaction, *marker) is None


def test_the_end_of_one_of_two_counts_up_to_the_other() -> None:
    half = [lambda part: part.append(10, stable=50)]
    assert woken_after(True, 50, open_transaction, *half) == 1
    assert woken_after(True, 51, open_transaction, *half) is None
    assert woken_after(True, 110, open_transaction, *half, lambda part: part.append(0)) == 2


def test_an_append_does_not_fail_because_of_one_who_waits() -> None:
    """Retention may delete records behind an open transaction: they cannot be read, but the append succeeded."""

    def retained(part: Part) -> None:
        def refuse(*_: object, **__: object) -> Slice | None:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE)

        part.log.read = refuse  # type: ignore[method-assign]
        part.append(10, stable=50)

    assert woken_after(True, 1000, open_transaction, retained) == 1
