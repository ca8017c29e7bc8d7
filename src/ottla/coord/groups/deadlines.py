"""Deadlines of the members of a consumer group.

    sessions      the next heartbeat; every heartbeat moves it
    revocations   revoking partitions, in a certain epoch
    joins, syncs  a member with the classic protocol: rejoining, and the sync after that

The group has one timer for all of them, set for the earliest. Moving a deadline does not reset the timer; if it fires
too early it is set again. So a heartbeat only changes a number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.coord.groups.outcome import Outcome
    from ottla.coord.machine import TimerKey

NEVER: Final = 1 << 62


class Deadlines:
    def __init__(self, group: str) -> None:
        self.timer = ("session", group)
        self.armed_ms = NEVER  # what the timer is set for
        self.sessions: dict[str, int] = {}  # by member id, all of them
        self.revocations: dict[str, tuple[int, int]] = {}  # deadline, and the epoch to leave by then
        self.joins: dict[str, int] = {}
        self.syncs: dict[str, int] = {}

    def silence(self, member: str, until_ms: int, out: Outcome) -> None:
        self.sessions[member] = until_ms
        self.arm(until_ms, out)

    def revoke(self, member: str, epoch: int, until_ms: int, out: Outcome) -> None:
        self.revocations[member] = until_ms, epoch
        self.arm(until_ms, out)

    def join(self, member: str, until_ms: int, out: Outcome) -> None:
        """Set the deadline to rejoin, unless one is set: it counts from the first request to rejoin."""
        if member not in self.joins:
            self.joins[member] = until_ms
            self.arm(until_ms, out)

    def sync(self, member: str, until_ms: int, out: Outcome) -> None:
        self.syncs[member] = until_ms
        self.arm(until_ms, out)

    def arm(self, until_ms: int, out: Outcome) -> None:
        if until_ms < self.armed_ms:
            self.armed_ms = until_ms
            out.timer(self.timer, until_ms)

    def timers(self) -> list[tuple[TimerKey, int | None]]:
        """The timer as it should be set."""
        return [] if self.armed_ms == NEVER else [(self.timer, self.armed_ms)]

    def forget(self, member: str) -> None:
        self.sessions.pop(member, None)
        self.revocations.pop(member, None)
        self.joins.pop(member, None)
        self.syncs.pop(member, None)

    def due(self, now_ms: int) -> dict[str, int | None]:
        """The members that are late. With an epoch, a member is late only if it is still in that epoch.

        Call this when the timer has fired; the caller must set the timer again.
        """
        self.armed_ms = NEVER
        late: dict[str, int | None] = {
            member: epoch for member, (until_ms, epoch) in self.revocations.items() if until_ms <= now_ms
        }
        for dates in (self.sessions, self.joins, self.syncs):
            late.update((member, None) for member, until_ms in dates.items() if until_ms <= now_ms)
        return late

    def rearm(self, out: Outcome) -> None:
        dates = [*self.sessions.values(), *self.joins.values(), *self.syncs.values()]
        self.arm(min([*dates, *(until_ms for until_ms, _ in self.revocations.values())], default=NEVER), out)
