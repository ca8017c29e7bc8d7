"""The contract between a coordinator's machine and the runtime that drives it.

A machine holds the state of one partition of an internal topic: all groups, or all transactional ids, that hash to it.
It is pure: no I/O, no clock, no randomness. An operation looks at the state and returns a Decision; the runtime appends
the decision's records to the partition, hands each of them to `apply`, sends the replies and sets the timers.

    operation(request, ...) -> Decision       reads durable state; may change soft state
    apply(...)                                the only mutator of durable state: live, and when a partition is loaded

Durable state is what the records describe: a machine that is handed the same records is equal to the one that decided
on them. Soft state is what Kafka, too, keeps in memory only: who is joining, until when a member may be silent.

An answer that must wait (a join waits for the other members) is a reply to the same token in a later Decision.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from ottla.errors import ErrorCode


class Moment(int):
    """Now, for a machine: an int of the monotonic time, for deadlines, which also carries the time of the wall clock.

    `now_ms` in a machine's operations is one of these (or a plain int, where a test lets both be the same). Law:
    durations are measured with `now_ms`; what is stored, or compared with stored times, is `wall_ms(now_ms)`.
    """

    wall_ms: int

    @classmethod
    def of(cls, steady_ms: int, wall_ms: int) -> Moment:
        moment = cls(steady_ms)
        moment.wall_ms = wall_ms
        return moment


def wall_ms(now_ms: int) -> int:
    return now_ms.wall_ms if isinstance(now_ms, Moment) else now_ms


Token = int
TimerKey = Hashable
NOBODY = -1  # the producer id of records that belong to no transaction


class Caller(NamedTuple):
    """The client that sent a request, as far as a machine needs to know it."""

    client_id: str
    host: str
    version: int  # of the API


class Record(NamedTuple):
    key: bytes
    value: bytes | None  # None is a tombstone


class Decision(NamedTuple):
    """What an operation wants done, in this order. Defaults are immutable, so sharing them is safe."""

    records: tuple[Record, ...] | list[Record] = ()
    replies: tuple[tuple[Token, Any], ...] | list[tuple[Token, Any]] = ()
    timers: tuple[tuple[TimerKey, int | None], ...] | list[tuple[TimerKey, int | None]] = ()  # when, or None: cancel
    producer: tuple[int, int] | None = None  # (id, epoch): the records are part of this producer's transaction
    effects: tuple[Any, ...] = ()  # what is to be done outside of the machine's partition
    # Returns what to do instead when the records could not be written.
    on_failure: Callable[[ErrorCode], Decision] | None = None


NOTHING = Decision()


class Machine(Protocol):
    def apply(self, key: bytes, value: bytes | None, *, offset: int, timestamp: int, producer_id: int) -> None:
        """A record is in the log. A record of a transaction takes effect when the transaction commits."""

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """The marker that ends a transaction is in the log."""

    def finish_load(self, now_ms: int) -> Decision:
        """The whole log was applied. Set timers, and finish what was half done."""

    def expire(self, timer: TimerKey, now_ms: int) -> Decision:
        """A timer is due. Deadlines may have moved since it was set: then set it again."""

    def unload(self) -> list[tuple[Token, Any]]:
        """Another broker leads the partition now. Returns replies for requests that still wait."""
