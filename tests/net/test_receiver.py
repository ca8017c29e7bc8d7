"""The shared receive buffers: limited in total, matched to the size needed, and reused for large frames."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from net.test_connection import answer, frame, play

from ottla.net import connection
from ottla.net.receiver import EXPECTED_SIZE_MAX, LARGE_SIZE, SPARE_SIZE_MAX, SPARES_SIZE_MAX, WASTE_MAX, Receiver

if TYPE_CHECKING:
    import asyncio

    from ottla.net.answer import Answer
    from ottla.net.connection import Connection
    from ottla.net.listener import Listener


def buffer(size: int) -> memoryview:
    return memoryview(bytearray(size))


def test_a_buffer_comes_back_to_whom_it_fits() -> None:
    receiver = Receiver()
    kept = {size: buffer(size) for size in (LARGE_SIZE, 100_000, 3_000_000)}
    for one in kept.values():
        receiver.give(one)
    assert receiver.take(50_000) is kept[100_000]
    assert receiver.take(LARGE_SIZE) is kept[LARGE_SIZE]
    assert receiver.take_expected(3_000_000 // WASTE_MAX - 1) is not kept[3_000_000], "too large for that"
    assert receiver.take_expected(2_000_000) is kept[3_000_000]
    assert receiver.take_expected(2_000_000) is None, "memory follows bytes that were sent"
    assert len(receiver.take_expected(EXPECTED_SIZE_MAX) or b"") == EXPECTED_SIZE_MAX


def test_what_is_kept_is_bounded_and_the_smallest_go_first() -> None:
    receiver, chance = Receiver(), random.Random(1)
    for _ in range(2_000):
        receiver.give(buffer(chance.choice([100, LARGE_SIZE, 200_000, 1_000_000, 5_000_000, SPARE_SIZE_MAX])))
        assert receiver._spare_size == sum(receiver._sizes) <= SPARES_SIZE_MAX
        assert sorted(receiver._sizes) == receiver._sizes
        assert sorted(len(one) for kept in receiver._spare.values() for one in kept) == receiver._sizes
        if chance.random() < 0.3:
            assert len(receiver.take(chance.choice([LARGE_SIZE, 150_000, 4_000_000]))) >= LARGE_SIZE
    assert receiver._sizes[-1] == 5_000_000
    assert SPARE_SIZE_MAX not in receiver._sizes


@pytest.mark.parametrize("size", [300_000, 5_000_000])
def test_a_stream_of_large_frames_is_copied_once(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first frame is collected in growing buffers; the others reuse its buffer."""
    wanted = [bytes([number]) * (size - number) for number in range(6)]
    made, copied = [], []
    hold = connection.Connection._hold

    def holding(self: Connection, data: memoryview) -> None:
        copied.append(len(data))
        hold(self, data)

    def handle(_: Connection, data: memoryview) -> Answer:
        made.append(bytes(data))
        return [frame(b"%d" % len(data))]

    async def story(_: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for one in wanted:
            before = len(copied)
            writer.write(frame(one))
            assert await answer(reader) == b"%d" % len(one)
            assert one is wanted[0] or len(copied) == before

    monkeypatch.setattr(connection.Connection, "_hold", holding)
    play(handle, story)
    assert made == wanted


@pytest.mark.parametrize("size", [EXPECTED_SIZE_MAX + 1, 5_000_000])
def test_a_client_of_large_frames_goes_on_when_another_has_its_buffer(size: int) -> None:
    async def story(opened: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        large = bytes(size)
        writer.write(frame(large))
        assert await answer(reader) == large
        receiver = opened._receiver
        while receiver._sizes:  # a frame of another connection is in it
            receiver._remove(0)
        for payload in (b"small", large, b"small again"):
            writer.write(frame(payload))
            assert await answer(reader) == payload
            while receiver._sizes:
                receiver._remove(0)

    play(lambda _, data: [frame(bytes(data))], story)
