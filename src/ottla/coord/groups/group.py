"""What every kind of group has in common: its options, and the protocol that the machine uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.coord.groups.offsets import CommittedOffset
    from ottla.coord.machine import Record
    from ottla.errors import ErrorCode


class ConsumerRules(NamedTuple):
    """Options of consumer groups."""

    session_ms: int = 45_000
    heartbeat_ms: int = 5_000
    size_max: int = 0x7FFFFFFF
    assignors: tuple[str, ...] = ("uniform", "range")  # the first is the default
    assignment_interval_ms: int = 1_000  # least time between two target computations
    pattern_refresh_ms: int = 600_000
    upgrades: bool = True  # classic groups may become consumer groups
    downgrades: bool = True  # and the other way round
    classic_size_max: int = 0x7FFFFFFF

    @property
    def migrates(self) -> bool:
        return self.upgrades or self.downgrades


class GroupRules(NamedTuple):
    """Options of groups."""

    session_ms_min: int
    session_ms_max: int
    initial_delay_ms: int  # how long the first members of a group wait for more
    size_max: int
    metadata_size_max: int  # of the metadata text of a committed offset
    retention_ms: int
    retention_check_ms: int
    # A member without an id cannot send heartbeats. As in Kafka, its first rebalance may take this long.
    first_join_ms: int = 300_000
    consumer: ConsumerRules = ConsumerRules()
    record_size_max: int = 1 << 20  # the largest record that the log accepts


class Group(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def kind(self) -> str:
        """`classic` or `consumer`, as in ListGroups."""

    @property
    def phase(self) -> str:
        """The name of its state, as in ListGroups and DescribeGroups."""

    @property
    def protocol_type(self) -> str | None: ...

    @property
    def empty(self) -> bool:
        """Whether it has no members and can be removed."""

    def check_commit(
        self, member_id: str, instance: str | None, epoch: int, *, version: int, transactional: bool
    ) -> Callable[[bytes, int], ErrorCode] | None:
        """Raises BrokerError unless this member may commit now; `epoch` is its generation or member epoch.

        If that depends on the partition, returns a function from topic id and partition to an error code.
        """

    def note_commit(self, member_id: str, now_ms: int) -> None:
        """Called when the member commits: in a classic group that counts as a heartbeat."""

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raises BrokerError unless this member may fetch offsets now."""

    def check_deletion(self) -> None:
        """Raises BrokerError unless the group may be deleted."""

    def check_offset_deletion(self) -> None:
        """Raises BrokerError unless offsets of the group may be deleted."""

    def subscribes(self, topic: str) -> bool:
        """Whether the group is subscribed to this topic, so that its offsets must be kept."""

    def has_expired(self, one: CommittedOffset, now_ms: int, retention_ms: int) -> bool:
        """Whether an offset of a topic that the group is not subscribed to has expired."""

    def tombstones(self) -> list[Record]:
        """The records that remove the group, without its offsets."""
