"""Schedules work that did not finish in its time slice, so that no client blocks the event loop for long.

A connection handles frames for `TURN_S`, then others get a turn. A request that needs longer is a generator (`Steps`)
that yields wherever it may be interrupted. What is left waits in a line:

    Turns    connections with unhandled frames: each gets turns until it is done. `Newcomers` is such a line, too
    Lane     long requests, one after the other, so that the memory of one is free before the next begins. There are
             several lanes (see `dispatch`), so that a small request with a large answer does not wait behind large
             requests

Each line is served once per iteration of the loop, for at most `ROUND_S`. A connection with little work is served when
its bytes arrive and never waits in line.
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

TURN_S = 0.002  # time slice of one connection, or of a long request before it waits in line
CROWD_MAX = 9  # more waiting connections do not shorten a turn further: each turn costs a system call
PATIENCE_S = 0.5  # how long a strict lane waits for its first request before putting it aside
PATIENCE_S_MIN = 0.02  # the same while requests are put aside
ROUND_S = 0.005  # time slice of one line


class Turns:
    """Connections that wait for their next turn."""

    __slots__ = ("_line", "_running")

    def __init__(self) -> None:
        self._line: deque[Callable[[], None]] = deque()
        self._running = False

    def __len__(self) -> int:
        return len(self._line)

    def turn_s(self) -> float:
        """Time slice of one turn. It shrinks as more connections wait."""
        return TURN_S / (1 + min(len(self._line), CROWD_MAX))

    def add(self, turn: Callable[[], None]) -> None:
        """Call `turn` when its turn comes."""
        self._line.append(turn)
        if not self._running:
            self._running = True
            asyncio.get_running_loop().call_soon(self._round)

    def round_s(self) -> float:
        """Time slice of the line, once per iteration of the loop."""
        return ROUND_S

    def _round(self) -> None:
        line, until = self._line, monotonic() + self.round_s()
        try:
            while line:
                turn = line.popleft()
                try:
                    turn()
                except Exception:  # a failure of one connection does not stop the others
                    log.exception("a turn failed")
                if monotonic() >= until:
                    break
        finally:  # even after what is no Exception, such as a panic of native code
            self._running = bool(line)
            if line:
                asyncio.get_running_loop().call_soon(self._round)


class Lane:
    """Long requests, one after the other. While one waits for a future, the next may run.

    In a `strict` lane the next one begins only when the one before is done. This is for requests that mostly wait for
    work of this broker; otherwise all of them would be in progress at once. In a cluster a request may wait for another
    broker, possibly for long. After `PATIENCE_S` it is put aside; meanwhile the others wait at most `PATIENCE_S_MIN`.
    """

    __slots__ = ("_aside", "_held", "_line", "_running", "strict")

    def __init__(self, *, strict: bool = False) -> None:
        self._line: deque[tuple[Steps[Any], asyncio.Future[Any]]] = deque()
        self._running = False
        self._held: asyncio.Future[Any] | None = None  # what the first request of a strict lane waits for
        self._aside = 0
        self.strict = strict

    def __len__(self) -> int:
        return len(self._line)

    def add(self, steps: Steps[Any], awaited: asyncio.Future[Any] | None = None) -> asyncio.Future[Any]:
        """Run the steps, after `awaited` if given. Returns a future of their result; cancelling it cancels them."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if awaited is None:
            self._line_up(steps, future)
        elif self.strict:
            assert not self._line, "a request began before its turn"
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
        """Continue with the first request in line when this future is done."""
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
        try:
            while line and self._advance(*line[0], until):
                line.popleft()
        except BaseException:  # what is no Exception, such as a panic of native code, ends one request
            line.popleft()[1].cancel()
            raise
        finally:
            if self._held is None:
                self._running = bool(line)
                if line:
                    asyncio.get_running_loop().call_soon(self._round)

    def _advance(self, steps: Steps[Any], future: asyncio.Future[Any], until: float) -> bool:
        """Work on the first request. Returns whether it leaves the line."""
        try:
            awaited = None if future.done() else walk(steps, until)
        except StopIteration as end:
            if not future.done():  # cancelled by its own last step
                future.set_result(end.value)
        except asyncio.CancelledError:
            future.cancel()
        except Exception as error:  # passed on to whoever awaits the future
            if not future.done():
                future.set_exception(error)
        else:
            if awaited is not None and self.strict:
                self._pause(awaited)
                return False
            if awaited is not None:
                self._wait(steps, future, awaited)
            elif future.done():  # it was cancelled
                steps.close()
            else:
                return False  # out of time: continue in the next round
        return True


def walk(steps: Steps[Any], until: float) -> asyncio.Future[Any] | None:
    """Run steps until the time is up (None) or they wait for a future (returned). StopIteration has their result."""
    while True:
        awaited: asyncio.Future[Any] | None = next(steps)
        if awaited is not None:
            return awaited
        if monotonic() >= until:
            return None
