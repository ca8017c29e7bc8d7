"""A leader's view of its followers: the in-sync set and the high watermark. Pure: no I/O, no clock.

    isr          the in-sync set that the cluster agreed on (the state znode at `version`)
    proposal     a set sent to the controller that has not been answered yet
    maximal      the union of both: every broker that may be in sync, whatever the answer will be
    own_end      how far the leader's own log counts: its end, unless `flush.messages` wants it on disk first
    high         the high watermark, the lowest log end over the maximal set

The high watermark never goes back, so a record that was readable stays readable. It is a minimum over the MAXIMAL set:
over the agreed set alone, a record could be committed that a follower lacks which is in sync by now and is elected
next; over the proposed set alone, one that is missing on a follower whose removal the controller rejects.

A follower that is not in sync but keeps up is also waited for, as long as it keeps up. Otherwise it could never join a
partition under load: the high watermark would run ahead of it with every append.

A follower keeps up while its fetches reach the leader's end, or the end that the leader had at the follower's previous
fetch, within `lag_ms`. It may join when it has reached the high watermark and the first offset of this leader's epoch:
below that, its records may still be truncated.

A member that fetches below the high watermark has lost records that it had acknowledged (its disk, or a stop without a
flush). Its removal is proposed at once, not after `lag_ms`: it must not be elected.

Methods that may move the high watermark return whether they did. `propose` returns what to ask the controller for.
All times are monotonic milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

UNKNOWN = -1  # an offset or a broker epoch that is not known yet
SETTLED_MS = 30_000  # default time for which clients wait for responses of the former leader
FOLLOWED_MS = 3000  # several times `replica.fetch.wait.max.ms`, less than the ZooKeeper session timeout


class Proposal(NamedTuple):
    """An in-sync set to ask the controller for, in this leader epoch and for this version of the state."""

    isr: tuple[int, ...]
    leader_epoch: int
    version: int
    lives: tuple[tuple[int, int], ...] = ()  # the broker epochs of the members, if known from their fetches


class Used(Protocol):
    """A fetch session."""

    used_ms: int
    before_ms: int | None  # the use before the last


class Follower:
    """What is known of one follower."""

    __slots__ = ("before_ms", "broker_epoch", "caught_up_ms", "end", "fetched_ms", "leader_end", "session", "start")

    def __init__(self, caught_up_ms: int | None) -> None:
        self.end = UNKNOWN
        self.start = UNKNOWN
        self.broker_epoch = UNKNOWN
        self.caught_up_ms = caught_up_ms  # when it last had everything; None: never under this leader
        self.fetched_ms: int | None = None
        self.before_ms: int | None = None  # the fetch before the last, in this leader's epoch
        self.leader_end = UNKNOWN  # the leader's end at its last fetch
        self.session: Used | None = None  # in a session, fetches that do not name this partition count too

    def note_fetch(self, offset: int, start: int, leader_end: int, now_ms: int, broker_epoch: int) -> None:
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif self.fetched_ms is not None and offset >= self.leader_end:
            self.caught_up_ms = self.fetched_ms
        self.end = offset
        self.start = start
        self.leader_end = max(leader_end, self.leader_end)
        self.before_ms, self.fetched_ms = self.fetched_ms, now_ms
        self.broker_epoch = broker_epoch

    def keeps_up(self, leader_end: int, now_ms: int, lag_ms: int) -> bool:
        return self.end == leader_end or (self.caught_up_ms is not None and now_ms - self.caught_up_ms <= lag_ms)

    @property
    def _last_but_one_ms(self) -> int | None:
        return self.before_ms if self.session is None else self.session.before_ms

    @property
    def has_followed(self) -> bool:
        return self._last_but_one_ms is not None

    def follows(self, since_ms: int) -> bool:
        """Whether it fetched twice since then. A single request may have waited in a socket while we were suspended."""
        before_ms = self._last_but_one_ms
        return before_ms is not None and before_ms >= since_ms


class Leader:
    def __init__(
        self,
        me: int,
        *,
        replicas: Iterable[int],
        isr: Iterable[int],
        epoch: int,
        version: int,
        end: int,
        high: int,
        now_ms: int,
        lag_ms: int,
        epoch_of: Callable[[int], int | None],
        own_end: int | None = None,
    ) -> None:
        """`epoch_of` returns the broker epoch of a live broker, UNKNOWN if it is alive but its epoch is not known."""
        self.me = me
        self.end = end
        self.own_end = end if own_end is None else own_end
        self.high = min(high, end)
        self.followers: dict[int, Follower] = {}
        self.isr: tuple[int, ...] = ()
        self.proposal: Proposal | None = None
        self.maximal: frozenset[int] = frozenset()
        self.epoch = UNKNOWN
        self.epoch_start = end
        self._began_ms = now_ms  # when this leader epoch began
        self.version = version
        self.lag_ms = lag_ms
        self._epoch_of = epoch_of
        self.lead(replicas=replicas, isr=isr, epoch=epoch, version=version, now_ms=now_ms)

    # Decisions of the controller.

    def lead(self, *, replicas: Iterable[int], isr: Iterable[int], epoch: int, version: int, now_ms: int) -> bool:
        """Become leader in a new epoch, or continue in the same one with a newer state of the partition."""
        isr, others = tuple(isr), [replica for replica in replicas if replica != self.me]
        if epoch != self.epoch:
            # In-sync replicas had everything when the state was written. The others have to catch up first.
            self.epoch, self.epoch_start, self._began_ms = epoch, self.end, now_ms
            known, self.followers = self.followers, {}
            for replica in others:
                follower = self.followers[replica] = Follower(now_ms if replica in isr else None)
                if replica in known:
                    former = known[replica]
                    follower.end, follower.start, follower.broker_epoch = former.end, former.start, former.broker_epoch
                    follower.leader_end = self.end
                    follower.fetched_ms = follower.caught_up_ms
        else:
            self.followers = {replica: self.followers.get(replica) or Follower(None) for replica in others}
        return self._settle(isr, version, now_ms)

    def accept(self, isr: Iterable[int], epoch: int, version: int, now_ms: int) -> bool:
        """Apply the controller's response to a proposal: the current state. An outdated response is ignored."""
        if epoch != self.epoch or version < self.version or self.proposal is None:
            return False
        return self._settle(tuple(isr), version, now_ms)

    def drop_proposal(self, proposal: Proposal) -> None:
        """The controller has rejected the proposal."""
        if proposal is self.proposal:
            self.proposal = None
            self.maximal = frozenset(self.isr)

    def _settle(self, isr: tuple[int, ...], version: int, now_ms: int) -> bool:
        self.isr, self.version, self.proposal = isr, version, None
        self.maximal = frozenset(isr)
        return self.advance(now_ms)

    # Changes of the log.

    def note_append(self, end: int, now_ms: int, *, own_end: int | None = None) -> bool:
        for follower in self.followers.values():
            if follower.end == self.end and follower.session is not None:
                follower.caught_up_ms = follower.fetched_ms = follower.session.used_ms  # it had everything then
        self.end = end
        return self.note_flush(end if own_end is None else own_end, now_ms)

    def note_flush(self, own_end: int, now_ms: int) -> bool:
        """More of the leader's own log is on disk, and counts."""
        self.own_end = own_end
        return self.advance(now_ms)

    def note_fetch(self, replica: int, offset: int, *, start: int, broker_epoch: int, now_ms: int) -> bool:
        """A follower fetched from `offset`, so it has everything below. KeyError: it is not a replica."""
        self.followers[replica].note_fetch(offset, start, self.end, now_ms, broker_epoch)
        return self.advance(now_ms)

    def advance(self, now_ms: int) -> bool:
        """Advance the high watermark as far as possible."""
        high, maximal = self.own_end, self.maximal
        for replica, follower in self.followers.items():
            if follower.end < high and (
                replica in maximal
                or (follower.keeps_up(self.end, now_ms, self.lag_ms) and self._is_eligible(replica, follower))
            ):
                high = follower.end
        if high <= self.high:
            return False
        self.high = high
        return True

    def low(self) -> int:
        """The lowest log start offset of the followers, as far as known."""
        return min((one.start for one in self.followers.values() if one.start != UNKNOWN), default=UNKNOWN)

    def is_settled(self, now_ms: int) -> bool:
        """Whether, as far as we can tell, no other broker was elected and no client waits for a former leader.

        That is: all in-sync followers fetch from us, and this epoch began long enough ago.
        """
        since_ms = now_ms - FOLLOWED_MS
        return now_ms - self._began_ms >= SETTLED_MS and all(
            one.follows(since_ms) for replica, one in self.followers.items() if replica in self.isr
        )

    def is_abandoned(self, now_ms: int) -> bool:
        """Whether all in-sync followers have stopped fetching from us: there may be another leader by now."""
        since_ms = now_ms - FOLLOWED_MS
        others = [one for replica, one in self.followers.items() if replica in self.isr]
        return bool(others) and all(one.has_followed and not one.follows(since_ms) for one in others)

    # Who is in sync.

    def propose(self, now_ms: int) -> Proposal | None:
        """What to ask the controller for, if anything. There is one proposal at a time."""
        if self.proposal is not None:
            return None
        isr = [replica for replica in self.isr if replica == self.me or not self._is_behind(replica, now_ms)]
        if len(isr) == len(self.isr):
            isr += [replica for replica in self.followers if replica not in self.isr and self._may_join(replica)]
            if len(isr) == len(self.isr):
                return None
        self.proposal = Proposal(tuple(isr), self.epoch, self.version, self._lives(isr))
        self.maximal = frozenset((*self.isr, *isr))
        return self.proposal

    def _lives(self, isr: Iterable[int]) -> tuple[tuple[int, int], ...]:
        """The broker epochs of the followers we know of: one that restarted since may have lost its log."""
        known = [(replica, self.followers[replica].broker_epoch) for replica in isr if replica in self.followers]
        return tuple((replica, epoch) for replica, epoch in known if epoch != UNKNOWN)

    def may_propose(self, replica: int) -> bool:
        """Whether to call `propose` after this follower's last fetch. Cheap enough for every fetch."""
        if self.proposal is not None:
            return False
        if replica in self.isr:
            return self._has_lost(self.followers[replica])
        return self._may_join(replica)

    def _is_behind(self, replica: int, now_ms: int) -> bool:
        follower = self.followers.get(replica)
        if follower is None:  # no longer a replica: the controller removes it
            return False
        return self._has_lost(follower) or not follower.keeps_up(self.end, now_ms, self.lag_ms)

    def _has_lost(self, follower: Follower) -> bool:
        return UNKNOWN < follower.end < self.high

    def _may_join(self, replica: int) -> bool:
        follower = self.followers[replica]
        return follower.end >= max(self.high, self.epoch_start) and self._is_eligible(replica, follower)

    def _is_eligible(self, replica: int, follower: Follower) -> bool:
        """Alive, and not restarted since its last fetch."""
        current = self._epoch_of(replica)
        if current is None:
            return False
        return current == follower.broker_epoch or UNKNOWN in (current, follower.broker_epoch)
