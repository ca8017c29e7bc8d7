"""The options of a group, which override the broker's `group.*` options within bounds.

An option has the broker option's name without the prefix `group.`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.broker import OPTIONS as BROKER_OPTIONS
from ottla.config.option import ConfigError, Option, Table, integer, rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.config.broker import BrokerConfig


class GroupConfig(Table):
    consumer_session_timeout_ms: int = integer(45_000, "Session timeout of the members.", least=1)
    consumer_heartbeat_interval_ms: int = integer(5_000, "Heartbeat interval of the members.", least=1)
    consumer_assignment_interval_ms: int = integer(1_000, "Least time between two assignments of the group.", least=0)


OPTIONS: dict[str, Option] = rows(GroupConfig)
# Group option → the broker option behind it.
INHERITED: dict[str, str] = {name: f"group.{name}" for name in OPTIONS}


def group_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> GroupConfig:
    """A group's configuration. ConfigError names the unknown, malformed or invalid override."""
    values = {
        row.attribute: getattr(broker, BROKER_OPTIONS[INHERITED[name]].attribute) for name, row in OPTIONS.items()
    }
    for name, text in overrides.items():
        row = OPTIONS.get(name)
        if row is None:
            raise ConfigError(f"Unknown group config name: {name}")
        values[row.attribute] = row.parse(text)
    for name, (least, most) in _bounds(broker).items():
        kind = name.removeprefix("consumer.")
        if values[OPTIONS[name].attribute] < least:
            raise ConfigError(f"{name} must be greater than or equal to group.consumer.min.{kind}")
        if values[OPTIONS[name].attribute] > most:
            raise ConfigError(f"{name} must be less than or equal to group.consumer.max.{kind}")
    if values["consumer_heartbeat_interval_ms"] >= values["consumer_session_timeout_ms"]:
        raise ConfigError("consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms")
    return GroupConfig(values)


def _bounds(broker: BrokerConfig) -> dict[str, tuple[int, int]]:
    """The bounds that the broker sets for groups."""
    return {
        "consumer.session.timeout.ms": (
            broker.group_consumer_min_session_timeout_ms,
            broker.group_consumer_max_session_timeout_ms,
        ),
        "consumer.heartbeat.interval.ms": (
            broker.group_consumer_min_heartbeat_interval_ms,
            broker.group_consumer_max_heartbeat_interval_ms,
        ),
        "consumer.assignment.interval.ms": (
            broker.group_consumer_min_assignment_interval_ms,
            broker.group_consumer_max_assignment_interval_ms,
        ),
    }
