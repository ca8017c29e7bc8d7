"""Errors between a client and its cluster. The message is complete: one sentence, with what to do about it.

`Refused` has the error code of the cluster, so that callers can tell which errors are temporary. `Unreachable`
means no answer: nobody listens, the connection was lost, or it timed out. Both can be pickled, since Spark's workers
send them to the driver.
"""

from __future__ import annotations

from typing import Self

from ottla.errors import ErrorCode, description, retriable

# Codes that Kafka's clients retry, but that are permanent: damaged records stay damaged.
LASTING = {ErrorCode.CORRUPT_MESSAGE}
# Codes that Kafka's clients do not retry, but that are temporary: a broker is starting or stopping.
PASSING = {ErrorCode.BROKER_NOT_AVAILABLE}


class Failed(Exception):
    """Something could not be done; the message says what and why."""


class Refused(Failed):
    """The cluster answered with an error code."""

    def __init__(self, what: str, code: int, more: str = "") -> None:
        self.what = what
        self.code = code
        self.more = more
        known = code in set(ErrorCode)
        super().__init__(f"{what}: {description(code)}" + (f" ({ErrorCode(code).name})" if known else "") + more)

    def __reduce__(self) -> tuple[type[Self], tuple[str, int, str]]:
        return type(self), (self.what, self.code, self.more)


class Unreachable(Failed):
    """Nobody answers, the connection was lost, or it timed out."""


def detail(message: str | None) -> str:
    """The cluster's error message, to append after the error name; empty if there is none."""
    return f": {message}" if message else ""


def check(what: str, code: int, more: str | None = "") -> None:
    """Raise Refused unless the code is 0."""
    if code:
        raise Refused(what, code, more or "")


def passes(error: Failed) -> bool:
    """Whether the error is temporary, as when brokers restart, leaders move or coordinators load."""
    if isinstance(error, Refused):
        return (retriable(error.code) and error.code not in LASTING) or error.code in PASSING
    return isinstance(error, Unreachable)
