"""The bridge between kazoo's thread and the loop."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest
from waiting import until

from ottla.cluster.kazoo_thread import Handler, Mailbox
from ottla.cluster.zookeeper import patience_s


def test_calls_that_nobody_takes_do_not_block() -> None:
    """kazoo's own socket pair would block after some 270."""
    woken, waker = Handler(Mailbox(asyncio.new_event_loop()), 60).create_socket_pair()
    for _ in range(100_000):
        waker.send(b"x")
    for _ in range(100_000):
        woken.recv(1)
    with pytest.raises(BlockingIOError):
        woken.recv(1)
    woken.close()
    waker.close()


def test_letters_come_in_order_and_wake_the_loop_once_in_a_while() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        wakes = 0
        wake = loop.call_soon_threadsafe

        def counted(*arguments: object) -> object:
            nonlocal wakes
            wakes += 1
            return wake(*arguments)  # type: ignore[arg-type]

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign,assignment]
        mailbox = Mailbox(loop)
        seen: list[int] = []
        for number in range(1000):
            mailbox.post(seen.append, number)
        writer = threading.Thread(target=lambda: [mailbox.post(seen.append, number) for number in range(1000, 2000)])
        writer.start()
        await until(lambda: len(seen) >= 2000)
        writer.join()
        assert seen == list(range(2000))
        assert wakes <= 1001, "the first thousand came in one go"

    asyncio.run(story())


def test_a_letter_that_fails_keeps_none_from_the_others() -> None:
    async def story() -> None:
        mailbox = Mailbox(asyncio.get_running_loop())
        seen: list[int] = []
        mailbox.post(int, "no number")
        mailbox.post(seen.append, 1)
        await asyncio.sleep(0.01)
        assert seen == [1]
        mailbox.close()
        mailbox.post(seen.append, 2)
        await asyncio.sleep(0.01)
        assert seen == [1]

    asyncio.run(story())


def test_a_loop_that_has_ended_is_left_alone() -> None:
    loop = asyncio.new_event_loop()
    mailbox = Mailbox(loop)
    loop.close()
    mailbox.post(print, "nobody reads this")


def test_sockets_are_waited_for() -> None:
    handler = Handler(Mailbox(asyncio.new_event_loop()), 60)
    one, other = socket.socketpair()
    with one, other:
        assert handler.select([one], [], [], 0.01) == ([], [], [])
        other.send(b"x")
        assert handler.select([one], [other], [], None) == ([one], [other], [])


def test_a_server_that_says_nothing_is_left_before_the_session_is_over() -> None:
    handler = Handler(Mailbox(asyncio.new_event_loop()), patience_s=0.01)
    one, other = socket.socketpair()
    with one, other:
        for timeout in (3600.0, None):
            assert handler.select([one], [], [], timeout) == ([], [], []), "it came back without an answer"
    assert [patience_s(session) for session in (1.0, 6.0, 18.0)] == [1.0, 3.0, 6.0]
