"""`queued.max.request.bytes`: requests that arrive in pieces share that much memory, and all are answered."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

from net.test_connection import answer, frame, listener, port_of
from waiting import until

from ottla.net.receiver import Receiver
from ottla.net.room import Room

if TYPE_CHECKING:
    from ottla.net.answer import Answer
    from ottla.net.connection import Connection

SIZE = 1 << 20  # of a request


def test_a_room_is_used_up_by_one_request_more_and_then_waited_for() -> None:
    room, told = Room(100), []
    assert room.take(80)
    assert room.take(80), "as with Kafka, as long as anything is left"
    assert not room.take(1)
    for number in range(3):
        room.wait(lambda number=number: told.append((number, room.take(90))))  # type: ignore[misc]
    room.give(30)
    assert told == [], "there is still none"
    room.give(80)
    assert told == [(0, True)], "one takes it, and the others stay in line"
    room.give(90)
    assert told == [(0, True), (1, True)]


def test_who_begins_when_there_is_no_room_waits_and_is_answered() -> None:
    """Many half requests, of which two fit; each continues when another is done or disconnected."""

    def handle(_: Connection, data: memoryview) -> Answer:
        return [frame(b"%d" % len(data))]

    async def scene() -> None:
        room = Room(SIZE + SIZE // 2)
        opened = listener(handle)
        opened._receiver = Receiver(room)
        opened.open()
        clients = [await asyncio.open_connection("127.0.0.1", port_of(opened)) for _ in range(8)]
        try:
            for _, writer in clients:
                writer.write(struct.pack(">i", SIZE) + bytes(SIZE // 2))
            await until(lambda: room.taken == 2 * (SIZE + 4))
            starved = await until(lambda: [one for one in opened.connections if one._starved and not one._reading])
            await until(lambda: sum(one._starved is not None for one in opened.connections) == 6)
            assert starved
            small = await asyncio.open_connection("127.0.0.1", port_of(opened))
            small[1].write(frame(b"small"))
            assert await answer(small[0]) == b"5", "what comes in one piece needs no room"
            small[1].close()
            clients[0][1].close()  # whether it had memory or waited
            for _, writer in clients[1:]:
                writer.write(bytes(SIZE // 2))
            answers = await asyncio.gather(*(answer(reader) for reader, _ in clients[1:]))
            assert answers == [b"%d" % SIZE] * 7
            await until(lambda: room.taken == 0)
        finally:
            for _, writer in clients:
                writer.close()
            opened.stop_accepting()
            await opened.drain(1)

    asyncio.run(asyncio.wait_for(scene(), 100))
