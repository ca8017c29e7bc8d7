"""How a new member or a new subscription changes a consumer group, as records.

1. A changed subscription is recorded. New regular expressions are looked up, unused ones are dropped.
2. The group epoch rises if the set of subscribed topics, or something about these topics, has changed.
3. A target is computed for the new epoch, unless the last one is too recent: then a later heartbeat does it.
4. The member takes its next step towards the target.

The group itself does not change until the records are applied. Until then its future state is kept here.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ottla.coord.groups import consumer_records as records
from ottla.coord.groups.assignors import ASSIGNORS, NO_ASSIGNMENT, Assignment, MemberSpec
from ottla.coord.groups.consumer_member import ConsumerMember, Holding, MemberState, Subscription
from ottla.coord.groups.consumer_records import Resolved
from ottla.coord.groups.reconciliation import Goal, Owned, reconcile
from ottla.coord.groups.topics import ids, matching, metadata_hash
from ottla.coord.machine import wall_ms
from ottla.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.cluster.image import Image
    from ottla.coord.groups.consumer import ConsumerGroup
    from ottla.coord.groups.group import ConsumerRules
    from ottla.coord.groups.outcome import Outcome

PATTERNS_REST_MS: Final = 10_000  # the least time between two lookups of regular expressions


class GroupChange:
    def __init__(
        self,
        group: ConsumerGroup,
        rules: ConsumerRules,
        image: Image,
        now_ms: int,
        out: Outcome,
        sees: Callable[[str], bool] | None = None,
    ) -> None:
        """`sees` says which topics the client may describe: as in Kafka, whoever causes a lookup of regular expressions
        finds only these."""
        self.group = group
        self.rules = rules
        self.image = image
        self.now_ms = now_ms
        self.out = out
        self._sees = sees
        # The group's future state.
        self.epoch = group.epoch
        self.target_epoch = group.target_epoch
        self.patterns = group.patterns
        self.former: str | None = None  # the id of a static member that is replaced
        self.subscribed = False  # the member has changed its subscription

    def replace(self, former: ConsumerMember, member_id: str) -> ConsumerMember:
        """A static member rejoins: it takes over what the former member held, usually under a new id."""
        member = former._replace(id=member_id, holding=former.holding._replace(epoch=0, previous_epoch=0))
        self.former = former.id
        if former.id != member_id:  # else the tombstone would remove its deadlines, too
            self.out.records += records.without_member(self.group.id, former.id)
        self.out.records += [
            records.subscription(self.group.id, member_id, member.subscription),
            records.target(self.group.id, member_id, self.group.target.get(former.id, NO_ASSIGNMENT)),
            records.holding(self.group.id, member_id, member.holding),
        ]
        return member

    def subscribe(self, member: ConsumerMember, wanted: Subscription) -> ConsumerMember:
        """The member with its new subscription; raises the group's epoch if needed. BrokerError for a bad pattern."""
        group, before = self.group, member.subscription
        if wanted != before:
            self.out.records.append(records.subscription(group.id, member.id, wanted))
        updated = member._replace(subscription=wanted)
        self.subscribed = wanted.topics != before.topics or wanted.pattern != before.pattern
        bump = wanted.topics != before.topics
        if wanted.pattern != before.pattern:
            bump = self._change_pattern(before.pattern, wanted.pattern) or bump
        if group.pattern_counts or wanted.pattern:
            bump = self._refresh_patterns(updated) or bump
        if bump or group.seen != self.image.topics.version:
            self._look_at_topics(updated, bump=bump)
        return updated

    def _change_pattern(self, before: str, wanted: str) -> bool:
        """Change the member's regular expression. Returns whether that may change the group's topics."""
        group = self.group
        if before and group.pattern_counts[before] == 1:
            self._drop(before)
        if not wanted:
            return bool(before)
        if wanted not in self.patterns:
            self._resolve(wanted, self._visible(matching(self.image, wanted)))
        return True

    def _refresh_patterns(self, updated: ConsumerMember) -> bool:
        """Look up all patterns together if that is due, so the group is assigned only once.

        Returns whether the topics of any pattern changed.
        """
        group, topics = self.group, self.image.topics
        if topics.grown > group.seen:
            group.patterns_due_ms = min(group.patterns_due_ms, group.patterns_ms + PATTERNS_REST_MS)
        if self.now_ms < group.patterns_due_ms:
            return False
        group.patterns_ms = self.now_ms
        used = {text for member in self._members(updated) if (text := member.subscription.pattern)}
        if sum(self._resolve(text, self._matching(text)) for text in sorted(used)):
            return True
        # Set only if nothing changed: a change whose records could not be written must be found again.
        group.patterns_due_ms = self.now_ms + self.rules.pattern_refresh_ms
        return False

    def _matching(self, text: str) -> frozenset[str]:
        try:
            return self._visible(matching(self.image, text))
        except BrokerError:
            return frozenset()  # invalid here, but another broker accepted it

    def _visible(self, topics: frozenset[str]) -> frozenset[str]:
        return topics if self._sees is None else frozenset(filter(self._sees, topics))

    def _resolve(self, text: str, topics: frozenset[str]) -> bool:
        """Record the topics of a regular expression. Returns whether they changed."""
        before = self.patterns.get(text)
        if before is not None and before.topics == topics:
            return False
        resolved = Resolved(topics, wall_ms(self.now_ms))
        self.patterns = {**self.patterns, text: resolved}
        self.out.records.append(records.pattern(self.group.id, text, resolved))
        return True

    def _drop(self, text: str) -> None:
        if text in self.patterns:
            self.patterns = {other: resolved for other, resolved in self.patterns.items() if other != text}
            self.out.records.append(records.no_pattern(self.group.id, text))

    def _look_at_topics(self, updated: ConsumerMember, *, bump: bool) -> None:
        group = self.group
        names = self._names()
        wanted = {name for member in self._members(updated) for name in member.names(names)}
        known = metadata_hash(self.image, wanted)
        if bump or known != group.metadata_hash:
            self.epoch += 1
            self.out.records.append(records.epoch(group.id, self.epoch, known))
            if group.partition_metadata:
                self.out.records.append(records.no_partition_metadata(group.id))
        else:
            # Set only if nothing changed: a change whose records could not be written must be tried again.
            group.seen = self.image.topics.version

    def _members(self, updated: ConsumerMember) -> list[ConsumerMember]:
        """The future members, sorted by id."""
        members = {**self.group.members, updated.id: updated}
        if self.former is not None and self.former != updated.id:
            del members[self.former]
        return [members[name] for name in sorted(members)]

    def _names(self) -> dict[str, frozenset[str]]:
        return {text: resolved.topics for text, resolved in self.patterns.items()}

    def assign(self, updated: ConsumerMember) -> Assignment:
        """The member's target. Computes a new target if the group epoch has risen and the interval is over."""
        group, rules = self.group, self.rules
        rest_ms = rules.assignment_interval_ms
        passed_ms = wall_ms(self.now_ms) - group.target_ms  # negative if the clock was set back since
        due = group.target_ms == 0 or rest_ms == 0 or not 0 <= passed_ms < rest_ms
        if self.epoch <= group.target_epoch or not due:
            return group.target.get(self.former or updated.id, NO_ASSIGNMENT)
        members, names = self._members(updated), self._names()
        known: dict[frozenset[str], frozenset[bytes]] = {}
        specs = {}
        for member in members:
            wanted = member.names(names)
            topics = known.get(wanted)
            if topics is None:
                topics = known[wanted] = ids(self.image, wanted)
            part = group.target.get(self.former if self.former and member is updated else member.id, NO_ASSIGNMENT)
            specs[member.id] = MemberSpec(member.subscription.instance, topics, part)
        sizes = {
            topic: len(self.image.topics[self.image.names_by_id[topic]].partitions)
            for topics in known.values()
            for topic in topics
        }
        made = ASSIGNORS[choose_assignor(members, rules)](specs, sizes)
        for name, part in made.items():
            written = group.target.get(self.former if self.former and name == updated.id else name)
            if written != part:
                self.out.records.append(records.target(group.id, name, part))
        self.out.records.append(records.target_epoch(group.id, self.epoch, wall_ms(self.now_ms)))
        self.target_epoch = self.epoch
        return made[updated.id]

    def reconcile(self, updated: ConsumerMember, part: Assignment, owned: Owned | None) -> ConsumerMember:
        """The member after its next step towards its target."""
        group, holding = self.group, updated.holding
        if not self.subscribed and holding.is_reconciled(self.target_epoch):
            return updated
        goal = Goal(self.target_epoch, part, ids(self.image, updated.names(self._names())))
        now = reconcile(holding, goal, owned=owned, is_taken=group.is_taken, changed=self.subscribed)
        if now == holding:
            return updated
        self.out.records.append(records.holding(group.id, updated.id, now))
        if updated.subscription.classic is None:
            self._give_time(updated, now)
        return updated._replace(holding=now)

    def _give_time(self, member: ConsumerMember, now: Holding) -> None:
        deadlines = self.group.deadlines
        if now.state is MemberState.UNREVOKED:
            deadlines.revoke(member.id, now.epoch, self.now_ms + member.subscription.rebalance_ms, self.out)
        else:
            deadlines.revocations.pop(member.id, None)


def choose_assignor(members: list[ConsumerMember], rules: ConsumerRules) -> str:
    """The assignor that most members ask for; the broker's first one if none asks."""
    named = Counter(one.subscription.assignor for one in members if one.subscription.assignor in ASSIGNORS)
    return max(ASSIGNORS, key=lambda name: named[name]) if named else rules.assignors[0]
