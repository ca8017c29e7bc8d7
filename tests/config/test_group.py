"""Group options: inherited from the broker, overridden by the group, within the broker's bounds."""

import pytest

from ottla.config import ConfigError, load
from ottla.config.describe import GROUP, Layers, describe_group
from ottla.config.group import group_config


def test_a_group_takes_what_it_does_not_say_from_the_broker() -> None:
    broker = load({"group.consumer.heartbeat.interval.ms": "6000", "group.consumer.assignment.interval.ms": "0"})
    group = group_config(broker, {"consumer.session.timeout.ms": "50000"})
    assert (group.consumer_session_timeout_ms, group.consumer_heartbeat_interval_ms) == (50_000, 6000)
    assert group.consumer_assignment_interval_ms == 0


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ({"nope": "1"}, "Unknown group config name: nope"),
        ({"consumer.session.timeout.ms": "x"}, "Not a number of type INT"),
        ({"consumer.session.timeout.ms": "44999"}, "must be greater than or equal to group.consumer.min.session"),
        ({"consumer.session.timeout.ms": "60001"}, "must be less than or equal to group.consumer.max.session"),
        ({"consumer.heartbeat.interval.ms": "15001"}, "must be less than or equal to group.consumer.max.heartbeat"),
    ],
)
def test_what_a_group_may_not_say(pairs: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        group_config(load({}), pairs)


def test_members_must_report_more_often_than_a_session_lasts() -> None:
    broker = load({"group.consumer.min.session.timeout.ms": "1000"})
    with pytest.raises(ConfigError, match=r"must be greater than consumer\.heartbeat\.interval\.ms"):
        group_config(broker, {"consumer.session.timeout.ms": "5000"})


def test_where_an_option_of_a_group_comes_from() -> None:
    static = load({"group.consumer.session.timeout.ms": "46000"})
    layers = Layers(static, {}, {})
    (entry,) = describe_group(layers, {"consumer.session.timeout.ms": "50000"}, ["consumer.session.timeout.ms"])
    assert (entry.value, entry.source) == ("50000", GROUP)
    assert [(one.name, one.value) for one in entry.synonyms] == [
        ("consumer.session.timeout.ms", "50000"),
        ("group.consumer.session.timeout.ms", "46000"),
        ("group.consumer.session.timeout.ms", "45000"),
    ]


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ({"group.consumer.max.session.timeout.ms": "44000"}, r"group.consumer.max.* must be greater than or equal"),
        ({"group.consumer.session.timeout.ms": "44000"}, r"group.consumer.session.* must be greater than or equal"),
        ({"group.consumer.session.timeout.ms": "61000"}, r"group.consumer.session.* must be less than or equal"),
        (
            {"group.consumer.max.heartbeat.interval.ms": "50000", "group.consumer.heartbeat.interval.ms": "45000"},
            r"heartbeat.interval.ms must be less than group.consumer.session.timeout.ms",
        ),
        ({"group.consumer.migration.policy": "sideways"}, r"one of \(case insensitive\): DISABLED, DOWNGRADE"),
    ],
)
def test_what_a_broker_may_not_say(pairs: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load(pairs)
