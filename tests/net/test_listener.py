"""Listeners: connection limits, idle connections and addresses."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest
from net.listening import limited, port_of
from waiting import until

from ottla.net.answer import Answer, Deferred
from ottla.net.connection import Connection, ConnectionLimits
from ottla.net.listener import SWEEP_PAUSE_S, SWEPT_MAX, Admission, Listener, bind
from ottla.net.receiver import Receiver

if TYPE_CHECKING:
    from collections.abc import Callable


def silent(_: Connection, data: memoryview) -> Answer:
    return Deferred(asyncio.get_running_loop().create_future(), lambda _: [])


def listener(
    host: str = "127.0.0.1",
    *,
    idle_s_max: float = 0,
    handle: Callable[[Connection, memoryview], Answer] = silent,
    admission: Admission | None = None,
    connections_max: int | None = None,
) -> Listener:
    return Listener(
        "PLAINTEXT",
        bind(host, 0, 10),
        handle=handle,
        admission=admission or limited(100, 100, {}),
        receiver=Receiver(),
        limits=ConnectionLimits(1000, 10, 1000),
        connections_max=connections_max,
        idle_s_max=idle_s_max,
        send_buffer_size=0,
        receive_buffer_size=0,
    )


async def closed(reader: asyncio.StreamReader) -> bool:
    return await asyncio.wait_for(reader.read(1), 10) == b""


@pytest.mark.parametrize("admission", [limited(2, 100, {}), limited(100, 2, {}), limited(100, 9, {"127.0.0.1": 2})])
def test_one_connection_too_many_is_closed_and_a_place_that_is_freed_is_given_again(admission: Admission) -> None:
    async def scene() -> None:
        opened = listener(admission=admission)
        opened.open()
        first = await asyncio.open_connection("127.0.0.1", port_of(opened))
        second = await asyncio.open_connection("127.0.0.1", port_of(opened))
        refused = await asyncio.open_connection("127.0.0.1", port_of(opened))
        assert await closed(refused[0])
        assert len(opened.connections) == 2
        first[1].close()
        await until(lambda: len(opened.connections) <= 1)
        again = await asyncio.open_connection("127.0.0.1", port_of(opened))
        await until(lambda: len(opened.connections) >= 2)
        assert not again[0].at_eof()
        assert not second[0].at_eof()
        opened.stop_accepting()
        await opened.drain(0)

    asyncio.run(scene())


def test_many_idle_connections_are_closed_a_few_at_a_time() -> None:
    async def scene() -> None:
        opened = listener()  # idle at once, but nothing sweeps by itself
        opened.open()
        count = 3 * SWEPT_MAX + 5
        clients = [await asyncio.open_connection("127.0.0.1", port_of(opened)) for _ in range(count)]
        await until(lambda: len(opened.connections) == count)
        opened._sweep()
        assert len(opened.connections) == count - SWEPT_MAX
        clients[-1][1].write(b"\0\0\0\1x")  # its request is not answered soon, so it is not idle any more
        await until(lambda: len(opened.connections) == 1)
        assert all([await closed(reader) for reader, _ in clients[:-1]])
        await asyncio.sleep(2 * SWEEP_PAUSE_S)
        assert not clients[-1][0].at_eof()
        opened.stop_accepting()
        await opened.drain(0)

    asyncio.run(scene())


def test_a_listener_may_have_a_limit_of_its_own() -> None:
    async def scene() -> None:
        opened = listener(connections_max=1)
        opened.open()
        first = await asyncio.open_connection("127.0.0.1", port_of(opened))
        second = await asyncio.open_connection("127.0.0.1", port_of(opened))
        assert await closed(second[0])
        assert len(opened.connections) == 1
        first[1].close()
        opened.stop_accepting()
        await opened.drain(0)

    asyncio.run(scene())


def test_idle_connections_are_closed_but_not_those_that_wait_for_an_answer() -> None:
    async def scene() -> None:
        opened = listener(idle_s_max=0.2)
        opened.open()
        idle, _ = await asyncio.open_connection("127.0.0.1", port_of(opened))
        others = [await asyncio.open_connection("127.0.0.1", port_of(opened)) for _ in range(5)]
        waiting, writer = await asyncio.open_connection("127.0.0.1", port_of(opened))
        writer.write(b"\0\0\0\1x")
        assert await closed(idle)
        assert all([await closed(reader) for reader, _ in others]), "one sweep closes all of them"
        assert len(opened.connections) == 1
        assert not waiting.at_eof()
        opened.stop_accepting()
        await opened.drain(0)

    asyncio.run(scene())


def test_a_reader_that_takes_nothing_is_cut_off() -> None:
    """Its response exceeds the socket buffers: a client that does not read is as idle as one that sends nothing."""

    async def scene() -> None:
        opened = listener(idle_s_max=0.2, handle=lambda _, __: [bytes(64 << 20)])
        opened.open()
        with socket.create_connection(("127.0.0.1", port_of(opened))) as slow:
            slow.sendall(b"\0\0\0\1x")
            await until(lambda: opened.connections)
            await until(lambda: not opened.connections)
        opened.stop_accepting()
        await opened.drain(0)

    asyncio.run(scene())


@pytest.mark.parametrize(("host", "dial"), [("", "127.0.0.1"), ("localhost", "127.0.0.1"), ("127.0.0.1", "127.0.0.1")])
def test_the_dialled_address_is_known(host: str, dial: str) -> None:
    async def scene() -> None:
        opened = listener(host)
        opened.open()
        _, writer = await asyncio.open_connection(dial, port_of(opened))
        await until(lambda: opened.connections)
        connection = next(iter(opened.connections))
        assert connection.dialled == (dial, port_of(opened))
        assert connection.host == "127.0.0.1"
        writer.close()
        opened.stop_accepting()
        await opened.drain(0)

    asyncio.run(scene())


def test_a_port_in_use_is_an_error_that_leaks_no_socket() -> None:
    taken: Any = bind("127.0.0.1", 0, 1)
    with pytest.raises(OSError, match="in use"):
        bind("127.0.0.1", taken.getsockname()[1], 1)
    taken.close()
