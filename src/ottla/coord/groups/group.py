"""What every kind of group has in common: the options it follows, and what the machine asks of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.coord.groups.offsets import CommittedOffset
    from ottla.coord.machine import Record
    from ottla.errors import ErrorCode


class ConsumerRules(NamedTuple):
    """The options that consumer groups follow."""

    session_ms: int = 45_000
    heartbeat_ms: int = 5_000
    size_max: int = 0x7FFFFFFF
    assignors: tuple[str, ...] = ("uniform", "range")  # the first is for members that name none
    assignment_interval_ms: int = 1_000  # targets are not computed more often
    pattern_refresh_ms: int = 600_000
    upgrades: bool = True  # classic groups may become consumer groups
    downgrades: bool = True  # and the other way round
    classic_size_max: int = 0x7FFFFFFF

    @property
    def migrates(self) -> bool:
        return self.upgrades or self.downgrades


class GroupRules(NamedTuple):
    """The options that groups follow."""

    session_ms_min: int
    session_ms_max: int
    initial_delay_ms: int  # how long the first members of a group wait for more
    size_max: int
    metadata_size_max: int  # of the text beside a committed offset
    retention_ms: int
    retention_check_ms: int
    # A member that does not know its id yet cannot send heartbeats. Kafka gives it this long for its first rebalance.
    first_join_ms: int = 300_000
    consumer: ConsumerRules = ConsumerRules()
    record_size_max: int = 1 << 20  # what the group's log takes


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
        """Whether it has no members, so that it may be removed."""

    def check_commit(
        self, member_id: str, instance: str | None, epoch: int, *, version: int, transactional: bool
    ) -> Callable[[bytes, int], ErrorCode] | None:
        """BrokerError unless this member may commit now; `epoch` is its generation or member epoch. Where that depends
        on the partition, returns a function of topic id and partition that gives the code."""

    def note_commit(self, member_id: str, now_ms: int) -> None:
        """The member has committed: in a classic group that counts as a heartbeat."""

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """BrokerError unless this member may ask for offsets now."""

    def check_deletion(self) -> None:
        """BrokerError unless the group may be deleted."""

    def check_offset_deletion(self) -> None:
        """BrokerError unless offsets of the group may be deleted."""

    def subscribes(self, topic: str) -> bool:
        """Whether the group is subscribed to this topic, so that its offsets must stay."""

    def has_expired(self, one: CommittedOffset, now_ms: int, retention_ms: int) -> bool:
        """Whether an offset of a topic that the group is not subscribed to has expired."""

    def tombstones(self) -> list[Record]:
        """The records that remove the group, without its offsets."""
