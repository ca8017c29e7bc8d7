"""What the hosts in Python share: commands from standard input, members in threads, events to standard output.

A host is a process with group members of one client library in it. It reads one command per line, words by tabs:

    join   member  name=value ...     start a member: group, topics (by commas), assignor, protocol (classic, consumer),
                                      instance (a static member), session_ms, heartbeat_ms
    leave  member                     close its consumer

and prints what the members see, one JSON object per line: `at` (CLOCK_MONOTONIC, nanoseconds, the same clock for every
process of the machine), `group`, `member`, `what` and

    assigned, revoked, lost   parts: ["topic-0", ...]; what was added or taken, with the member's generation if known
    polled                    part, first, last, count: records as a poll gave them
    committing, committed     offsets: {part: offset}; before the call, and after it has returned
    refused                   offsets, error: a commit that failed
    left                      the consumer is closed
    raised                    error: a poll failed; the member polls again. Only while its broker is away
    failed                    error: the member is dead; nothing like it is expected

A member commits what a poll gave before it polls again. Callbacks print before they return, so that the broker hears
of a revocation only after it was printed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PRINTING = threading.Lock()


class Member(threading.Thread):
    """One consumer in its group. A library implements `consume`, which runs until `leaving` is set, and closes."""

    def __init__(self, bootstrap: str, name: str, options: Mapping[str, str]) -> None:
        super().__init__(name=name, daemon=True)
        self.bootstrap = bootstrap
        self.options = options
        self.group = options["group"]
        self.topics = options["topics"].split(",")
        self.assignor = options["assignor"]
        self.instance = options.get("instance")
        self.session_ms = int(options["session_ms"])
        self.heartbeat_ms = int(options["heartbeat_ms"])
        self.leaving = threading.Event()

    def consume(self) -> None:
        raise NotImplementedError

    def run(self) -> None:
        try:
            self.consume()
            self.emit("left")
        except BaseException:  # whatever it was, the test is to hear of it
            self.emit("failed", error=traceback.format_exc())

    def emit(self, what: str, **facts: Any) -> None:
        line = {"at": time.monotonic_ns(), "group": self.group, "member": self.name, "what": what, **facts}
        with PRINTING:
            print(json.dumps(line), flush=True)

    def polled(self, found: Mapping[str, list[int]]) -> dict[str, int]:
        """Say what a poll gave; the offsets to commit for it."""
        for part, offsets in found.items():
            self.emit("polled", part=part, first=offsets[0], last=offsets[-1], count=len(offsets))
        return {part: offsets[-1] + 1 for part, offsets in found.items()}


def names(partitions: Iterable[Any]) -> list[str]:
    return sorted(f"{place.topic}-{place.partition}" for place in partitions)


def serve(kind: type[Member]) -> None:
    bootstrap = sys.argv[1]
    members: dict[str, Member] = {}
    for line in sys.stdin:
        command, member, *words = line.rstrip("\n").split("\t")
        if command == "join":
            members[member] = kind(bootstrap, member, dict(word.split("=", 1) for word in words))
            members[member].start()
        elif command == "leave":
            members.pop(member).leaving.set()
        else:
            raise ValueError(line)
    os._exit(0)  # the test is gone: no farewell to the group
