"""What is counted of each API: requests, the time they took in each phase, and the errors in their answers.

A route of the dispatcher holds one `Counts`, so that counting is a few additions to slots. The time until the socket
has taken an answer is known to the connection only: it keeps a `Times` for each answer that is on its way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.wire.schema import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Seconds from the arrival of a request to the last byte of its answer.
BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Counts:
    """Of one API at one version."""

    __slots__ = ("buckets", "key", "local_s", "queue_s", "remote_s", "requests", "send_s", "version")

    def __init__(self, key: int, version: int) -> None:
        self.key = key
        self.version = version
        self.requests = 0
        self.queue_s = 0.0
        self.local_s = 0.0
        self.remote_s = 0.0
        self.send_s = 0.0
        self.buckets = [0] * (len(BOUNDS) + 1)


Times = tuple[Counts, float, float]  # whose answer it is, when the request came, when the answer was there

METADATA = 3
CODE = "error_code"


def fault_finder(response: type, key: int) -> Callable[[Any], list[int]]:
    """A function that lists the error codes in an answer, without zeros. It is compiled, as codecs are, for it looks at
    every answer. Of Metadata it looks at topics only: nobody waits for a partition's leader there."""
    lines = ["def find(message):", " found = []"]
    for path in paths(response, depth_max=1 if key == METADATA else 2):
        holder = "message"
        for depth, name in enumerate(path[:-1], 1):
            indent = " " * depth
            lines.append(f"{indent}for one{depth} in {holder}.{name} or ():")
            holder = f"one{depth}"
        indent = " " * len(path)
        lines += [f"{indent}if {holder}.{CODE}:", f"{indent} found.append({holder}.{CODE})"]
    names: dict[str, Any] = {}
    exec("\n".join([*lines, " return found"]), names)
    finder: Callable[[Any], list[int]] = names["find"]
    return finder


def paths(message: type, depth_max: int) -> Iterator[tuple[str, ...]]:
    """Where error codes stand: the names of lists, then the code's."""
    for field in fields(message):
        if field.name == CODE:
            yield (CODE,)
        elif depth_max and field.array and field.struct is not None:
            for path in paths(field.struct, depth_max - 1):
                yield (field.name, *path)
