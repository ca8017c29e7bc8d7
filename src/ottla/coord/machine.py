"""The contract between a coordinator's machine and the runtime that drives it.

A machine holds the state of one partition of an internal topic: all groups, or all transactional ids, that hash to it.
It is pure: no I/O, no clock, no randomness. An operation reads the state and returns a Decision; the runtime appends
the decision's records to the partition, passes each of them to `apply`, sends the replies and sets the timers.

    operation(request, ...) -> Decision       reads durable state; may change soft state
    apply(...)                                the only mutator of durable state, both live and during a load

Durable state is what the records describe: a machine that applies the same records ends up equal to the one that
decided on them. Soft state is in memory only, as in Kafka: which members are joining, and the session deadlines.

A delayed response (a join waits for the other members) is a reply to the same token in a later Decision.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from ottla.errors import ErrorCode


class Moment(int):
    """The current time: an int of monotonic milliseconds, which also carries the wall clock time.

    `now_ms` in a machine's operations is a Moment (or a plain int in tests, where both times are the same). Rule:
    measure durations with `now_ms`; for times that are stored or compared with stored times, use `wall_ms(now_ms)`.
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
    """What a machine needs to know about the client that sent a request."""

    client_id: str
    host: str
    version: int  # of the API
    sees: Callable[[str], bool] | None = None  # whether it may describe a topic; None: all of them


class Record(NamedTuple):
    key: bytes
    value: bytes | None  # None is a tombstone


class Decision(NamedTuple):
    """What the runtime must do for an operation, in this order. Defaults are immutable, so sharing them is safe."""

    records: tuple[Record, ...] | list[Record] = ()
    replies: tuple[tuple[Token, Any], ...] | list[tuple[Token, Any]] = ()
    timers: tuple[tuple[TimerKey, int | None], ...] | list[tuple[TimerKey, int | None]] = ()  # when, or None: cancel
    producer: tuple[int, int] | None = None  # (id, epoch): the records are part of this producer's transaction
    effects: tuple[Any, ...] = ()  # actions outside of the machine's partition
    # Returns the decision to carry out instead if the records could not be written.
    on_failure: Callable[[ErrorCode], Decision] | None = None


NOTHING = Decision()


class Machine(Protocol):
    def apply(self, key: bytes, value: bytes | None, *, offset: int, timestamp: int, producer_id: int) -> None:
        """Apply a record of the log. A transactional record takes effect when its transaction commits."""

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply the marker that ends a transaction."""

    def finish_load(self, now_ms: int) -> Decision:
        """Called when the whole log was applied. Sets timers and finishes operations that were interrupted."""

    def expire(self, timer: TimerKey, now_ms: int) -> Decision:
        """Called when a timer is due. If the deadline has moved since it was set, set the timer again."""

    def unload(self) -> list[tuple[Token, Any]]:
        """Called when this broker is no longer the leader. Returns replies for pending requests."""
