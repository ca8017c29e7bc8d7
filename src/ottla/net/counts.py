"""What is counted of each API: requests, the time they took in each phase, and the errors in their answers.

A route of the dispatcher holds one `Counts`, so that counting is a few additions to slots. The time until the socket
has taken an answer is known to the connection only: it keeps a `Times` for each answer that is on its way.

Every request is counted. Of an API that was asked for often, one in eight of the answers that are there at once is
timed, and stands for eight: to time each of them would cost more than a small request may.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final

from ottla.wire.schema import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Seconds from the arrival of a request to the last byte of its answer.
BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

EACH_MAX: Final = 1024  # from so many requests on,
SHARE: Final = 8  # one in so many is timed


class Counts:
    """Of one API at one version."""

    __slots__ = ("buckets", "key", "local_s", "queue_s", "remote_s", "requests", "send_s", "untimed", "version")

    def __init__(self, key: int, version: int) -> None:
        self.key = key
        self.version = version
        self.requests = 0
        self.untimed = 0  # a request is timed when its number has none of these bits
        self.queue_s = 0.0
        self.local_s = 0.0
        self.remote_s = 0.0
        self.send_s = 0.0
        self.buckets = [0] * (len(BOUNDS) + 1)

    def add(self, times: Times, sent: float) -> None:
        """Count a request whose answer has left."""
        _, arrived, begun, answered, remote_s, weight = times
        self.queue_s += weight * (begun - arrived)
        self.local_s += weight * (answered - begun - remote_s)
        self.remote_s += weight * remote_s
        self.send_s += weight * (sent - answered)
        self.buckets[bisect_left(BOUNDS, sent - arrived)] += weight
        if self.requests >= EACH_MAX:
            self.untimed = SHARE - 1


# Whose answer it is; when the request came, when its turn began, when the answer was there, how long it was waited for
# meanwhile, and for how many it stands.
Times = tuple[Counts, float, float, float, float, int]

METADATA = 3
CODE = "error_code"


def fault_finder(response: type, key: int) -> Callable[[Any], bool]:
    """A function that says whether there is an error in an answer. It is compiled, as codecs are, for it looks at every
    answer. Of Metadata it looks at topics only: there may be any number of partitions."""
    lines = ["def find(message):"]
    for path in paths(response, depth_of(key)):
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
    """The error codes in an answer, without zeros."""
    for path in paths(type(response), depth_of(key)):
        holders = [response]
        for name in path[:-1]:
            holders = [one for holder in holders for one in getattr(holder, name) or ()]
        yield from (holder.error_code for holder in holders if holder.error_code)


def depth_of(key: int) -> int:
    """How many lists deep to look."""
    return 1 if key == METADATA else 2


def paths(message: type, depth_max: int) -> Iterator[tuple[str, ...]]:
    """Where error codes stand: the names of lists, then the code's."""
    for field in fields(message):
        if field.name == CODE:
            yield (CODE,)
        elif depth_max and field.array and field.struct is not None:
            for path in paths(field.struct, depth_max - 1):
                yield (field.name, *path)
