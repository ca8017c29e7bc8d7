"""What goes wrong between a client and its cluster. The message is the whole story: one sentence, with the fix in it.

`Refused` carries the code that the cluster answered with, so that callers can tell what passes by itself; `Unreachable`
is silence: nobody listens, the connection went away, or the time ran out. Both survive pickling, since they travel from
the processes that read and write to the one that the user watches.
"""

from __future__ import annotations

from typing import Self

from ottla.errors import ErrorCode, description, retriable

# Codes that Kafka's clients retry and that do not pass: damaged records stay damaged.
LASTING = {ErrorCode.CORRUPT_MESSAGE}
# And the other way round: a broker that is starting or stopping.
PASSING = {ErrorCode.BROKER_NOT_AVAILABLE}


class Failed(Exception):
    """Something could not be done; the message is the whole story."""


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
    """Nobody answers, the connection went away, or the time ran out."""


def detail(message: str | None) -> str:
    """What the cluster said beside its code, to follow the name of that; empty when it said nothing."""
    return f": {message}" if message else ""


def check(what: str, code: int, more: str | None = "") -> None:
    """Refused, unless the code says that all is well."""
    if code:
        raise Refused(what, code, more or "")


def passes(error: Failed) -> bool:
    """May the same be tried again, since brokers restart, leaders move and coordinators load?"""
    if isinstance(error, Refused):
        return (retriable(error.code) and error.code not in LASTING) or error.code in PASSING
    return isinstance(error, Unreachable)
