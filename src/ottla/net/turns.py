"""Who may use the loop next: work that did not fit into one turn waits here for another.

The loop belongs to everybody. A connection handles frames for `TURN_S`, then others get a turn; a request that needs
longer is a generator (`Steps`) that yields wherever it may be interrupted. What is left waits in line:

    Turns    connections with frames that have arrived: each in turn, as often as it takes
    Lane     long requests: one after the other, so that the memory of one is free before the next begins. There are
             several, see `dispatch`: who asks a short question with a long answer does not wait behind long lists

Each line is served once in every round of the loop, for `ROUND_S` at most. A connection that asks for little is served
when its bytes arrive and never waits in line, however many wait there.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from ottla.clock import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.handlers.call import Steps

log = logging.getLogger("ottla.net")

TURN_S = 0.002  # of one connection, or of one long request before it waits in line
CROWD_MAX = 9  # a turn is not shortened further: each costs a system call
PATIENCE_S = 0.5  # how long a strict line waits for what its first waits for
PATIENCE_S_MIN = 0.02  # the same while others are put aside
ROUND_S = 0.005  # of all that wait in one line


class Turns:
    """Connections that wait for another turn."""

    __slots__ = ("_line", "_running")

    def __init__(self) -> None:
        self._line: deque[Callable[[], None]] = deque()
        self._running = False

    def __len__(self) -> int:
        return len(self._line)

    def turn_s(self) -> float:
        """How long a turn is now: the more wait, the shorter, so that it is soon the turn of each."""
        return TURN_S / (1 + min(len(self._line), CROWD_MAX))

    def add(self, turn: Callable[[], None]) -> None:
        """Call `turn` when it is its turn."""
        self._line.append(turn)
        if not self._running:
            self._running = True
            asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        line, until = self._line, monotonic() + ROUND_S
        while line:
            turn = line.popleft()
            try:
                turn()
            except Exception:  # a failure of one connection does not stop the others
                log.exception("a turn failed")
            if monotonic() >= until:
                break
        self._running = bool(line)
        if line:
            asyncio.get_running_loop().call_soon(self._round)


class Lane:
    """Long requests, one after the other. One that waits for something else lets the next go first.

    In a `strict` lane it does not: the next begins when it is done. That is for requests that wait for our own work
    mostly, which would all be under way at once otherwise. In a cluster one may wait for another broker, and for long:
    then it is put aside, and while that is so the next are waited for only briefly.
    """

    __slots__ = ("_aside", "_held", "_line", "_running", "strict")

    def __init__(self, *, strict: bool = False) -> None:
        self._line: deque[tuple[Steps[Any], asyncio.Future[Any]]] = deque()
        self._running = False
        self._held: asyncio.Future[Any] | None = None  # what the first in a strict line waits for
        self._aside = 0
        self.strict = strict

    def __len__(self) -> int:
        return len(self._line)

    def add(self, steps: Steps[Any], awaited: asyncio.Future[Any] | None = None) -> asyncio.Future[Any]:
        """A future of what the steps return, which go on when `awaited` is done. Cancelling it gives them up."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if awaited is None:
            self._line_up(steps, future)
        elif self.strict:
            assert not self._line, "nobody begins before it is its turn"
            self._line.append((steps, future))
            self._pause(awaited)
        else:
            self._wait(steps, future, awaited)
        return future

    def _line_up(self, steps: Steps[Any], future: asyncio.Future[Any]) -> None:
        self._line.append((steps, future))
        if not self._running:
            self._running = True
            asyncio.get_running_loop().call_soon(self._round)

    def _wait(self, steps: Steps[Any], future: asyncio.Future[Any], awaited: asyncio.Future[Any]) -> None:
        def give_up(_: object) -> None:
            if not awaited.done():
                awaited.cancel()

        future.add_done_callback(give_up)
        awaited.add_done_callback(lambda _: self._line_up(steps, future))

    def _pause(self, awaited: asyncio.Future[Any]) -> None:
        """Go on with the first in the line when this is done."""
        self._running = True
        self._held = awaited
        loop = asyncio.get_running_loop()
        timer = loop.call_later(PATIENCE_S if not self._aside else PATIENCE_S_MIN, self._put_aside, awaited)

        def go_on(_: object) -> None:
            timer.cancel()
            if self._held is awaited:
                self._held = None
                loop.call_soon(self._round)

        awaited.add_done_callback(go_on)

    def _put_aside(self, awaited: asyncio.Future[Any]) -> None:
        if self._held is awaited:
            self._held = None
            self._aside += 1
            steps, future = self._line.popleft()
            future.add_done_callback(self._came_back)
            self._wait(steps, future, awaited)
            self._round()

    def _came_back(self, _: object) -> None:
        self._aside -= 1

    def _round(self) -> None:
        line, until = self._line, monotonic() + ROUND_S
        while line:
            steps, future = line[0]
            try:
                awaited = None if future.done() else walk(steps, until)
            except StopIteration as end:
                future.set_result(end.value)
            except asyncio.CancelledError:
                future.cancel()
            except Exception as error:  # whoever waits for the future answers for it
                future.set_exception(error)
            else:
                if awaited is not None and self.strict:
                    self._pause(awaited)
                    return
                if awaited is not None:
                    self._wait(steps, future, awaited)
                elif future.done():  # it was cancelled
                    steps.close()
                else:
                    break  # there is more to do, but not now
            line.popleft()
        self._running = bool(line)
        if line:
            asyncio.get_running_loop().call_soon(self._round)


def walk(steps: Steps[Any], until: float) -> asyncio.Future[Any] | None:
    """Go on until the time has come (None), or a future is to be waited for. StopIteration has what they return."""
    while True:
        awaited: asyncio.Future[Any] | None = next(steps)
        if awaited is not None:
            return awaited
        if monotonic() >= until:
            return None
