"""Options changed at run time: the resulting configs, and Kafka's error codes and messages for invalid changes."""

import pytest

from ottla.cluster import alterations
from ottla.cluster.alterations import APPEND, DELETE, SET, SUBTRACT, OptionChange
from ottla.config import load
from ottla.config.topic import OPTIONS as TOPIC_OPTIONS
from ottla.errors import BrokerError, ErrorCode

CONFIG = load({})


def test_changes_of_options() -> None:
    defaults = alterations.topic_defaults(CONFIG)

    def after(before: dict[str, str], *changes: OptionChange) -> dict[str, str]:
        return alterations.apply_changes(before, changes, TOPIC_OPTIONS, defaults)

    assert after({"a": "1"}, OptionChange("b", SET, "2")) == {"a": "1", "b": "2"}
    assert after({"a": "1"}, OptionChange("a", DELETE, None), OptionChange("z", DELETE, None)) == {}
    policy = "cleanup.policy"
    assert after({}, OptionChange(policy, APPEND, "compact")) == {policy: "delete,compact"}, "to the default"
    assert after({policy: "compact"}, OptionChange(policy, APPEND, "compact, delete")) == {policy: "compact,delete"}
    assert after({policy: "compact,delete"}, OptionChange(policy, SUBTRACT, "compact,x")) == {policy: "delete"}


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (OptionChange("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG, "Can't APPEND to key retention.ms"),
        (OptionChange("x", SUBTRACT, "1"), ErrorCode.INVALID_CONFIG, "Can't SUBTRACT to key x"),
        (OptionChange("retention.ms", SET, None), ErrorCode.INVALID_REQUEST, "Null value not supported"),
        (OptionChange("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST, "Unknown operation type 9"),
    ],
)
def test_changes_that_cannot_be(change: OptionChange, code: ErrorCode, words: str) -> None:
    with pytest.raises(BrokerError, match=words) as raised:
        alterations.apply_changes({}, [change], TOPIC_OPTIONS, {})
    assert raised.value.code is code


@pytest.mark.parametrize(
    ("broker", "pairs", "code", "words"),
    [
        ("1", {"num.partitions": "5"}, ErrorCode.INVALID_REQUEST, r"dynamically: \[num.partitions\]"),
        ("1", {"no.such": "5"}, ErrorCode.INVALID_CONFIG, "no.such"),
        ("1", {"num.io.threads": "5"}, ErrorCode.INVALID_CONFIG, "num.io.threads"),
        ("1", {"log.segment.bytes": "5"}, ErrorCode.INVALID_REQUEST, "Value must be at least 14"),
        ("1", {"log.cleaner.threads": "0"}, ErrorCode.INVALID_REQUEST, "at least 1"),
        ("1", {"log.retention.ms": "0"}, ErrorCode.INVALID_REQUEST, "log.retention.ms must be unlimited"),
        (
            "",
            {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"},
            ErrorCode.INVALID_REQUEST,
            "conflict",
        ),
    ],
)
def test_broker_options_that_cannot_change_while_running(
    broker: str, pairs: dict[str, str], code: ErrorCode, words: str
) -> None:
    with pytest.raises(BrokerError, match=words) as raised:
        alterations.check_broker_configs(CONFIG, broker, {}, pairs)
    assert raised.value.code is code


def test_broker_options_that_may_change_while_running() -> None:
    alterations.check_broker_configs(CONFIG, "", {}, {"log.retention.ms": "5", "log.segment.bytes": "5000"})
