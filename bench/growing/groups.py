"""Number of groups (classic protocol, one member each): heartbeats and commits, one group after the other."""

from __future__ import annotations

import struct
from itertools import cycle
from typing import TYPE_CHECKING

from bench.circuit import Circuit
from bench.coordinators import COMMIT, Member, coordinator, everybody, first_error
from bench.growing.axis import LANES, REST, Axis, Effort, Load
from bench.wire import frame, string

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.brokers import Broker
    from bench.rows import Sample

TOPIC = "first"  # every broker has it from its start
SESSION_MS = 1_800_000  # the longest that both allow: nobody has to be kept alive
TOGETHER = 32  # groups that join at a time


class Groups(Load):
    def __init__(self, broker: Broker, effort: Effort) -> None:
        super().__init__(broker, effort)
        self.lanes, self.joining = self.connect(LANES), self.connect(TOGETHER)
        self.members: list[Member] = []
        coordinator(self.lanes[0], "group", 0)

    def grow(self, size: int) -> None:
        while (made := len(self.members)) < size:
            pairs = zip(range(made, size), self.joining, strict=False)
            new = [Member(connection, f"group-{number}", SESSION_MS) for number, connection in pairs]
            everybody(new, Member.join, Member.joined)
            everybody(new, Member.sync, first_error)
            self.members += new
        self.heartbeats = self._circuit([member.heartbeat() for member in self.members], heartbeat_error)
        self.commits = self._circuit([commit_frame(member) for member in self.members], commit_error)
        self.commits.run(size)  # a first commit of each

    def sample(self, requests: int) -> Sample:
        return {
            "heartbeat_us": self.cost_us(self.heartbeats, requests),
            "commit_us": self.cost_us(self.commits, requests),
        }

    def _circuit(self, frames: list[bytes], error: Callable[[bytes], int]) -> Circuit:
        return Circuit(self.lanes, cycle(frames), error, LANES)


def commit_frame(member: Member) -> bytes:
    """OffsetCommit v2 of one partition, by the member of its generation."""
    who = string(member.group) + struct.pack(">i", member.generation) + string(member.id)
    offset = struct.pack(">iiq", 1, 0, 42) + string("")
    return frame(COMMIT, 2, who + struct.pack(">qi", -1, 1) + string(TOPIC) + offset, flexible=False)


def heartbeat_error(answer: bytes) -> int:
    return int(struct.unpack_from(">h", answer)[0])


def commit_error(answer: bytes) -> int:
    return int(struct.unpack_from(">h", answer, len(answer) - 2)[0])


AXIS = Axis(
    "groups",
    "More groups",
    "groups",
    (1, 10, 100, 1000, 10_000),
    {
        "heartbeat_us": "heartbeat, CPU µs",
        "commit_us": "offset commit, CPU µs",
        REST: "at rest, CPU ms a second",
    },
    Groups,
    why="Each group has one member, and one group after the other speaks. A group is found in a dictionary, a "
    "heartbeat moves a deadline, and a commit is appended to the one of 50 partitions that has the group: none of "
    "it depends on the others. Kafka waits a moment to write commits of one partition together, of which one "
    "group alone has the most.",
    options={"group.initial.rebalance.delay.ms": 0},
)
