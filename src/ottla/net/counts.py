"""Counters of each API: requests, the time spent in each phase, and the errors in the answers.

Each route of the dispatcher has one `Counts`, so counting is a few additions to slots. Only the connection knows when
an answer is sent: it keeps a `Times` for each answer that is not sent yet.

All requests are counted, but not all are timed. Once an API has had `EACH_MAX` requests, one in eight of its immediate
answers is timed and counts eight times, because timing each one would cost too much for small requests.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ottla.wire import apis
from ottla.wire.schema import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Histogram bounds: seconds from the arrival of a request to the last byte of its answer.
BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

EACH_MAX: Final = 1024  # after this many requests
SHARE: Final = 8  # only one in this many is timed


class Counts:
    """The counters of one API at one version."""

    __slots__ = ("buckets", "key", "local_s", "queue_s", "remote_s", "requests", "send_s", "untimed", "version")

    def __init__(self, key: int, version: int) -> None:
        self.key = key
        self.version = version
        self.requests = 0
        self.untimed = 0  # a bit mask: a request is timed if its number has none of these bits
        self.queue_s = 0.0
        self.local_s = 0.0
        self.remote_s = 0.0
        self.send_s = 0.0
        self.buckets = [0] * (len(BOUNDS) + 1)

    def add(self, times: Times, sent: float) -> None:
        """Count a request whose answer is sent."""
        _, arrived, begun, answered, remote_s, weight = times
        self.queue_s += weight * (begun - arrived)
        self.local_s += weight * (answered - begun - remote_s)
        self.remote_s += weight * remote_s
        self.send_s += weight * (sent - answered)
        self.buckets[bisect_left(BOUNDS, sent - arrived)] += weight
        if self.requests >= EACH_MAX:
            self.untimed = SHARE - 1


# The counts to add to; when the request arrived, when its turn began and when the answer was ready; how long it waited
# for others meanwhile; and how many requests it stands for.
Times = tuple[Counts, float, float, float, float, int]

METADATA = 3
CODE = "error_code"


@cache
def fault_finder(key: int) -> Callable[[Any], bool]:
    """Compile a function that tells whether an answer of this API contains an error. It is compiled, like the codecs,
    because it checks every answer. In Metadata it checks topics only: the number of partitions is unlimited."""
    lines = ["def find(message):"]
    for path in paths(apis.BY_KEY[key].response, depth_of(key)):
        holder = "message"
        for depth, name in enumerate(path[:-1], 1):
            lines.append(f"{' ' * depth}for one{depth} in {holder}.{name} or ():")
            holder = f"one{depth}"
        lines.append(f"{' ' * len(path)}if {holder}.{CODE}: return True")
    names: dict[str, Any] = {}
    exec("\n".join([*lines, " return False"]), names)  # nosec B102 # the text is made of our own schemas
    finder: Callable[[Any], bool] = names["find"]
    return finder


def faults(response: Any, key: int) -> Iterator[int]:
    """The non-zero error codes in an answer."""
    for path in paths(type(response), depth_of(key)):
        holders = [response]
        for name in path[:-1]:
            holders = [one for holder in holders for one in getattr(holder, name) or ()]
        yield from (holder.error_code for holder in holders if holder.error_code)


def depth_of(key: int) -> int:
    """How many levels of lists to search."""
    return 1 if key == METADATA else 2


def paths(message: type, depth_max: int) -> Iterator[tuple[str, ...]]:
    """The paths to error codes: the names of the lists, then that of the code."""
    for field in fields(message):
        if field.name == CODE:
            yield (CODE,)
        elif depth_max and field.array and field.struct is not None:
            for path in paths(field.struct, depth_max - 1):
                yield (field.name, *path)
