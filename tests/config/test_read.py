"""An option is in a table because something reads it; what nobody reads belongs among those without effect."""

import re
from functools import cache
from pathlib import Path

import ottla.config
from ottla.config.broker import OPTIONS as BROKER_OPTIONS
from ottla.config.topic import INHERITED
from ottla.config.topic import OPTIONS as TOPIC_OPTIONS

SOURCE = Path(ottla.config.__file__).parent.parent
# They wait for a second broker, or are kept for Kafka's tools and say so themselves.
KEPT = {
    "inter.broker.listener.name",
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "local.retention.ms",
    "local.retention.bytes",
}


@cache
def words() -> set[str]:
    """Every name in the source, except where the tables declare their rows."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        lines = path.read_text().splitlines()
        if path.parent.name == "config":
            lines = [line for line in lines if not re.match(r"    \w+: .* = \w+\(", line)]
        found.update(re.findall(r"\w+", "\n".join(lines)))
    return found


def test_every_broker_option_is_read() -> None:
    chained = {name for row in BROKER_OPTIONS.values() for name, _ in row.chain}
    inherited = set(INHERITED.values())
    unread = {name for name, row in BROKER_OPTIONS.items() if row.attribute not in words()}
    assert unread - chained - inherited <= KEPT


def test_every_topic_option_is_read() -> None:
    unread = {name for name, row in TOPIC_OPTIONS.items() if row.attribute not in words()}
    assert unread <= KEPT
