"""What is wrong with a cluster, worst first, with advice; and its health in one sentence. No side effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ottla.console.watch.snapshot import Group, Snapshot

BAD, WARN, NOTE = "bad", "warn", "note"
DISK_FREE_MIN: Final = 0.10  # of a disk
SKEW_MAX: Final = 1.5  # times the average
SKEW_LEAST: Final = 10  # partitions; with fewer, skew is not reported
TRANSACTION_OLD_S: Final = 60
LAG_S: Final = 60
GROUPS_SHOWN: Final = 5
SHOWN: Final = 3


class Finding(NamedTuple):
    level: str
    what: str
    advice: str
    link: str


class FindingsCache:
    """Caches the findings of the last snapshot: every open page reads them each second."""

    snapshot: Snapshot | None = None
    found: tuple[Finding, ...] = ()


def findings(snapshot: Snapshot) -> list[Finding]:
    if FindingsCache.snapshot is not snapshot:
        FindingsCache.found = tuple(find_all(snapshot))
        FindingsCache.snapshot = snapshot
    return list(FindingsCache.found)


def find_all(snapshot: Snapshot) -> list[Finding]:
    found = [*broker_findings(snapshot), *topic_findings(snapshot), *group_findings(snapshot), *others(snapshot)]
    if snapshot.problem:
        advice = "Check that a broker runs there, and that this machine may connect to it. The console keeps trying."
        found.insert(0, Finding(BAD, f"The cluster does not answer: {snapshot.problem}", advice, "/brokers"))
    return sorted(found, key=lambda one: (BAD, WARN, NOTE).index(one.level))


def health(snapshot: Snapshot) -> tuple[str, str]:
    """A level and a sentence."""
    if snapshot.problem:
        return BAD, f"The cluster does not answer: {snapshot.problem}."
    if not snapshot.version:
        return NOTE, "Looking at the cluster for the first time…"
    found = findings(snapshot)
    count = len(snapshot.brokers)
    size = f"{count} broker{'s' * (count != 1)}, {len(snapshot.topics):,} topics, {len(snapshot.groups):,} groups"
    worst = [one for one in found if one.level != NOTE]
    if not worst:
        return "good", f"All is well: {size}, every partition has a leader and is fully replicated."
    more = f", and {len(worst) - 1} more" if len(worst) > 1 else ""
    return worst[0].level, f"{worst[0].what}{more}."


def broker_findings(snapshot: Snapshot) -> list[Finding]:
    advice = "Start it again, or look at its log. If it is gone for good, drain it: Reassignment, Drain a broker."
    found = [
        Finding(BAD, f"Broker {one.node} does not answer: {one.silence}", advice, "/brokers") for one in snapshot.silent
    ]
    if snapshot.brokers and snapshot.controller not in snapshot.brokers:
        advice = "No leaders are elected and no topics created. Check that ZooKeeper or the controllers answer."
        found.append(Finding(BAD, "There is no controller", advice, "/brokers"))
    for one in snapshot.brokers.values():
        for disk in one.disks:
            if disk.error:
                found.append(
                    Finding(
                        BAD,
                        f"Folder {disk.folder} of broker {one.node} is offline (code {disk.error})",
                        "Replace the disk and restart the broker.",
                        "/brokers",
                    )
                )
            elif disk.total > 0 and disk.free < DISK_FREE_MIN * disk.total:
                share = 100 * disk.free / disk.total
                found.append(
                    Finding(
                        WARN,
                        f"Only {share:.0f} % of the disk of broker {one.node} is free",
                        "Shorten retention, or move partitions to other brokers.",
                        "/brokers",
                    )
                )
    leads = [one.leads for one in snapshot.brokers.values()]
    average = sum(leads) / len(leads) if leads else 0
    if leads and max(leads) >= SKEW_LEAST and max(leads) > SKEW_MAX * average:
        found.append(
            Finding(
                NOTE,
                f"Leadership is uneven: {max(leads)} partitions on one broker, {average:.0f} on average",
                "Elect preferred leaders.",
                "/reassignment",
            )
        )
    return found


def topic_findings(snapshot: Snapshot) -> list[Finding]:
    found = []
    for attribute, level, what, advice in (
        (
            "offline",
            BAD,
            "no leader, and can be neither read nor written",
            "Restart a broker that holds a replica. As a last resort elect an unclean leader, which loses records.",
        ),
        (
            "under_min_isr",
            BAD,
            "fewer in-sync replicas than min.insync.replicas: writes with acks=all are refused",
            "Restart the missing brokers, or add replicas on others: Reassignment.",
        ),
        (
            "under_replicated",
            WARN,
            "replicas that are not in sync",
            "Replicas catch up once their brokers answer. If a broker is gone for good, drain it: Reassignment.",
        ),
    ):
        counts = {name: count for name, topic in snapshot.topics.items() if (count := getattr(topic, attribute))}
        if counts:
            total = sum(counts.values())
            names = ", ".join(sorted(counts)[:SHOWN]) + (" …" if len(counts) > SHOWN else "")
            verb = "has" if total == 1 else "have"
            found.append(
                Finding(
                    level,
                    f"{total} partition{'s' * (total != 1)} of {names} {verb} {what}",
                    advice,
                    "/topics?only=trouble",
                )
            )
    loose = sum(topic.not_preferred for topic in snapshot.topics.values())
    if loose:
        one = "partition is" if loose == 1 else "partitions are"
        found.append(
            Finding(
                NOTE,
                f"{loose} {one} not led by the preferred broker",
                "Elect preferred leaders to spread the load again.",
                "/reassignment",
            )
        )
    return found


def group_findings(snapshot: Snapshot) -> list[Finding]:
    late = sorted(
        (group for group in snapshot.groups.values() if is_late(group)), key=lambda one: one.seconds or 0, reverse=True
    )
    found = []
    for group in late[:GROUPS_SHOWN]:
        if group.members or group.rate > 0:
            what = f"Group {group.name} is {group.seconds or 0:,.0f} s behind and falls further behind"
            advice = "Add members (at most one per partition), or make them faster."
        else:
            what = f"Group {group.name} has no members and {group.lag:,} records to read"
            advice = "Start its consumers. If it is no longer needed, delete the group."
        found.append(Finding(WARN if group.members or group.rate > 0 else NOTE, what, advice, link(group)))
    if len(late) > GROUPS_SHOWN:
        found.append(
            Finding(NOTE, f"{len(late) - GROUPS_SHOWN} more groups are behind", "See the groups by lag.", "/groups")
        )
    return found


def is_late(group: Group) -> bool:
    return (group.seconds or 0) > LAG_S and group.trend >= 0 and group.lag > 0


def link(group: Group) -> str:
    from urllib.parse import quote

    return f"/groups/{quote(group.name, safe='')}"


def others(snapshot: Snapshot) -> list[Finding]:
    found = []
    for one in snapshot.transactions:
        age_s = (snapshot.at_ms - one.started_ms) / 1000 if one.started_ms is not None else 0
        if age_s > TRANSACTION_OLD_S:
            found.append(
                Finding(
                    WARN,
                    f"The transaction of {one.name} has been open for {age_s:,.0f} s",
                    "Consumers with read_committed wait for it. Abort it if its producer is gone.",
                    "/transactions",
                )
            )
    if snapshot.moves:
        count = len(snapshot.moves)
        found.append(
            Finding(
                NOTE,
                f"{count} partition{'s' * (count != 1)} {'is' if count == 1 else 'are'} being moved",
                "See the progress on the Reassignment page.",
                "/reassignment",
            )
        )
    return found
