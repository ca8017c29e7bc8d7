"""Steps of a loop that must not stop: a step may fail with any error; it is logged once, and the loop tries again.

    steps = Steps("ottla.log")
    with steps.attempt("retention", log):        # every Exception ends here
        ...

A failure belongs to one step of one subject (a log, a directory; without one, the loop itself). It is logged when it
begins, when its reason changes, and when the step works again, but not at every attempt in between. Subjects are held
weakly: a recreated name starts empty.

A BrokerError caused by an OSError is not logged again: the directory has logged it, with the path.

Cancelling is not a failure: CancelledError passes, and so does everything else that is not an Exception.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from ottla.errors import BrokerError, OutsideError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from types import TracebackType

S = TypeVar("S")

FORESEEN = (OSError, BrokerError, OutsideError, MemoryError)  # any other error is logged with its traceback


class Steps:
    def __init__(self, logger: str) -> None:
        self._logger = logging.getLogger(logger)
        self._troubles: WeakKeyDictionary[object, dict[str, str]] = WeakKeyDictionary()

    def attempt(self, step: str, subject: object | None = None) -> Attempt:
        """A context in which the step may fail."""
        return Attempt(self, step, self if subject is None else subject)

    def each(self, step: str, subjects: Iterable[S], work: Callable[[S], object]) -> None:
        """Do the same step for many subjects. If it fails for one, the others are still done."""
        for subject in subjects:
            try:
                work(subject)
            except Exception as error:
                self.note_failure(step, error, subject)
            else:
                if self._troubles:
                    self.note_success(step, subject)

    async def every(self, seconds: float, step: str, work: Callable[[], Awaitable[object]]) -> None:
        """Do it at intervals, until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            with self.attempt(step):
                await work()

    def note_failure(self, step: str, error: BaseException, subject: object | None = None) -> None:
        if isinstance(error, BrokerError) and isinstance(error.__cause__, OSError):
            return
        owner = self if subject is None else subject
        reason = reason_of(error)
        troubles = self._troubles.setdefault(owner, {})
        if troubles.get(step) == reason:
            return
        troubles[step] = reason
        facts = {"reason": reason} if owner is self else {"of": str(owner), "reason": reason}
        trace = None if isinstance(error, FORESEEN) else error
        self._logger.warning("%s failed, will be tried again", step, extra=facts, exc_info=trace)

    def note_success(self, step: str, subject: object | None = None) -> None:
        owner = self if subject is None else subject
        troubles = self._troubles.get(owner)
        if troubles is None or troubles.pop(step, None) is None:
            return
        if not troubles:
            del self._troubles[owner]
        self._logger.info("%s works again", step, extra={} if owner is self else {"of": str(owner)})


class Attempt:
    __slots__ = ("_step", "_steps", "_subject", "failed")

    def __init__(self, steps: Steps, step: str, subject: object) -> None:
        self._steps = steps
        self._step = step
        self._subject = subject
        self.failed = False

    def __enter__(self) -> Attempt:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None:
            self._steps.note_success(self._step, self._subject)
        elif isinstance(error, Exception):
            self.failed = True
            self._steps.note_failure(self._step, error, self._subject)
        return isinstance(error, Exception)


def reason_of(error: BaseException) -> str:
    """One line with the reason. Some errors, such as MemoryError, have only a name."""
    if isinstance(error, BrokerError):
        return error.message or error.code.name
    text = str(error)
    if isinstance(error, OSError | OutsideError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
